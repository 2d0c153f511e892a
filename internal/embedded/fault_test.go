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
)

// A countingDisk counts the writes that replaced the file.
type countingDisk struct {
	osDisk
	renames atomic.Int64
}

func (d *countingDisk) rename(from, to string) error {
	d.renames.Add(1)
	return d.osDisk.rename(from, to)
}

// A faultyDisk fails in the step that was last passed to set.
type faultyDisk struct {
	osDisk
	mu   sync.Mutex
	step string
}

func (d *faultyDisk) set(step string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.step = step
}

func (d *faultyDisk) fail(step string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.step == step {
		return fmt.Errorf("faulty %s: %w", step, syscall.ENOSPC)
	}
	return nil
}

func (d *faultyDisk) create(path string) (syncWriter, error) {
	if err := d.fail("create"); err != nil {
		return nil, err
	}
	f, err := d.osDisk.create(path)
	return &faultyFile{f, d}, err
}

func (d *faultyDisk) rename(from, to string) error {
	if err := d.fail("rename"); err != nil {
		return err
	}
	return d.osDisk.rename(from, to)
}

func (d *faultyDisk) syncDir(dir string) error {
	if err := d.fail("directory"); err != nil {
		return err
	}
	return d.osDisk.syncDir(dir)
}

type faultyFile struct {
	syncWriter
	disk *faultyDisk
}

func (f *faultyFile) Write(b []byte) (int, error) {
	if err := f.disk.fail("write"); err != nil {
		n, _ := f.syncWriter.Write(b[:len(b)/2])
		return n, err
	}
	return f.syncWriter.Write(b)
}

func (f *faultyFile) Sync() error {
	if err := f.disk.fail("sync"); err != nil {
		return err
	}
	return f.syncWriter.Sync()
}

func (f *faultyFile) Close() error {
	if err := f.disk.fail("close"); err != nil {
		f.syncWriter.Close()
		return err
	}
	return f.syncWriter.Close()
}

// openFaulty returns a store that holds the record old=v, on a disk that can fail.
func openFaulty(t *testing.T) (*Store, *faultyDisk) {
	s := open(t, file(t))
	do(t, s.Client(), "SET old v")
	d := &faultyDisk{}
	s.disk = d
	return s, d
}

func TestFullDisk(t *testing.T) {
	for _, step := range []string{"create", "write", "sync", "close", "rename"} {
		t.Run(step, func(t *testing.T) {
			s, d := openFaulty(t)
			before, err := os.ReadFile(s.path)
			if err != nil {
				t.Fatal(err)
			}
			d.set(step)
			for range 2 {
				err = s.Client().Set(t.Context(), "new", "v", 0).Err()
				want := "embedded: change not saved: " + s.path + ": faulty " + step + ": no space left on device"
				if !errors.Is(err, ErrUnsaved) || !errors.Is(err, syscall.ENOSPC) || err.Error() != want {
					t.Errorf("got %v, want %s", err, want)
				}
			}
			if after, err := os.ReadFile(s.path); string(after) != string(before) {
				t.Errorf("the file was %q and is %q, %v", before, after, err)
			}
			if _, err := os.Stat(s.path + ".tmp"); err == nil {
				t.Error("the temporary file was left")
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
	s, d := openFaulty(t)
	d.set("directory")
	if err := s.Client().Set(t.Context(), "new", "v", 0).Err(); !errors.Is(err, ErrUnsaved) {
		t.Errorf("got %v, want ErrUnsaved", err)
	}
	d.set("")
	if got, want := s.Client().DBSize(t.Context()).Val(), int64(len(onDisk(t, s.path))); got != want {
		t.Errorf("%d records in memory, %d on disk", got, want)
	}
}

// TestFullTmpfs fills a real disk, if the test may mount one.
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
	if got := onDisk(t, s.path); len(got) != 1 || got[0].Key != "old" {
		t.Errorf("on disk: %+v, want only the record old", got)
	}
	do(t, s.Client(), "SET small v")
}

// TestFaultsUnderLoad has writes of the file fail while many writers run. A change that was
// answered is in the file, a change that failed with ErrUnsaved is not, and memory equals the file.
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
					d.set([]string{"", "write", "", "rename"}[j%4])
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
	for _, r := range onDisk(t, s.path) {
		got[r.Key] = true
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
		t.Fatal(err)
	}
	d.set("")
	if err := s.Client().Set(ctx, "bulk2", "v", 0).Err(); !errors.Is(err, ErrUnsaved) {
		t.Errorf("going on with the bulk: %v, want ErrUnsaved", err)
	}
	want := "a write failed since the bulk began: embedded: change not saved: " + s.path + ": "
	if err := end(t.Context()); !errors.Is(err, ErrUnsaved) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s…", err, want)
	}
	if got := s.Client().Keys(t.Context(), "*").Val(); !reflect.DeepEqual(got, []string{"old"}) {
		t.Errorf("the keys in memory are %q, want only old", got)
	}
}

// TestFaultAndDamage checks that after a failed write, the records in memory are reloaded only from
// a file that can be read.
func TestFaultAndDamage(t *testing.T) {
	s, d := openFaulty(t)
	d.set("write")
	if err := s.Client().Set(t.Context(), "new", "v", 0).Err(); !errors.Is(err, ErrUnsaved) {
		t.Fatal(err)
	}
	d.set("")
	if err := os.WriteFile(s.path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Client().Get(t.Context(), "old").Err(); !errors.Is(err, ErrDamaged) {
			t.Errorf("got %v, want ErrDamaged", err)
		}
	}
	if err := s.Close(); !errors.Is(err, ErrUnsaved) {
		t.Errorf("Close: %v, want ErrUnsaved", err)
	}
	if got, err := os.ReadFile(s.path); string(got) != "x" {
		t.Errorf("the damaged file is now %q, %v; want it unchanged", got, err)
	}
}

// TestFolderAway moves the store's directory away. Meanwhile no command is answered as if the
// records had never existed. Once it is back, the records are there again, even after the next
// write.
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
		if got, err := s.Client().Get(t.Context(), "before").Result(); !errors.Is(err, ErrUnsaved) {
			t.Errorf("Get: got %q, %v; want ErrUnsaved", got, err)
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

// TestTempFileIsALink checks that an old temporary file, or a link in its place, is removed and not
// written to.
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
	path := filepath.Join(t.TempDir(), "f")
	whole := encoded(t, someRecords())
	for _, damaged := range [][]byte{{}, whole[:len(whole)-1], append([]byte("x"), whole...)} {
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		var damage *DamageError
		_, err := Open(t.Context(), path)
		if !errors.Is(err, ErrDamaged) || !errors.As(err, &damage) || damage.Line < 1 {
			t.Errorf("got %v, want a DamageError that names a line", err)
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
	s := open(t, file(t))
	d := &slowDisk{begun: make(chan struct{}), end: make(chan struct{})}
	s.disk = d
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-d.begun; cancel(errors.New("enough")) }()
	err := s.Client().Set(ctx, "k", "v", 0).Err()
	if want := "embedded: change not saved yet: context canceled: enough"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if !errors.Is(err, ErrWaiting) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want ErrWaiting and context.Canceled", err)
	}
	close(d.end)
	closeStore(t, s)
	if got := len(onDisk(t, s.path)); got != 1 {
		t.Errorf("%d records on disk after Close, want 1", got)
	}
}

// A slowDisk renames only after end is closed.
type slowDisk struct {
	osDisk
	begun, end chan struct{}
	once       sync.Once
}

func (d *slowDisk) rename(from, to string) error {
	d.once.Do(func() { close(d.begun) })
	<-d.end
	return d.osDisk.rename(from, to)
}

// TestChangeDuringWrite makes a change while the file is being written with an earlier one. The
// second change must be saved with another write.
func TestChangeDuringWrite(t *testing.T) {
	s := open(t, file(t))
	d := &slowDisk{begun: make(chan struct{}), end: make(chan struct{})}
	s.disk = d
	first := make(chan error)
	go func() { first <- s.Client().Set(t.Context(), "first", "v", 0).Err() }()
	<-d.begun
	second := make(chan error)
	go func() { second <- s.Client().Set(t.Context(), "second", "v", 0).Err() }()
	for s.engine.version.Load() < 2 {
		runtime.Gosched()
	}
	close(d.end)
	for _, c := range []chan error{first, second} {
		if err := <-c; err != nil {
			t.Error(err)
		}
	}
	if got := len(onDisk(t, s.path)); got != 2 {
		t.Errorf("%d records on disk, want 2", got)
	}
}

// TestNoWriteAfterClose checks that a command that is running when Close begins starts no write
// after it: the file may belong to another process by then.
func TestNoWriteAfterClose(t *testing.T) {
	s := open(t, file(t))
	err := s.run(t.Context(), nil, func() error {
		if err := s.seal(); err != nil {
			t.Error(err)
		}
		return s.wait(t.Context(), s.engine.version.Add(1))
	})
	if !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
	if got := onDisk(t, s.path); got != nil {
		t.Errorf("on disk: %+v, want nothing", got)
	}
}
