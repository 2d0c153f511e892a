package migrate_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestApplyRetire checks that "retire" can be added to the schema of an existing store and removed
// again without a change of its records, that a program that does not know "retire" obeys it, and
// that UIDs stay retired.
func TestApplyRetire(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s.flush(t)
		plain := userSchema(schema.FoldCasefold)
		retiring := userSchema(schema.FoldCasefold, func(typ *schema.Type) { typ.Retire = true })
		old := s.withSchema(t, plain)
		users := testdb.Must(old.Type("user"))
		remake := func(uid string) error {
			t.Helper()
			n := userdb.NewEntry{UID: uid, Facets: schema.Texts("email", uid+"@x.org", "name", uid)}
			if _, err := users.Create(s.Ctx, n); err != nil {
				return err
			}
			if err := users.Delete(s.Ctx, hints.UID(uid)); err != nil {
				t.Fatal(err)
			}
			_, err := users.Create(s.Ctx, n)
			return err
		}
		if err := remake("free"); err != nil {
			t.Fatal(err)
		}
		plan, err := s.apply(s.Ctx, retiring)
		if err != nil || len(plan.Types) != 1 || plan.Types[0].Stops || plan.Types[0].Rewritten != 0 || !strings.Contains(plan.Types[0].What, "not reused") {
			t.Fatalf("got the plan %+v, %v; want that no writer stops and no entry is rewritten", plan.Types, err)
		}
		// On a cluster, a program may go on using the schema that it read for some seconds.
		testdb.AdvanceClock(time.Minute)
		if err := remake("kept"); !errors.Is(err, userdb.ErrDuplicate) {
			t.Errorf("a UID that was deleted after apply: got %v, want ErrDuplicate", err)
		}
		if _, err := s.apply(s.Ctx, plain); err != nil {
			t.Fatal(err)
		}
		if err := remake("kept"); !errors.Is(err, userdb.ErrDuplicate) {
			t.Errorf("a retired UID, after retire was turned off: got %v, want ErrDuplicate", err)
		}
		testdb.AdvanceClock(time.Minute)
		if err := remake("other"); err != nil {
			t.Errorf("a UID that was deleted after retire was turned off: got %v, want no error", err)
		}
		s.DB = s.withSchema(t, plain)
		testdb.Same(t, "check", s.Check(t, check.Options{}), nil)
	})
}
