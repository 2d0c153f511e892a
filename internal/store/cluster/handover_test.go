package cluster

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// TestHandOver has a value go from a field of one entry to another field of another while somebody looks for it under
// both: he reads the first before it gave the value up, and the second once it had it. That is no damage.
func TestHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(newWorld(unchanged), nil)
		before, behind := entries(some, "A email=x", "B email=b")(), entries(some, "A email=a", "B email=b name=x")()
		before["user/name:x/~prk"] = behind["user/name:x/~prk"] // B's claim, which comes first
		s.reset(before)
		var found store.Found
		s.play(then(finding([]string{"user/email:x/~prk", "user/name:x/~prk"}, &found)))
		synctest.Wait()
		defer s.close()
		a := s.actors[0]
		for len(a.waiting()) > 0 {
			r := a.waiting()[0]
			s.step(r, none)
			if r.args[0] == "hgetall" && r.args[1] == "user/uid:A" {
				s.world.cells = behind
			}
		}
		if err := a.results[0]; err != nil || found.Err != nil || found.Record.Key.Value() != "B" {
			t.Errorf("got %v, %v, %v; want B", found.Record.Key, found.Err, err)
		}
	})
}

// finding looks for an entry behind any of some SRKs.
func finding(srks []string, found *store.Found) verb {
	return verb{name: "find", do: func(ctx context.Context, a *actor) error {
		var l store.Lookup
		for _, text := range srks {
			srk, err := recordkey.Parse(text)
			if err != nil {
				return err
			}
			l.SRKs = append(l.SRKs, srk)
		}
		all, err := a.engine.Find(ctx, []store.Lookup{l})
		if err == nil {
			*found = all[0]
		}
		return err
	}}
}
