// Package figures gathers figures that take longer than an answer may, such as counts that go over
// all records of a store: each once at a time, and few at the same time.
package figures

import (
	"context"
	"sync"
	"time"

	"github.com/coffeenode/userdb/internal/coded"
	"github.com/coffeenode/userdb/userdb"
)

// Limits of what is gathered.
const (
	gatherTime  = 10 * time.Minute // that one figure may take
	mostFigures = 200              // that are remembered
	mostAtOnce  = 4                // that are gathered at the same time
)

// Slow is how long a figure takes that is worth to be kept: it is used again for Rest times as long
// as it took, so that nobody makes a server gather it all the time.
const (
	slow = time.Second
	rest = 10
)

// ErrBusy says that so many figures are being gathered that no other one is begun.
var ErrBusy = coded.New(userdb.CodeUnavailable, "too many figures are being gathered")

// Figures are gathered in the background when somebody wants them, and known as they were then. The
// zero value is ready. They are safe for concurrent use.
type Figures struct {
	mu      sync.Mutex
	all     map[string]*figure
	base    context.Context // of all that is gathered; nil: nothing was yet
	stop    context.CancelFunc
	running int
	stopped bool
}

// A Figure is what Gather returns.
type Figure[T any] struct {
	Value T
	Begun time.Time // when gathering it began; zero: it is not known yet
	Ended time.Time
}

type figure struct {
	value        any
	err          error
	begun, ended time.Time
	running      chan struct{} // closed when it has been gathered; nil: it is not being gathered
}

// Close stops all that is being gathered.
func (f *Figures) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped = true; f.stop != nil {
		f.stop()
	}
}

// Gather returns a figure by its name. One that is older than age, and that was not slow to gather,
// is gathered anew, for which Gather waits until ctx ends. Then, and if it failed, the figure is as
// it was before, and the error says why.
func Gather[T any](ctx context.Context, f *Figures, name string, age time.Duration, gather func(context.Context) (T, error)) (Figure[T], error) {
	one, running, err := f.begin(name, age, func(ctx context.Context) (any, error) { return gather(ctx) })
	if running != nil {
		select {
		case <-running:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		err = one.err
	}
	value, _ := one.value.(T)
	return Figure[T]{value, one.begun, one.ended}, err
}

// begin gathers a figure that is not known, or old, and returns what is closed when that is done;
// nil if nothing need be done.
func (f *Figures) begin(name string, age time.Duration, gather func(context.Context) (any, error)) (*figure, chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.all[name]
	if one == nil {
		one = &figure{}
	}
	switch {
	case f.stopped:
		return one, nil, context.Canceled
	case one.running != nil || one.fresh(age):
		return one, one.running, nil
	case f.running >= mostAtOnce:
		return one, nil, ErrBusy
	}
	if f.all == nil || len(f.all) >= mostFigures {
		f.all = map[string]*figure{}
	}
	f.all[name] = one
	f.running++
	if f.base == nil {
		f.base, f.stop = context.WithCancel(context.Background())
	}
	ctx, cancel := context.WithTimeout(f.base, gatherTime)
	running := make(chan struct{})
	one.running = running
	go func() {
		defer cancel()
		begun := time.Now()
		value, err := gather(ctx)
		f.mu.Lock()
		defer f.mu.Unlock()
		one.running, one.err = nil, err
		f.running--
		if err == nil {
			one.value, one.begun, one.ended = value, begun, time.Now()
		}
		close(running)
	}()
	return one, running, nil
}

// fresh reports whether a figure need not be gathered anew.
func (one *figure) fresh(age time.Duration) bool {
	if one.ended.IsZero() {
		return false
	}
	if took := one.ended.Sub(one.begun); took >= slow {
		age = max(age, rest*took)
	}
	return time.Since(one.ended) < age
}
