// Package hashcost makes password hashes cheap in tests: every hash in this module's own tests, and
// single hashers in the tests of other modules through package userdbtest. Only this module can
// import it, and the only way to turn it on for all hashes is to pass Cheap something that runs
// tests, so no program makes its hashes cheap by accident. 'userdb tour' also lowers the cost of
// its own hasher.
package hashcost

import "sync/atomic"

const (
	reduction = 8 // a hash of cost 12 costs as much as one of cost 4
	minCost   = 4 // the minimum of bcrypt
)

var cheap atomic.Bool

// Cheap runs tests with cheap hashes and returns their exit code:
//
//	func TestMain(m *testing.M) { os.Exit(hashcost.Cheap(m)) }
func Cheap(m interface{ Run() int }) int {
	defer cheap.Store(cheap.Swap(true))
	return m.Run()
}

// Of returns the cost to use for a configured cost. That is the configured cost itself or, in tests
// that run under Cheap, eight less but at least four. So costs of 12 and 13 still differ there.
func Of(cost int) int {
	if !cheap.Load() {
		return cost
	}
	return reduced(cost)
}

func reduced(cost int) int { return max(cost-reduction, minCost) }

// A Hasher is a *password.Hasher, which this package cannot name because package password imports
// it.
type Hasher interface{ Cost() int }

// Set changes the cost of a *password.Hasher. Package password initializes it.
var Set func(h Hasher, cost int)

// Lower makes one hasher as cheap as all hashers are under Cheap. Call it before using the hasher.
func Lower(h Hasher) { Set(h, reduced(h.Cost())) }
