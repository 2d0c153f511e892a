package admin_test

import (
	"slices"
	"testing"

	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// TestFloodOfSignIns checks that what operators did stays in the feed, however often somebody fails
// to sign in.
func TestFloodOfSignIns(t *testing.T) {
	db, err := userdb.Open(t.Context(), "memory:", userdb.Options{})
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	must(t, admin.ActAs(t.Context(), db, "Olga", "192.0.2.7", userdb.EventOperatorLogin, ""))
	must(t, admin.ActAs(t.Context(), db, "Olga", "192.0.2.7", userdb.EventKeyCreate, "shop"))
	for range 2500 { // an embedded store keeps 2,000
		must(t, admin.ActAs(t.Context(), db, "", "198.51.100.1", userdb.EventOperatorLoginFailed, "Olga"))
	}
	var kinds []userdb.EventKind
	failed := 0
	for after, last := "", -1; len(kinds)+failed != last; {
		last = len(kinds) + failed
		page, err := db.Events(t.Context(), userdb.EventQuery{After: after, Limit: 1000})
		must(t, err)
		for _, e := range page.Events {
			if e.Kind == userdb.EventOperatorLoginFailed {
				failed++
			} else {
				kinds = append(kinds, e.Kind)
			}
		}
		after = page.Next
	}
	if !slices.Equal(kinds, []userdb.EventKind{userdb.EventOperatorLogin, userdb.EventKeyCreate}) || failed == 0 || failed > 2100 {
		t.Errorf("%q stayed, beside %d failures", kinds, failed)
	}
}
