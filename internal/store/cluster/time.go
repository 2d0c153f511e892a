package cluster

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// How many round trips to wait before a claim is taken over: more than whoever queues needs from his first claim to his
// commit. Callers that want values which nobody has, one to three of them, under fields in any order, succeed after 3 to
// 12 rounds, and are told that they are too late after 8 to 16 (TestContention). Whoever takes over a claim of the dead
// waits some milliseconds more.
const waitLeast, waitMost = 12, 30

// together runs one function for each of n things at the same time and, when all have ended, returns
// the error of the first of them that has one.
func together(n int, f func(i int) error) error {
	if n == 1 {
		return f(0)
	}
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = f(i) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// trips keeps how long a round trip takes: quick to learn that it takes longer, as under contention,
// when waits that are too short make contenders fence each other.
type trips struct{ mean atomic.Int64 }

func (t *trips) took(d time.Duration) {
	mean := t.mean.Load()
	step := (int64(d) - mean) / 32
	if int64(d) > mean {
		step = (int64(d) - mean) / 2
	}
	t.mean.Store(mean + step)
}

// several is the time of some round trips, with jitter: so that contenders part.
func (t *trips) several(least, most int) time.Duration {
	trip := max(time.Duration(t.mean.Load()), 200*time.Microsecond)
	return time.Duration(least)*trip + rand.N(time.Duration(most-least)*trip)
}

// pause waits for d, give or take half of it.
func (e *Engine) pause(ctx context.Context, d time.Duration) error {
	return e.sleep(ctx, d/2+rand.N(d))
}

// afterwards does what is left to do when it is decided how a verb ends. It goes on for a while when
// the caller's time is over, but the caller does not wait for it then.
func afterwards(ctx context.Context, most time.Duration, do func(ctx context.Context)) {
	long, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
	if ctx.Done() == nil {
		defer cancel()
		do(long)
		return
	}
	done := make(chan struct{})
	go func() {
		defer cancel()
		defer close(done)
		do(long)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}
