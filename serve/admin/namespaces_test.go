package admin_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// fillOwned makes an operator, a link, a key, a job and a group of a namespace. Their names contain
// its path, with hyphens in place of slashes.
func fillOwned(t *testing.T, db *userdb.DB, path string) (operator, key string) {
	t.Helper()
	name, ctx := "of-"+strings.ReplaceAll(path, "/", "-"), t.Context()
	view, err := db.In(spaceOf(t, path))
	must(t, err)
	_, err = admin.AddOperator(ctx, view, name, goodPassword)
	must(t, err)
	links, err := admin.OpenLinks(view)
	must(t, err)
	account, err := recordkey.PRK("user", "uid", "u1")
	must(t, err)
	must(t, links.Issue(ctx, name, account, time.Hour, func() error { return nil }))
	keys, err := admin.OpenKeys(view)
	must(t, err)
	secret, err := keys.Create(ctx, admin.Key{Name: name, Namespace: path, Scopes: []string{admin.ScopeRead}})
	must(t, err)
	jobs, err := admin.OpenJobs(view)
	must(t, err)
	_, err = jobs.Begin(ctx, admin.Job{Kind: "import", By: name, Title: name})
	must(t, err)
	groups, err := admin.Groups(view, "user")
	must(t, err)
	_, err = groups.Create(ctx, userdb.NewEntry{Facets: schema.Texts(admin.GroupName, name, admin.GroupTag, name)})
	must(t, err)
	return name, secret
}

func spaceOf(t *testing.T, path string) recordkey.Namespace {
	t.Helper()
	ns, err := recordkey.ParseNamespace(path)
	must(t, err)
	return ns
}

// TestRemoveOwned checks that all records for a namespace and for those inside it are removed,
// except that operators are only disabled, and that other namespaces keep their records.
func TestRemoveOwned(t *testing.T) {
	eachStore(t, func(t *testing.T, db *userdb.DB) {
		ctx, secrets := t.Context(), map[string]string{}
		for _, path := range []string{"", "acme", "acmes", "acme/eu", "b/acme"} {
			name, secret := fillOwned(t, db, path)
			secrets[name] = secret
		}
		want := []admin.Owned{{Thing: "operator", N: 2}, {Thing: "link", N: 2}, {Thing: "API key", N: 2}, {Thing: "job", N: 2}, {Thing: "group", N: 2}}
		before := dumpRecords(t, db)
		counted, err := admin.CountOwned(ctx, db, spaceOf(t, "acme"))
		if err != nil || !slices.Equal(counted, want) || len(dumpRecords(t, db)) != len(before) {
			t.Errorf("CountOwned: got %v, %v; want %v and no record removed", counted, err, want)
		}
		removed, err := admin.RemoveOwned(ctx, db, spaceOf(t, "acme"))
		if err != nil || !slices.Equal(removed, want) {
			t.Errorf("RemoveOwned: got %v, %v; want %v", removed, err, want)
		}
		if again, err := admin.RemoveOwned(ctx, db, spaceOf(t, "acme")); err != nil || len(again) > 0 {
			t.Errorf("RemoveOwned again: got %v, %v; want nothing", again, err)
		}

		acme, random := regexp.MustCompile(`acme([^s]|$)`), regexp.MustCompile(`\b[a-z2-7]{26}\b`)
		for key, text := range dumpRecords(t, db) {
			// The random ID of a job, a link or a group may have any letters.
			text = random.ReplaceAllString(text, "")
			// The records of acmes and b/acme stay. Operators stay because histories name them, and
			// the events of the removal also stay.
			if acme.MatchString(strings.ReplaceAll(text, "b/acme", "")) && !strings.Contains(key, "/operator") && !strings.Contains(key, "~/feed/") &&
				!strings.Contains(text, "of-b-acme") && !strings.Contains(text, "~of+_b") {
				t.Errorf("the record %s is left: %q", key, text)
			}
		}
		operators, err := admin.Operators(db)
		must(t, err)
		links, err := admin.OpenLinks(db)
		must(t, err)
		keys, err := admin.OpenKeys(db)
		must(t, err)
		for name, secret := range secrets {
			gone := name == "of-acme" || name == "of-acme-eu"
			e, err := operators.Find(ctx, hints.Field(admin.OperatorName, name))
			if err != nil || e.Disabled() != gone {
				t.Errorf("operator %s: got disabled %v, %v; want %v", name, e.Disabled(), err, gone)
			}
			if made, err := links.MadeBy(ctx, name); err != nil || (len(made) == 0) != gone {
				t.Errorf("operator %s made the links %v, %v; want them gone: %v", name, made, err, gone)
			}
			if _, err := keys.Find(ctx, admin.Hash(secret)); errors.Is(err, userdb.ErrNotFound) != gone {
				t.Errorf("key %s: got %v, want it gone: %v", name, err, gone)
			}
		}
		jobs, err := admin.OpenJobs(db)
		must(t, err)
		if all, err := jobs.All(ctx); err != nil || len(all) != 3 {
			t.Errorf("got the jobs %v, %v; want those of the 3 other namespaces", all, err)
		}
		for path, n := range map[string]int64{"": 1, "acme": 0, "acmes": 1, "acme/eu": 0, "b/acme": 1} {
			view, err := db.In(spaceOf(t, path))
			must(t, err)
			groups, err := admin.Groups(view, "user")
			must(t, err)
			if c, err := groups.Count(ctx, userdb.Query{}); err != nil || c.Entries != n {
				t.Errorf("namespace %q has %d groups, %v; want %d", path, c.Entries, err, n)
			}
		}
		page, err := db.Events(ctx, userdb.EventQuery{Kinds: []userdb.EventKind{userdb.EventOperatorDisable, userdb.EventKeyRevoke}})
		must(t, err)
		if len(page.Events) != 4 {
			t.Errorf("the feed has %d events of disabled operators and revoked keys, want 4", len(page.Events))
		}
		for _, path := range []string{"", "~userdb"} {
			if _, err := admin.RemoveOwned(ctx, db, spaceOf(t, path)); !errors.Is(err, recordkey.ErrSyntax) {
				t.Errorf("RemoveOwned of %q: got %v, want ErrSyntax", path, err)
			}
		}
	})
}

// TestRemoveSetupLinks checks that set-up links end with the namespace that they were printed for.
func TestRemoveSetupLinks(t *testing.T) {
	eachStore(t, func(t *testing.T, db *userdb.DB) {
		ctx := t.Context()
		acme, err := db.In(spaceOf(t, "acme"))
		must(t, err)
		var tokens [2]string // as from two processes
		for i := range tokens {
			tokens[i], err = admin.BeginSetup(ctx, acme)
			must(t, err)
		}
		other, err := admin.BeginSetup(ctx, db)
		must(t, err)
		if removed, err := admin.RemoveOwned(ctx, db, spaceOf(t, "acm")); err != nil || len(removed) > 0 {
			t.Errorf("removing what belongs to another namespace: got %v, %v; want nothing", removed, err)
		}
		want := []admin.Owned{{Thing: "set-up link", N: 2}}
		if counted, err := admin.CountOwned(ctx, db, spaceOf(t, "acme")); err != nil || !slices.Equal(counted, want) {
			t.Errorf("CountOwned: got %v, %v; want %v", counted, err, want)
		}
		for _, token := range tokens {
			must(t, admin.CheckSetup(ctx, acme, token))
		}
		if removed, err := admin.RemoveOwned(ctx, db, spaceOf(t, "acme")); err != nil || !slices.Equal(removed, want) {
			t.Errorf("RemoveOwned: got %v, %v; want %v", removed, err, want)
		}
		for _, token := range tokens {
			if err := admin.CheckSetup(ctx, acme, token); !errors.Is(err, userdb.ErrNotFound) {
				t.Errorf("a link afterwards: got %v, want ErrNotFound", err)
			}
		}
		must(t, admin.CheckSetup(ctx, db, other))
	})
}
