package cluster

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/coffeenode/userdb/internal/store"
)

// TestOutcomeUnknown shows when nobody can know whether a change was made: no answer to its commit ever
// comes, or none before the entry has forgotten it. Everything stays as it is then (step 7).
func TestOutcomeUnknown(t *testing.T) {
	for _, tt := range []struct {
		name    string
		lost    int    // answers to the commit
		between []verb // what others do before it is sent again
		want    error
	}{
		{name: "answered", want: nil},
		{name: "one answer is lost", lost: 1, want: nil},
		{name: "no answer comes", lost: 1000, want: store.ErrOutcomeUnknown},
		{name: "others changed the entry, which remembers", lost: 1, between: then(update("P", "name=a"), update("P", "name=b")), want: nil},
		{
			name: "others changed the entry, which has forgotten", lost: 1, want: store.ErrOutcomeUnknown,
			between: then(update("P", "name=a"), update("P", "name=b"), update("P", "name=c"), update("P", "name=d")),
		},
		{
			name: "others deleted the entry, and made it anew", lost: 1, want: store.ErrOutcomeUnknown,
			between: then(remove("P"), create("P", "name=a"), remove("P"), create("P", "name=b")),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(newWorld(unchanged), nil)
				s.reset(nothing())
				s.play(then(create("P", "email=x")))
				synctest.Wait()
				lose := tt.lost
				for a := s.actors[0]; len(a.waiting()) > 0; {
					r, f := a.waiting()[0], none
					if r.cmd != nil && lose > 0 && r.args[1] == commitScript.SHA {
						lose, f = lose-1, lost
					}
					s.step(r, f)
					if f == lost && len(tt.between) > 0 {
						s.play(tt.between)
						synctest.Wait()
						for b := s.actors[len(s.actors)-1]; len(b.waiting()) > 0; {
							s.step(b.waiting()[0], none)
						}
					}
					if v := s.violated(); v != "" {
						t.Fatal(v)
					}
				}
				if err := s.actors[0].results[0]; !errors.Is(err, tt.want) || errors.Is(err, store.ErrDuplicate) {
					t.Errorf("got %v, want %v", err, tt.want)
				}
				if s.commits["0: 0 create P email=x"] != 1 {
					t.Errorf("committed %d times, want once", s.commits["0: 0 create P email=x"])
				}
			})
		})
	}
}
