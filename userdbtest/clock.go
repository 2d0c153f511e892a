package userdbtest

import (
	"sync"
	"time"
)

// A Clock is what a store goes by: how long tokens and sessions live, how long logins are held back, and when something was done. It begins at
// the time of the machine and stands still until it is moved. It is safe for concurrent use.
type Clock struct {
	t   TB
	mu  sync.Mutex
	now time.Time
}

// Now is the time of the clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock on. To move it back ends the test: no store has seen that.
func (c *Clock) Advance(d time.Duration) {
	c.t.Helper()
	if d < 0 {
		c.t.Fatalf("userdbtest: a clock does not go back, as by %v", d)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
