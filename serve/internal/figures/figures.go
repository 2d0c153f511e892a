package console

import (
	"context"
	"errors"
	"sync"
	"time"
)

// What a page waits for a figure that is not known yet, how long one may be gathered, and how old one gets that goes over all records.
const (
	figureAge   = 5 * time.Minute
	figureWait  = 100 * time.Millisecond
	figureTime  = 10 * time.Minute
	mostFigures = 200
	mostAtOnce  = 4 // figures that are gathered at a time
)

// Figures are what takes longer to gather than a page may take. They are gathered in the background when a page wants them, and
// shown as they were then. The zero value is ready.
type figures struct {
	mu      sync.Mutex
	all     map[string]*figure
	base    context.Context // of all that is gathered; nil: nothing was yet
	stop    context.CancelFunc
	running int
	stopped bool
}

type figure struct {
	value   any
	at      time.Time
	running chan struct{} // nil: it is not being gathered
}

func (f *figures) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped = true; f.stop != nil {
		f.stop()
	}
}

// gathered is a figure by its name, and when that was so; the zero time: it is not known yet. One that is older than age is gathered
// anew, for which it waits until ctx ends: see soon.
func gathered[T any](ctx context.Context, f *figures, name string, age time.Duration, gather func(context.Context) (T, error)) (value T, at time.Time) {
	running := f.begin(name, age, func(ctx context.Context) (any, error) { return gather(ctx) })
	if running != nil {
		select {
		case <-running:
		case <-ctx.Done():
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if one := f.all[name]; one != nil {
		value, _ = one.value.(T)
		at = one.at
	}
	return value, at
}

// begin gathers a figure that is not known, or old, and returns what is closed when that is done; nil: nothing need be done.
func (f *figures) begin(name string, age time.Duration, gather func(context.Context) (any, error)) chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.all[name]
	if one == nil {
		if f.all == nil || len(f.all) >= mostFigures {
			f.all = map[string]*figure{}
		}
		one = &figure{}
		f.all[name] = one
	}
	if one.running != nil || f.stopped || f.running >= mostAtOnce || time.Since(one.at) < age {
		return one.running
	}
	f.running++
	if f.base == nil {
		f.base, f.stop = context.WithCancel(context.Background())
	}
	ctx, cancel := context.WithTimeout(f.base, figureTime)
	running := make(chan struct{})
	one.running = running
	go func() {
		defer cancel()
		value, err := gather(ctx)
		f.mu.Lock()
		defer f.mu.Unlock()
		one.running = nil
		f.running--
		if err == nil {
			one.value, one.at = value, time.Now()
		}
		close(running)
	}()
	return running
}

// soon is how long a page waits for all its figures.
func soon(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, figureWait)
}

// isAny reports whether an error is one of some.
func isAny(err error, some ...error) bool {
	for _, one := range some {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}
