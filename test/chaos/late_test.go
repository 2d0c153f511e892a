//go:build linux

package chaos

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/userdb"
)

const (
	beat  = 20 * time.Millisecond
	grace = 2 * time.Second // how long a call may go on after its context ended
)

// hashing lists the verbs that hash a password. A hash cannot be interrupted, and may take seconds
// on a busy machine.
var hashing = []string{"create", "login", "password"}

// A pulse measures the time during which its process runs, in beats. It does not advance while the
// nemesis has stopped the process or a busy machine does not run it, so that no call counts as late
// because of that.
type pulse struct{ beats atomic.Int64 }

func newPulse() *pulse {
	p := &pulse{}
	go func() {
		for ; ; time.Sleep(beat) {
			p.beats.Add(1)
		}
	}()
	return p
}

// timeCall calls a function with a context that ends after timeout. It returns the time in
// milliseconds that the call went on after that, or 0 for less than grace.
func (p *pulse) timeCall(ctx context.Context, timeout time.Duration, call func(context.Context)) int64 {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	begin := p.beats.Load()
	call(ctx)
	if late := time.Duration(p.beats.Load()-begin)*beat - timeout; late > grace {
		return late.Milliseconds()
	}
	return 0
}

// A burst consists of many goroutines. Each changes its own account. Each change adds a line to the
// feed, and while a server does not answer, these lines fill every queue for the feed.
const (
	burstSize    = 64
	burstTimeout = 500 * time.Millisecond // time limit of each call
)

// burst runs a burst for the given duration. It tells the parent process about each call that goes
// on for longer than grace after its context ended.
func (c *client) burst(ctx context.Context, duration time.Duration) {
	<-c.opened
	ctx, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	var all sync.WaitGroup
	for i := range burstSize {
		all.Go(func() {
			uid := fmt.Sprintf("burst-%d-%d", c.Number, i)
			for n := 0; ctx.Err() == nil; n++ {
				late := c.pulse.timeCall(context.Background(), burstTimeout, func(ctx context.Context) { c.changeInBurst(ctx, uid, n) })
				if late > 0 {
					fmt.Println("late", late)
				}
			}
		})
	}
	all.Wait()
}

// changeInBurst makes change n of an account. The first one creates it.
func (c *client) changeInBurst(ctx context.Context, uid string, n int) {
	if n == 0 {
		_, _ = c.users.Create(ctx, userdb.NewEntry{UID: uid}) // the account may exist
		return
	}
	// These changes touch only the entry. So while a master does not answer, most of them need that
	// master only for its part of the feed.
	change := c.users.Enable
	if n%2 == 1 {
		change = c.users.Disable
	}
	_ = change(ctx, hints.UID(uid)) // nobody judges these accounts
}
