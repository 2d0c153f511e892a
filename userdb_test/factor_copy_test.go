package userdb_test

import (
	"encoding/base32"
	"maps"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

// space returns the namespace of the given name.
func space(t *testing.T, name string) recordkey.Namespace {
	t.Helper()
	ns, err := recordkey.Namespace{}.Sub(name)
	must(t, err)
	return ns
}

// in returns a login site in another namespace. Its clock starts at g's time.
func (g *loginSite) in(ns recordkey.Namespace) *loginSite {
	g.t.Helper()
	db, err := g.db.In(ns)
	must(g.t, err)
	other := &loginSite{site: g.site, now: g.clock(), db: db}
	other.useClock(other.clock)
	return other
}

// TestCopyFactors checks that a copy of a namespace has the second factors of its entries,
// encrypted again, and their used codes, but not their tickets and sessions.
func TestCopyFactors(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		root := newLoginSite(s, factorOptions())
		from, to := space(t, "from"), space(t, "to")
		g := root.in(from)
		g.add("alice", alicePassword)
		g.add("bob", alicePassword)
		a, secret := g.enrol()
		b, _ := g.enrolIn(secret)
		used := a.nextCode()
		must(t, g.prove(userdb.TOTP(used), ""))
		must(t, g.prove(userdb.RecoveryCode(a.codes[0]), ""))
		ticket := g.ticket("")
		sealed := g.raw.HGetAll(ctx, "~from/~/factor/{~from/user/uid:alice}").Val()
		if s.has(manyClients) {
			o := factorOptions()
			o.Keys = nil
			_, err := migrate.CopyNamespace(ctx, s.open(o), from, to)
			wantErr(t, "without keys", err, userdb.ErrCorrupt)
		}
		_, err := migrate.CopyNamespace(ctx, root.db, from, to)
		must(t, err)

		c := g.in(to)
		a.g, b.g = c, c
		copied := c.raw.HGetAll(ctx, "~to/~/factor/{~to/user/uid:alice}").Val()
		if len(copied) != 3 {
			t.Errorf("the record of the copy holds %d members, want two apps and a set of codes", len(copied))
		}
		for name := range maps.Keys(copied) {
			if sealed[name] == "" || sealed[name] == copied[name] {
				t.Errorf("%s of the copy is not encrypted anew", name)
			}
		}
		_, err = c.users.Prove(ctx, ticket, userdb.TOTP(b.nextCode()), userdb.Attempt{})
		wantErr(t, "a ticket of the source", err, userdb.ErrNotFound)
		_, err = c.users.EnrolTOTP(ctx, secret, userdb.TOTPOptions{})
		wantErr(t, "a session of the source", err, userdb.ErrNotFound)
		c.now = g.clock()
		wantErr(t, "a code that was used", c.prove(userdb.TOTP(used), ""), userdb.ErrLogin)
		wantErr(t, "a recovery code that was used", c.prove(userdb.RecoveryCode(a.codes[0]), ""), userdb.ErrLogin)
		must(t, c.prove(userdb.RecoveryCode(a.codes[1]), ""))
		must(t, c.prove(userdb.TOTP(a.nextCode()), ""))
		must(t, c.prove(userdb.TOTP(b.nextCode()), ""))
		must(t, c.logIn("bob", alicePassword, ""))
		// An encrypted secret is useless in another namespace.
		for name, text := range sealed {
			if _, ok := copied[name]; ok {
				must(t, c.raw.HSet(ctx, "~to/~/factor/{~to/user/uid:alice}", name, text).Err())
			}
		}
		wantErr(t, "the secrets of the source", c.prove(userdb.TOTP(a.nextCode()), ""), userdb.ErrCorrupt)
		for name, text := range copied {
			must(t, c.raw.HSet(ctx, "~to/~/factor/{~to/user/uid:alice}", name, text).Err())
		}
	})
}

// TestExportFactors checks that an export with secrets has the second factors of its entries, and
// that an import restores them and their used codes. The factors are encrypted, and each is valid
// only in the line of its entry. Without secrets, the import must report what is missing.
func TestExportFactors(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		root := newLoginSite(s, factorOptions())
		g := root.in(space(t, "from"))
		g.add("alice", alicePassword)
		g.add("bob", alicePassword)
		a, _ := g.enrol()
		used := a.nextCode()
		must(t, g.prove(userdb.TOTP(used), ""))
		must(t, g.prove(userdb.RecoveryCode(a.codes[0]), ""))
		export := func(db *userdb.DB, secrets bool) (string, transfer.Report) {
			t.Helper()
			var b strings.Builder
			r, err := transfer.Export(ctx, db, &b, transfer.ExportOptions{Secrets: secrets})
			must(t, err)
			return b.String(), r
		}
		load := func(db *userdb.DB, text string, o transfer.ImportOptions) (transfer.Report, string) {
			t.Helper()
			reason := ""
			o.Refused = func(_ int64, why string) { reason = why }
			r, err := transfer.Import(ctx, db, strings.NewReader(text), o)
			must(t, err)
			return r, reason
		}
		full, r := export(g.db, true)
		if r.Read != 2 || r.Refused != 0 || strings.Count(full, `"factors"`) != 1 {
			t.Errorf("exported %+v: %s; want 2 entries, one with factors", r, full)
		}
		if strings.Contains(full, string(a.secret)) || strings.Contains(full, base32.StdEncoding.EncodeToString(a.secret)) {
			t.Error("the export shows a secret")
		}

		c := root.in(space(t, "to"))
		if r, why := load(c.db, full, transfer.ImportOptions{}); r.Created != 2 || len(r.Notes()) > 0 {
			t.Errorf("imported %+v, refused for %q; want 2 created and nothing left out", r, why)
		}
		c.now, a.g = g.clock(), c
		wantErr(t, "a password alone", c.logIn("alice", alicePassword, ""), userdb.ErrFactor)
		must(t, c.logIn("bob", alicePassword, ""))
		if c.raw.HGet(ctx, "~to/user/uid:alice", "password").Val() != factor.HashMarker {
			t.Error("the password hash lies where earlier versions accept it")
		}
		wantErr(t, "a code that was used", c.prove(userdb.TOTP(used), ""), userdb.ErrLogin)
		wantErr(t, "a recovery code that was used", c.prove(userdb.RecoveryCode(a.codes[0]), ""), userdb.ErrLogin)
		must(t, c.prove(userdb.RecoveryCode(a.codes[1]), ""))
		must(t, c.prove(userdb.TOTP(a.nextCode()), ""))
		// Codes that the owner has used since the export stay used if the import is repeated.
		if r, _ := load(c.db, full, transfer.ImportOptions{OnDuplicate: transfer.DuplicateUpdate}); r.Skipped != 2 || r.SecondFactor != 0 {
			t.Errorf("the repeated import: got %+v, want 2 skipped and no factor left out", r)
		}
		wantErr(t, "a code that was used before the second import", c.prove(userdb.RecoveryCode(a.codes[1]), ""), userdb.ErrLogin)
		// An import that was stopped before it stored the factors is completed by another.
		for _, o := range []string{transfer.DuplicateSkip, transfer.DuplicateUpdate} {
			e, err := c.users.Find(ctx, uid("alice"))
			must(t, err)
			key, err := factor.Key(e.Key().In(space(t, "to")))
			must(t, err)
			must(t, c.raw.Del(ctx, key.String()).Err())
			load(c.db, full, transfer.ImportOptions{OnDuplicate: o})
			must(t, c.prove(userdb.RecoveryCode(a.codes[2]), ""))
		}

		// An export without secrets has no factors, and an update does not add one.
		plain, _ := export(g.db, false)
		other := root.in(space(t, "plain"))
		if r, why := load(other.db, plain, transfer.ImportOptions{}); r.Created != 2 || r.SecondFactor != 1 || len(r.Notes()) != 2 {
			t.Errorf("without secrets: got %+v, notes %q, refused for %q; want 2 created, one factor left out and 2 notes", r, r.Notes(), why)
		}
		if r, _ := load(other.db, full, transfer.ImportOptions{OnDuplicate: transfer.DuplicateUpdate}); r.Updated != 2 || r.SecondFactor != 1 {
			t.Errorf("an update of an entry without the factor: got %+v, want 2 updated and one factor left out", r)
		}

		// A factor is refused in the line of another entry, if the key that it is encrypted with is
		// missing, and if the schema does not allow factors.
		refused := func(what string, db *userdb.DB, text, want string) {
			t.Helper()
			if r, why := load(db, text, transfer.ImportOptions{}); r.Refused != 1 || !strings.Contains(why, want) {
				t.Errorf("%s: %+v, refused for %q, want %q", what, r, why, want)
			}
		}
		refused("the line of another entry", root.in(space(t, "swap")).db, strings.NewReplacer(`"alice`, `"bob`, `"bob`, `"alice`).Replace(full), "wrong place")
		if !s.has(manyClients) {
			return
		}
		o := factorOptions()
		o.Keys, o.Namespace = nil, space(t, "keyless")
		refused("without a key", s.open(o), full, "none of the keys")
		o.Namespace = space(t, "from")
		if text, r := export(s.open(o), true); r.Refused != 1 || strings.Contains(text, "alice") {
			t.Errorf("an export without keys: got %+v: %s; want alice refused", r, text)
		}
		o = factorOptions()
		o.Schema, o.Namespace = plainUser(), space(t, "closed")
		refused("a schema without factors", s.open(o), full, "does not allow")
	})
}
