package cluster

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
)

// TestLateCommit simulates a process that is suspended after its last check of the schema: its own
// clock stands still, and by the server's clock the check has expired. The server must refuse the
// commit, and the process must check again.
func TestLateCommit(t *testing.T) {
	server := redistest.Start(t)
	e, ctx := New(server.Client(), Options{}), t.Context()
	stopped := time.Now()
	e.now = func() time.Time { return stopped }
	g := people.Guard
	create := func(uid string) error {
		t.Helper()
		c, err := people.Create(change.Draft{UID: uid, Facets: pairs("email=" + uid)})
		if err != nil {
			t.Fatal(err)
		}
		_, err = e.Apply(ctx, c)
		return err
	}
	if err := create("A"); err != nil {
		t.Fatal(err)
	}
	expireCheck := func() {
		found, _ := e.schemaChecks.Load(g.Key)
		last := found.(schemaCheck)
		if d := time.Until(time.UnixMilli(last.until)); d > staleAfter || d < staleAfter-time.Minute {
			t.Errorf("a check is valid for %v, want %v", d, staleAfter)
		}
		last.until = time.Now().Add(-time.Second).UnixMilli()
		e.schemaChecks.Store(g.Key, last)
	}
	expireCheck()
	if err := create("B"); err != nil {
		t.Errorf("under the same schema: got %v, want success", err)
	}
	expireCheck()
	if err := e.client.HSet(ctx, g.Key.String(), "fingerprint", "another").Err(); err != nil {
		t.Fatal(err)
	}
	if err := create("C"); !errors.Is(err, store.ErrSchemaMismatch) {
		t.Errorf("under another schema: got %v, want ErrSchemaMismatch", err)
	}
	if live, err := e.isLive(ctx, parsed(t, "user/uid:C")); live || err != nil {
		t.Errorf("the entry of the refused create is live: %v, %v, want false", live, err)
	}
}

// TestClockSkew sets the clock of the node that has the schema 20 seconds behind that of the
// entry's node. Each check of the schema has then expired when the commit arrives, so the update
// must fail.
func TestClockSkew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulation(newWorld(replace("return {'ok', now}", "return {'ok', now - 20000}")), nil)
		s.until = 0
		s.reset(with(entries(someRev, "A email=a"), storedSchema, hash("fingerprint="+people.Guard.Fingerprint))())
		s.addActor(sequence(update("A", "email=x")))
		synctest.Wait()
		defer s.close()
		a := s.actors[0]
		for len(a.waiting()) > 0 {
			s.step(a.waiting()[0], none)
		}
		if err := a.results[0]; !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "clocks") {
			t.Errorf("got %v, want ErrUnavailable because of the clocks", err)
		}
		if v := s.violation(); v != "" || s.recordOf("user/uid:A").SKV("email") != "a" {
			t.Errorf("the refused update was made, or broke an invariant: %q", v)
		}
	})
}
