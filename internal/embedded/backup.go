package embedded

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/coffeenode/userdb/internal/privatefile"
)

// Backup copies the store in the file at path to a new file, which only this user can read, and
// returns its size in bytes. Other processes may use the store meanwhile. The copy holds all
// changes that were in the file before the call. It holds each later change entirely or not at all,
// and may even hold one that could not be saved and was undone. Backup checks the data that it
// copies. It fails with ErrDamaged if the file is damaged, with [os.ErrExist] if there is already a
// file at to, and with ErrFull if the disk of the new file is full.
func Backup(path, to string) (int64, error) {
	n, err := backup(path, to)
	return n, MarkFull(err)
}

func backup(path, to string) (int64, error) {
	from, err := openForReading(path)
	if err != nil {
		return 0, err
	}
	defer from.Close()
	if !isLog(from) {
		return backupLegacy(from, path, to)
	}
	return writeNew(to, func(out *logFile) error { return copyLog(out, from, path) })
}

// openForReading opens the file of a store, which may be in use.
func openForReading(path string) (*os.File, error) {
	if _, err := os.Stat(path); err != nil { // resolve would create its directory
		return nil, err
	}
	path, err := resolve(path)
	if err != nil {
		return nil, err
	}
	file, err := privatefile.Open(path, os.O_RDONLY)
	return file, exposedError(err)
}

// maxCopies limits how often a file is copied again because it changed meanwhile.
const maxCopies = 10

// copyLog copies the frames of the file at path, to which another process may be writing. That
// process may remove the last frame if it could not be made durable. The copy is then incomplete,
// and copyLog starts again.
func copyLog(out *logFile, from diskFile, path string) error {
	ignore := func([]byte) error { return nil }
	for copies := 1; ; copies++ {
		l, err := openLog(from, ignore)
		if err != nil {
			return withPath(err, path)
		}
		if err := out.file.Truncate(pageSize); err != nil {
			return err
		}
		out.identity = identity{key: l.key} // no other file was kept beside the copy
		if _, err := out.file.WriteAt(firstPage(out.identity), 0); err != nil {
			return err
		}
		if _, err := io.Copy(io.NewOffsetWriter(out.file, pageSize), io.NewSectionReader(from, pageSize, l.end-pageSize)); err != nil {
			return err
		}
		out.end, out.sum, out.seq = l.end, l.sum, l.seq
		if err := out.writeSlot(); err != nil {
			return err
		}
		_, err = openLog(out.file, ignore)
		if !errors.Is(err, ErrDamaged) || copies == maxCopies {
			return err
		}
	}
}

// backupLegacy copies a file of JSON lines, which is always replaced as a whole.
func backupLegacy(from *os.File, path, to string) (int64, error) {
	if err := readLegacy(from, path, newData()); err != nil {
		return 0, err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(out, io.NewSectionReader(from, 0, maxFile))
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return 0, errors.Join(err, os.Remove(to))
	}
	return n, osDisk{}.syncDir(filepath.Dir(to))
}

// writeNew writes a log to a new file and returns its size.
func writeNew(to string, fill func(*logFile) error) (int64, error) {
	file, err := osDisk{}.create(to)
	if err != nil {
		return 0, err
	}
	l, err := newLog(file, keptFile{})
	if err == nil {
		err = fill(l)
	}
	if err == nil {
		err = l.finish()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return 0, errors.Join(err, os.Remove(to))
	}
	return l.end, osDisk{}.syncDir(filepath.Dir(to))
}

func withPath(err error, path string) error {
	if damage, ok := errors.AsType[*DamageError](err); ok {
		damage.Path = path
	}
	return err
}

// A SalvageResult holds the result of Salvage.
type SalvageResult struct {
	Records int
	Lost    int64 // bytes of the file that could not be read
}

// Salvage writes the readable records of a damaged file to a new store. It fails with ErrDamaged if
// there are none, and with ErrFull if the disk of the new store is full. Changes in the damaged
// parts are lost: records may be missing or out of date, and deleted records may reappear.
func Salvage(path, to string) (SalvageResult, error) {
	result, err := salvage(path, to)
	return result, MarkFull(err)
}

func salvage(path, to string) (SalvageResult, error) {
	from, err := openForReading(path)
	if err != nil {
		return SalvageResult{}, err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return SalvageResult{}, err
	}
	d, size := newData(), info.Size()
	var s SalvageResult
	first, err := indexFrom(from, 0, size, frameMagic)
	if err != nil {
		return s, err
	}
	if first < size { // a file of JSON lines holds no frame
		s.Lost, err = d.salvage(from, size)
	} else {
		s.Lost, err = d.salvageLegacy(io.LimitReader(from, maxFile))
	}
	if err != nil {
		return s, err
	}
	if s.Records = d.keys.Len(); s.Records == 0 {
		return s, fmt.Errorf("%w: nothing in %s can be read", ErrDamaged, path)
	}
	_, err = writeNew(to, func(l *logFile) error { return d.root.records(l.append) })
	return s, err
}

// salvage applies all valid frames of a log and returns the number of the other bytes. It takes the
// key from the first page or, if no frame has that key, from the first frame.
func (d *data) salvage(file io.ReaderAt, size int64) (lost int64, err error) {
	lost = max(0, size-pageSize)
	for _, at := range []int64{idAt, pageSize + int64(len(frameMagic))} {
		key := make([]byte, keySize)
		if _, err := file.ReadAt(key, at); err != nil {
			return lost, ignoreEnd(err)
		}
		whole, err := d.salvageFrames(file, size, string(key))
		if err != nil || whole > 0 {
			return max(0, lost-whole), err
		}
	}
	return lost, nil
}

// salvageFrames applies all frames with a key and returns their size.
func (d *data) salvageFrames(file io.ReaderAt, size int64, key string) (whole int64, err error) {
	for at := int64(0); ; {
		if at, err = indexFrom(file, at, size, frameMagic+key); err != nil || at == size {
			return whole, err
		}
		changes, err := frameAt(file, at, size, key)
		var bad *frameError
		switch {
		case errors.As(err, &bad):
			at++
			continue
		case err != nil:
			return whole, err
		}
		_ = d.applyEach(changes, nil) // a change may depend on a lost one
		n := int64(frameHead + len(changes))
		at, whole = at+n, whole+n
	}
}

// frameAt returns the changes of the frame at an offset of a file.
func frameAt(file io.ReaderAt, at, size int64, key string) ([]byte, error) {
	h := make(head, frameHead)
	if at+frameHead > size {
		return nil, errShort
	}
	if _, err := file.ReadAt(h, at); err != nil {
		return nil, err
	}
	if err := h.check(key, size-at-frameHead); err != nil {
		return nil, err
	}
	changes := make([]byte, h.size())
	if _, err := file.ReadAt(changes, at+frameHead); ignoreEnd(err) != nil {
		return nil, err
	}
	return changes, h.checkSum(changes)
}

// indexFrom returns the offset of text in a file, at or after from, or size if it is missing.
func indexFrom(file io.ReaderAt, from, size int64, text string) (int64, error) {
	buf := make([]byte, 1<<20)
	for {
		b := buf[:max(0, min(int64(len(buf)), size-from))]
		if _, err := file.ReadAt(b, from); ignoreEnd(err) != nil {
			return size, err
		}
		if i := bytes.Index(b, []byte(text)); i >= 0 {
			return from + int64(i), nil
		}
		if len(b) < len(buf) {
			return size, nil
		}
		from += int64(len(b) - len(text) + 1)
	}
}

func ignoreEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// salvageLegacy adds the records of all readable lines to d. It ignores their checksums, because
// each depends on the lines before it.
func (d *data) salvageLegacy(in io.Reader) (lost int64, err error) {
	file, err := io.ReadAll(in)
	if err != nil {
		return 0, err
	}
	d.replaying = true
	defer func() { d.replaying = false }()
	for line := range bytes.Lines(file) {
		body := bytes.TrimSuffix(line, []byte("\n"))
		if bytes.HasPrefix(body, []byte(`{"userdb":`)) || bytes.HasPrefix(body, []byte(`{"records":`)) {
			continue
		}
		if len(body) > sumLength {
			r, err := decodeRecord(append(bytes.Clone(body[:len(body)-sumLength]), '}'))
			if err == nil && r.put(d) == nil {
				continue
			}
		}
		lost += int64(len(line))
	}
	return lost, nil
}
