package embedded

import (
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

	"github.com/redis/go-redis/v9"
)

func TestFullDisk(t *testing.T) {
	for _, step := range []string{"write", "sync"} {
		t.Run(step, func(t *testing.T) {
			s, d := openFaulty(t)
			before, err := os.ReadFile(s.path)
			if err != nil {
				t.Fatal(err)
			}
			d.set(step)
			for range 2 {
				err = s.Client().Set(t.Context(), "new", "v", 0).Err()
				want := "embedded: change not saved: " + s.path + ": embedded: disk is full: faulty " + step + ": no space left on device"
				if !errors.Is(err, ErrUnsaved) || !errors.Is(err, ErrFull) || !errors.Is(err, syscall.ENOSPC) || err.Error() != want {
					t.Errorf("got %v, want %s", err, want)
				}
			}
			if after, err := os.ReadFile(s.path); string(after) != string(before) {
				t.Errorf("the file was %q and is now %q, %v; want it unchanged", before, after, err)
			}
			if got := s.Client().Keys(t.Context(), "*").Val(); !reflect.DeepEqual(got, []string{"old"}) {
				t.Errorf("the keys in memory are %q, want only old", got)
			}
			d.set("")
			do(t, s.Client(), "SET newer v")
			if got := len(onDisk(t, s.path)); got != 2 {
				t.Errorf("%d records on disk, want 2", got)
			}
		})
	}
}

// TestUnsyncedDirectory checks that the records in memory agree with the file if a write fails
// after the new file already has its name.
func TestUnsyncedDirectory(t *testing.T) {
	d := newFaultyDisk()
	s := openDisk(t, file(t), &d.testDisk)
	d.set("directory")
	if err := s.Client().Set(t.Context(), "new", "v", 0).Err(); !errors.Is(err, ErrUnsaved) {
		t.Errorf("got %v, want ErrUnsaved", err)
	}
	d.set("")
	if got, want := s.Client().DBSize(t.Context()).Val(), int64(len(onDisk(t, s.path))); got != want {
		t.Errorf("%d records in memory, want %d as on disk", got, want)
	}
}

// TestFullTmpfs fills a real file system, if the test may mount one.
func TestFullTmpfs(t *testing.T) {
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		t.Skip("needs root on Linux")
	}
	dir := t.TempDir()
	if err := mountTmpfs(dir); err != nil {
		t.Skip("mounting a tmpfs: ", err)
	}
	s := open(t, filepath.Join(dir, "f"))
	t.Cleanup(func() {
		s.Close()
		if err := unmount(dir); err != nil {
			t.Error(err)
		}
	})
	do(t, s.Client(), "SET old v")
	err := s.Client().Set(t.Context(), "big", strings.Repeat("x", 1<<20), 0).Err()
	if !errors.Is(err, ErrUnsaved) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v, want ErrUnsaved and syscall.ENOSPC", err)
	}
	if got := onDisk(t, s.path); len(got) != 1 || got["old"] == "" {
		t.Errorf("on disk: got %+v, want only the record old", got)
	}
	do(t, s.Client(), "SET small v")
	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 44<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	do(t, s.Client(), "SET more "+strings.Repeat("x", 6<<10))
	to := filepath.Join(dir, "copy")
	if _, err := Backup(s.path, to); !errors.Is(err, ErrFull) {
		t.Errorf("Backup: got %v, want ErrFull", err)
	}
	if _, err := Salvage(s.path, to); !errors.Is(err, ErrFull) {
		t.Errorf("Salvage: got %v, want ErrFull", err)
	}
	if _, err := os.Lstat(to); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the copy that failed: got %v, want no such file", err)
	}
}

func TestCompactOnFullDisk(t *testing.T) {
	for _, step := range []string{"create", "write", "sync", "directory"} {
		t.Run(step, func(t *testing.T) {
			s, d := openFaulty(t)
			d.set(step)
			if _, err := s.Compact(t.Context()); !errors.Is(err, ErrFull) || !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("got %v, want ErrFull and syscall.ENOSPC", err)
			}
			d.set("")
			if _, err := s.Compact(t.Context()); err != nil {
				t.Error("with room again: ", err)
			}
		})
	}
}

// TestFaultsUnderLoad makes writes of the file fail while many writers run. A change that succeeded
// must be in the file, a change that failed with ErrUnsaved must not, and memory must equal the
// file.
func TestFaultsUnderLoad(t *testing.T) {
	s, d := openFaulty(t)
	var all sync.WaitGroup
	var done, unsaved sync.Map
	for i := range 16 {
		all.Go(func() {
			for j := range 40 {
				key := fmt.Sprintf("%d-%d", i, j)
				err := s.Client().Set(t.Context(), key, "v", 0).Err()
				switch {
				case err == nil:
					done.Store(key, true)
				case errors.Is(err, ErrUnsaved):
					unsaved.Store(key, true)
				default:
					t.Error(err)
				}
				if i == 0 {
					d.set([]string{"", "write", "", "sync"}[j%4])
				}
			}
		})
	}
	all.Wait()
	d.set("")
	do(t, s.Client(), "SET last v")
	want := map[string]bool{"old": true, "last": true}
	failed := 0
	done.Range(func(key, _ any) bool { want[key.(string)] = true; return true })
	unsaved.Range(func(any, any) bool { failed++; return true })
	got := map[string]bool{}
	for key := range onDisk(t, s.path) {
		got[key] = true
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("on disk %v, want %v", got, want)
	}
	if failed == 0 || len(want) < 3 {
		t.Errorf("%d changes failed and %d did not; want some of both", failed, len(want))
	}
	if inMemory := s.Client().DBSize(t.Context()).Val(); int(inMemory) != len(want) {
		t.Errorf("%d records in memory, want %d", inMemory, len(want))
	}
}

// TestFaultInBulk checks that any failed write, even another caller's, undoes the whole bulk.
func TestFaultInBulk(t *testing.T) {
	s, d := openFaulty(t)
	ctx, end := s.Bulk(t.Context())
	if err := s.Client().Set(ctx, "bulk", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	d.set("write")
	if err := s.Client().Set(t.Context(), "other", "v", 0).Err(); !errors.Is(err, ErrUnsaved) {
		t.Fatalf("another caller's write: got %v, want ErrUnsaved", err)
	}
	d.set("")
	if err := s.Client().Set(ctx, "bulk2", "v", 0).Err(); !errors.Is(err, ErrUnsaved) {
		t.Errorf("going on with the bulk: got %v, want ErrUnsaved", err)
	}
	want := "a write failed since the bulk began: embedded: change not saved: " + s.path + ": "
	if err := end(t.Context()); !errors.Is(err, ErrUnsaved) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s…", err, want)
	}
	if got := s.Client().Keys(t.Context(), "*").Val(); !reflect.DeepEqual(got, []string{"old"}) {
		t.Errorf("the keys in memory are %q, want only old", got)
	}
}

// TestReplacedFile checks that no change is written to a file that has lost its name, and that no
// change overwrites the file that took its place.
func TestReplacedFile(t *testing.T) {
	s := open(t, file(t))
	do(t, s.Client(), "SET old v")
	if err := errors.Join(os.Remove(s.path), os.WriteFile(s.path, []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := s.Client().Set(t.Context(), "new", "v", 0).Err(); !errors.Is(err, ErrUnsaved) {
		t.Errorf("got %v, want ErrUnsaved", err)
	}
	if got := s.Client().Exists(t.Context(), "old", "new").Val(); got != 1 {
		t.Errorf("%d records exist, want only old", got)
	}
	if got, err := os.ReadFile(s.path); string(got) != "x" {
		t.Errorf("the other file is now %q, %v; want it unchanged", got, err)
	}
}

// TestFolderAway moves the store's directory away. Meanwhile changes are refused, and reads return
// what was saved. Once the directory is back, changes are made again.
func TestFolderAway(t *testing.T) {
	path := file(t)
	s := open(t, path)
	do(t, s.Client(), "set before v")
	dir, away := filepath.Dir(path), filepath.Dir(path)+"-away"
	if err := os.Rename(dir, away); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := s.Client().Set(t.Context(), "meanwhile", "v", 0).Err(); !errors.Is(err, ErrUnsaved) {
			t.Errorf("Set: got %v, want ErrUnsaved", err)
		}
		if got, err := s.Client().Get(t.Context(), "before").Result(); got != "v" {
			t.Errorf("Get: got %q, %v; want v", got, err)
		}
	}
	if err := os.Rename(away, dir); err != nil {
		t.Fatal(err)
	}
	do(t, s.Client(), "set after v")
	closeStore(t, s)
	s = open(t, path)
	defer closeStore(t, s)
	if got := s.Client().Exists(t.Context(), "before", "meanwhile", "after").Val(); got != 2 {
		t.Errorf("%d of the records exist, want 2", got)
	}
}

// TestTempFileIsALink checks that the store does not write through a link that has the name of its
// temporary file.
func TestTempFileIsALink(t *testing.T) {
	s := open(t, file(t))
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, s.path+".tmp"); err != nil {
		t.Skip(err)
	}
	do(t, s.Client(), "SET k v")
	if got, err := os.ReadFile(victim); string(got) != "precious" {
		t.Errorf("the target of the link: got %q, %v; want it unchanged", got, err)
	}
}

func TestOpenLeavesDamage(t *testing.T) {
	path := file(t)
	s := open(t, path)
	do(t, s.Client(), "SET k v", "HSET h f v")
	closeStore(t, s)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, damaged := range [][]byte{{}, whole[:len(whole)-1], whole[:pageSize], whole[:100], append([]byte("x"), whole...)} {
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		var damage *DamageError
		_, err := Open(t.Context(), path)
		if !errors.Is(err, ErrDamaged) || !errors.As(err, &damage) || damage.Path != path {
			t.Errorf("%d bytes: got %v, want a DamageError that names the file", len(damaged), err)
		}
		if got, err := os.ReadFile(path); string(got) != string(damaged) {
			t.Errorf("the file is now %q, %v; want it unchanged", got, err)
		}
	}
	// The failed calls of Open must have released the lock, so that this one succeeds.
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, path)
}

func TestWaitIsCancelled(t *testing.T) {
	s, begun, end := openSlow(t, file(t))
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-begun; cancel(errors.New("enough")) }()
	err := s.Client().Set(ctx, "k", "v", 0).Err()
	if want := "embedded: change not saved yet: context canceled: enough"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if !errors.Is(err, ErrWaiting) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want ErrWaiting and context.Canceled", err)
	}
	close(end)
	closeStore(t, s)
	if got := len(onDisk(t, s.path)); got != 2 {
		t.Errorf("%d records on disk after Close, want 2", got)
	}
}

// TestChangeDuringWrite makes a change while the file is being written with an earlier one. The
// second change must be saved with another write.
func TestChangeDuringWrite(t *testing.T) {
	s, begun, end := openSlow(t, file(t))
	first := make(chan error)
	go func() { first <- s.Client().Set(t.Context(), "first", "v", 0).Err() }()
	<-begun
	second := make(chan error)
	go func() { second <- s.Client().Set(t.Context(), "second", "v", 0).Err() }()
	for pending(s, "second") == nil {
		runtime.Gosched()
	}
	close(end)
	for _, c := range []chan error{first, second} {
		if err := <-c; err != nil {
			t.Error(err)
		}
	}
	if got := len(onDisk(t, s.path)); got != 3 {
		t.Errorf("%d records on disk, want 3", got)
	}
}

// pending returns the batch that holds a change of key, or nil if none does.
func pending(s *Store, key string) *batch {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	return s.engine.pending[key]
}

// TestReadWaits checks that a read is not answered before the change that it saw is in the file,
// that other reads do not wait for it, and that a read is repeated if the change is undone.
func TestReadWaits(t *testing.T) {
	for name, fail := range map[string]bool{"saved": false, "undone": true} {
		t.Run(name, func(t *testing.T) {
			begun, end := make(chan struct{}), make(chan struct{})
			var slow atomic.Bool
			s := openDisk(t, file(t), &testDisk{before: func(step string) error {
				if step != "sync" || !slow.CompareAndSwap(true, false) {
					return nil
				}
				close(begun)
				<-end
				if fail {
					return syscall.EIO
				}
				return nil
			}})
			do(t, s.Client(), "SET k old", "SET other v")
			slow.Store(true)
			set, reads := make(chan error), make(chan string, 3)
			go func() { set <- s.Client().Set(t.Context(), "k", "new", 0).Err() }()
			<-begun
			script := redis.NewScript("return redis.call('GET', 'k')") // does not declare the key
			for _, read := range []func() string{
				func() string { return s.Client().Get(t.Context(), "k").Val() },
				func() string { return s.Client().MGet(t.Context(), "other", "k").Val()[1].(string) },
				func() string { text, _ := script.Eval(t.Context(), s.Client(), nil).Text(); return text },
			} {
				go func() { reads <- read() }()
			}
			if got := s.Client().Get(t.Context(), "other").Val(); got != "v" {
				t.Errorf("other is %q, want v", got)
			}
			select {
			case got := <-reads:
				t.Errorf("k was read as %q before the change was in the file", got)
				reads <- got
			case <-time.After(20 * time.Millisecond):
			}
			close(end)
			want := "new"
			if err := <-set; fail {
				want = "old"
				if !errors.Is(err, ErrUnsaved) {
					t.Errorf("SET: got %v, want ErrUnsaved", err)
				}
			} else if err != nil {
				t.Error(err)
			}
			for range 3 {
				if got := <-reads; got != want {
					t.Errorf("k was read as %q, want %q", got, want)
				}
			}
		})
	}
}

// TestLazy checks that a lazy change is answered before it is in the file, does not make readers
// wait, and is written with the next change or by Close.
func TestLazy(t *testing.T) {
	s, syncs := openCounting(t, file(t))
	do(t, s.Client(), "SET k v")
	before := syncs.Load()
	if err := s.Client().Set(Lazy(t.Context()), "lazy", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if got := s.Client().Get(t.Context(), "lazy").Val(); got != "v" {
		t.Errorf("got %q, want v", got)
	}
	if got := syncs.Load() - before; got != 0 {
		t.Errorf("%d syncs, want none", got)
	}
	do(t, s.Client(), "SET k w")
	if got := onDisk(t, s.path); len(got) != 2 {
		t.Errorf("on disk: got %v, want 2 records", got)
	}
	if err := s.Client().Set(Lazy(t.Context()), "later", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	if got := onDisk(t, s.path); len(got) != 3 {
		t.Errorf("on disk after Close: got %v, want 3 records", got)
	}
}
