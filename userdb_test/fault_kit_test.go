package userdb_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain"
	"github.com/coffeenode/userdb/userdb"
)

// mended judges the records behind faults. What a check finds is a defect, unless it is excused: of
// verbs that were cut off, leftovers (I4) and memberships that they left out of date (I5). A repair removes
// all of it.
func mended(t *testing.T, db *userdb.DB, excused func(p maintain.Problem) bool) {
	t.Helper()
	found := checked(t, db, maintain.CheckOptions{})
	for _, p := range found {
		if !excused(p) {
			t.Errorf("check found: I%d %v", p.Invariant, p)
		}
	}
	left := found
	for begin := time.Now(); len(left) > 0; left = checked(t, db, maintain.CheckOptions{}) {
		checked(t, db, maintain.CheckOptions{Repair: true})
		if time.Since(begin) > time.Minute { // verbs that were cut off clean up for ten seconds
			t.Errorf("a repair leaves: %v", left)
			return
		}
	}
	t.Logf("check found %d leftovers of verbs that were cut off; a repair removed them", len(found))
}

// checked is what a check finds when the writers of a test have ended.
func checked(t *testing.T, db *userdb.DB, o maintain.CheckOptions) (found []maintain.Problem) {
	t.Helper()
	for p, err := range maintain.Check(store.Alone(t.Context()), db, o) {
		must(t, err)
		if !p.Warning {
			found = append(found, p)
		}
	}
	return found
}

func never(maintain.Problem) bool { return false }

// isLeftover says whether a problem is one that a verb may leave that was cut off.
func isLeftover(p maintain.Problem) bool { return p.Invariant == 4 || p.Invariant == 5 }

var loadName = regexp.MustCompile(`w[0-9]+-[0-9]+`)

// excused says of a load whether a problem is about an entry whose create failed, or whose outcome is
// unknown, or about one that was acknowledged and that the failover lost.
func (l *load) excused(t *testing.T, lost []string) func(p maintain.Problem) bool {
	gone := map[string]bool{}
	for _, name := range lost {
		gone[name] = true
	}
	return func(p maintain.Problem) bool {
		name := loadName.FindString(p.Key)
		if gone[name] || name == "" && len(lost) > 0 {
			t.Logf("reported apart, from acknowledged writes that the failover lost: %v", p)
			return true
		}
		return isLeftover(p) && l.failed[name]
	}
}
