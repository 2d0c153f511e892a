package embedded

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
)

// Sizes in bytes: the first page of a file; on that page, the identity, the key in the identity,
// and a slot; and the head of a frame.
const (
	pageSize  = 4096
	idSize    = 20
	keySize   = 8
	slotSize  = 24
	frameHead = 32
)

// idAt is the offset of the identity in a file.
const idAt = 512

// An identity holds the data that are written once, on the first page of a file.
type identity struct {
	// key holds random bytes that each frame repeats, so that no stored text can look like a frame.
	key  string
	kept keptFile
}

func (id identity) encode() []byte {
	b := append([]byte(id.key), make([]byte, keySize-len(id.key))...)
	b = binary.LittleEndian.AppendUint64(b, uint64(id.kept.size))
	return binary.LittleEndian.AppendUint32(b, id.kept.sum)
}

// identityOf returns the identity on a first page.
func identityOf(page []byte) identity {
	b := page[idAt : idAt+idSize]
	return identity{string(b[:keySize]), keptFile{int64(binary.LittleEndian.Uint64(b[keySize:])), binary.LittleEndian.Uint32(b[keySize+8:])}}
}

// slotAt holds the offsets of the slots. They are in different sectors, so that a torn write
// damages only one of them.
var slotAt = [2]int{1024, 2048}

const frameMagic = "udb\x02"

// A logFile is an open file to which changes are appended. Its zero value is not usable. It is not
// safe for concurrent use.
type logFile struct {
	identity
	file  diskFile
	end   int64  // where the next frame begins
	sum   uint32 // checksum of the last frame
	seq   uint64 // number of the last frame, even of one that could not be written
	slots int    // the next slot to write is at slotAt[slots%2]
	torn  bool   // there may be bytes after end
	known int64  // the length in the newest slot when the file was opened
	// unsynced means that the last slot, or data of another process, may not be durable.
	unsynced bool
}

// newLog begins a log in an empty file.
func newLog(file diskFile, kept keptFile) (*logFile, error) {
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	l := &logFile{file: file, identity: identity{string(key), kept}, end: pageSize}
	_, err := file.WriteAt(firstPage(l.identity), 0)
	return l, err
}

// firstPage returns the first page of a file without the slots. The line at its beginning makes
// older programs say that the file was written by a newer one.
func firstPage(id identity) []byte {
	var running sum
	line := fmt.Sprintf(`{"userdb":%q,"version":%d`, formatName, logVersion)
	page := make([]byte, pageSize)
	copy(page, line+running.add([]byte(line))+"\n")
	copy(page[idAt:], id.encode())
	return page
}

// maxFrame is the maximum size in bytes of the changes of a frame.
const maxFrame = 1 << 30

// append writes changes after the last ones without syncing the file.
func (l *logFile) append(changes []byte) error {
	if len(changes) > maxFrame {
		return fmt.Errorf("%d bytes of changes at once, want at most %d", len(changes), maxFrame)
	}
	l.seq++
	frame := make([]byte, frameHead, frameHead+len(changes))
	copy(frame, frameMagic+l.key)
	binary.LittleEndian.PutUint32(frame[16:], l.sum)
	binary.LittleEndian.PutUint32(frame[20:], uint32(len(changes)))
	binary.LittleEndian.PutUint64(frame[24:], l.seq)
	frame = append(frame, changes...)
	checksum := crc32.Checksum(frame[16:], castagnoli)
	binary.LittleEndian.PutUint32(frame[12:], checksum)
	if _, err := l.file.WriteAt(frame, l.end); err != nil {
		return err
	}
	l.end += int64(len(frame))
	l.sum = checksum
	return nil
}

func (l *logFile) appendAll(all [][]byte) error {
	for _, changes := range all {
		if err := l.append(changes); err != nil {
			return err
		}
	}
	return nil
}

// commit appends changes and makes them durable, or leaves the log as it was.
func (l *logFile) commit(changes []byte) error {
	end, last := l.end, l.sum
	err := l.clearTorn()
	if err == nil {
		err = l.append(changes)
	}
	if err == nil {
		err = l.file.Sync()
	}
	if err != nil {
		l.end, l.sum, l.torn = end, last, true
		_ = l.clearTorn() // the next commit tries again
		return err
	}
	// The slot need not be durable before the next commit. If it cannot be written, an older slot
	// still records a shorter length, which is also durable.
	_ = l.writeSlot()
	return nil
}

// finish makes all appended changes durable.
func (l *logFile) finish() error {
	if err := l.writeSlot(); err != nil {
		return err
	}
	err := l.file.Sync()
	l.unsynced = err != nil
	return err
}

// clearTorn removes data that a failed commit may have left after the end, and makes the removal
// durable: otherwise a crash could bring back refused changes.
func (l *logFile) clearTorn() error {
	if !l.torn {
		return nil
	}
	err := l.file.Truncate(l.end)
	if err == nil {
		err = l.file.Sync()
	}
	l.torn = err != nil
	return err
}

// writeSlot records the durable length of the file in one of the two slots. If anything before that
// length is later missing or invalid, the file is damaged; only data after it may be a torn write.
func (l *logFile) writeSlot() error {
	slot := make([]byte, slotSize)
	binary.LittleEndian.PutUint64(slot, l.seq)
	binary.LittleEndian.PutUint64(slot[8:], uint64(l.end))
	binary.LittleEndian.PutUint32(slot[16:], l.sum)
	binary.LittleEndian.PutUint32(slot[20:], slotSum(slot, l.identity))
	l.unsynced = true
	// If this fails, the slot may be torn, and the other one must stay.
	if _, err := l.file.WriteAt(slot, int64(slotAt[l.slots%2])); err != nil {
		return err
	}
	l.slots++
	return nil
}

// slotSum returns the checksum of a slot, which also covers the identity.
func slotSum(slot []byte, id identity) uint32 {
	return crc32.Update(crc32.Checksum(slot[:20], castagnoli), castagnoli, id.encode())
}

// A slot records the durable length of a file.
type slot struct {
	seq uint64
	end int64
	sum uint32
}

// readPage checks the first page of a file and returns its newest slot and the index of the other
// one.
func readPage(page []byte) (newest slot, other int, err error) {
	id := identityOf(page)
	want := firstPage(id)
	for i, at := range slotAt {
		b := page[at : at+slotSize]
		copy(want[at:], b)
		s := slot{binary.LittleEndian.Uint64(b), int64(binary.LittleEndian.Uint64(b[8:])), binary.LittleEndian.Uint32(b[16:])}
		if binary.LittleEndian.Uint32(b[20:]) == slotSum(b, id) && s.end > newest.end {
			newest, other = s, 1-i
		}
	}
	switch {
	case !bytes.Equal(page, want):
		return newest, other, errors.New("the first page is damaged")
	case newest.end < pageSize:
		return newest, other, errors.New("both records of its length are damaged")
	}
	return newest, other, nil
}

// openLog reads a log and calls apply with the changes of each frame. It ignores a torn write at
// the end. It writes nothing. If the file is damaged, it returns a DamageError without a path.
func openLog(file diskFile, apply func(changes []byte) error) (*logFile, error) {
	// The size is read after the slots, since another process may be writing: by then, everything
	// up to the newest slot's end is in the file.
	page := make([]byte, pageSize)
	if n, err := file.ReadAt(page, 0); errors.Is(err, io.EOF) && n < pageSize {
		return nil, damageAt(int64(n), io.EOF)
	} else if n < pageSize {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	newest, other, err := readPage(page)
	if err != nil {
		return nil, damageAt(0, err)
	}
	l := &logFile{file: file, identity: identityOf(page), end: pageSize, slots: other, known: newest.end}
	in := newFrameReader(file, l.key, info.Size())
	durable := false // everything up to the newest slot's end was read
	for {
		durable = durable || l.end == newest.end && l.sum == newest.sum
		f, err := in.next(l.sum)
		var bad *frameError
		if errors.As(err, &bad) || errors.Is(err, io.EOF) {
			if !durable {
				return nil, damageAt(l.end, err)
			}
			l.torn, l.unsynced = bad != nil, l.end > newest.end
			l.seq = max(l.seq, newest.seq)
			return l, nil
		}
		if err != nil {
			return nil, err
		}
		if err := apply(f.changes); err != nil {
			return nil, damageAt(l.end, err)
		}
		l.end += int64(frameHead + len(f.changes))
		l.sum, l.seq = f.sum, f.seq
	}
}

func damageAt(offset int64, err error) error {
	if errors.Is(err, io.EOF) {
		err = errors.New("the file ends too early")
	}
	return &DamageError{Offset: offset, Reason: err.Error()}
}

// settle makes durable what a killed process wrote after the newest slot. It writes the same bytes
// again, because a failed sync may leave data in memory that no later sync writes to the disk.
func (l *logFile) settle() error {
	if !l.unsynced {
		return nil
	}
	_, err := io.Copy(io.NewOffsetWriter(l.file, l.known), io.NewSectionReader(l.file, l.known, l.end-l.known))
	if err == nil {
		err = l.file.Sync()
	}
	if err != nil {
		return err
	}
	_ = l.writeSlot() // as in commit
	return nil
}

// close makes the slot durable and closes the file.
func (l *logFile) close() error {
	_ = l.clearTorn() // as in commit
	var err error
	if l.unsynced {
		err = l.file.Sync()
	}
	return errors.Join(err, l.file.Close())
}

// A frame holds the changes of one commit.
type frame struct {
	changes []byte
	sum     uint32
	seq     uint64
}

// A frameError says why a frame is not valid.
type frameError struct{ reason string }

func (e *frameError) Error() string { return e.reason }

// A frameReader reads frames one after the other.
type frameReader struct {
	in   *bufio.Reader
	key  string
	left int64 // bytes not read yet
	seq  uint64
	buf  []byte
}

func newFrameReader(file io.ReaderAt, key string, size int64) *frameReader {
	left := size - pageSize
	return &frameReader{in: bufio.NewReaderSize(io.NewSectionReader(file, pageSize, left), 1<<20), key: key, left: left}
}

// A head is the beginning of a frame.
type head []byte

func (h head) sum() uint32  { return binary.LittleEndian.Uint32(h[12:]) }
func (h head) last() uint32 { return binary.LittleEndian.Uint32(h[16:]) }
func (h head) size() int64  { return int64(binary.LittleEndian.Uint32(h[20:])) }
func (h head) seq() uint64  { return binary.LittleEndian.Uint64(h[24:]) }

// check returns an error if no frame begins with h, or if the frame is longer than the bytes that
// are left.
func (h head) check(key string, left int64) error {
	switch {
	case string(h[:4]) != frameMagic || string(h[4:12]) != key:
		return &frameError{"no change begins here"}
	case h.size() > min(left, maxFrame):
		return errShort
	}
	return nil
}

// checkSum returns an error if the checksum in h is not that of a frame with these changes.
func (h head) checkSum(changes []byte) error {
	if crc32.Update(crc32.Checksum(h[16:], castagnoli), castagnoli, changes) != h.sum() {
		return &frameError{"the checksum is wrong"}
	}
	return nil
}

// next returns the next frame, whose changes are valid until the next call. last is the checksum of
// the frame before it. It returns io.EOF at the end, and a frameError for an invalid frame.
func (r *frameReader) next(last uint32) (frame, error) {
	if r.left == 0 {
		return frame{}, io.EOF
	}
	h := make(head, frameHead)
	if err := r.read(h); err != nil {
		return frame{}, err
	}
	if err := h.check(r.key, r.left); err != nil {
		return frame{}, err
	}
	if n := h.size(); int64(cap(r.buf)) < n {
		r.buf = make([]byte, n)
	}
	f := frame{r.buf[:h.size()], h.sum(), h.seq()}
	if err := r.read(f.changes); err != nil {
		return frame{}, err
	}
	if err := h.checkSum(f.changes); err != nil {
		return frame{}, err
	}
	if h.last() != last || f.seq <= r.seq {
		return frame{}, &frameError{"a change is missing before this one"}
	}
	r.seq = f.seq
	return f, nil
}

var errShort = &frameError{"the change ends too early"}

func (r *frameReader) read(b []byte) error {
	if int64(len(b)) > r.left {
		return errShort
	}
	r.left -= int64(len(b))
	_, err := io.ReadFull(r.in, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errShort // another process has shortened the file since its size was read
	}
	return err
}

// isLog reports whether a file begins like a log.
func isLog(file io.ReaderAt) bool {
	want, _, _ := bytes.Cut(firstPage(identity{}), []byte("\n"))
	line := make([]byte, len(want))
	_, err := file.ReadAt(line, 0)
	return err == nil && bytes.Equal(line, want)
}

// A disk holds the operations that writing a file needs. Tests use disks that fail.
type disk interface {
	create(path string) (diskFile, error) // fails if path exists
	open(path string) (diskFile, error)
	link(from, to string) error
	remove(path string) error
	rename(from, to string) error
	syncDir(dir string) error
}

type diskFile interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Stat() (os.FileInfo, error)
	Sync() error
	Truncate(size int64) error
}
