package userdb_test

import (
	"slices"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/maintain"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// withRecords is the built-in schema with more tertiary records, lists.
func withRecords(names ...string) schema.Schema {
	s := schema.User()
	for _, name := range names {
		s.Types["user"].Tertiary[name] = schema.Tertiary{Kind: "list"}
	}
	return s
}

// TestNothingIsInherited deletes an entry with a program that does not declare all of its tertiary records, as
// in the middle of a deploy. The account that is made anew under its UID has none of them.
func TestNothingIsInherited(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		older := typeOf(t, s.open(userdb.Options{Schema: schema.User()}), "user")
		add(t, older, "u", "name", "n")
		newDB := s.open(userdb.Options{Schema: withRecords("notes", "a b/c")})
		newer, ctx := typeOf(t, newDB, "user"), t.Context()
		_, err := newer.List(hints.UID("u"), "notes").Append(ctx, "mine")
		must(t, err)
		_, err = newer.List(hints.UID("u"), "a b/c").Append(ctx, "mine")
		must(t, err)
		must(t, older.Delete(ctx, hints.UID("u")))

		_, err = newer.Create(ctx, userdb.NewEntry{UID: "u", Facets: schema.Texts("name", "n"), Tags: []string{"born"}})
		must(t, err)
		for _, name := range []string{"notes", "a b/c"} {
			if items, err := newer.List(hints.UID("u"), name).Items(ctx, 0, -1); err != nil || len(items) > 0 {
				t.Errorf("inherited in %q: %q, %v", name, items, err)
			}
		}
		if tags, err := newer.Tags(hints.UID("u")).Members(ctx); err != nil || !slices.Equal(tags, []string{"born"}) {
			t.Errorf("its own tags are %q, %v", tags, err)
		}

		// What the stored schema declares goes, too, though nobody has written it through a program.
		plan, err := maintain.Plan(ctx, newDB, withRecords("notes", "a b/c", "later"))
		must(t, err)
		must(t, plan.Apply(ctx, nil))
		must(t, s.raw.RPush(ctx, "user/uid:u/later", "old").Err())
		must(t, older.Delete(ctx, hints.UID("u")))
		if n := s.raw.Exists(ctx, "user/uid:u/later").Val(); n != 0 {
			t.Error("a record by the stored schema is left")
		}
	})
}
