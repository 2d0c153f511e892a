package admin_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// TestFloodOfSignIns checks that the acts of operators stay in the feed, however often somebody
// fails to sign in.
func TestFloodOfSignIns(t *testing.T) {
	db, err := userdb.Open(t.Context(), "memory:", userdb.Options{})
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	admin.ActAs(t.Context(), db, "Olga", "192.0.2.7", userdb.EventOperatorLogin, "")
	admin.ActAs(t.Context(), db, "Olga", "192.0.2.7", userdb.EventKeyCreate, "shop")
	for range 2500 { // an embedded store keeps 2,000
		admin.ActAs(t.Context(), db, "", "198.51.100.1", userdb.EventOperatorLoginFailed, "Olga")
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
		t.Errorf("the feed has %q and %d failed logins, want the login, the key and 1 to 2100 failed logins", kinds, failed)
	}
}

// TestMissingAct checks that an action whose event cannot be recorded leaves a warning in the log.
func TestMissingAct(t *testing.T) {
	var log strings.Builder
	db, err := userdb.Open(t.Context(), "memory:", userdb.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	must(t, err)
	must(t, db.Close())
	admin.ActAs(t.Context(), db, "Olga", "192.0.2.7", userdb.EventOperatorDisable, "Paul")
	if want := `level=WARN msg="an event is missing from the feed" kind=operator_disable error=`; !strings.Contains(log.String(), want) {
		t.Errorf("the log has %q, want %s", log.String(), want)
	}
}
