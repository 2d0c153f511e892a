package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func TestBackup(t *testing.T) {
	s := open(t, file(t))
	someChanges(t, s.Client())
	to := filepath.Join(t.TempDir(), "backup")
	n, err := Backup(s.path, to)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(to); err != nil || info.Size() != n || info.Mode().Perm() != 0o600 {
		t.Errorf("the copy: got %v, %v; want %d bytes and mode 0600", info, err, n)
	}
	if got, want := onDisk(t, to), onDisk(t, s.path); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if _, err := Backup(s.path, to); !errors.Is(err, os.ErrExist) {
		t.Errorf("over a file: got %v, want os.ErrExist", err)
	}
	do(t, open(t, to).Client(), "SET more v")

	if err := os.Symlink(s.path, to+"link"); err == nil {
		if _, err := Backup(to+"link", to+"3"); err != nil {
			t.Error("through a link: ", err)
		}
	}

	path, data := legacyFile(t)
	if _, err := Backup(path, to+"2"); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(to + "2"); !bytes.Equal(got, data) {
		t.Errorf("the copy of a file of JSON lines is %q, %v; want it unchanged", got, err)
	}
}

// TestBackupWhileWriting checks that each copy of a file in use is whole and has every change that
// was answered before the copy was begun.
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

// A shrinkingFile loses its last frame after the first read beyond its first page.
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

// A growingFile reports its size without its last frame until it is first read.
type growingFile struct {
	memoryFile
	before memoryFile
	read   bool
}

func (f *growingFile) ReadAt(b []byte, at int64) (int, error) {
	f.read = true
	return f.memoryFile.ReadAt(b, at)
}

func (f *growingFile) Stat() (os.FileInfo, error) {
	if !f.read {
		return f.before.Stat()
	}
	return f.memoryFile.Stat()
}

// TestCopyOfGrowingFile checks that a file is not considered damaged if another process writes to
// it while it is opened.
func TestCopyOfGrowingFile(t *testing.T) {
	s := open(t, file(t))
	do(t, s.Client(), "SET a v")
	before, err1 := os.ReadFile(s.path)
	do(t, s.Client(), "SET b v")
	after, err2 := os.ReadFile(s.path)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	from := &growingFile{memoryFile: memoryFile{Reader: bytes.NewReader(after)}, before: memoryFile{Reader: bytes.NewReader(before)}}
	to := filepath.Join(t.TempDir(), "copy")
	if _, err := writeNew(to, func(out *logFile) error { return copyLog(out, from, "f") }); err != nil {
		t.Fatal(err)
	}
	if got := onDisk(t, to); len(got) != 2 {
		t.Errorf("the copy has %v, want a and b", got)
	}
}

// A shortenedFile is shorter than the size that Stat reports.
type shortenedFile struct {
	memoryFile
	size int64
}

func (f shortenedFile) Stat() (os.FileInfo, error) { return memoryInfo{size: f.size}, nil }

// TestCopyOfShortenedFile checks that a file is not considered damaged if a change is removed from
// it while it is opened, wherever the file then ends.
func TestCopyOfShortenedFile(t *testing.T) {
	s := open(t, file(t))
	do(t, s.Client(), "SET a v")
	before, err1 := os.ReadFile(s.path)
	do(t, s.Client(), "SET b v")
	after, err2 := os.ReadFile(s.path)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	copy(after, before[:pageSize]) // the second change was not durable yet
	for size := len(before); size < len(after); size++ {
		from := shortenedFile{memoryFile{Reader: bytes.NewReader(after[:size])}, int64(len(after))}
		to := filepath.Join(t.TempDir(), "copy")
		if _, err := writeNew(to, func(out *logFile) error { return copyLog(out, from, "f") }); err != nil {
			t.Fatalf("%d of %d bytes: %v", size, len(after), err)
		}
		if got := onDisk(t, to); len(got) != 1 || got["a"] == "" {
			t.Errorf("%d of %d bytes: the copy has %v, want a", size, len(after), got)
		}
	}
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
		text := strings.Repeat("x", 5000)
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
				t.Errorf("over a file: got %v, want os.ErrExist", err)
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

// TestSalvageForged checks that salvage never mistakes text of a record for a frame, whatever else
// is damaged.
func TestSalvageForged(t *testing.T) {
	s := open(t, file(t))
	do(t, s.Client(), "HSET admin role admin", "HSET user role user")
	var j journal
	j.add(opField, "user", "role", "admin")
	forged := newMemoryLog(t)
	if err := forged.append(j.take()); err != nil {
		t.Fatal(err)
	}
	note := forged.file.(*memoryWriter).data
	if err := s.Client().HSet(t.Context(), "note", "text", note).Err(); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	whole, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(whole, []byte("note"))
	for name, damage := range map[string]func(data []byte) []byte{
		"a change":                        func(data []byte) []byte { return data },
		"the first page":                  func(data []byte) []byte { clear(data[:pageSize]); return data },
		"the first frame":                 func(data []byte) []byte { clear(data[pageSize : pageSize+frameHead]); return data },
		"bytes missing in the first page": func(data []byte) []byte { return slices.Delete(data, idAt+idSize, idAt+idSize+100) },
	} {
		t.Run(name, func(t *testing.T) {
			data := bytes.Clone(whole)
			data[at] ^= 1
			data = damage(data)
			path := file(t)
			if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600)); err != nil {
				t.Fatal(err)
			}
			if got, err := Salvage(path, path+".new"); err != nil || got.Lost == 0 {
				t.Fatalf("got %+v, %v; want something lost", got, err)
			}
			got := onDisk(t, path+".new")
			if user := got["user"]; !strings.Contains(user, "user") || strings.Contains(user, "admin") {
				t.Errorf("got %v, want the user without the role admin", got)
			}
		})
	}
}

// A memoryWriter is a file in memory for writing.
type memoryWriter struct {
	diskFile
	data []byte
}

func (f *memoryWriter) WriteAt(b []byte, at int64) (int, error) {
	f.data = append(f.data, make([]byte, max(0, int(at)+len(b)-len(f.data)))...)
	return copy(f.data[at:], b), nil
}

func newMemoryLog(t *testing.T) *logFile {
	l, err := newLog(&memoryWriter{}, keptFile{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}
