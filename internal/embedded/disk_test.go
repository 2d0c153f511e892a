package embedded

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// A testDisk calls before with the name of each step: create, open, link, rename, directory, write,
// sync, truncate and close. If that returns an error, the step fails. A file is closed even then.
type testDisk struct {
	osDisk
	before func(step string) error
}

type testFile struct {
	diskFile
	disk *testDisk
}

func (d *testDisk) file(f diskFile, err error) (diskFile, error) {
	if err != nil {
		return nil, err
	}
	return &testFile{f, d}, nil
}

func (d *testDisk) create(path string) (diskFile, error) {
	if err := d.before("create"); err != nil {
		return nil, err
	}
	return d.file(d.osDisk.create(path))
}

func (d *testDisk) open(path string) (diskFile, error) {
	if err := d.before("open"); err != nil {
		return nil, err
	}
	return d.file(d.osDisk.open(path))
}

func (d *testDisk) link(from, to string) error {
	if err := d.before("link"); err != nil {
		return err
	}
	return d.osDisk.link(from, to)
}

func (d *testDisk) rename(from, to string) error {
	if err := d.before("rename"); err != nil {
		return err
	}
	return d.osDisk.rename(from, to)
}

func (d *testDisk) syncDir(dir string) error {
	if err := d.before("directory"); err != nil {
		return err
	}
	return d.osDisk.syncDir(dir)
}

// WriteAt writes half of b if it fails.
func (f *testFile) WriteAt(b []byte, at int64) (int, error) {
	if err := f.disk.before("write"); err != nil {
		n, _ := f.diskFile.WriteAt(b[:len(b)/2], at)
		return n, err
	}
	return f.diskFile.WriteAt(b, at)
}

func (f *testFile) Sync() error {
	if err := f.disk.before("sync"); err != nil {
		return err
	}
	return f.diskFile.Sync()
}

func (f *testFile) Truncate(size int64) error {
	if err := f.disk.before("truncate"); err != nil {
		return err
	}
	return f.diskFile.Truncate(size)
}

func (f *testFile) Close() error {
	err := f.diskFile.Close()
	if failed := f.disk.before("close"); failed != nil {
		return failed
	}
	return err
}

// openCounting returns a store and the number of its syncs so far. Each write of changes is synced
// once.
func openCounting(t testing.TB, path string) (*Store, *atomic.Int64) {
	t.Helper()
	syncs := new(atomic.Int64)
	return openDisk(t, path, &testDisk{before: func(step string) error {
		if step == "sync" {
			syncs.Add(1)
		}
		return nil
	}}), syncs
}

// A faultyDisk fails in the step that was last passed to set.
type faultyDisk struct {
	testDisk
	mu   sync.Mutex
	step string
}

func newFaultyDisk() *faultyDisk {
	d := &faultyDisk{}
	d.before = func(step string) error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.step == step {
			return fmt.Errorf("faulty %s: %w", step, syscall.ENOSPC)
		}
		return nil
	}
	return d
}

func (d *faultyDisk) set(step string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.step = step
}

// openFaulty returns a store that holds the record old=v, on a disk that can fail.
func openFaulty(t *testing.T) (*Store, *faultyDisk) {
	d := newFaultyDisk()
	s := openDisk(t, file(t), &d.testDisk)
	do(t, s.Client(), "SET old v")
	return s, d
}

// openSlow returns a store that holds the record old=v. The next sync of the store closes begun,
// and waits until end is closed.
func openSlow(t *testing.T, path string) (s *Store, begun, end chan struct{}) {
	begun, end = make(chan struct{}), make(chan struct{})
	var slow atomic.Bool
	var once sync.Once
	s = openDisk(t, path, &testDisk{before: func(step string) error {
		if step == "sync" && slow.Load() {
			once.Do(func() { close(begun) })
			<-end
		}
		return nil
	}})
	do(t, s.Client(), "SET old v")
	slow.Store(true)
	return s, begun, end
}
