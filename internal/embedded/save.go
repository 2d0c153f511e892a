package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/privatefile"
)

// A bulk is a series of changes that one write puts into the file.
type bulk struct {
	begun bool // epoch is set; guarded by Store.mu
	epoch uint64
	ended atomic.Bool
}

type bulkKey struct{ store *Store }

// Bulk begins a series of changes that are written to the file together. Commands with bulkCtx are
// answered before their changes are written. The caller must call end once to write them. If end
// fails with ErrUnsaved, all changes of the bulk are undone. Commands with other contexts wait for
// their own write, which may include changes of the bulk.
func (s *Store) Bulk(ctx context.Context) (bulkCtx context.Context, end func(context.Context) error) {
	if s.remote { // the process that has the file saves before it answers
		return ctx, func(context.Context) error { return nil }
	}
	b := &bulk{}
	end = func(ctx context.Context) error {
		defer b.ended.Store(true)
		return s.run(ctx, b, func() error { return s.wait(ctx, s.engine.version.Load()) })
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

// run runs do as one command, which belongs to b unless b is nil.
func (s *Store) run(ctx context.Context, b *bulk, do func() error) error {
	if ctx.Err() != nil {
		return contextError(ctx)
	}
	if err := s.enter(b); err != nil {
		return err
	}
	defer s.leave()
	return do()
}

// enter lets a command begin. The first command after a failed write reloads the records of the
// file. It does so only while no other command runs: those return the failure first, so that no
// change is both undone and reported as done.
func (s *Store) enter(b *bulk) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if s.failed != nil && s.running == 0 && s.writing == nil {
		if err := s.load(); err != nil {
			return err
		}
		s.undone, s.failed = s.failed, nil
		s.epoch++
	}
	if s.failed != nil {
		return s.failed
	}
	if b != nil && !b.begun {
		b.begun, b.epoch = true, s.epoch
	}
	if b != nil && b.epoch != s.epoch {
		return fmt.Errorf("a write failed since the bulk began: %w", s.undone)
	}
	s.running++
	return nil
}

func (s *Store) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
}

// wait returns when version is in the file.
func (s *Store) wait(ctx context.Context, version uint64) error {
	for {
		done, err := s.save(version)
		if done == nil || err != nil {
			return err
		}
		select {
		case <-done:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrWaiting, contextError(ctx))
		}
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

// save returns a channel to wait for before calling save again: that of the running write, which
// may have begun before the change, or else of a new one. It returns nil if version is in the file.
func (s *Store) save(version uint64) (<-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.path == "" || s.saved >= version {
		return nil, nil
	}
	if s.failed != nil {
		return nil, s.failed
	}
	if s.writing == nil {
		if s.sealed {
			return nil, ErrClosed
		}
		s.writing = make(chan struct{})
		go s.write(s.kept)
	}
	return s.writing, nil
}

// write writes all records to the file. kept is the number of records that the file holds so far.
func (s *Store) write(kept int) {
	s.gate.Lock()
	records, version, err := s.engine.snapshot()
	s.gate.Unlock()
	if err == nil {
		err = s.replaceFile(records, kept)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.failed = fmt.Errorf("%w: %s: %w", ErrUnsaved, s.path, err)
	} else {
		s.saved, s.kept = version, len(records)
	}
	close(s.writing)
	s.writing = nil
}

func (s *Store) replaceFile(records []record, kept int) error {
	if len(records) > max(kept, s.limit) {
		return fullError(fmt.Sprintf("%d records are over the limit of %d", len(records), s.limit))
	}
	data, err := encode(records)
	if err != nil {
		return err
	}
	if len(data) > maxFile {
		return fullError(fmt.Sprintf("%d bytes are over the limit of %d", len(data), maxFile))
	}
	return replace(s.disk, s.path, data)
}

// A hook makes the client's commands wait until their changes are in the file.
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

// process sets the error of each of cmds if the write fails.
func (h hook) process(ctx context.Context, cmds []redis.Cmder, next func() error) error {
	var answer error
	b := h.store.bulkOf(ctx)
	err := h.store.run(ctx, b, func() error {
		if !slices.ContainsFunc(cmds, h.store.engine.mayWrite) {
			answer = next()
			return nil
		}
		version, changed := h.store.change(func() { answer = next() })
		if !changed || b != nil {
			return nil
		}
		return h.store.wait(ctx, version)
	})
	if err == nil {
		return answer
	}
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
	return err
}

// change runs do, which may change records. No snapshot is taken between the start of do and
// reading the version, so a snapshot contains the changes of do if and only if it has that version
// or a later one. This way no caller gets the error that a change is undone although an earlier
// write kept it.
func (s *Store) change(do func()) (version uint64, changed bool) {
	s.gate.RLock()
	defer s.gate.RUnlock()
	before := s.engine.version.Load()
	do()
	version = s.engine.version.Load()
	return version, version != before
}

// lockFile locks the store whose data file is at the path dataFile. The lock is a file of its own,
// because every write replaces the data file. lockFile waits for other holders until ctx ends.
// Closing the returned file, or the death of the process, releases the lock. The lock file stays,
// since removing it would let two processes lock two files of the same name. If the process that
// holds the lock serves the file, lockFile returns a client of that process instead.
func lockFile(ctx context.Context, dataFile string) (*os.File, *redis.Client, error) {
	path := dataFile + ".lock"
	f, err := privatefile.Open(path, os.O_CREATE|os.O_RDWR)
	if err != nil {
		return nil, nil, fmt.Errorf("locking the embedded store: %w", exposedError(err))
	}
	pause := 5 * time.Millisecond
	for {
		locked, err := tryLock(f)
		if locked {
			writeHolder(f)
			return f, nil, nil
		}
		if err != nil {
			f.Close()
			return nil, nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if client := dialServed(ctx, dataFile); client != nil {
			f.Close()
			return nil, client, nil
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, 100*time.Millisecond)
		case <-ctx.Done():
			f.Close()
			return nil, nil, fmt.Errorf("%w by %s (%s): %w", ErrLocked, cmp.Or(Holder(dataFile), "another process"), path, context.Cause(ctx))
		}
	}
}

// writeHolder writes the name and the number of this process into a lock file that it has locked.
// If it fails, others cannot tell who holds the file.
func writeHolder(f *os.File) {
	name := fmt.Sprintf("%s (process %d)\n", filepath.Base(os.Args[0]), os.Getpid())
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(name), 0)
	}
}

// Holder returns the name and the number of the process that has the store at path locked, or
// "another process" if it is unknown. It returns "" if no process has it locked.
func Holder(path string) string {
	path, err := resolve(path)
	if err != nil {
		return ""
	}
	f, err := privatefile.Open(path+".lock", os.O_RDWR)
	if err != nil {
		return ""
	}
	defer f.Close() // and gives the lock back
	if locked, err := tryLock(f); locked || err != nil {
		return ""
	}
	const unknown = "another process"
	name := make([]byte, 256)
	n, _ := f.ReadAt(name, 0)
	text, isLine := strings.CutSuffix(string(name[:n]), "\n")
	if !isLine || strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return unknown
	}
	return text
}
