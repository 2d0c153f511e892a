package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// TestInterruptedDelete stops a delete after each of its steps, and then creates the entry again.
// If the entry is still live, the create must fail. If the delete has ended, the create must
// succeed at once. If records are still to be removed, the create must wait until the deleter has
// certainly died. The new entry must have nothing of the old one.
func TestInterruptedDelete(t *testing.T) {
	const maxSteps = 100
	for steps, ended := 0, false; !ended; steps++ {
		if steps == maxSteps {
			t.Fatalf("the delete has not ended after %d steps", maxSteps)
		}
		t.Run(fmt.Sprintf("stopped after %d steps", steps), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSimulation(newWorld(unchanged), nil)
				s.patience = 1000
				start := entries(someRev, "A email=a job=cook")
				s.reset(with(with(start, "user/uid:A/tags", setOf("admin")), "user/tags:admin/~prks", setOf("user/uid:A"))())
				s.addActor(sequence(remove("A")))
				synctest.Wait()
				deleter := s.actors[0]
				for range steps {
					if rs := deleter.waiting(); len(rs) > 0 {
						s.step(rs[0], none)
					}
				}
				ended = len(deleter.waiting()) == 0
				s.die(deleter)
				s.createAnew(t)
			})
		})
	}
}

// TestInterruptedDeleteByWrongClock stops a delete, whose node's clock is a month ahead, after each
// of its steps, and creates the entry again after the clock has been set right. The create must not
// wait for that month.
func TestInterruptedDeleteByWrongClock(t *testing.T) {
	const month = 30 * 24 * 3600 * 1000
	for steps, ended := 0, false; !ended; steps++ {
		synctest.Test(t, func(t *testing.T) {
			s := newSimulation(newWorld(unchanged), nil)
			s.patience = 1000
			start := entries(someRev, "A email=a job=cook")
			s.reset(with(with(start, "user/uid:A/tags", setOf("admin")), "user/tags:admin/~prks", setOf("user/uid:A"))())
			s.world.now += month
			s.addActor(sequence(remove("A")))
			synctest.Wait()
			deleter := s.actors[0]
			for range steps {
				if rs := deleter.waiting(); len(rs) > 0 {
					s.step(rs[0], none)
				}
			}
			ended = len(deleter.waiting()) == 0
			s.die(deleter)
			s.world.now -= month
			dead, begin := !s.recordOf("user/uid:A").Live(), s.world.now
			s.addActor(sequence(create("A", "email=x", "red")))
			synctest.Wait()
			for a := s.actors[1]; len(a.waiting()) > 0; s.step(a.waiting()[0], none) {
				if s.world.now += 1000; time.Duration(s.world.now-begin)*time.Millisecond > time.Hour {
					t.Fatalf("stopped after %d steps: the create still waits after an hour", steps)
				}
			}
			if err := s.actors[1].results[0]; dead && err != nil {
				t.Errorf("stopped after %d steps: creating over a dead entry: got %v, want success", steps, err)
			}
		})
	}
}

// createAnew creates A after an interrupted delete, and lets time pass while the create waits. It
// checks that the create succeeds only if A is dead, and that it waits only if it has to.
func (s *simulation) createAnew(t *testing.T) {
	t.Helper()
	dead := !s.recordOf("user/uid:A").Live()
	waits := dead && s.world.at("user/uid:A").field("~dying") != nil
	begin := s.world.now
	s.addActor(sequence(create("A", "email=x", "red")))
	synctest.Wait()
	a := s.actors[1]
	for len(a.waiting()) > 0 {
		if r := a.waiting()[0]; r.text == "pause" {
			s.world.now += 1000
		}
		s.step(a.waiting()[0], none)
		if v := s.violation(); v != "" {
			t.Fatal(v)
		}
	}
	took := time.Duration(s.world.now-begin) * time.Millisecond
	switch err := a.results[0]; {
	case !dead && err == nil:
		t.Error("created over a live entry")
	case dead && err != nil:
		t.Errorf("creating over a dead entry: got %v, want success", err)
	case waits && took <= finishTime:
		t.Errorf("the create took %v while a removal was under way, want more than %v", took, finishTime)
	case !waits && took > finishTime:
		t.Errorf("the create took %v while no removal was under way, want at most %v", took, finishTime)
	case took > dyingTime+2*time.Second:
		t.Errorf("the create took %v, want at most %v", took, dyingTime+2*time.Second)
	}
	if v := checkRecreated(s); v != "" {
		t.Error(v)
	}
	if c := s.world.at("user/uid:A"); dead && (c.field("~dying") != nil || c.field("~since") != nil) {
		t.Errorf("the new entry still has marks of removals: %v", c)
	}
}

// TestSlowDelete checks that a create waits for a slow delete, and for another removal that began
// meanwhile.
func TestSlowDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulation(newWorld(unchanged), nil)
		s.patience = 1000
		s.reset(map[string]*cell{"user/uid:A": ending(hash("~rev=rA__________ ~dying=aaaaaaaaaaaabbbbbbbbbbbb ~since=1000,1000"), startTime+80_000_000)})
		s.addActor(sequence(create("A", "email=x", "red")))
		synctest.Wait()
		defer s.close()
		a := s.actors[0]
		for i := 0; len(a.waiting()) > 0; i++ {
			if s.world.now < startTime+(dyingTime-2*time.Second).Milliseconds() && s.recordOf("user/uid:A").Live() {
				t.Fatal("created while a removal was under way")
			}
			r := a.waiting()[0]
			if r.text == "pause" {
				s.world.now += 1000
			}
			if dying := s.world.at("user/uid:A").field("~dying"); i < 1000 && dying != nil && len(dying.(string)) == 36 {
				i = 1000 // the create has added a mark of its own; now another removal begins
				s.world.do([]string{"hset", "user/uid:A", "~dying", dying.(string) + "cccccccccccc", "~since", fmt.Sprint(s.world.at("user/uid:A").field("~since"), " ", s.world.now/1000)})
			}
			s.step(r, none)
			if dying := s.world.at("user/uid:A").field("~dying"); i > 1000 && dying == "cccccccccccc" {
				return // only the mark of that removal is left, and the create waits for it
			}
		}
		t.Error("the create ended, or removed the mark of a removal that was still under way")
	})
}

// tagThen adds a tag to an entry A, and calls do when the tag was written and is not in its index
// yet. It returns the result of adding the tag.
func tagThen(t *testing.T, do func(s *simulation)) (s *simulation, err error) {
	t.Helper()
	s = newSimulation(newWorld(unchanged), nil)
	s.reset(entries(someRev, "A name=n")())
	s.addActor(sequence(tag("A", "red")))
	synctest.Wait()
	defer s.close()
	for a := s.actors[0]; len(a.waiting()) > 0; {
		r := a.waiting()[0]
		s.step(r, none)
		if r.cmd != nil && r.args[1] == addScript.SHA {
			do(s)
		}
	}
	return s, s.actors[0].results[0]
}

// TestTagOfDeletedEntry deletes an entry while it gets a tag. Others may have read the tag before
// the delete, so adding it must succeed. No record may be left.
func TestTagOfDeletedEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := tagThen(t, func(s *simulation) {
			e := s.newEngine(people.Guard)
			prk, _ := people.PRK("A")
			found, err := e.Find(t.Context(), []store.Lookup{{PRK: prk}})
			if err == nil {
				_, err = e.Apply(t.Context(), people.Delete(found[0].Record, time.Now()))
			}
			if err != nil {
				t.Fatal(err)
			}
		})
		if err != nil {
			t.Errorf("got %v, want success", err)
		}
		if v := s.garbage(); v != "" {
			t.Error(v)
		}
	})
}

// TestTagOfDamagedEntry removes the ~isa of an entry while it gets a tag. It is unknown whether the
// entry was deleted, so the tag must stay.
func TestTagOfDamagedEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := tagThen(t, func(s *simulation) { s.world.do([]string{"hdel", "user/uid:A", store.FieldType}) })
		if !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("got %v, want ErrCorrupt", err)
		}
		if s.world.at("user/uid:A/tags").field("red") == nil {
			t.Error("the tag was removed")
		}
	})
}

// TestReusedArguments adds a tag, and ends the caller's context once the tag is written. The caller
// then puts another value where the tag was. The index of the tag must still get the entry.
func TestReusedArguments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulation(newWorld(unchanged), nil)
		s.reset(entries(someRev, "A name=n")())
		giveUp := func() {}
		s.addActor(sequence(withNote(verb{name: "tag A red", do: func(ctx context.Context, a *actor) error {
			prk, _ := people.PRK("A")
			args := []string{"red"}
			key, index, err := people.TertiaryKey(prk, "tags", "set", args)
			if err != nil {
				return err
			}
			ctx, giveUp = context.WithCancel(ctx)
			_, err = a.engine.Tertiary(ctx, store.Op{
				PRK: prk, Key: key, Command: "SADD", Args: args, Write: true, MaxMembers: maxTags, Index: index, Schema: people.Guard, Note: a.line("tags"),
			})
			args[0] = "blue"
			return err
		}})))
		synctest.Wait()
		defer s.close()
		for a := s.actors[0]; len(a.waiting()) > 0; {
			r := a.waiting()[0]
			s.step(r, none)
			if r.cmd != nil && r.args[1] == actScript.SHA {
				giveUp()
				synctest.Wait()
			}
		}
		if err := s.actors[0].results[0]; !errors.Is(err, store.ErrOutcomeUnknown) {
			t.Errorf("got %v, want an unknown outcome", err)
		}
		if v := s.garbage(); v != "" {
			t.Error(v)
		}
	})
}

// TestUntagNotCarriedOut ends the caller's context before a tag is removed, and never removes it.
// The entry must stay in the index of the tag all the time, although what is due is done in the
// background.
func TestUntagNotCarriedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulation(newWorld(unchanged), nil)
		tagged := with(entries(someRev, "A name=n"), "user/uid:A/tags", setOf("red"))
		s.reset(with(tagged, "user/tags:red/~prks", setOf("user/uid:A"))())
		s.addActor(sequence(withNote(untag("A", "red"))))
		synctest.Wait()
		defer s.close()
		gaveUp, after := false, 0
		for a := s.actors[0]; len(a.waiting()) > 0; {
			r, f := a.waiting()[0], none
			if gaveUp {
				after++
			}
			if canGiveUpOn(r.args) {
				f, gaveUp = delayed, true
			}
			s.step(r, f)
			if v := s.checkIndexed(parsed(t, "user/uid:A"), "tags", "red"); v != "" {
				t.Fatal(v)
			}
		}
		if err := s.actors[0].results[0]; !errors.Is(err, store.ErrOutcomeUnknown) || after == 0 {
			t.Errorf("got %v and %d commands after it, want an unknown outcome and some", err, after)
		}
	})
}

// TestTagIsIndexedAtOnce checks that the index of a tag is written right after the tag was added or
// removed. Only if it is unknown whether that was done does another round trip read the set first.
func TestTagIsIndexedAtOnce(t *testing.T) {
	for name, v := range map[string]verb{"add": tag("A", "blue"), "remove": untag("A", "red")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSimulation(newWorld(unchanged), nil)
				tagged := with(entries(someRev, "A name=n"), "user/uid:A/tags", setOf("red"))
				s.reset(with(tagged, "user/tags:red/~prks", setOf("user/uid:A"))())
				s.addActor(sequence(withNote(v)))
				synctest.Wait()
				defer s.close()
				var sent []string
				for a := s.actors[0]; len(a.waiting()) > 0; {
					r := a.waiting()[0]
					if len(r.args) > 1 && (strings.HasSuffix(r.args[1], "/~prks") || r.args[0] == "smismember") {
						sent = append(sent, r.args[0])
					}
					s.step(r, none)
				}
				write := map[string]string{"add": "sadd", "remove": "srem"}[name]
				if want := []string{write, "smismember"}; !slices.Equal(sent, want) {
					t.Errorf("sent %q to the set and its index, want %q", sent, want)
				}
			})
		})
	}
}

// TestFailedCheckAfterCommand makes every check of the entry fail after a tertiary command was
// carried out. The error must not say that nothing was written, because a caller would then repeat
// the command.
func TestFailedCheckAfterCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := false
		s := newSimulation(newWorld(unchanged), func(_ *actor, args []string) ([]string, any) {
			done = done || args[1] == addScript.SHA
			if done && args[0] == "hget" {
				return nil, replyError("TRYAGAIN Multiple keys request during rehashing of slot")
			}
			return args, nil
		})
		s.patience = 1000
		s.reset(entries(someRev, "A name=n")())
		s.addActor(sequence(tag("A", "red")))
		synctest.Wait()
		defer s.close()
		for a := s.actors[0]; len(a.waiting()) > 0; {
			s.step(a.waiting()[0], none)
		}
		err := s.actors[0].results[0]
		if !done || !errors.Is(err, store.ErrOutcomeUnknown) || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("got %v, want an unknown outcome", err)
		}
	})
}

// TestReadStagedTag puts a staged tag in place after a reader has read the record and before it
// reads the entry. The reader must find the tag.
func TestReadStagedTag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulation(newWorld(unchanged), nil)
		start := entries(someRev, "A name=n")()
		rev := someRev
		start["user/uid:A"].hash[store.FieldFill] = rev + " i:tags"
		start[store.PreparedKey(parsed(t, "user/uid:A/tags"), rev)] = setOf("red")
		s.reset(start)
		var members []string
		s.addActor(sequence(readTags("A", &members)))
		synctest.Wait()
		defer s.close()
		a := s.actors[0]
		for _, command := range []string{"SSCAN", "hmget"} {
			for _, r := range a.waiting() {
				if r.cmd != nil && r.args[0] == command {
					s.step(r, none)
				}
			}
			if command == "SSCAN" {
				e := s.newEngine(people.Guard)
				if err := e.complete(t.Context(), parsed(t, "user/uid:A"), rev+" i:tags"); err != nil {
					t.Fatal(err)
				}
			}
		}
		for len(a.waiting()) > 0 {
			s.step(a.waiting()[0], none)
		}
		if err := a.results[0]; err != nil || len(members) != 1 {
			t.Errorf("got the tags %q, %v; want the staged one", members, err)
		}
	})
}

// readTags returns a verb that reads the tags of an entry.
func readTags(uid string, members *[]string) verb {
	return verb{name: "read " + uid, do: func(ctx context.Context, a *actor) error {
		prk, _ := people.PRK(uid)
		key, _, err := people.TertiaryKey(prk, "tags", "set", nil)
		if err != nil {
			return err
		}
		reply, err := a.engine.Tertiary(ctx, store.Op{PRK: prk, Key: key, Command: "SMEMBERS", Schema: people.Guard})
		*members = reply.Items
		return err
	}}
}

// TestRemoveClaims checks that an attempt that has sent no commit removes its claim, unless the
// entry already has the value. In that case another process may have relied on the claim.
func TestRemoveClaims(t *testing.T) {
	for _, tt := range []struct{ value, left string }{{"n", "user/uid:A 0123456789ab"}, {"m", ""}} {
		e, w := newDirectEngine(t, entries(someRev, "A name=n")())
		srk := parsed(t, "user/name:"+tt.value+"/~prk")
		a := newAttempt(e, store.Change{Key: parsed(t, "user/uid:A"), Claim: []recordkey.Key{srk}})
		a.srv = "user/uid:A 0123456789ab"
		w.do([]string{"del", srk.String()})
		if err := a.claimAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.removeClaims(t.Context())
		left := ""
		if c := w.at(srk.String()); c != nil {
			left = c.text
		}
		if left != tt.left {
			t.Errorf("name=%s: the claim is now %q, want %q", tt.value, left, tt.left)
		}
	}
}
