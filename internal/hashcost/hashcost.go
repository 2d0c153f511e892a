// Package hashcost is the switch that makes password hashes cheap in the tests of this module. Only this module can
// import it, and only something that runs as tests do can turn it, so no program does so by accident.
package hashcost

import "sync/atomic"

const (
	saved = 8 // a hash of cost 12 costs as much as one of cost 4
	least = 4 // what bcrypt has at least
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
	return max(cost-saved, least)
}
