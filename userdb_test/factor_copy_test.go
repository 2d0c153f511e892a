package userdb_test

import (
	"maps"
	"testing"

	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

// space returns a namespace.
func space(t *testing.T, name string) recordkey.Namespace {
	t.Helper()
	ns, err := recordkey.Namespace{}.Sub(name)
	must(t, err)
	return ns
}

// in returns the login site in another namespace, with the same clock.
func (g *loginSite) in(ns recordkey.Namespace) *loginSite {
	g.t.Helper()
	db, err := g.db.In(ns)
	must(g.t, err)
	other := &loginSite{site: g.site, now: g.clock(), db: db}
	other.useClock(other.clock)
	return other
}

// TestCopyFactors checks that a copy of a namespace has the second factors of its entries,
// encrypted anew, with the codes that were used, and nothing of their tickets.
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
		// The text of one entry, factor or namespace is useless in another.
		for name, text := range sealed {
			if _, is := copied[name]; is {
				must(t, c.raw.HSet(ctx, "~to/~/factor/{~to/user/uid:alice}", name, text).Err())
			}
		}
		wantErr(t, "the secrets of the source", c.prove(userdb.TOTP(a.nextCode()), ""), userdb.ErrCorrupt)
		for name, text := range copied {
			must(t, c.raw.HSet(ctx, "~to/~/factor/{~to/user/uid:alice}", name, text).Err())
		}
	})
}
