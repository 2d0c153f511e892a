// Package hashcost is the switch that makes password hashes cheap in tests: for all that this module hashes in its own, and
// for one hasher in those of others, by package userdbtest. Only this module can import it, and only something that runs as
// tests do can turn it, so no program does so by accident.
package hashcost

import "sync/atomic"

const (
	reduction = 8 // a hash of cost 12 costs as much as one of cost 4
	minCost   = 4 // what bcrypt has at least
)

var cheap atomic.Bool

// Cheap runs tests with cheap hashes and returns their exit code:
//
//	func TestMain(m *testing.M) { os.Exit(hashcost.Cheap(m)) }
func Cheap(m interface{ Run() int }) int {
	defer cheap.Store(cheap.Swap(true))
	return m.Run()
}

// Of is the cost to hash with where cost is meant: the same, but eight less (and no less than four) in tests that run
// under Cheap. So 12 and 13 still differ there.
func Of(cost int) int {
	if !cheap.Load() {
		return cost
	}
	return reduced(cost)
}

func reduced(cost int) int { return max(cost-reduction, minCost) }

// A Hasher is a *password.Hasher, which this package cannot name: that one imports it.
type Hasher interface{ Cost() int }

// Set gives a *password.Hasher another cost. Package password sets it when it is loaded.
var Set func(h Hasher, cost int)

// Lower makes one hasher cheap, as all are under Cheap, before it is used.
func Lower(h Hasher) { Set(h, reduced(h.Cost())) }
