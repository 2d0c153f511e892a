package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// saving writes changes to the file. Changes that arrive while a write runs are collected in a
// batch, which the next write makes durable.
type saving struct {
	// write makes the changes of a batch durable. It is nil for a store that has no file. Only one
	// write runs at a time.
	write func(*batch) error

	durable root // the records in the file
	current *batch
	writing *batch // nil if no write runs
	// pending maps the key of each record with a change that is not durable to the batch of its
	// last change. It leaves out changes that nobody waits for.
	pending map[string]*batch
	undos   uint64 // the number of times that changes were undone
	undone  error  // why they were undone last
}

// A batch holds the changes of one write.
type batch struct {
	keys   []string // of the records whose change a caller waits for, or may wait for
	wanted bool     // somebody waits
	timed  bool     // a timer will write it
	empty  bool

	compact []chan<- error // receive the outcome of a compaction that begins after the write

	changes []byte
	after   root // the records after the changes

	done chan struct{} // closed when the write has ended
	err  error         // set before done is closed
}

// saved reports whether the write of b has ended without an error.
func (b *batch) saved() bool {
	select {
	case <-b.done:
		return b.err == nil
	default:
		return false
	}
}

// A span is a series of commands whose changes should all be saved, or all be undone.
type span struct {
	begun bool
	undos uint64 // engine.undos when it began
	first *batch // the first batch with its changes
}

// proceed begins a span, or returns an error if changes were undone since it began.
func (e *engine) proceed(s *span) error {
	if !s.begun {
		s.begun, s.undos = true, e.undos
	}
	if s.undos != e.undos {
		return s.fail(e.undone)
	}
	return nil
}

// fail returns the error for a span whose last changes are undone because of err.
func (s *span) fail(err error) error {
	if s != nil && s.first != nil && s.first.saved() && errors.Is(err, ErrUnsaved) {
		return fmt.Errorf("%w: %v", ErrPartlySaved, err)
	}
	return err
}

func newBatch() *batch { return &batch{empty: true, done: make(chan struct{})} }

func (s *saving) init() {
	s.current, s.pending = newBatch(), map[string]*batch{}
}

// lazyDelay is the maximum delay before a change that nobody waits for is written.
const lazyDelay = time.Second

// noteRead notes that the running call reads the record at key, or all records if key is "".
func (e *engine) noteRead(key string) {
	b := e.pending[key]
	if key == "" {
		switch {
		case len(e.current.keys) > 0:
			b = e.current
		case e.writing != nil:
			b = e.writing
		}
	}
	if b != nil && e.call != nil && e.call.batch != e.current {
		e.call.batch = b
	}
}

// noteChange notes that the running call changes the record at key.
func (e *engine) noteChange(key string) {
	b, c := e.current, e.call
	if c == nil {
		return
	}
	c.wrote = c.wrote || !c.lazy
	if e.write == nil {
		return
	}
	b.empty = false
	if c.span != nil && c.span.first == nil {
		c.span.first = b
	}
	if c.lazy {
		if !b.timed {
			b.timed = true
			time.AfterFunc(lazyDelay, func() { e.ensureWritten(b) })
		}
		return
	}
	c.batch = b
	if e.pending[key] != b {
		e.pending[key] = b
		b.keys = append(b.keys, key)
	}
}

// ensureWritten makes sure that b is written. If b is nil, it writes the current batch, even if
// that is empty, unless the engine is closed.
func (e *engine) ensureWritten(b *batch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if b == nil {
		if e.closed {
			return
		}
		b = e.current
	}
	e.begin(b)
}

// requestCompaction makes sure that the changes made so far are written and that the file is then
// rewritten. outcome, which must be buffered, receives the error of either step, or nil.
func (e *engine) requestCompaction(outcome chan<- error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	e.current.compact = append(e.current.compact, outcome)
	e.begin(e.current)
	return nil
}

// begin writes b at once or, if a write is running, after that.
func (e *engine) begin(b *batch) {
	b.wanted = true
	if b == e.current && e.writing == nil && e.write != nil {
		e.writing = e.seal()
		go e.writeAll(e.writing)
	}
}

// seal ends the current batch and begins a new one. It must not be called while a write runs.
func (e *engine) seal() *batch {
	b := e.current
	b.changes, b.after = e.data.journal.take(), e.data.freeze()
	e.current = newBatch()
	return b
}

// writeAll writes batches for as long as somebody waits for the next one.
func (e *engine) writeAll(b *batch) {
	for b != nil {
		err := e.write(b)
		e.mu.Lock()
		if err == nil {
			e.markSaved(b)
		} else {
			e.undo(err)
		}
		b = nil
		if e.current.wanted {
			b = e.seal()
		}
		e.writing = b
		e.mu.Unlock()
	}
}

func (e *engine) markSaved(b *batch) {
	e.durable = b.after
	for _, key := range b.keys {
		if e.pending[key] == b {
			delete(e.pending, key)
		}
	}
	b.changes, b.after, b.keys = nil, root{}, nil
	close(b.done)
}

// undo ends the running write, and the batch that is being collected, with an error, and goes back
// to the records in the file.
func (e *engine) undo(err error) {
	e.undos++
	e.undone = err
	e.data.revert(e.durable)
	clear(e.pending)
	for _, b := range []*batch{e.writing, e.current} {
		b.err, b.changes, b.after = err, nil, root{}
		close(b.done)
		for _, outcome := range b.compact {
			outcome <- err
		}
	}
	e.current = newBatch()
}

// wait returns when the changes that a call made or read are durable.
func (e *engine) wait(ctx context.Context, c *call) error {
	if c.undone != nil || c.batch == nil {
		return c.undone
	}
	e.ensureWritten(c.batch)
	select {
	case <-c.batch.done:
		return c.span.fail(c.batch.err)
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrWaiting, contextError(ctx))
	}
}

// flush makes all changes durable and returns the error for a span.
func (e *engine) flush(ctx context.Context, s *span) error {
	e.mu.Lock()
	c := &call{span: s, undone: e.proceed(s), batch: e.last()}
	e.mu.Unlock()
	return e.wait(ctx, c)
}

// last returns the batch with the last changes that are not durable, or nil.
func (e *engine) last() *batch {
	if !e.current.empty {
		return e.current
	}
	return e.writing
}

// finish makes all changes of a closed engine durable, and returns when no write is running.
func (e *engine) finish() (err error) {
	for {
		e.mu.Lock()
		b := e.last()
		e.mu.Unlock()
		if b == nil {
			return err
		}
		err = cmp.Or(err, e.wait(context.Background(), &call{batch: b}))
	}
}

// contextError returns the error of a context that has ended. It matches ctx.Err() and includes the
// cause.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
