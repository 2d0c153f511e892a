package userdb_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestCrash kills the server in the middle of a run of creates, and lets it come back from its
// append-only file: what was acknowledged is there, and every entry is whole (I7).
func TestCrash(t *testing.T) {
	s := startServer(t, redistest.AppendOnly("always"))
	users := s.wide()
	add(t, users, "first", "name", "first")
	acknowledged := map[string]bool{}
	for round := range 3 {
		for _, uid := range createUntilKilled(t, s, users, round) {
			acknowledged[uid] = true
		}
		s.server.Restart()
		there := map[string]bool{}
		for e, err := range users.All(t.Context(), userdb.Query{}) {
			must(t, err)
			there[e.UID()] = true
			wantWhole(t, users, e)
		}
		for uid := range acknowledged {
			if !there[uid] {
				t.Errorf("round %d: %s was acknowledged, and is gone", round, uid)
			}
		}
		s.inspect(t)
	}
	if len(acknowledged) < 100 {
		t.Errorf("only %d entries were made", len(acknowledged))
	}
}

// createUntilKilled creates entries from many goroutines, kills the server amid them, and returns the
// UIDs of those that were acknowledged.
func createUntilKilled(t *testing.T, s *site, users *userdb.Type, round int) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	var done []string
	enough := make(chan bool, 1)
	var workers sync.WaitGroup
	for w := range 8 {
		workers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				uid := fmt.Sprintf("r%d w%d i%d", round, w, i)
				_, err := users.Create(ctx, userdb.NewEntry{
					UID: uid, Facets: schema.Texts("name", "n "+uid, "email", "e "+uid, "job", "j"), Tags: []string{"a", uid},
				})
				if err != nil {
					return
				}
				mu.Lock()
				done = append(done, uid)
				if len(done) == 60 {
					enough <- true
				}
				mu.Unlock()
			}
		})
	}
	<-enough
	s.server.Kill()
	cancel()
	workers.Wait()
	return done
}

// wantWhole wants an entry by each of its values, in its index, and with its tags.
func wantWhole(t *testing.T, users *userdb.Type, e userdb.Entry) {
	t.Helper()
	if e.UID() == "first" {
		return
	}
	for _, h := range []hints.Hint{hints.Any("n " + e.UID()), hints.Field("email", "e "+e.UID())} {
		if found, err := users.Find(t.Context(), h); err != nil || found.UID() != e.UID() {
			t.Errorf("%s: found %v, %v", e.UID(), found, err)
		}
	}
	if members, err := users.Tags(hints.UID(e.UID())).Members(t.Context()); err != nil || len(members) != 2 {
		t.Errorf("%s: tags %q, %v", e.UID(), members, err)
	}
}
