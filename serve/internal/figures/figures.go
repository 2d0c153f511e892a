// Package figures gathers figures that may take longer than a request can wait, such as counts that
// scan all records of a store. Requests for the same figure share its result, and only a few
// figures are gathered at the same time.
package figures

import (
	"context"
	"sync"
	"time"

	"github.com/coffeenode/userdb/internal/coded"
	"github.com/coffeenode/userdb/userdb"
)

// Limits of a Cache.
const (
	gatherTimeout = 10 * time.Minute // for one figure
	maxFigures    = 200              // in the cache; see makeRoom
	maxConcurrent = 4                // being gathered at the same time
)

// A figure that takes at least slowThreshold to gather is reused for reuseFactor times as long as
// it took, so that a server does not spend all its time gathering it.
const (
	slowThreshold = time.Second
	reuseFactor   = 10
)

// ErrBusy is the error that [Gather] returns if too many other figures are being gathered.
var ErrBusy = coded.New(userdb.CodeUnavailable, "too many figures are being gathered")

// Cache gathers figures in the background on demand, and keeps the latest value of each. The zero
// value is ready to use. It is safe for concurrent use.
type Cache struct {
	mu      sync.Mutex
	all     map[string]*figure
	base    context.Context // parent of all contexts for gathering; nil before the first
	stop    context.CancelFunc
	running int
	clients map[string]chan struct{} // by client; closed when its running figure has been gathered
	stopped bool
}

// A Value holds a value and says when it was gathered.
type Value[T any] struct {
	Value     T
	StartedAt time.Time // when gathering began; zero if there is no value yet
	EndedAt   time.Time
}

type figure struct {
	client       string // the last one for whom it was gathered
	value        any
	err          error
	begun, ended time.Time
	done         chan struct{} // closed when gathering ends; nil if it is not being gathered
}

// Close cancels all gathering. Later calls of [Gather] return [context.Canceled].
func (f *Cache) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped = true; f.stop != nil {
		f.stop()
	}
}

// Gather returns the figure with a name. It reuses a value that is no older than age, or that was
// slow to gather and is not much older. Otherwise it calls gather in the background and waits for
// it. If ctx ends first or gather fails, Gather returns the error together with the previous value.
func Gather[T any](ctx context.Context, f *Cache, name string, age time.Duration, gather func(context.Context) (T, error)) (Value[T], error) {
	return GatherFor(ctx, f, "", name, age, gather)
}

// GatherFor calls [Gather] on behalf of a client, such as an API key. If another figure is being
// gathered for that client, GatherFor first waits for that one, so that no client can keep out the
// others. The client "" has no such limit.
func GatherFor[T any](ctx context.Context, f *Cache, client, name string, age time.Duration, gather func(context.Context) (T, error)) (Value[T], error) {
	var fig *figure
	var err error
	for again := true; again; {
		var done chan struct{}
		fig, done, again, err = f.start(client, name, age, func(ctx context.Context) (any, error) { return gather(ctx) })
		if done == nil {
			break
		}
		select {
		case <-done:
		case <-ctx.Done():
			again, err = false, ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		err = fig.err
	}
	value, _ := fig.value.(T)
	return Value[T]{value, fig.begun, fig.ended}, err
}

// start begins gathering a figure, unless its value can be reused or it is already being gathered.
// It returns the figure and a channel that is closed when gathering ends, or nil if there is
// nothing to wait for. If again is set, the channel belongs to another figure of the client, and
// the caller must call start again once it is closed.
func (f *Cache) start(client, name string, age time.Duration, gather func(context.Context) (any, error)) (fig *figure, done chan struct{}, again bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fig = f.all[name]; fig == nil {
		fig = &figure{}
	}
	switch {
	case f.stopped:
		return fig, nil, false, context.Canceled
	case fig.done != nil || fig.fresh(age):
		return fig, fig.done, false, nil
	case f.clients[client] != nil:
		return fig, f.clients[client], true, nil
	case f.running >= maxConcurrent:
		return fig, nil, false, ErrBusy
	}
	if f.all == nil {
		f.all = map[string]*figure{}
	}
	if f.all[name] == nil {
		f.makeRoom()
	}
	f.all[name], fig.client = fig, client
	f.running++
	if f.base == nil {
		f.base, f.stop = context.WithCancel(context.Background())
	}
	ctx, cancel := context.WithTimeout(f.base, gatherTimeout)
	done = make(chan struct{})
	fig.done = done
	if client != "" {
		if f.clients == nil {
			f.clients = map[string]chan struct{}{}
		}
		f.clients[client] = done
	}
	go func() {
		defer cancel()
		begun := time.Now()
		value, err := gather(ctx)
		f.mu.Lock()
		defer f.mu.Unlock()
		fig.done, fig.err = nil, err
		f.running--
		delete(f.clients, client)
		if err == nil {
			fig.value, fig.begun, fig.ended = value, begun, time.Now()
		}
		close(done)
	}()
	return fig, done, false, nil
}

// makeRoom removes a figure if the cache is full: the oldest one of the client that has the most.
// So a client that asks for many figures displaces only its own. Figures that are being gathered
// stay.
func (f *Cache) makeRoom() {
	if len(f.all) < maxFigures {
		return
	}
	counts := map[string]int{}
	for _, fig := range f.all {
		counts[fig.client]++
	}
	var victimName string
	var victim *figure
	for name, fig := range f.all {
		if fig.done != nil {
			continue
		}
		if victim == nil || counts[fig.client] > counts[victim.client] ||
			counts[fig.client] == counts[victim.client] && fig.ended.Before(victim.ended) {
			victimName, victim = name, fig
		}
	}
	delete(f.all, victimName)
}

// fresh reports whether the value of a figure can be reused.
func (fig *figure) fresh(age time.Duration) bool {
	if fig.ended.IsZero() {
		return false
	}
	if took := fig.ended.Sub(fig.begun); took >= slowThreshold {
		age = max(age, reuseFactor*took)
	}
	return time.Since(fig.ended) < age
}
