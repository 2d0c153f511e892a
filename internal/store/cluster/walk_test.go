package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// A walk is one random run: two to four actors with one to three verbs each, which die, whose answers
// are lost, and whose writes arrive once more at any later time.
type walk struct {
	stage *stage
	rnd   *rand.Rand
	names []string
}

// TestWalks goes far beyond what can be searched through.
func TestWalks(t *testing.T) {
	const parts = 4
	count := setting("USERDB_WALKS", 10_000)
	for part := range parts {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStage(newWorld(unchanged), nil)
				for seed := part; seed < count; seed += parts {
					w := walk{stage: s, rnd: rand.New(rand.NewPCG(uint64(seed), uint64(setting("USERDB_SEED", 1))))}
					if v := w.run(); v != "" {
						t.Fatalf("walk %d: %s, in\n%s", seed, v, strings.Join(w.names, "\n"))
					}
				}
			})
		})
	}
}

func pick(r *rand.Rand, from string) string { return string(from[r.IntN(len(from))]) }

// start has none, one or both of A and B, with SRVs of a cluster or of one server.
func (w *walk) start() map[string]*cell {
	var each []string
	for _, uid := range "AB" {
		if w.rnd.IntN(3) > 0 {
			each = append(each, string(uid)+" email="+strings.ToLower(string(uid))+[]string{"", " job=cook"}[w.rnd.IntN(2)])
		}
	}
	return entries([]string{some, ""}[w.rnd.IntN(2)], each...)()
}

func (w *walk) verb() verb {
	uid, v, f := pick(w.rnd, "ABPQ"), pick(w.rnd, "abxAX"), []string{"email", "name"}[w.rnd.IntN(2)]
	words := f + "=" + v
	switch w.rnd.IntN(10) {
	case 0, 1:
		words = "email=" + v + " name=" + pick(w.rnd, "abx")
	case 2:
		words = f + "= job=" + []string{"cook", "baker"}[w.rnd.IntN(2)]
	}
	switch w.rnd.IntN(9) {
	case 0, 1, 2:
		return update(uid, words)
	case 3, 4:
		return remove(uid)
	case 5:
		return tag(uid, "red")
	case 6:
		return untag(uid, "red")
	}
	return create(uid, words, []string{"red", "blue"}[:w.rnd.IntN(3)]...)
}

func (w *walk) run() string {
	s := w.stage
	s.reset(w.start())
	defer s.close()
	for range 2 + w.rnd.IntN(3) {
		var verbs []verb
		for range 1 + w.rnd.IntN(3) {
			verbs = append(verbs, w.verb())
		}
		names := make([]string, len(verbs))
		for i, v := range verbs {
			names[i] = v.name
		}
		w.names = append(w.names, strings.Join(names, ", "))
		s.play(verbs)
	}
	synctest.Wait()
	faults := w.rnd.IntN(4) > 0 // else nothing happens but other orders
	whole := !faults
	for {
		if faults && len(s.late) > 0 && w.rnd.IntN(7) == 0 {
			i := w.rnd.IntN(len(s.late))
			s.world.do(s.late[i])
			s.late = slices.Delete(s.late, i, i+1)
		} else if !w.step(faults) {
			break
		}
		if v := s.violated(); v != "" {
			return v
		}
	}
	weary := slices.ContainsFunc(s.actors, func(a *actor) bool { return a.weary() })
	if whole && !weary {
		return s.leftover()
	}
	return ""
}

// step lets one request through; false when nobody has one.
func (w *walk) step(faults bool) bool {
	var all []*request
	for _, a := range w.stage.actors {
		all = append(all, a.waiting()...)
	}
	if len(all) == 0 {
		return false
	}
	r, f := all[w.rnd.IntN(len(all))], none
	if faults {
		switch w.rnd.IntN(100) {
		case 0:
			f = dies
		case 1, 2, 3, 4, 5, 6:
			f = lost
		}
	}
	if r.cmd == nil && f == lost {
		f = none
	}
	w.stage.step(r, f)
	return true
}
