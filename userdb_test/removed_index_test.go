package userdb_test

import (
	"errors"
	"testing"

	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// twoTypes returns orderedSchema with another type.
func twoTypes() schema.Schema {
	sc := orderedSchema()
	sc.Types["device"] = schema.Type{Primary: "uid", Fields: map[string]schema.Field{"name": {Role: schema.RoleSecondary}}}
	return sc
}

// apply changes the stored schema as the program of an operator does.
func apply(t *testing.T, db *userdb.DB, sc schema.Schema) {
	t.Helper()
	plan, err := migrate.Plan(t.Context(), db, sc)
	must(t, err)
	must(t, plan.Apply(t.Context(), nil))
}

// TestSchemaChangesDuringListing changes the schema while a listing by an index is at its first
// entry. If the change removes the index, the rest of the listing is missing: All must report that,
// even if exactly one batch has been read. A change of another type does not matter.
func TestSchemaChangesDuringListing(t *testing.T) {
	const n = 300 // more than one batch
	for name, tt := range map[string]struct {
		change func(t *testing.T, s *site, db *userdb.DB, sc schema.Schema)
		want   []error // one of these, or nil
	}{
		"the index is removed": {func(t *testing.T, s *site, _ *userdb.DB, sc schema.Schema) {
			delete(sc.Types["user"].Fields, "age")
			apply(t, s.first, sc)
		}, []error{userdb.ErrSchemaMismatch, userdb.ErrInvalid}},
		"another type changes": {func(t *testing.T, s *site, db *userdb.DB, sc schema.Schema) {
			sc.Types["device"].Fields["os"] = schema.Field{}
			apply(t, s.first, sc)
			add(t, typeOf(t, db, "device"), "d2", "name", "other") // db takes over the new schema
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *site) {
				db, changed := s.program(twoTypes()), twoTypes()
				add(t, typeOf(t, db, "device"), "d1", "name", "n")
				users, seen, failed := typeOf(t, db, "user"), 0, error(nil)
				for i := range n {
					_, err := users.Create(t.Context(), userdb.NewEntry{Facets: schema.Facets{"age": schema.Number(float64(i))}})
					must(t, err)
				}
				for _, err := range users.All(t.Context(), userdb.Query{Order: "age"}) {
					if err != nil {
						failed = err
						break
					}
					if seen++; seen == 1 {
						tt.change(t, s, db, changed)
					}
				}
				s.views[view.Of(s.first).NS] = s.program(changed)
				switch {
				case tt.want == nil && (failed != nil || seen != n):
					t.Errorf("got %d entries, %v; want %d", seen, failed, n)
				case tt.want != nil && !errors.Is(failed, tt.want[0]) && !errors.Is(failed, tt.want[1]):
					t.Errorf("got %d entries, %v; want one of %v", seen, failed, tt.want)
				}
			})
		})
	}
}
