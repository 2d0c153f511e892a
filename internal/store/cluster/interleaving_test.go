package cluster

import (
	"os"
	"strconv"
	"testing"
	"testing/synctest"
)

// setting is a number that the environment may make larger.
func setting(name string, usual int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return usual
}

func unchanged(source string) string { return source }

// TestInterleavings takes the engine's own code through all orders of its commands with up to three
// preemptions, and one death or one lost answer.
func TestInterleavings(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				x := explorer{
					stage: newStage(newWorld(unchanged), nil), scenario: s,
					preemptions: setting("USERDB_PREEMPTIONS", 2), faults: 1, most: setting("USERDB_STATES", 300_000),
				}
				if v := x.explore(); v != "" {
					t.Fatalf("after %d states: %s", x.states, v)
				}
				how := "exhaustive"
				if x.limited() {
					how = "NOT exhaustive"
				}
				t.Logf("%s: %d states, %d ends (%d of them out of time), %d situations of an actor, %d of a command",
					how, x.states, x.ends, x.weary, len(x.troupe.nodes), len(x.stock.effects))
			})
		})
	}
}

// TestRefusals takes the engine through orders of its commands where nodes do not serve one of them: the slot is another's,
// or is being migrated, or a script is refused one of its writes, whichever; or a replica takes over that lacks the last
// of them. Whoever is told that something was not done may believe it.
func TestRefusals(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer wrong
		kinds  []fault
	}{
		{"slots", nonLocal, append([]fault{moved, asked, tryAgain, undone}, refusals...)},
		{"rights", noRight, refusals},
	} {
		for _, s := range scenarios() {
			t.Run(tt.name+": "+s.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(unchanged)
					w.answer = tt.answer
					x := explorer{
						stage: newStage(w, nil), scenario: s, kinds: tt.kinds,
						preemptions: 1, faults: 1, most: setting("USERDB_STATES", 300_000),
					}
					if v := x.explore(); v != "" {
						t.Fatalf("after %d states: %s", x.states, v)
					}
					t.Logf("%d states, %d ends; limited: %v", x.states, x.ends, x.limited())
				})
			})
		}
	}
}
