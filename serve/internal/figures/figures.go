// Package figures gathers figures that may take longer than a request can wait, such as counts that
// scan all records of a store. It gathers each figure once at a time, and only a few at the same
// time.
package figures

import (
	"context"
	"sync"
	"time"

	"github.com/coffeenode/userdb/internal/coded"
	"github.com/coffeenode/userdb/userdb"
)

// Limits on gathering.
const (
	gatherTime  = 10 * time.Minute // for one figure
	mostFigures = 200              // that are kept
	mostAtOnce  = 4                // that are gathered at the same time
)

// A figure that takes at least slow to gather is reused for rest times as long as it took, so that
// a server does not spend all its time gathering it.
const (
	slow = time.Second
	rest = 10
)

// ErrBusy is the error that [Gather] returns if too many other figures are being gathered.
var ErrBusy = coded.New(userdb.CodeUnavailable, "too many figures are being gathered")

// Figures gathers figures in the background on demand, and keeps the latest value of each. The zero
// value is ready to use. It is safe for concurrent use.
type Figures struct {
	mu      sync.Mutex
	all     map[string]*figure
	base    context.Context // parent of all contexts for gathering; nil before the first
	stop    context.CancelFunc
	running int
	stopped bool
}

// A Figure holds a value and says when it was gathered.
type Figure[T any] struct {
	Value T
	Begun time.Time // when gathering began; zero if there is no value yet
	Ended time.Time
}

type figure struct {
	value        any
	err          error
	begun, ended time.Time
	running      chan struct{} // closed when gathering ends; nil if it is not under way
}

// Close cancels all gathering. Later calls of [Gather] return [context.Canceled].
func (f *Figures) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped = true; f.stop != nil {
		f.stop()
	}
}

// Gather returns the figure with a name. It reuses a value that is no older than age, or that was
// slow to gather and is not much older. Otherwise it calls gather in the background and waits for
// it. If ctx ends first or gather fails, Gather returns the error together with the previous value.
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

// begin starts gathering a figure, unless its value can be reused or it is being gathered already.
// It returns the figure and a channel that is closed when gathering ends, or nil if there is
// nothing to wait for.
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

// fresh reports whether the value of a figure can be reused.
func (one *figure) fresh(age time.Duration) bool {
	if one.ended.IsZero() {
		return false
	}
	if took := one.ended.Sub(one.begun); took >= slow {
		age = max(age, rest*took)
	}
	return time.Since(one.ended) < age
}
