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
	grace = 2 * time.Second // for which a call may go on after its context has ended
)

// hashing are the verbs that make a hash, which nothing interrupts. On a busy machine that may take
// seconds.
var hashing = []string{"create", "login", "password"}

// A pulse beats while its process runs. It has no beats for the time for which the process is
// stopped, or a busy machine does not let it run. So it times calls in a process that a nemesis
// stops.
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

// within makes a call with a context of some length. It returns for how many milliseconds the call
// went on after that, 0 for less than grace.
func (p *pulse) within(ctx context.Context, most time.Duration, call func(context.Context)) int64 {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	begin := p.beats.Load()
	call(ctx)
	if late := time.Duration(p.beats.Load()-begin)*beat - most; late > grace {
		return late.Milliseconds()
	}
	return 0
}

// A crowd changes accounts of its own, all at once: so many that the lines of what they do fill
// every queue for the feed while a server keeps silent.
const (
	crowdSize = 64
	crowdMost = 500 * time.Millisecond // each call
)

// crowd makes a crowd for a while. It tells the parent of calls that do not end with their
// contexts.
func (c *client) crowd(ctx context.Context, hold time.Duration) {
	<-c.opened
	ctx, cancel := context.WithTimeout(ctx, hold)
	defer cancel()
	var all sync.WaitGroup
	for i := range crowdSize {
		all.Go(func() {
			uid := fmt.Sprintf("crowd-%d-%d", c.Number, i)
			for n := 0; ctx.Err() == nil; n++ {
				late := c.pulse.within(context.Background(), crowdMost, func(ctx context.Context) { c.inCrowd(ctx, uid, n) })
				if late > 0 {
					fmt.Println("late", late)
				}
			}
		})
	}
	all.Wait()
}

// inCrowd makes one change of an account, and makes that first.
func (c *client) inCrowd(ctx context.Context, uid string, n int) {
	if n == 0 {
		_, _ = c.users.Create(ctx, userdb.NewEntry{UID: uid}) // it may be there
		return
	}
	change := c.users.Enable // of the entry alone, so that most need nothing of the silent server but the feed
	if n%2 == 1 {
		change = c.users.Disable
	}
	_ = change(ctx, hints.UID(uid)) // what is answered is judged of other accounts
}
