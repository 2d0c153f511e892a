package userdb_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestListingOverRestart: a server that begins anew in the middle of a listing has its tables in another order. What is
// there all the time is listed all the same, from all entries and from an index.
func TestListingOverRestart(t *testing.T) {
	const entries = 2500
	s := startServer(t, redistest.AppendOnly("no"))
	users := s.wide()
	var all sync.WaitGroup
	for part := range 10 {
		all.Go(func() {
			for i := part; i < entries; i += 10 {
				_, err := users.Create(t.Context(), userdb.NewEntry{UID: fmt.Sprintf("u%04d", i), Facets: schema.Texts("name", fmt.Sprintf("name %d", i), "job", "cook")})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for _, q := range []userdb.Query{{}, {Where: schema.Texts("job", "cook")}} {
		seen, n := map[string]bool{}, 0
		for e, err := range users.All(t.Context(), q) {
			must(t, err)
			if seen[e.UID()] = true; n == 10 {
				s.server.Stop() // with all that it has
				s.server.Restart()
			}
			n++
		}
		if len(seen) != entries {
			t.Errorf("%v: %d of %d entries were listed", q.Where, len(seen), entries)
		}
	}
	s.inspect(t)
}
