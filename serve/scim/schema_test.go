package scim

import (
	"maps"
	"net/url"
	"slices"
	"testing"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/schema"
)

// TestSchemaLosesIndexes checks that lists and filters find users after a change of the schema has
// removed the indexes of SCIM and no request of SCIM has written since.
func TestSchemaLosesIndexes(t *testing.T) {
	maxAge := schemaMaxAge
	defer func() { schemaMaxAge = maxAge }()
	schemaMaxAge = 0
	testdb.TwoEngines(t, func(t *testing.T, s *testdb.Site) {
		d := newDirectory(t, s.Under(t, schema.User()), nil)
		id, _ := d.must("POST", "/Users", `{"userName":"ada@x.org","externalId":"e1"}`)["id"].(string)
		sc, err := migrate.StoredSchema(d.Ctx, d.DB)
		if err != nil {
			t.Fatal(err)
		}
		users := sc.Types[UserType]
		users.Fields = maps.Clone(users.Fields)
		delete(users.Fields, externalField)
		delete(users.Fields, addedField)
		sc.Types[UserType] = users
		plan, err := migrate.Plan(d.Ctx, d.DB, sc)
		if err == nil {
			err = plan.Apply(d.Ctx, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/Users?filter=" + url.QueryEscape(`externalId eq "e1"`), "/Users"} {
			if ids, total := d.resources(path); !slices.Equal(ids, []string{id}) || total != 1 {
				t.Errorf("%s: got %q of %d, want %q of 1", path, ids, total, id)
			}
		}
	})
}
