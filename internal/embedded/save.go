package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// A bulk is a series of changes whose commands do not wait for the file. Its end writes those that
// no other write has saved.
type bulk struct {
	span  span
	ended atomic.Bool
}

type bulkKey struct{ store *Store }

// Bulk begins a series of changes that are written to the file together. Commands with bulkCtx are
// answered before their changes are written. The caller must call end once to write them. If end
// fails with ErrUnsaved, all changes of the bulk are undone. Commands with other contexts wait for
// their own write, which may include changes of the bulk; so if end fails with ErrPartlySaved, some
// changes of the bulk are saved.
func (s *Store) Bulk(ctx context.Context) (bulkCtx context.Context, end func(context.Context) error) {
	if s.remote { // the process that has the file saves before it answers
		return ctx, func(context.Context) error { return nil }
	}
	b := &bulk{}
	end = func(ctx context.Context) error {
		defer b.ended.Store(true)
		return bulkError(s.engine.flush(ctx, &b.span))
	}
	return context.WithValue(ctx, bulkKey{s}, b), end
}

func (s *Store) bulkOf(ctx context.Context) *bulk {
	b, _ := ctx.Value(bulkKey{s}).(*bulk)
	if b == nil || b.ended.Load() {
		return nil
	}
	return b
}

func bulkError(err error) error {
	if errors.Is(err, ErrUnsaved) || errors.Is(err, ErrPartlySaved) {
		return fmt.Errorf("a write failed since the bulk began: %w", err)
	}
	return err
}

type lazyKey struct{}

// Lazy returns a context whose commands are answered before their changes are in the file. The
// changes are written within about a second, and are lost if the process dies before.
func Lazy(ctx context.Context) context.Context { return context.WithValue(ctx, lazyKey{}, true) }

// A hook makes the client's commands wait until their changes, and those that they read, are in the
// file.
type hook struct{ store *Store }

func (h hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h.process(ctx, []redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h.process(ctx, cmds, func() error { return next(ctx, cmds) })
	}
}

// maxReads limits how often a read is repeated because it saw changes that were then undone.
const maxReads = 10

// process sends commands. If their changes could not be saved, it sets the error of each. Reads
// that saw changes that were then undone are sent again.
func (h hook) process(ctx context.Context, cmds []redis.Cmder, next func() error) error {
	for reads := 1; ; reads++ {
		c := &call{lazy: ctx.Value(lazyKey{}) != nil}
		answer, err := h.send(ctx, c, cmds, next)
		switch {
		case err == nil:
			return answer
		case errors.Is(err, ErrUnsaved) && !c.wrote && h.store.bulkOf(ctx) == nil && reads < maxReads:
			err = nil // the answer was about changes that have since been undone
		}
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
		if err != nil {
			return err
		}
	}
}

// send sends commands. If err is not nil, the answers must not be used.
func (h hook) send(ctx context.Context, c *call, cmds []redis.Cmder, next func() error) (answer, err error) {
	if ctx.Err() != nil {
		return nil, contextError(ctx)
	}
	e, b := h.store.engine, h.store.bulkOf(ctx)
	if h.store.closed.Load() {
		return nil, ErrClosed
	}
	if b != nil {
		c.span = &b.span
	}
	t := strconv.FormatUint(h.store.lastTag.Add(1), 36)
	e.calls.Store(t, c)
	defer e.calls.Delete(t)
	restore := tagAll(cmds, t)
	answer = next()
	restore()
	if b != nil {
		return answer, bulkError(c.undone)
	}
	return answer, e.wait(ctx, c)
}

// commit makes the changes of a batch durable. It is called by one goroutine at a time.
func (s *Store) commit(b *batch) error {
	err := s.commitTo(b)
	if isFull(err) && s.compaction.abort(s) {
		err = s.commitTo(b) // in the space of the file that the compaction was writing
	}
	if err != nil {
		err = fmt.Errorf("%w: %s: %w", ErrUnsaved, s.path, MarkFull(err))
		s.compaction.fail(err)
		return err
	}
	s.compaction.afterWrite(s, b)
	return nil
}

func (s *Store) commitTo(b *batch) error {
	if s.log == nil {
		if err := s.createFile(s.engine.durable); err != nil {
			return err
		}
	} else if err := s.checkSameFile(); err != nil {
		return err
	}
	s.compaction.finish(s)
	if err := s.syncDir(); err != nil {
		return err
	}
	if len(b.changes) == 0 {
		return nil
	}
	return s.log.commit(b.changes)
}

// checkSameFile returns an error if the file that is open is not the one at the path, for example
// because its directory was moved: data written there would be lost. It also returns an error if
// another process has written to the file, for example because the lock file was deleted: the two
// processes would overwrite each other's changes. And it returns one if the file was cut off.
func (s *Store) checkSameFile() error {
	opened, err := s.log.file.Stat()
	if err != nil {
		return err
	}
	current, err := os.Lstat(s.path)
	switch {
	case err != nil:
		return err
	case !os.SameFile(opened, current):
		return errReplaced
	case !s.log.torn && opened.Size() < s.log.end:
		return fmt.Errorf("the file has %d bytes, want %d: something has cut it off or replaced its contents", opened.Size(), s.log.end)
	case !s.log.torn && opened.Size() > s.log.end:
		return errors.New("another process has written to the file")
	}
	return nil
}

// syncDir makes the name of a new file durable.
func (s *Store) syncDir() error {
	if !s.renamed {
		return nil
	}
	err := s.disk.syncDir(filepath.Dir(s.path))
	s.renamed = err != nil
	return err
}
