package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestCompactForgets checks that the file contains nothing of deleted records after Compact, or
// after an Open that finds more than half of the file free.
func TestCompactForgets(t *testing.T) {
	secret := strings.Repeat("secret", 500)
	for name, compact := range map[string]func(*Store) *Store{
		"Compact": func(s *Store) *Store {
			if _, err := s.Compact(t.Context()); err != nil {
				t.Fatal(err)
			}
			return s
		},
		"start": func(s *Store) *Store { closeStore(t, s); return open(t, s.path) },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, file(t))
			do(t, s.Client(), "SET old v", "SET gone "+secret, "HSET h f "+secret, "DEL gone", "HSET h f short")
			want := onDisk(t, s.path)
			if data, err := os.ReadFile(s.path); err != nil || !bytes.Contains(data, []byte(secret)) {
				t.Fatalf("the file does not hold what was deleted: %v", err)
			}
			s = compact(s)
			if data, err := os.ReadFile(s.path); err != nil || bytes.Contains(data, []byte("secret")) {
				t.Errorf("the file still holds what was deleted, or cannot be read: %v", err)
			}
			if got := onDisk(t, s.path); !reflect.DeepEqual(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			do(t, s.Client(), "SET new v")
			if got := onDisk(t, s.path); len(got) != 3 {
				t.Errorf("after one more change: got %v, want 3 records", got)
			}
		})
	}
}

// TestCompactForgetsExpired checks that the file contains nothing of expired records after Compact,
// or after the store is opened again.
func TestCompactForgetsExpired(t *testing.T) {
	ctx, forward := testClock(t)
	for _, when := range []string{"Compact", "start"} {
		path := file(t)
		s, err := Open(ctx, path)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2*maxSwept + 1 {
			do(t, s.Client(), fmt.Sprintf("SET secret%d %d PX 1000", i, i))
		}
		do(t, s.Client(), "SET old v")
		forward(time.Minute)
		if when == "start" {
			do(t, s.Client(), "SET other "+strings.Repeat("x", 50_000), "DEL other")
			closeStore(t, s)
			if s, err = Open(ctx, path); err != nil {
				t.Fatal(err)
			}
		} else if _, err := s.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(path); err != nil || bytes.Contains(data, []byte("secret")) {
			t.Errorf("%s: the file still holds what has expired, or cannot be read: %v", when, err)
		}
		do(t, s.Client(), "SET new v")
		closeStore(t, s)
		if got := onDisk(t, path); len(got) != 2 {
			t.Errorf("%s: got %v, want 2 records", when, got)
		}
	}
}

// TestCompactWhileWriting compacts a store again and again while others change it.
func TestCompactWhileWriting(t *testing.T) {
	s := open(t, file(t))
	var all sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	for i := range 4 {
		all.Go(func() {
			for j := 0; ctx.Err() == nil; j++ {
				key := fmt.Sprintf("%d-%d", i, j%50)
				if err := s.Client().HSet(t.Context(), key, "n", j, "text", strings.Repeat("x", 100)).Err(); err != nil {
					t.Error(err)
				}
				if j%7 == 0 {
					s.Client().Del(t.Context(), key)
				}
			}
		})
	}
	for range 10 {
		if _, err := s.Compact(t.Context()); err != nil {
			t.Error(err)
		}
	}
	stop()
	all.Wait()
	want := dump(s.engine.data.root)
	if got := onDisk(t, s.path); !reflect.DeepEqual(got, want) {
		t.Errorf("on disk: got %v, want %v", got, want)
	}
	if left, err := filepath.Glob(s.path + ".tmp"); len(left) > 0 || err != nil {
		t.Errorf("the temporary file was left: %v", err)
	}
}

// TestLongTail makes changes of four times maxTail bytes while a file is rewritten. None may be
// lost.
func TestLongTail(t *testing.T) {
	var slow atomic.Bool
	begun, end := make(chan struct{}), make(chan struct{})
	s := openDisk(t, file(t), &testDisk{before: func(step string) error {
		if step == "create" && slow.Load() {
			close(begun)
			<-end
		}
		return nil
	}})
	do(t, s.Client(), "SET old v")
	slow.Store(true)
	compacted := make(chan error)
	go func() {
		_, err := s.Compact(t.Context())
		compacted <- err
	}()
	<-begun
	text := strings.Repeat("x", 2*maxTail/10)
	for i := range 20 {
		do(t, s.Client(), fmt.Sprintf("SET k%d %s", i, text))
	}
	do(t, s.Client(), "DEL old")
	close(end)
	if err := <-compacted; err != nil {
		t.Fatal(err)
	}
	do(t, s.Client(), "SET last v")
	want := dump(s.engine.data.root)
	if got := onDisk(t, s.path); len(got) != 21 || !reflect.DeepEqual(got, want) {
		t.Errorf("%d records on disk, want the 21 in memory", len(got))
	}
}

// TestCompactOnFaultyDisk checks that a file that cannot be rewritten stays in use.
func TestCompactOnFaultyDisk(t *testing.T) {
	for _, step := range []string{"create", "write", "sync", "rename"} {
		t.Run(step, func(t *testing.T) {
			var failing atomic.Bool
			s := openDisk(t, file(t), &testDisk{before: func(at string) error {
				if at == step && failing.Load() {
					return fmt.Errorf("faulty %s", step)
				}
				return nil
			}})
			do(t, s.Client(), "SET a v", "SET a w")
			failing.Store(true)
			if _, err := s.Compact(t.Context()); err == nil {
				t.Error("Compact: got no error, want one")
			}
			failing.Store(false)
			do(t, s.Client(), "SET b v")
			if got := onDisk(t, s.path); len(got) != 2 {
				t.Errorf("on disk: got %v, want 2 records", got)
			}
			if _, err := s.Compact(t.Context()); err != nil {
				t.Error(err)
			}
			if got := onDisk(t, s.path); len(got) != 2 {
				t.Errorf("compacted: got %v, want 2 records", got)
			}
		})
	}
}

// A smallDisk has room for a file and its rewritten copy, but not for changes of the file while the
// copy exists.
type smallDisk struct {
	osDisk
	small   atomic.Bool
	beside  atomic.Pointer[smallFile] // the copy, while it exists
	begun   chan struct{}             // closed at the first write to the copy
	refused chan struct{}             // closed when there is no room for a change
	once    sync.Once
}

type smallFile struct {
	diskFile
	disk *smallDisk
}

func (d *smallDisk) create(path string) (diskFile, error) {
	file, err := d.osDisk.create(path)
	f := &smallFile{file, d}
	d.beside.Store(f)
	return f, err
}

func (d *smallDisk) rename(from, to string) error {
	d.beside.Store(nil)
	return d.osDisk.rename(from, to)
}

func (d *smallDisk) remove(path string) error {
	err := d.osDisk.remove(path)
	if err == nil {
		d.beside.Store(nil)
	}
	return err
}

func (f *smallFile) WriteAt(b []byte, at int64) (int, error) {
	beside := f.disk.beside.Load()
	switch {
	case !f.disk.small.Load() || beside == nil:
	case beside != f:
		f.disk.once.Do(func() { close(f.disk.refused) })
		return 0, syscall.ENOSPC
	case at == 0:
		close(f.disk.begun)
		<-f.disk.refused
	}
	return f.diskFile.WriteAt(b, at)
}

// TestCompactGivesWay checks that Compact removes its copy of the file if a change needs the room.
func TestCompactGivesWay(t *testing.T) {
	d := &smallDisk{begun: make(chan struct{}), refused: make(chan struct{})}
	s := openDisk(t, file(t), d)
	do(t, s.Client(), "SET a v")
	d.small.Store(true)
	compacted := make(chan error)
	go func() {
		_, err := s.Compact(t.Context())
		compacted <- err
	}()
	<-d.begun
	do(t, s.Client(), "SET b v")
	if err := <-compacted; !errors.Is(err, ErrFull) {
		t.Errorf("Compact: got %v, want ErrFull", err)
	}
	if _, err := os.Lstat(s.path + ".tmp"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the new file: got %v, want os.ErrNotExist", err)
	}
	d.small.Store(false)
	if _, err := s.Compact(t.Context()); err != nil {
		t.Error(err)
	}
	if got := onDisk(t, s.path); len(got) != 2 {
		t.Errorf("on disk: got %v, want a and b", got)
	}
}

// TestCompactEnds checks that Compact returns if the file cannot be written, or the store is
// closed.
func TestCompactEnds(t *testing.T) {
	s := open(t, file(t))
	do(t, s.Client(), "SET k v")
	if err := os.Rename(s.path, s.path+".away"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Compact(t.Context()); !errors.Is(err, errReplaced) && !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is away: got %v, want errReplaced or os.ErrNotExist", err)
	}
	if err := os.Rename(s.path+".away", s.path); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Compact(t.Context()); err != nil {
		t.Error(err)
	}

	s, begun, end := openSlow(t, file(t))
	compacted := make(chan error)
	go func() {
		_, err := s.Compact(t.Context())
		compacted <- err
	}()
	<-begun
	go func() {
		<-s.closing
		close(end)
	}()
	closeStore(t, s)
	if err := <-compacted; err != nil && !errors.Is(err, ErrClosed) {
		t.Errorf("the store was closed: got %v, want ErrClosed", err)
	}
}

// TestUnsyncedRename checks that neither Compact nor a change succeeds before the name of a new
// file is durable.
func TestUnsyncedRename(t *testing.T) {
	var failing atomic.Bool
	s := openDisk(t, file(t), &testDisk{before: func(step string) error {
		if step == "directory" && failing.Load() {
			return errors.New("faulty directory")
		}
		return nil
	}})
	do(t, s.Client(), "SET a v")
	failing.Store(true)
	if _, err := s.Compact(t.Context()); err == nil { // the file is replaced
		t.Error("Compact: no error, although a power failure may bring the old file back")
	}
	if err := s.Client().Set(t.Context(), "b", "v", 0).Err(); !errors.Is(err, ErrUnsaved) {
		t.Errorf("got %v, want ErrUnsaved", err)
	}
	failing.Store(false)
	do(t, s.Client(), "SET c v")
	if got := onDisk(t, s.path); len(got) != 2 {
		t.Errorf("on disk: got %v, want a and c", got)
	}
}

// TestGrowingFile checks that a store in use rewrites its file once it has grown too much.
func TestGrowingFile(t *testing.T) {
	s := open(t, file(t))
	text := strings.Repeat("x", 1<<20)
	size := func() int64 {
		info, err := os.Stat(s.path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	for range 60 {
		do(t, s.Client(), "SET k "+text)
		// On a busy machine, many changes can be made before the new file is complete.
		for begin := time.Now(); size() > 40<<20; time.Sleep(time.Millisecond) {
			if time.Since(begin) > time.Minute {
				t.Fatalf("the file has %d bytes for 1 MiB of records, want at most 40 MiB", size())
			}
		}
	}
}

// testClock returns a context in which stores expire their records by a clock, and a function that
// advances the clock.
func testClock(t *testing.T) (ctx context.Context, forward func(time.Duration)) {
	var now atomic.Int64
	now.Store(time.Now().UnixMilli())
	ctx = WithClock(t.Context(), func() time.Time { return time.UnixMilli(now.Load()) })
	return ctx, func(d time.Duration) { now.Add(d.Milliseconds()) }
}

// TestCompactForgetsExpiredMeanwhile checks that nothing is left of expired records if a write that
// began earlier ends while Compact waits.
func TestCompactForgetsExpiredMeanwhile(t *testing.T) {
	ctx, forward := testClock(t)
	begun, end := make(chan struct{}), make(chan struct{})
	var slow atomic.Bool
	s, err := openOn(ctx, &testDisk{before: func(step string) error {
		if step == "sync" && slow.CompareAndSwap(true, false) {
			close(begun)
			<-end
		}
		return nil
	}}, file(t))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range 3 * maxSwept {
		do(t, s.Client(), fmt.Sprintf("SET secret%d v PX 1000", i))
	}
	forward(time.Minute)
	slow.Store(true)
	first, compacted := make(chan error), make(chan error)
	go func() { first <- s.Client().Set(ctx, "first", "v", 0).Err() }()
	<-begun
	go func() {
		_, err := s.Compact(ctx)
		compacted <- err
	}()
	for !compactionRequested(s) {
		runtime.Gosched()
	}
	close(end)
	if err := errors.Join(<-first, <-compacted); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(s.path); err != nil || bytes.Contains(data, []byte("secret")) {
		t.Errorf("the file still holds what has expired, or cannot be read: %v", err)
	}
}

func compactionRequested(s *Store) bool {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	return len(s.engine.current.compact) > 0
}

// TestExpiredAtOpen opens a store on a full disk, so that it can neither rewrite its file nor save
// the removal of what has expired. No change may be lost, and the file must still be accepted
// later.
func TestExpiredAtOpen(t *testing.T) {
	for _, change := range []string{"HSET k new v", "ZADD k 0 new"} {
		for _, step := range []string{"create", "write"} {
			ctx, forward := testClock(t)
			path := file(t)
			s, err := Open(ctx, path)
			if err != nil {
				t.Fatal(err)
			}
			do(t, s.Client(), "HSET k old v", "PEXPIRE k 1000", "SET big "+strings.Repeat("x", 50_000), "DEL big")
			closeStore(t, s)
			forward(time.Minute)
			d := newFaultyDisk()
			d.set(step)
			if s, err = openOn(ctx, &d.testDisk, path); err != nil {
				t.Fatal(err)
			}
			d.set("write")
			if err := s.Client().Set(ctx, "other", "v", 0).Err(); !errors.Is(err, ErrUnsaved) {
				t.Errorf("got %v, want ErrUnsaved", err)
			}
			d.set("")
			do(t, s.Client(), change)
			want := dump(s.engine.data.root)
			closeStore(t, s)
			if got := onDisk(t, path); !reflect.DeepEqual(got, want) || len(got) != 1 {
				t.Errorf("no %s, %s: on disk: got %v, want %v", step, change, got, want)
			}
		}
	}
}
