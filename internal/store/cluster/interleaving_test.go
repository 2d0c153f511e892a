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
					preemptions: 3, faults: 1, most: setting("USERDB_STATES", 2_000_000),
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
