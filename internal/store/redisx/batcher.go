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
	// Busy is how many callers are under way when further ones begin to share round trips. Measured, a single
	// caller loses half its speed by sharing, four lose up to a quarter, sixteen gain half, and 128 find three times as much.
	Busy = 8
	// Flushes is how many batches are under way at once. While one is at the server, the callers of the other go on. Measured, one
	// alone loses a sixth of the speed, and a third one gains nothing and makes the batches smaller.
	Flushes   = 2
	flushTime = 10 * time.Second // how long one may take
	// BatchMost is how many calls are in a batch, where nothing else bounds it.
	BatchMost = 256
)

// A Batcher sends what many callers ask for at the same time, many calls in one round trip. No call waits for
// others to come: those that come while no flush is free go with the next one.
type Batcher[T any] struct {
	flush   func(context.Context, []T)
	most    int
	mu      sync.Mutex
	waiting []*call[T]
	flushes int
}

// A call is what one caller asks for.
type call[T any] struct {
	of       []T
	done     chan struct{} // closed after the flush; what was done may be read then
	panicked any           // what a hook of the client did in the flush: the caller panics with it, as without others
}

// ErrAbandoned: the context ended while the call was under way; the server may carry it out.
var ErrAbandoned = errors.New("no answer before the end of the context")

// errExited: a hook of the client ended the goroutine of a flush (runtime.Goexit), which was not its callers'.
var errExited = errors.New("a hook ended the goroutine that many callers shared")

// NewBatcher returns a batcher of at most so many calls. flush ends when all of them are answered.
func NewBatcher[T any](most int, flush func(context.Context, []T)) *Batcher[T] {
	return &Batcher[T]{flush: flush, most: most}
}

// Do sends what a call asks for, in one batch with what others do, and waits until it is answered. An error is one of the context, with
// ErrAbandoned where it was under way already: then it must not be looked at any more.
func (b *Batcher[T]) Do(ctx context.Context, of ...T) error {
	c := &call[T]{of: of, done: make(chan struct{})}
	b.mu.Lock()
	b.waiting = append(b.waiting, c)
	if b.flushes < Flushes {
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
		if b.takeBack(c) {
			return ctx.Err()
		}
		return &abandoned{done: c.done, cause: ctx.Err()}
	}
}

// abandoned is an ErrAbandoned that knows when the call is over.
type abandoned struct {
	done  <-chan struct{}
	cause error
}

func (a *abandoned) Error() string   { return ErrAbandoned.Error() + ": " + a.cause.Error() }
func (a *abandoned) Unwrap() []error { return []error{ErrAbandoned, a.cause} }

// Over waits until a call that err left under way is over: the server carries it out no more. Other errors are about what is.
func Over(ctx context.Context, err error) error {
	a, is := errors.AsType[*abandoned](err)
	if !is {
		return nil
	}
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// takeBack removes a call that is in no batch yet.
func (b *Batcher[T]) takeBack(c *call[T]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := len(b.waiting)
	b.waiting = slices.DeleteFunc(b.waiting, func(w *call[T]) bool { return w == c })
	return len(b.waiting) < before
}

// run flushes until no call waits.
func (b *Batcher[T]) run() {
	for {
		runtime.Gosched() // callers that are about to come may still join the batch
		b.mu.Lock()
		n := min(len(b.waiting), b.most)
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
	ended := false
	defer func() {
		panicked := recover()
		if !ended && panicked == nil { // runtime.Goexit: another goroutine goes on in place of this one
			panicked = errExited
			go b.run()
		}
		for _, c := range batch {
			c.panicked = panicked
			close(c.done)
		}
	}()
	// The contexts of the callers end their waiting, and none may end the others' flush.
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	all := make([]T, 0, len(batch))
	for _, c := range batch {
		all = append(all, c.of...)
	}
	b.flush(ctx, all)
	ended = true
}
