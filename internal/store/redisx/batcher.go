package redisx

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	// BatchThreshold is the number of callers that must be active before further ones share round
	// trips. In measurements, sharing makes a single caller half as fast and four callers up to a
	// quarter slower, but sixteen callers 1.5 times and 128 callers three times as fast.
	BatchThreshold = 8
	// MaxFlushes limits the batches in flight. While one is at the server, the callers of the other
	// continue. In measurements, a limit of one costs a sixth of the speed, and a limit of three
	// gains nothing and makes the batches smaller.
	MaxFlushes = 2
	// flushTimeout limits how long a flush may take.
	flushTimeout = 10 * time.Second
	// MaxBatch is the default limit on the calls in a batch.
	MaxBatch = 256
)

// A Batcher sends the concurrent calls of many callers together, many in one round trip. No call
// waits for others to arrive. Calls that arrive while all flushes are in flight go with the next
// one.
type Batcher[T any] struct {
	flush   func(context.Context, []T)
	limit   int
	mu      sync.Mutex
	waiting []*call[T]
	flushes int
}

// A call holds the items that one caller passes to Do.
type call[T any] struct {
	items []T
	// done is closed after the flush. Only then may the results be read.
	done chan struct{}
	// panicked is the value with which a hook of the client panicked during the flush. The caller
	// panics with it, as it would without a batch.
	panicked any
}

// ErrAbandoned means that the context ended while the call was in flight. The server may still
// carry it out.
var ErrAbandoned = errors.New("the context ended before the answer")

// errExited means that a hook of the client called runtime.Goexit and thereby ended the goroutine
// of a flush, which belongs to no caller.
var errExited = errors.New("a hook ended the goroutine that many callers shared")

// NewBatcher returns a Batcher that sends up to limit calls together. It passes their items to
// flush, which must not return before all of them are answered.
func NewBatcher[T any](limit int, flush func(context.Context, []T)) *Batcher[T] {
	return &Batcher[T]{flush: flush, limit: limit}
}

// Do sends the items of a call in one batch with those of other calls, and waits until they are
// answered. The only errors are those of the context. If the call was already in flight, the error
// is also ErrAbandoned, and the items must not be used anymore.
func (b *Batcher[T]) Do(ctx context.Context, items ...T) error {
	c := &call[T]{items: items, done: make(chan struct{})}
	b.mu.Lock()
	b.waiting = append(b.waiting, c)
	if b.flushes < MaxFlushes {
		b.flushes++
		go b.run()
	}
	b.mu.Unlock()
	select {
	case <-c.done:
		if c.panicked != nil {
			panic(c.panicked)
		}
		return nil
	case <-ctx.Done():
		if b.withdraw(c) {
			return ctx.Err()
		}
		return &abandonedError{done: c.done, cause: ctx.Err()}
	}
}

// abandonedError is an ErrAbandoned that knows when the call is finished.
type abandonedError struct {
	done  <-chan struct{}
	cause error
}

func (a *abandonedError) Error() string   { return ErrAbandoned.Error() + ": " + a.cause.Error() }
func (a *abandonedError) Unwrap() []error { return []error{ErrAbandoned, a.cause} }

// WaitAbandoned waits for the call that err left in flight, until the server can no longer carry it
// out. It returns at once for other errors.
func WaitAbandoned(ctx context.Context, err error) error {
	a, ok := errors.AsType[*abandonedError](err)
	if !ok {
		return nil
	}
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// withdraw removes a call that is not in a batch yet, and reports whether it did.
func (b *Batcher[T]) withdraw(c *call[T]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := len(b.waiting)
	b.waiting = slices.DeleteFunc(b.waiting, func(w *call[T]) bool { return w == c })
	return len(b.waiting) < before
}

// run sends batches until no call waits.
func (b *Batcher[T]) run() {
	for {
		runtime.Gosched() // lets callers that are about to call Do still join the batch
		b.mu.Lock()
		n := min(len(b.waiting), b.limit)
		batch := slices.Clone(b.waiting[:n])
		b.waiting = slices.Delete(b.waiting, 0, n)
		if n == 0 {
			b.flushes--
		}
		b.mu.Unlock()
		if n == 0 {
			return
		}
		b.send(batch)
	}
}

func (b *Batcher[T]) send(batch []*call[T]) {
	finished := false
	defer func() {
		panicked := recover()
		// After runtime.Goexit, another goroutine takes the place of this one.
		if !finished && panicked == nil {
			panicked = errExited
			go b.run()
		}
		for _, c := range batch {
			c.panicked = panicked
			close(c.done)
		}
	}()
	// A caller's context ends only its own wait. It must not end the flush, which others share.
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	all := make([]T, 0, len(batch))
	for _, c := range batch {
		all = append(all, c.items...)
	}
	b.flush(ctx, all)
	finished = true
}
