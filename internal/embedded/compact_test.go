package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestCompactForgets checks that nothing of deleted records is in the file after Compact, nor after
// a start that finds more than half of the file free.
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
				t.Errorf("after one more change: %v, want 3 records", got)
			}
		})
	}
}

// TestCompactForgetsExpired checks that records that have expired are gone, too.
func TestCompactForgetsExpired(t *testing.T) {
	var now atomic.Int64
	now.Store(time.Now().UnixMilli())
	ctx := WithClock(t.Context(), func() time.Time { return time.UnixMilli(now.Load()) })
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
		now.Add(2000)
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
			t.Errorf("%s: %v, want 2 records", when, got)
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
		t.Errorf("on disk: %v, want %v", got, want)
	}
	if left, err := filepath.Glob(s.path + ".tmp"); len(left) > 0 || err != nil {
		t.Errorf("the temporary file was left: %v", err)
	}
}

// TestLongTail makes many changes while a file is written anew. They are copied in the background,
// too, and none is lost.
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

// TestCompactOnFaultyDisk checks that a file that cannot be written anew stays in use.
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
				t.Error("no error")
			}
			failing.Store(false)
			do(t, s.Client(), "SET b v")
			if got := onDisk(t, s.path); len(got) != 2 {
				t.Errorf("on disk: %v, want 2 records", got)
			}
			if _, err := s.Compact(t.Context()); err != nil {
				t.Error(err)
			}
			if got := onDisk(t, s.path); len(got) != 2 {
				t.Errorf("compacted: %v, want 2 records", got)
			}
		})
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
		t.Errorf("the file is away: got %v, want that it does not exist", err)
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

// TestUnsyncedRename checks that no change is answered before the name of a new file is durable.
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
	_, _ = s.Compact(t.Context()) // the file is replaced
	if err := s.Client().Set(t.Context(), "b", "v", 0).Err(); !errors.Is(err, ErrUnsaved) {
		t.Errorf("got %v, want ErrUnsaved", err)
	}
	failing.Store(false)
	do(t, s.Client(), "SET c v")
	if got := onDisk(t, s.path); len(got) != 2 {
		t.Errorf("on disk: %v, want a and c", got)
	}
}

// TestGrowingFile checks that a store in use writes its file anew once it has grown too much.
func TestGrowingFile(t *testing.T) {
	s := open(t, file(t))
	text := strings.Repeat("x", 1<<20)
	largest := int64(0)
	for range 60 {
		do(t, s.Client(), "SET k "+text)
		info, err := os.Stat(s.path)
		if err != nil {
			t.Fatal(err)
		}
		largest = max(largest, info.Size())
	}
	if largest > 40<<20 {
		t.Errorf("the file grew to %d bytes for 1 MiB of records", largest)
	}
}

func TestBackup(t *testing.T) {
	s := open(t, file(t))
	someChanges(t, s.Client())
	to := filepath.Join(t.TempDir(), "backup")
	n, err := Backup(s.path, to)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(to); err != nil || info.Size() != n || info.Mode().Perm() != 0o600 {
		t.Errorf("the copy: %v, %v; want %d bytes and mode 0600", info, err, n)
	}
	if got, want := onDisk(t, to), onDisk(t, s.path); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if _, err := Backup(s.path, to); !errors.Is(err, os.ErrExist) {
		t.Errorf("over a file: %v, want os.ErrExist", err)
	}
	do(t, open(t, to).Client(), "SET more v")

	path, data := legacyFile(t)
	if _, err := Backup(path, to+"2"); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(to + "2"); !bytes.Equal(got, data) {
		t.Errorf("the copy of a file of JSON lines is %q, %v", got, err)
	}
}

// TestBackupWhileWriting checks that each copy of a file in use is whole and not older than what
// was answered before.
func TestBackupWhileWriting(t *testing.T) {
	s := open(t, file(t))
	do(t, s.Client(), "SET n 0")
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var answered atomic.Int64
	all.Go(func() {
		for ctx.Err() == nil {
			n, err := s.Client().Incr(t.Context(), "n").Result()
			if err != nil {
				t.Error(err)
			}
			answered.Store(n)
		}
	})
	dir := t.TempDir()
	for i := range 20 {
		least, to := answered.Load(), filepath.Join(dir, fmt.Sprint(i))
		if _, err := Backup(s.path, to); err != nil {
			t.Fatal(err)
		}
		copied := open(t, to)
		if got, err := copied.Client().Get(t.Context(), "n").Int64(); err != nil || got < least {
			t.Errorf("the copy has %d, %v; want at least %d", got, err, least)
		}
		closeStore(t, copied)
	}
	stop()
	all.Wait()
}

// A shrinkingFile loses its last frame after it was read for the first time.
type shrinkingFile struct {
	memoryFile
	later memoryFile
	reads int
}

func (f *shrinkingFile) ReadAt(b []byte, at int64) (int, error) {
	if f.reads > 0 {
		return f.later.ReadAt(b, at)
	}
	if at >= pageSize {
		f.reads++
	}
	return f.memoryFile.ReadAt(b, at)
}

func (f *shrinkingFile) Stat() (os.FileInfo, error) {
	if f.reads > 0 {
		return f.later.Stat()
	}
	return f.memoryFile.Stat()
}

// TestCopyOfShrinkingFile checks that a copy is made again if a change was taken back meanwhile.
func TestCopyOfShrinkingFile(t *testing.T) {
	s := open(t, file(t))
	do(t, s.Client(), "SET a v")
	before, err1 := os.ReadFile(s.path)
	do(t, s.Client(), "SET b v")
	after, err2 := os.ReadFile(s.path)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	copy(after, before[:pageSize]) // the second change was not durable yet
	to := filepath.Join(t.TempDir(), "copy")
	from := &shrinkingFile{memoryFile: memoryFile{Reader: bytes.NewReader(after)}, later: memoryFile{Reader: bytes.NewReader(before)}}
	if _, err := writeNew(to, func(out *logFile) error { return copyLog(out, from, "f") }); err != nil {
		t.Fatal(err)
	}
	if got := onDisk(t, to); len(got) != 1 || got["a"] == "" {
		t.Errorf("the copy has %v, want a", got)
	}
}

// TestBackupOfUndone checks that each copy is whole although writes fail and are taken back.
func TestBackupOfUndone(t *testing.T) {
	var n atomic.Int64
	s := openDisk(t, file(t), &testDisk{before: func(step string) error {
		if step == "sync" && n.Add(1)%3 == 0 {
			return errors.New("faulty sync")
		}
		return nil
	}})
	for s.Client().Set(t.Context(), "k", "v", 0).Err() != nil {
	}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		text := strings.Repeat("x", 20_000)
		for ctx.Err() == nil {
			_ = s.Client().Set(t.Context(), "k", text, 0).Err() // some fail
		}
	})
	dir := t.TempDir()
	for i := range 100 {
		to := filepath.Join(dir, fmt.Sprint(i))
		if _, err := Backup(s.path, to); err != nil {
			t.Fatal(err)
		}
		if got := onDisk(t, to); len(got) != 1 {
			t.Errorf("the copy has %d records, want 1", len(got))
		}
	}
	stop()
	all.Wait()
}

// TestSalvage checks that what can be read of a damaged file is saved.
func TestSalvage(t *testing.T) {
	s := open(t, file(t))
	for i := range 100 {
		do(t, s.Client(), fmt.Sprintf("SET k%02d v", i))
	}
	closeStore(t, s)
	whole, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]int{"a change": len(whole) / 2, "the first page": 10, "a slot": slotAt[0] + 3} {
		t.Run(name, func(t *testing.T) {
			damaged := bytes.Clone(whole)
			damaged[at] ^= 1
			dir := t.TempDir()
			path, to := filepath.Join(dir, "f"), filepath.Join(dir, "new")
			if err := os.WriteFile(path, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := Salvage(path, to)
			if err != nil || got.Records < 99 || got.Records == 99 && got.Lost == 0 {
				t.Errorf("got %+v, %v; want at least 99 records", got, err)
			}
			if n := len(onDisk(t, to)); n != got.Records {
				t.Errorf("%d records in the new file, want %d", n, got.Records)
			}
			if _, err := Salvage(path, to); !errors.Is(err, os.ErrExist) {
				t.Errorf("over a file: %v, want os.ErrExist", err)
			}
		})
	}
}

func TestSalvageLegacy(t *testing.T) {
	path, data := legacyFile(t)
	data[bytes.Index(data, []byte(`"list":`))] = 'x'
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	to := path + ".new"
	if got, err := Salvage(path, to); err != nil || got.Records != len(someRecords())-1 || got.Lost == 0 {
		t.Errorf("got %+v, %v; want all records but one", got, err)
	}
	if got := len(onDisk(t, to)); got != len(someRecords())-1 {
		t.Errorf("%d records in the new file, want %d", got, len(someRecords())-1)
	}
}
