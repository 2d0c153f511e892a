package single

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// crowd is how many callers are under way when further ones begin to share round trips. Measured, a lone
	// caller loses half its speed by sharing, sixteen neither lose nor gain, and 128 gain two thirds.
	crowd     = 8
	trips     = 3                // how many shared round trips are under way at once: the server is never idle
	tripTime  = 10 * time.Second // how long one may take
	tripsMost = 256              // how many callers share one, where nothing else bounds it
)

// A shared way takes what many callers ask for at the same time to the server, many in one round trip.
// Nobody waits for others to come: whoever comes while no trip is free goes with the next one.
type shared[T any] struct {
	send    func(context.Context, []T) // ends when all of them are answered
	most    int
	mu      sync.Mutex
	waiting []*passenger[T]
	trips   int
}

// A passenger is what one caller asks for.
type passenger[T any] struct {
	of       T
	arrived  chan struct{} // closed behind the trip; what was done may be read then
	panicked any           // what a hook of the client did on the way: it is the caller's, as without others
}

// errAbandoned: the context ended while the command was under way; the server may run it.
var errAbandoned = errors.New("no answer before the end of the context")

// errExited: a hook of the client ended the goroutine of a trip (runtime.Goexit), which was not its callers'.
var errExited = errors.New("a hook ended the goroutine that many callers shared")

// take sends something with others and waits until it is answered. An error is one of the context, with
// errAbandoned where it was under way already: then it must not be looked at any more.
func (s *shared[T]) take(ctx context.Context, of T) error {
	p := &passenger[T]{of: of, arrived: make(chan struct{})}
	s.mu.Lock()
	s.waiting = append(s.waiting, p)
	if s.trips < trips {
		s.trips++
		go s.run()
	}
	s.mu.Unlock()
	select {
	case <-p.arrived:
		if p.panicked != nil {
			panic(p.panicked)
		}
		return nil
	case <-ctx.Done():
		if s.leave(p) {
			return ctx.Err()
		}
		return fmt.Errorf("%w: %w", errAbandoned, ctx.Err())
	}
}

// leave takes back what no trip has taken yet.
func (s *shared[T]) leave(p *passenger[T]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waiting, p)
	if i < 0 {
		return false
	}
	s.waiting = slices.Delete(s.waiting, i, i+1)
	return true
}

// run makes trips until nobody waits.
func (s *shared[T]) run() {
	for {
		runtime.Gosched() // whoever is about to come may still board
		some := s.board()
		if len(some) == 0 {
			return
		}
		s.trip(some)
	}
}

// board takes those who wait, or ends a run where nobody does.
func (s *shared[T]) board() []*passenger[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.waiting), s.most)
	if n == 0 {
		s.trips--
		return nil
	}
	some := slices.Clone(s.waiting[:n])
	s.waiting = slices.Delete(s.waiting, 0, n)
	return some
}

func (s *shared[T]) trip(some []*passenger[T]) {
	ended := false
	defer func() {
		panicked := recover()
		if !ended && panicked == nil { // runtime.Goexit: another goroutine goes on in the place of this one
			panicked = errExited
			go s.run()
		}
		for _, p := range some {
			p.panicked = panicked
			close(p.arrived)
		}
	}()
	// The contexts of the callers end their waiting, and none may end the others' trip.
	ctx, cancel := context.WithTimeout(context.Background(), tripTime)
	defer cancel()
	all := make([]T, len(some))
	for i, p := range some {
		all[i] = p.of
	}
	s.send(ctx, all)
	ended = true
}

// A counter says how many callers are under way.
type counter struct{ n atomic.Int32 }

// enter says whether the caller comes into a crowd; leave it afterwards.
func (c *counter) enter() (crowded bool) { return c.n.Add(1) > crowd }

func (c *counter) leave() { c.n.Add(-1) }
