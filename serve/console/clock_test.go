package console

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/embedded"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// TestStoreClock checks that the store's clock decides when operators are asked for their password
// again and when their sessions end, whether it is ahead of the clock of the process or behind.
func TestStoreClock(t *testing.T) {
	for _, offset := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(offset.String(), func(t *testing.T) {
			var ahead atomic.Int64
			ahead.Store(int64(offset))
			ctx := embedded.WithClock(t.Context(), func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) })
			db, err := userdb.Open(ctx, "memory:", userdb.Options{Schema: testSchema()})
			must(t, err)
			defer db.Close()
			d := newTestConsole(t, db)
			_, err = admin.AddOperator(t.Context(), db, operatorName, goodPassword)
			must(t, err)
			d.signIn(operatorName, goodPassword)
			d.do(http.StatusSeeOther, "/console/export", "type", "")
			ahead.Add(int64(verifiedFor - time.Minute))
			d.do(http.StatusSeeOther, "/console/export", "type", "")
			ahead.Add(int64(2 * time.Minute))
			d.wantText(d.do(http.StatusOK, "/console/export", "type", ""), "Your own password")
			ahead.Add(int64(3 * time.Hour)) // more than a session may be idle
			d.wantText(d.do(http.StatusSeeOther, "/console/export", "type", ""), "/console/signin")
		})
	}
}
