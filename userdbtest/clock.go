package userdbtest

import (
	"sync"
	"time"
)

// A Clock is the clock of a store. It determines the lifetimes of tokens and sessions, the delays
// of logins, and the times of changes. It starts at the current time and stands still until a test
// advances it. It is safe for concurrent use.
type Clock struct {
	t   TB
	mu  sync.Mutex
	now time.Time
}

// Now returns the time of the clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock forward by d. A negative d fails the test, because stores rely on time
// not going back.
func (c *Clock) Advance(d time.Duration) {
	c.t.Helper()
	if d < 0 {
		c.t.Fatalf("userdbtest: cannot move the clock by %v", d)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
