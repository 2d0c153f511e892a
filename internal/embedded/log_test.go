package embedded

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"
)

// someChanges makes records of all types, some of them binary, and changes them again.
func someChanges(t testing.TB, c *redis.Client) {
	t.Helper()
	do(t, c,
		"SET s v", "SET s w", "HSET h f v g w", "HDEL h g", "HSET h f x", "RPUSH l a b", "RPUSH l c", "SADD set a b c", "SREM set b",
		"ZADD z 0 a 0 b 1.5 c", "ZREM z a", "XADD x 1-1 f v", "XADD x MAXLEN 1 2-1 f w", "SET gone v", "DEL gone", "PEXPIREAT h 4000000000123",
		"SET p v PX 9000000", "PERSIST p", "RENAME l m", "COPY set copied", "SADD copied d", "XADD y 1 f v", "XTRIM y MAXLEN 0")
	ctx := t.Context()
	if err := c.HSet(ctx, "\xff\x00", "", "\xc3(").Err(); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		if err := c.SAdd(ctx, "many", fmt.Sprint(i)).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// closedFile returns the contents of the file of a store with someChanges, and its records.
func closedFile(t testing.TB) (data []byte, records map[string]string) {
	t.Helper()
	path := file(t)
	s := open(t, path)
	someChanges(t, s.Client())
	closeStore(t, s)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data, onDisk(t, path)
}

// A memoryFile is a file in memory for reading.
type memoryFile struct {
	*bytes.Reader
	diskFile
}

func (f memoryFile) ReadAt(b []byte, at int64) (int, error) { return f.Reader.ReadAt(b, at) }

func (f memoryFile) Stat() (os.FileInfo, error) { return memoryInfo{size: f.Size()}, nil }

type memoryInfo struct {
	os.FileInfo
	size int64
}

func (i memoryInfo) Size() int64 { return i.size }

// readLog returns the records of a file with these contents.
func readLog(data []byte) (map[string]string, error) {
	d := newData()
	f := memoryFile{Reader: bytes.NewReader(data)}
	if !isLog(f) {
		err := readLegacy(f, "f", d)
		return dump(d.root), err
	}
	_, err := openLog(f, d.apply)
	return dump(d.root), err
}

// corruptions is the number of damaged files that TestCorruptions reads.
const corruptions = 20_000

// TestCorruptions damages a file in many ways. Each damaged file must be refused or yield exactly
// the same records.
func TestCorruptions(t *testing.T) {
	whole, want := closedFile(t)
	if got, err := readLog(whole); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("the whole file: got %v, %v; want %v", got, err, want)
	}
	n, refused := corruptions, 0
	if testing.Short() {
		n /= 20
	}
	for i := range n {
		damaged, how := corrupt(whole, i)
		got, err := readLog(damaged)
		switch {
		case errors.Is(err, ErrDamaged):
			refused++
		case err != nil:
			t.Fatalf("%s: got %v, want ErrDamaged", how, err)
		case !reflect.DeepEqual(got, want):
			t.Fatalf("%s: the records are %v, want %v or an error", how, got, want)
		}
	}
	if refused < n/2 {
		t.Errorf("%d of %d damaged files were refused, want at least half", refused, n)
	}
}

// corrupt returns a copy of file with damage that depends on i.
func corrupt(file []byte, i int) (damaged []byte, how string) {
	r := rand.New(rand.NewPCG(1, uint64(i)))
	at := pageSize + r.IntN(len(file)-pageSize)
	if i%8 == 0 {
		at = r.IntN(pageSize)
	}
	damaged = bytes.Clone(file)
	to := min(len(file), at+1+r.IntN(600))
	switch kind := i / 8 % 6; kind {
	case 0:
		damaged[at] ^= 1 << r.IntN(8)
		return damaged, fmt.Sprintf("a bit of byte %d flipped", at)
	case 1:
		return damaged[:at], fmt.Sprintf("cut after %d bytes", at)
	case 2:
		clear(damaged[at:to])
		return damaged, fmt.Sprintf("zeros from %d to %d", at, to)
	case 3:
		return append(damaged[:at], file[to:]...), fmt.Sprintf("bytes from %d to %d left out", at, to)
	case 4:
		return append(damaged[:to], file[at:]...), fmt.Sprintf("bytes from %d to %d twice", at, to)
	default:
		for j := at; j < to; j++ {
			damaged[j] = byte(r.Uint32())
		}
		return damaged, fmt.Sprintf("noise from %d to %d", at, to)
	}
}

// TestMovedFrames checks that a frame that is missing, doubled or moved is damage, although its own
// checksum is right.
func TestMovedFrames(t *testing.T) {
	whole, _ := closedFile(t)
	frames := [][]byte{whole[:pageSize]}
	for rest := whole[pageSize:]; len(rest) > 0; {
		n := frameHead + int(head(rest).size())
		frames, rest = append(frames, rest[:n]), rest[n:]
	}
	if len(frames) < 20 {
		t.Fatalf("got %d frames, want at least 20", len(frames))
	}
	for i := 1; i < len(frames)-1; i++ {
		without := append(append([][]byte{}, frames[:i]...), frames[i+1:]...)
		twice := append(append([][]byte{}, frames[:i+1]...), frames[i:]...)
		swapped := append([][]byte{}, frames...)
		swapped[i], swapped[i+1] = swapped[i+1], swapped[i]
		for how, all := range map[string][][]byte{"left out": without, "doubled": twice, "swapped": swapped} {
			if _, err := readLog(bytes.Join(all, nil)); !errors.Is(err, ErrDamaged) {
				t.Errorf("frame %d %s: got %v, want ErrDamaged", i, how, err)
			}
		}
	}
	if _, err := readLog(bytes.Join(frames[:len(frames)-1], nil)); !errors.Is(err, ErrDamaged) {
		t.Errorf("the last frame left out: got %v, want ErrDamaged", err)
	}
}

// TestTornWrite checks that what a crash left of the last write is ignored and then replaced,
// however much it is, and that a complete write stays.
func TestTornWrite(t *testing.T) {
	path := file(t)
	s := open(t, path)
	do(t, s.Client(), "SET a v")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	do(t, s.Client(), "SET b v")
	closeStore(t, s)
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copy(after, before[:pageSize]) // as if the slot had not been updated
	for at := len(before); at <= len(after); at++ {
		for name, torn := range map[string][]byte{"short": after[:at], "zeros": append(bytes.Clone(after[:at]), make([]byte, len(after)-at)...)} {
			if err := os.WriteFile(path, torn, 0o600); err != nil {
				t.Fatal(err)
			}
			want := 1
			if bytes.Equal(torn, after) {
				want = 2
			}
			s := open(t, path)
			if got := s.Client().DBSize(t.Context()).Val(); int(got) != want {
				t.Fatalf("%s after %d bytes: %d records, want %d", name, at, got, want)
			}
			if at%7 == 0 {
				do(t, s.Client(), "SET c v")
				want++
			}
			closeStore(t, s)
			if got := len(onDisk(t, path)); got != want {
				t.Fatalf("%s after %d bytes, then closed: %d records, want %d", name, at, got, want)
			}
		}
	}
}

// TestSettled checks that the last write of a killed process is known to be durable once another
// process has opened the file, so that damage to it is no longer mistaken for a torn write.
func TestSettled(t *testing.T) {
	path := file(t)
	s := open(t, path)
	do(t, s.Client(), "SET a v")
	before, err1 := os.ReadFile(path)
	do(t, s.Client(), "SET b v")
	closeStore(t, s)
	after, err2 := os.ReadFile(path)
	copy(after, before[:pageSize]) // as if the slot had not been updated
	if err := errors.Join(err1, err2, os.WriteFile(path, after, 0o600)); err != nil {
		t.Fatal(err)
	}
	closeStore(t, open(t, path))
	settled, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	settled[len(settled)-1] ^= 1
	if records, err := readLog(settled); !errors.Is(err, ErrDamaged) {
		t.Errorf("got %v, %v; want ErrDamaged", records, err)
	}
}

// TestTornSlot checks that a slot does no harm if a crash interrupted the write to it.
func TestTornSlot(t *testing.T) {
	whole, want := closedFile(t)
	for _, at := range slotAt {
		damaged := bytes.Clone(whole)
		copy(damaged[at:], "0123456789")
		if got, err := readLog(damaged); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("slot at %d: got %v, %v; want %v and no error", at, got, err, want)
		}
		copy(damaged[slotAt[0]:], "0123456789")
		copy(damaged[slotAt[1]:], "0123456789")
		if _, err := readLog(damaged); !errors.Is(err, ErrDamaged) {
			t.Errorf("both slots: got %v, want ErrDamaged", err)
		}
	}
}

// TestFailedWriteIsReplaced checks that nothing is left of a write that failed, if the file could
// not be truncated at first.
func TestFailedWriteIsReplaced(t *testing.T) {
	failing := false
	s := openDisk(t, file(t), &testDisk{before: func(step string) error {
		if failing && (step == "sync" || step == "truncate") {
			return syscall.EIO
		}
		return nil
	}})
	do(t, s.Client(), "SET old v")
	failing = true
	for range 3 {
		if err := s.Client().Set(t.Context(), "new", strings.Repeat("x", 100), 0).Err(); !errors.Is(err, ErrUnsaved) {
			t.Fatalf("got %v, want ErrUnsaved", err)
		}
	}
	failing = false
	do(t, s.Client(), "SET newer v")
	closeStore(t, s)
	if got := onDisk(t, s.path); len(got) != 2 || got["newer"] == "" {
		t.Errorf("on disk: got %v, want old and newer", got)
	}
}

// TestJournalMakesTheSameRecords checks that the changes in a file yield the records in memory,
// whatever the commands, and that a rewritten file does so as well.
func TestJournalMakesTheSameRecords(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		path := filepath.Join(dir, "f")
		if err := ignoreMissing(os.Remove(path)); err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for range rapid.IntRange(1, 30).Draw(t, "commands") {
			_ = s.Client().Do(t.Context(), drawCommand(t, shapes)...).Err() // some are wrong
		}
		if err := s.engine.flush(t.Context(), new(span)); err != nil {
			t.Fatal(err)
		}
		want := dump(s.engine.data.root)
		compareFile(t, s.path, want)
		if s.log == nil {
			return
		}
		size := 0
		s.engine.data.keys.Scan(func(key string, o *object) bool {
			if size += o.size; o.size < 0 {
				t.Fatalf("%s has the size %d, want at least 0", key, o.size)
			}
			return true
		})
		if s.engine.data.size != size {
			t.Fatalf("the size is %d, want %d", s.engine.data.size, size)
		}
		if _, err := s.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
		compareFile(t, s.path, want)
		if limit := s.engine.data.size*2 + startSlack; s.log.end > int64(limit) {
			t.Fatalf("the file has %d bytes after a compaction; more than %d cause another one", s.log.end, limit)
		}
	})
}

func compareFile(t *rapid.T, path string, want map[string]string) {
	s, d := &Store{disk: osDisk{}, path: path}, newData()
	if err := s.readFile(d); err != nil {
		t.Fatal(err)
	}
	if s.log != nil {
		s.log.file.Close()
	}
	if got := dump(d.root); !reflect.DeepEqual(got, want) {
		t.Fatalf("in the file: got %v, want %v", got, want)
	}
}

// FuzzOpenLog checks that no file makes openLog panic or allocate memory without limit.
func FuzzOpenLog(f *testing.F) {
	whole, _ := closedFile(f)
	f.Add(whole)
	f.Add(whole[:pageSize])
	f.Fuzz(func(t *testing.T, data []byte) { _, _ = readLog(data) })
}

// FuzzApply checks that no changes make apply panic or allocate memory without limit.
func FuzzApply(f *testing.F) {
	var j journal
	j.add(opField, "h", "f", "v")
	j.add(opEntry, "x", streamID{1, 1}.key(), "f", "v")
	j.add(opTrim, "x", "\x01")
	f.Add(j.take())
	f.Fuzz(func(t *testing.T, changes []byte) { _ = newData().apply(changes) })
}

// TestSizesAreChecked checks that memory is not allocated for a size only because the file states
// it.
func TestSizesAreChecked(t *testing.T) {
	h := make([]byte, frameHead)
	copy(h, frameMagic+"01234567")
	binary.LittleEndian.PutUint32(h[20:], 1<<32-1)
	r := newFrameReader(bytes.NewReader(append(make([]byte, pageSize), h...)), "01234567", 1<<40)
	if _, err := r.next(0); !errors.Is(err, errShort) || r.buf != nil {
		t.Errorf("a frame: got %v and %d bytes, want errShort and none", err, cap(r.buf))
	}
	changes := bytes.Repeat([]byte{0xff}, 8<<20)
	changes[0] = opMember
	binary.LittleEndian.PutUint32(changes[1:], 7<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := newData().apply(changes)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, errChange) || n > 8<<20 {
		t.Errorf("changes: got %v and %d bytes, want errChange and almost none", err, n)
	}
}
