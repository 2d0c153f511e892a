package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
)

// A file is rewritten if it exceeds twice the size of the records by compactSlack bytes while the
// store is in use, or by startSlack bytes when the store is opened. Tests change both.
var compactSlack, startSlack = 16 << 20, pageSize + 256

// syncEvery is the number of bytes of a new file after which it is synced, so that other writes do
// not wait long.
const syncEvery = 4 << 20

// A compaction writes the current records into a new file, while changes are still appended to the
// old one. The goroutine that writes batches begins and ends it. The fields belong to that
// goroutine. But while the new file is written, log and err belong to the goroutine that writes it,
// until it closes done.
type compaction struct {
	running bool
	tail    [][]byte      // changes since the new file was begun
	done    chan struct{} // closed when the records are in the new file
	log     *logFile      // nil if writing it failed
	err     error
	stop    atomic.Bool
	next    int64 // size of the file at which the next compaction starts

	// The channels in asked receive the outcome of the running compaction, those in waiting that of
	// the next one.
	asked, waiting []chan<- error
}

// afterWrite keeps a written batch for the running compaction, or begins a compaction if one is
// due.
func (c *compaction) afterWrite(s *Store, b *batch) {
	c.waiting = append(c.waiting, b.compact...)
	switch {
	case c.running:
		if len(b.changes) > 0 {
			c.tail = append(c.tail, b.changes)
		}
	case len(c.waiting) > 0 || s.log.end > max(c.next, int64(2*b.after.size+compactSlack)):
		c.begin(s, b.after)
	}
}

// begin writes a new file in the background.
func (c *compaction) begin(s *Store, all root) {
	c.running, c.tail, c.done = true, nil, make(chan struct{})
	c.asked, c.waiting = c.waiting, nil
	go func() {
		c.log, c.err = s.newFile(func(l *logFile) error { return c.writeRecords(l, all) })
		close(c.done)
		s.engine.ensureWritten(nil) // so that finish is called even without further changes
	}()
}

// writeRecords writes all records into a new file, which it syncs now and then.
func (c *compaction) writeRecords(l *logFile, all root) error {
	synced := l.end
	return all.records(func(changes []byte) error {
		if c.stop.Load() {
			return ErrClosed
		}
		if err := l.append(changes); err != nil || l.end-synced < syncEvery {
			return err
		}
		synced = l.end
		return l.file.Sync()
	})
}

// finish replaces the file with the new one if that is complete. If the tail is long, finish only
// begins to copy it. If the replacement fails, the old file stays in use.
func (c *compaction) finish(s *Store) {
	if !c.running {
		return
	}
	select {
	case <-c.done:
	default:
		return
	}
	if c.err == nil && c.tailSize() > maxTail {
		c.copyTail(s)
		return
	}
	c.running = false
	if c.err == nil {
		c.err = c.install(s)
	}
	if c.err == nil {
		// Until the directory is synced, a power failure may bring the old file back, with all
		// deleted records.
		c.err = s.syncDir()
	}
	if c.err != nil {
		c.next = s.log.end + s.log.end/2
	} else {
		c.next = 0
	}
	c.answer(c.err)
}

// answer sends the outcome of the compaction that has ended.
func (c *compaction) answer(err error) {
	err = MarkFull(err)
	for _, asked := range c.asked {
		asked <- err
	}
	c.asked = nil
}

// fail sends err to everybody who waits for a compaction, because no batch can be written.
func (c *compaction) fail(err error) {
	c.asked, c.waiting = slices.Concat(c.asked, c.waiting), nil
	c.answer(err)
}

// maxTail limits the bytes of the tail that are copied while new changes wait.
const maxTail = 256 << 10

func (c *compaction) tailSize() (n int) {
	for _, changes := range c.tail {
		n += len(changes)
	}
	return n
}

// copyTail appends the changes made so far to the new file in the background. Copying them takes
// less time than making them did, so the next tail is shorter.
func (c *compaction) copyTail(s *Store) {
	tail := c.tail
	c.tail, c.done = nil, make(chan struct{})
	go func() {
		if c.err = c.log.appendAll(tail); c.err == nil {
			c.err = c.log.file.Sync()
		}
		if c.err != nil {
			c.err = errors.Join(c.err, s.discard(c.log))
		}
		close(c.done)
		s.engine.ensureWritten(nil)
	}()
}

func (c *compaction) install(s *Store) error {
	err := c.log.appendAll(c.tail)
	c.tail = nil
	if err == nil {
		err = c.log.finish()
	}
	if err == nil {
		err = s.replaceWith(c.log)
	}
	if err != nil {
		return errors.Join(err, s.discard(c.log))
	}
	return nil
}

// cancel ends a running compaction. No batch may be written afterwards.
func (c *compaction) cancel(s *Store) {
	if !c.running {
		return
	}
	c.stop.Store(true)
	<-c.done
	if c.err == nil {
		_ = s.discard(c.log) // the next compaction removes the file
	}
}

// abort ends a running compaction and removes its file, to free disk space. It reports whether a
// compaction was running.
func (c *compaction) abort(s *Store) bool {
	if !c.running {
		return false
	}
	c.cancel(s)
	c.stop.Store(false)
	c.running, c.tail = false, nil
	c.next = s.log.end + s.log.end/2
	c.answer(ErrFull)
	return true
}

// compact rewrites the file without expired records, and returns when that is done.
func (s *Store) compact(ctx context.Context) error {
	s.engine.removeExpired()
	outcome := make(chan error, 1)
	if err := s.engine.requestCompaction(outcome); err != nil {
		return err
	}
	select {
	case err := <-outcome:
		return err
	case <-s.closing:
		return ErrClosed
	case <-ctx.Done():
		return contextError(ctx)
	}
}

// A CompactResult holds the result of Compact.
type CompactResult struct {
	Before, After int64  // sizes of the file in bytes
	Removed       string // the file of JSON lines that was removed, "" if there was none
}

// Compact rewrites the file without deleted, replaced and expired data. It also removes the file of
// JSON lines that this file replaced, because it may still hold deleted records. Others may use the
// store meanwhile. A store in memory does not change.
func (s *Store) Compact(ctx context.Context) (CompactResult, error) {
	if s.path == "" {
		return CompactResult{}, nil
	}
	if s.remote {
		return compactRemote(ctx, s.client)
	}
	if s.closed.Load() {
		return CompactResult{}, ErrClosed
	}
	var result CompactResult
	if info, err := os.Stat(s.path); err == nil {
		result.Before = info.Size()
	}
	if err := s.compact(ctx); err != nil {
		return result, fmt.Errorf("compacting %s: %w", s.path, err)
	}
	info, err := os.Stat(s.path)
	if err != nil {
		return result, err
	}
	result.After = info.Size()
	result.Removed, err = s.removeLegacy()
	return result, err
}
