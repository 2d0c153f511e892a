package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

const sectorSize = 512

// An inode is a file of a lossDisk.
type inode struct {
	data    []byte
	durable []byte
	// dirty holds the versions of each sector that was written since the last sync. Any of them may
	// be on the disk, or none.
	dirty map[int][][]byte
	sizes []int // of the file since the last sync
}

func (f *inode) sector(data []byte, i int) []byte {
	return slices.Clone(data[min(i*sectorSize, len(data)):min((i+1)*sectorSize, len(data))])
}

func (f *inode) write(b []byte, at int) {
	f.data = append(f.data, make([]byte, max(0, at+len(b)-len(f.data)))...)
	copy(f.data[at:], b)
	for i := at / sectorSize; i*sectorSize < at+len(b); i++ {
		f.dirty[i] = append(f.dirty[i], f.sector(f.data, i))
	}
	f.sizes = append(f.sizes, len(f.data))
}

func (f *inode) truncate(size int) {
	f.data = append(f.data[:min(size, len(f.data))], make([]byte, max(0, size-len(f.data)))...)
	f.sizes = append(f.sizes, size)
}

// sync makes the sectors that were written since the last sync durable.
func (f *inode) sync() {
	f.durable = resized(f.durable, len(f.data))
	for i := range f.dirty {
		copy(f.durable[min(i*sectorSize, len(f.durable)):], f.sector(f.data, i))
	}
	f.dirty, f.sizes = map[int][][]byte{}, nil
}

// lose returns what a crash may leave of the file.
func (f *inode) lose(r *rand.Rand) []byte {
	size := append([]int{len(f.durable)}, f.sizes...)
	data := resized(slices.Clone(f.durable), size[r.IntN(len(size))])
	for _, i := range slices.Sorted(maps.Keys(f.dirty)) {
		if version := r.IntN(1 + len(f.dirty[i])); version > 0 && i*sectorSize < len(data) {
			copy(data[i*sectorSize:], f.dirty[i][version-1])
		}
	}
	return data
}

func resized(b []byte, size int) []byte {
	return append(b[:min(size, len(b))], make([]byte, max(0, size-len(b)))...)
}

// A diskState says what is durable in one directory: sectors of files, and names. A power failure
// leaves everything that was synced and any of the other sectors. Of the other changes of names, it
// leaves the first few, all or none.
type diskState struct {
	random  *rand.Rand
	names   map[string]*inode
	durable map[string]*inode
	changes []func(names map[string]*inode) // of names, since the last sync of the directory
}

func newDiskState(dir string, files map[string][]byte, random *rand.Rand) (*diskState, error) {
	d := &diskState{random: random, names: map[string]*inode{}}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return nil, err
		}
		d.names[name] = &inode{data: slices.Clone(data), durable: slices.Clone(data), dirty: map[int][][]byte{}}
	}
	d.durable = maps.Clone(d.names)
	return d, nil
}

// lose returns what a power failure may leave.
func (d *diskState) lose() map[string][]byte {
	names := maps.Clone(d.durable)
	for _, change := range d.changes[:d.random.IntN(1+len(d.changes))] {
		change(names)
	}
	left, contents := map[string][]byte{}, map[*inode][]byte{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		f := names[name]
		if contents[f] == nil {
			contents[f] = f.lose(d.random)
		}
		left[name] = contents[f]
	}
	return left
}

// A lossDisk is the disk of one process, which ends after some steps: it is killed, and the system
// keeps what it wrote, or the power fails. A failed sync may lose what was written, as on Linux.
type lossDisk struct {
	osDisk
	*diskState
	mu     sync.Mutex
	lossy  bool // syncs fail at times, but not twice in a row
	failed bool // the last sync failed

	steps       int // how many are left before the end
	kill        bool
	ended       bool
	left        map[string][]byte    // the files that a power failure left
	prev, would map[string]string    // records before and after the change that is being made
	want        [2]map[string]string // prev and would at the end
}

var errEnded = errors.New("the process has ended")

// begin counts a step and locks mu, which the caller unlocks. It returns an error, and leaves mu
// unlocked, if the process has been killed.
func (d *lossDisk) begin() error {
	d.mu.Lock()
	if d.steps--; d.steps == 0 {
		d.ended, d.want = true, [2]map[string]string{d.prev, d.would}
		if !d.kill {
			d.left = d.lose()
		}
	}
	if d.ended && d.kill {
		d.mu.Unlock()
		return errEnded
	}
	return nil
}

func (d *lossDisk) change(err error, f func(names map[string]*inode)) error {
	if err == nil {
		f(d.names)
		d.changes = append(d.changes, f)
	}
	return err
}

func (d *lossDisk) create(path string) (diskFile, error) {
	if err := d.begin(); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	file, err := d.osDisk.create(path)
	if err != nil {
		return nil, err
	}
	f := &inode{dirty: map[int][][]byte{}}
	return &lossFile{file, d, f}, d.change(nil, func(names map[string]*inode) { names[filepath.Base(path)] = f })
}

func (d *lossDisk) open(path string) (diskFile, error) {
	if err := d.begin(); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	file, err := d.osDisk.open(path)
	if err != nil {
		return nil, err
	}
	return &lossFile{file, d, d.names[filepath.Base(path)]}, nil
}

func (d *lossDisk) link(from, to string) error {
	if err := d.begin(); err != nil {
		return err
	}
	defer d.mu.Unlock()
	from, name := filepath.Base(from), filepath.Base(to)
	return d.change(os.Link(filepath.Join(filepath.Dir(to), from), to), func(names map[string]*inode) { names[name] = names[from] })
}

func (d *lossDisk) remove(path string) error {
	if err := d.begin(); err != nil {
		return err
	}
	defer d.mu.Unlock()
	return d.change(os.Remove(path), func(names map[string]*inode) { delete(names, filepath.Base(path)) })
}

func (d *lossDisk) rename(from, to string) error {
	if err := d.begin(); err != nil {
		return err
	}
	defer d.mu.Unlock()
	return d.change(os.Rename(from, to), func(names map[string]*inode) {
		names[filepath.Base(to)] = names[filepath.Base(from)]
		delete(names, filepath.Base(from))
	})
}

func (d *lossDisk) syncDir(string) error {
	if err := d.begin(); err != nil {
		return err
	}
	defer d.mu.Unlock()
	d.durable, d.changes = maps.Clone(d.names), nil
	return nil
}

type lossFile struct {
	diskFile
	disk *lossDisk
	*inode
}

func (f *lossFile) WriteAt(b []byte, at int64) (int, error) {
	if err := f.disk.begin(); err != nil {
		return 0, err
	}
	defer f.disk.mu.Unlock()
	f.write(b, int(at))
	return f.diskFile.WriteAt(b, at)
}

func (f *lossFile) Truncate(size int64) error {
	if err := f.disk.begin(); err != nil {
		return err
	}
	defer f.disk.mu.Unlock()
	f.truncate(int(size))
	return f.diskFile.Truncate(size)
}

func (f *lossFile) Sync() error {
	if err := f.disk.begin(); err != nil {
		return err
	}
	defer f.disk.mu.Unlock()
	// The next sync does not fail: if the removal of a failed write failed as well, a crash could
	// bring the write back (ErrUnsaved).
	if f.disk.failed = f.disk.lossy && !f.disk.failed && f.disk.random.IntN(6) == 0; f.disk.failed {
		f.durable = f.lose(f.disk.random)
		f.dirty, f.sizes = map[int][][]byte{}, nil
		return syscall.EIO
	}
	f.sync()
	return nil
}

// lossShapes lists commands whose effect does not depend on the time.
var lossShapes = []string{
	"SET <key <member", "HSET <key <member <member", "DEL <key", "SADD <key <member+", "RENAME <key <key", "RPUSH <key <member+", "ZADD <key 0 <member",
	"HDEL <key <member", "COPY <key <key REPLACE", "XADD <key 1-1 f <member", "FLUSHDB", "SET <key <long", "HSET <key f <long",
}

func randomCommand(r *rand.Rand) []string {
	var words []string
	for word := range strings.FieldsSeq(lossShapes[r.IntN(len(lossShapes))]) {
		switch word {
		case "<key":
			word = string(rune('a' + r.IntN(5)))
		case "<member", "<member+":
			word = fmt.Sprint(r.IntN(100))
		case "<long":
			word = strings.Repeat(string(rune('a'+r.IntN(26))), r.IntN(3000))
		}
		words = append(words, word)
	}
	return words
}

// TestPowerLoss ends a process at any step by a power failure or a kill: while changes are made,
// the file is rewritten, a file of JSON lines is converted, or a store is opened after an earlier
// end. The store that is opened afterwards has all changes that were answered, and the unfinished
// one completely or not at all.
func TestPowerLoss(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows does not rename open files")
	}
	defer func(a, b int) { compactSlack, startSlack = a, b }(compactSlack, startSlack)
	compactSlack, startSlack = pageSize+2000, pageSize+1000
	runs := 100
	if testing.Short() {
		runs = 40
	}
	for seed := range runs {
		for _, kind := range []string{"new", "lossy", "legacy"} {
			if err := losePower(t, kind, uint64(seed)); err != nil {
				t.Fatalf("with the seed %d, %s, %v", seed, kind, err)
			}
		}
	}
}

// losePower has several processes use a store one after the other.
func losePower(t *testing.T, kind string, seed uint64) error {
	random := rand.New(rand.NewPCG(2, seed)) // of this function and of live, not of the disks
	legacy := encoded(t, someRecords())
	disk, dir := &diskState{}, ""
	left, want := map[string][]byte{}, [2]map[string]string{{}, {}}
	if kind == "legacy" {
		left["f"] = legacy
		records, err := readLog(legacy)
		if err != nil {
			return err
		}
		want = [2]map[string]string{records, records}
	}
	for life := range 5 {
		if left != nil {
			dir = t.TempDir()
			var err error
			if disk, err = newDiskState(dir, left, rand.New(rand.NewPCG(3, random.Uint64()))); err != nil {
				return err
			}
		}
		d := &lossDisk{
			diskState: disk, lossy: kind == "lossy" && life > 0, steps: 1 + random.IntN(1+random.IntN(200)), kill: random.IntN(2) == 0,
			prev: want[0], would: want[1],
		}
		s, err := openOn(t.Context(), d, filepath.Join(dir, "f"))
		if errors.Is(err, syscall.EIO) {
			s, err = openOn(t.Context(), d, filepath.Join(dir, "f"))
		}
		switch {
		case errors.Is(err, errEnded):
		case err != nil:
			return err
		default:
			if got := recordsOfStore(s); !reflect.DeepEqual(got, want[0]) && !reflect.DeepEqual(got, want[1]) {
				return fmt.Errorf("in process %d: the records are\n%v, want\n%v or\n%v", life, got, want[0], want[1])
			}
			if old, _ := os.ReadFile(filepath.Join(dir, "f.old")); kind == "legacy" && s.legacy == nil && !bytes.Equal(old, legacy) {
				return fmt.Errorf("in process %d: the file of JSON lines is gone", life)
			}
			live(s, d, random)
		}
		left, want = d.left, d.want
	}
	return nil
}

func recordsOfStore(s *Store) map[string]string {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	return dump(s.engine.data.root)
}

// live makes changes until the process ends.
func live(s *Store, d *lossDisk, random *rand.Rand) {
	defer s.Close()
	for {
		words := randomCommand(random)
		before := recordsOfStore(s)
		after := newData()
		s.engine.mu.Lock()
		after.root, after.epoch = s.engine.data.freeze(), s.engine.data.epoch
		s.engine.mu.Unlock()
		after.run(words)
		d.mu.Lock()
		ended := d.ended
		if !ended {
			d.prev, d.would = before, dump(after.root)
		}
		d.mu.Unlock()
		if ended {
			return
		}
		args := make([]any, len(words))
		for i := range words {
			args[i] = words[i]
		}
		_ = s.Client().Do(context.Background(), args...).Err() // some are wrong, or cannot be saved
	}
}
