package userdb_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/inspect"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// siblings lists namespaces whose paths contain each other, and paths that are patterns.
var siblings = []string{"a", "ab", "a/b", "~a", "a/b/c", "+~", "*", "[a-z]", "?", "a*", `\`, "user", "+xff"}

// fillNamespaces opens the empty namespace and all siblings. It creates entries with the same UIDs
// and names in each, whose addresses contain the path of the namespace.
func fillNamespaces(t *testing.T, s *site) map[string]*userdb.DB {
	t.Helper()
	sc := wideSchema(schema.FoldCasefold)
	s.open(userdb.Options{Schema: sc})
	views := map[string]*userdb.DB{"": s.first}
	for _, path := range siblings {
		if _, err := recordkey.ParseNamespace(path); err != nil {
			path = recordkey.Escape(path)
		}
		db, err := s.view(sc, parseNamespace(t, path))
		must(t, err)
		s.views[parseNamespace(t, path)] = db
		views[path] = db
	}
	for path, db := range views {
		users := typeOf(t, db, "user")
		for _, uid := range []string{"u", "v"} {
			_, err := users.Create(t.Context(), userdb.NewEntry{
				UID: uid, Facets: schema.Texts("name", "N"+uid, "email", "in "+path+" "+uid, "job", "j"), Tags: []string{"t"},
			})
			must(t, err)
		}
	}
	return views
}

// TestNamespaces checks that each namespace sees its own entries and no others, although entries of
// all namespaces have the same UIDs and names.
func TestNamespaces(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		for path, db := range fillNamespaces(t, s) {
			users, ctx := typeOf(t, db, "user"), t.Context()
			e, err := users.Find(ctx, hints.Any("nu"))
			if err != nil || e.Text("email") != "in "+path+" u" || e.Key().Namespace() != (recordkey.Namespace{}) {
				t.Errorf("%q: find nu: got %v, %v; want the entry of this namespace", path, e, err)
			}
			other := siblings[0]
			if path == other {
				other = siblings[1]
			}
			_, err = users.FindExhaustive(ctx, hints.Any("in "+other+" u"))
			wantErr(t, path+": an address of another namespace", err, userdb.ErrNotFound)
			_, err = users.Find(ctx, hints.Key(e.Key().In(parseNamespace(t, "a"))))
			wantErr(t, path+": a key with a namespace", err, hints.ErrHint)
			_, err = users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("nick", "NU")})
			wantErr(t, path+": create", err, userdb.ErrDuplicate)
			for _, q := range []userdb.Query{{}, {Where: schema.Texts("job", "j")}, {Tags: []string{"t"}}, {Limit: 1}} {
				wantOwn(t, users, path, q)
			}
			if n, err := users.Count(ctx, userdb.Query{}); n.Entries != 2 || err != nil {
				t.Errorf("%q: counted %v, %v; want 2 entries", path, n, err)
			}
			var keys []string
			for key, err := range inspect.Keys(ctx, db, "user/uid:?") {
				must(t, err)
				keys = append(keys, key)
			}
			slices.Sort(keys)
			if !slices.Equal(keys, []string{"user/uid:u", "user/uid:v"}) {
				t.Errorf("%q: got keys %q, want those of u and v", path, keys)
			}
		}
	})
}

// wantOwn checks that a query finds exactly the entries of one namespace.
func wantOwn(t *testing.T, users *userdb.Type, path string, q userdb.Query) {
	t.Helper()
	seen, limit := 0, q.Limit
	for {
		page, err := users.Page(t.Context(), q)
		must(t, err)
		for _, e := range page.Entries {
			if e.Text("email") != "in "+path+" "+e.UID() {
				t.Errorf("%q: %v lists %v", path, q, e)
			}
			seen++
		}
		if q.After = page.Next; page.Next == "" {
			break
		}
	}
	if seen != 2 {
		t.Errorf("%q: pages of %d have %d entries, want 2", path, limit, seen)
	}
}

// TestRemoveInNamespace empties one namespace after another. The records of all others must stay
// unchanged, byte by byte.
func TestRemoveInNamespace(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		views := fillNamespaces(t, s)
		paths := []string{"a/b", "+~", "*", "[a-z]", "a", "ab"}
		for _, path := range paths {
			if _, err := recordkey.ParseNamespace(path); err != nil {
				path = recordkey.Escape(path)
			}
			inside := view.Of(views[path]).NS.String()
			before := recordsOutside(s, inside)
			users := typeOf(t, views[path], "user")
			must(t, users.Delete(t.Context(), hints.Any("nv")))
			if n, err := inspect.RemoveKeys(t.Context(), views[path], "*"); err != nil || n == 0 {
				t.Errorf("%q: removed %d records, %v; want some", path, n, err)
			}
			for key, err := range inspect.Keys(t.Context(), views[path], "*") {
				t.Errorf("%q: this record is still there: %q, %v", path, key, err)
			}
			if diff := diffRecords(before, recordsOutside(s, inside)); diff != "" {
				t.Errorf("removing in %q changed records outside:\n%s", path, diff)
			}
		}
		clear(s.views)
	})
}

// recordsOutside returns all records outside a namespace.
func recordsOutside(s *site, prefix string) map[string]string {
	s.t.Helper()
	all := formatRecords(s.dump(s.t.Context()), "")
	for key := range all {
		if strings.HasPrefix(key, prefix) {
			delete(all, key)
		}
	}
	return all
}
