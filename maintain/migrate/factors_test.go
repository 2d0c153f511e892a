package migrate_test

import (
	"strings"
	"testing"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestApplyFactors checks that only Apply turns factors on and off, that the plan says what this
// means for programs or entries, and that Apply rewrites no entry.
func TestApplyFactors(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s.flush(t)
		plain := userSchema(schema.FoldCasefold)
		with := userSchema(schema.FoldCasefold, func(typ *schema.Type) { typ.Factors = true })
		if a, b := plain.Types["user"].Fingerprint(), with.Types["user"].Fingerprint(); a != b {
			t.Errorf("factors change the fingerprint from %s to %s, want the same", a, b)
		}
		write := func(declared schema.Schema, uid string, want bool) {
			t.Helper()
			db := s.withSchema(t, declared)
			users := testdb.Must(db.Type("user"))
			if _, err := users.Create(s.Ctx, userdb.NewEntry{UID: uid, Facets: schema.Texts("email", uid+"@x.org", "name", uid)}); err != nil {
				t.Fatal(err)
			}
			if got := testdb.Must(migrate.StoredSchema(s.Ctx, db)).Types["user"].Factors; got != want {
				t.Errorf("after a write of %s: the stored schema has factors %v, want %v", uid, got, want)
			}
		}
		apply := func(to schema.Schema, wantWhat string) {
			t.Helper()
			plan, err := s.apply(s.Ctx, to)
			if err != nil || len(plan.Types) != 1 || plan.Types[0].Stops || plan.Types[0].Rewritten != 0 || !strings.Contains(plan.Types[0].What, wantWhat) {
				t.Fatalf("got the plan %+v, %v; want %q in it", plan.Types, err, wantWhat)
			}
		}
		write(plain, "first", false)
		write(with, "undeployed", false)
		apply(with, "deploy this version everywhere first")
		write(plain, "follower", true)
		apply(plain, "entries that have one keep it")
		write(with, "late", false)
		s.DB = s.withSchema(t, plain)
		testdb.Same(t, "check", s.Check(t, check.Options{}), nil)
	})
}
