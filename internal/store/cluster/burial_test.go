package cluster

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestBurialTakenOver has a delete die at each of its steps. The entry can be created anew: at once where
// the delete had not begun or had ended, else when it must have died; it has nothing of the old one then.
func TestBurialTakenOver(t *testing.T) {
	const most = 100
	for steps, ended := 0, false; !ended; steps++ {
		if steps == most {
			t.Fatal("the delete does not end")
		}
		t.Run(fmt.Sprint(steps), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(newWorld(unchanged), nil)
				s.patience = 1000
				start := entries(some, "A email=a job=cook")
				s.reset(with(with(start, "user/uid:A/tags", setOf("admin")), "user/tags:admin/~prks", setOf("user/uid:A"))())
				s.play(then(remove("A")))
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

// createAnew creates A over what is left of it, if it is dead, while time goes by.
func (s *stage) createAnew(t *testing.T) {
	t.Helper()
	dead := !s.recordOf("user/uid:A").Live()
	waits := dead && s.world.at("user/uid:A").field("~dying") != nil
	begin := s.world.now
	s.play(then(create("A", "email=x", "red")))
	synctest.Wait()
	a := s.actors[1]
	for len(a.waiting()) > 0 {
		if r := a.waiting()[0]; r.text == "pause" {
			s.world.now += 1000
		}
		s.step(a.waiting()[0], none)
		if v := s.violated(); v != "" {
			t.Fatal(v)
		}
	}
	took := time.Duration(s.world.now-begin) * time.Millisecond
	switch err := a.results[0]; {
	case !dead && err == nil:
		t.Error("created over a live entry")
	case dead && err != nil:
		t.Errorf("got %v", err)
	case waits != (took > finishTime), took > burialTime+2*time.Second:
		t.Errorf("waited %v; the burial was under way: %v", took, waits)
	}
	if v := anew(s); v != "" {
		t.Error(v)
	}
	if c := s.world.at("user/uid:A"); dead && (c.field("~dying") != nil || c.field("~since") != nil) {
		t.Errorf("still dying: %v", c)
	}
}

// TestBurialIsNotTakenFromTheLiving has a create wait for a delete that is slow, and for another burial
// that began meanwhile.
func TestBurialIsNotTakenFromTheLiving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(newWorld(unchanged), nil)
		s.patience = 1000
		s.reset(map[string]*cell{"user/uid:A": ending(hash("~rev=rA__________ ~dying=aaaaaaaaaaaabbbbbbbbbbbb ~since=1000,1000"), startTime+80_000_000)})
		s.play(then(create("A", "email=x", "red")))
		synctest.Wait()
		defer s.close()
		a := s.actors[0]
		for i := 0; len(a.waiting()) > 0; i++ {
			if s.world.now < startTime+(burialTime-2*time.Second).Milliseconds() && s.recordOf("user/uid:A").Live() {
				t.Fatal("created while a burial was under way")
			}
			r := a.waiting()[0]
			if r.text == "pause" {
				s.world.now += 1000
			}
			if dying := s.world.at("user/uid:A").field("~dying"); i < 1000 && dying != nil && len(dying.(string)) == 36 {
				i = 1000 // it takes over: now a third begins
				s.world.do([]string{"hset", "user/uid:A", "~dying", dying.(string) + "cccccccccccc", "~since", fmt.Sprint(s.world.at("user/uid:A").field("~since"), " ", s.world.now/1000)})
			}
			s.step(r, none)
			if dying := s.world.at("user/uid:A").field("~dying"); i > 1000 && dying == "cccccccccccc" {
				return // those who died are out, and the third is waited for
			}
		}
		t.Error("the burial that began meanwhile was ended, too")
	})
}
