package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/coffeenode/userdb/internal/store"
)

// TestLookBehindFails has every look at the entry fail once a tertiary command was carried out: that is no "nothing was
// written", upon which a caller would do it again.
func TestLookBehindFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := false
		s := newStage(newWorld(unchanged), func(_ *actor, args []string) ([]string, any) {
			done = done || strings.EqualFold(args[0], "sadd") && args[1] == "user/uid:A/tags"
			if done && args[0] == "hget" {
				return nil, wrong("TRYAGAIN Multiple keys request during rehashing of slot")
			}
			return args, nil
		})
		s.patience = 1000
		s.reset(entries(some, "A name=n")())
		s.play(then(tag("A", "red")))
		synctest.Wait()
		defer s.close()
		for a := s.actors[0]; len(a.waiting()) > 0; {
			s.step(a.waiting()[0], none)
		}
		err := s.actors[0].results[0]
		if !done || !errors.Is(err, store.ErrOutcomeUnknown) || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("got %v, want that the outcome is unknown", err)
		}
	})
}

// TestReadBetween has somebody else put a tag in its place between the reading of the record and that of its entry: who
// reads then finds it.
func TestReadBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(newWorld(unchanged), nil)
		start := entries(some, "A name=n")()
		token := some
		start["user/uid:A"].hash[store.FieldFill] = token + " i:tags"
		start[store.StageKey(parsed(t, "user/uid:A/tags"), token)] = setOf("red")
		s.reset(start)
		var members []string
		s.play(then(reading("A", &members)))
		synctest.Wait()
		defer s.close()
		a := s.actors[0]
		for _, command := range []string{"SMEMBERS", "hmget"} {
			for _, r := range a.waiting() {
				if r.cmd != nil && r.args[0] == command {
					s.step(r, none)
				}
			}
			if command == "SMEMBERS" {
				e := s.newEngine(people.Guard())
				if err := e.complete(t.Context(), parsed(t, "user/uid:A"), token+" i:tags"); err != nil {
					t.Fatal(err)
				}
			}
		}
		for len(a.waiting()) > 0 {
			s.step(a.waiting()[0], none)
		}
		if err := a.results[0]; err != nil || len(members) != 1 {
			t.Errorf("got %q, %v; want the tag", members, err)
		}
	})
}

// reading reads the tags of an entry.
func reading(uid string, members *[]string) verb {
	return verb{name: "read " + uid, do: func(ctx context.Context, a *actor) error {
		prk, _ := people.PRK(uid)
		key, _, err := people.Tertiary(prk, "tags", "set", nil)
		if err != nil {
			return err
		}
		reply, err := a.engine.Tertiary(ctx, store.Op{PRK: prk, Key: key, Command: "SMEMBERS", Schema: people.Guard()})
		*members = reply.Items
		return err
	}}
}
