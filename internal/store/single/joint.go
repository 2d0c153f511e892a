package single

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/coffeenode/userdb/internal/store"
)

const (
	jointTime = 10 * time.Second // how long a script for many callers may take
	jointMost = createsMost      // how many creates it makes
	jointRuns = 2                // how many of them are under way at once: the server is never idle
)

// A joint makes the entries of callers that create at the same time, many in one script: that costs the
// server less than half. Nobody waits to be joined: whoever comes while no script is free goes with the
// next one.
type joint struct {
	create  func(context.Context, []*createGroup)
	mu      sync.Mutex
	waiting []*passenger
	runs    int
}

// A passenger is a create that waits for its script.
type passenger struct {
	creation
	arrived chan struct{} // closed behind the script; what was done may be read then
}

// apply makes an entry together with others, or says that this one was not made: done is false, and
// maybe that nobody knows. An error is one of the context.
func (j *joint) apply(ctx context.Context, c store.Change, token string) (done, maybe bool, err error) {
	p := &passenger{creation: creation{c: &c, token: token}, arrived: make(chan struct{})}
	j.mu.Lock()
	j.waiting = append(j.waiting, p)
	if j.runs < jointRuns {
		j.runs++
		go j.run()
	}
	j.mu.Unlock()
	select {
	case <-p.arrived:
		return p.done, p.maybe, nil
	case <-ctx.Done():
		return false, !j.leave(p), ctx.Err()
	}
}

// leave takes back a create that no script has taken yet.
func (j *joint) leave(p *passenger) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	i := slices.Index(j.waiting, p)
	if i < 0 {
		return false
	}
	j.waiting = slices.Delete(j.waiting, i, i+1)
	return true
}

// run sends scripts until nobody waits.
func (j *joint) run() {
	for {
		some := j.board()
		if len(some) == 0 {
			return
		}
		j.send(some)
	}
}

// board takes those who wait, or ends a run where nobody does.
func (j *joint) board() []*passenger {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := min(len(j.waiting), jointMost)
	if n == 0 {
		j.runs--
		return nil
	}
	some := slices.Clone(j.waiting[:n])
	j.waiting = slices.Delete(j.waiting, 0, n)
	return some
}

func (j *joint) send(some []*passenger) {
	defer func() {
		for _, p := range some {
			close(p.arrived)
		}
	}()
	// The contexts of the callers end their waiting, and none may end the others' script.
	ctx, cancel := context.WithTimeout(context.Background(), jointTime)
	defer cancel()
	var needs store.Needs
	all := make([]*creation, 0, len(some))
	for _, p := range some {
		if needs.Add(p.c) { // else another of them comes first
			all = append(all, &p.creation)
		}
	}
	j.create(ctx, groups(all))
}
