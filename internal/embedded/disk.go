package embedded

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/coffeenode/userdb/internal/ownfile"
)

// maxFile is the largest file that is read or written, in bytes.
const maxFile = 1 << 30

// A disk is what writing a file needs; tests put in one that fails.
type disk interface {
	create(path string) (syncWriter, error) // fails where path exists
	rename(from, to string) error
	remove(path string) error
	syncDir(dir string) error
}

type syncWriter interface {
	io.WriteCloser
	Sync() error
}

// replace puts data into the file at path, as a whole or not at all.
func replace(d disk, path string, data []byte) error {
	temp := path + ".tmp"
	// A killed process may have left one. It is not written through: it could
	// be a link that somebody put there.
	if err := d.remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := write(d, temp, data); err != nil {
		return errors.Join(err, ignoreMissing(d.remove(temp)))
	}
	if err := d.rename(temp, path); err != nil {
		return errors.Join(err, ignoreMissing(d.remove(temp)))
	}
	return d.syncDir(filepath.Dir(path))
}

func write(d disk, path string, data []byte) error {
	f, err := d.create(path)
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Sync(); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// readFile returns the records at path; none where there is no file.
func readFile(path string) ([]record, error) {
	data, err := readLimited(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the embedded store: %w", err)
	}
	records, line, err := decode(data)
	if errors.Is(err, errNewer) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err != nil {
		return nil, &DamageError{Path: path, Line: line, Reason: err.Error()}
	}
	return records, nil
}

func readLimited(path string) ([]byte, error) {
	f, err := ownfile.Open(path, os.O_RDONLY)
	if err != nil {
		return nil, exposed(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s: larger than %d bytes", path, maxFile)
	}
	return io.ReadAll(io.LimitReader(f, maxFile))
}

type osDisk struct{}

func (osDisk) create(path string) (syncWriter, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

func (osDisk) rename(from, to string) error { return os.Rename(from, to) }
func (osDisk) remove(path string) error     { return os.Remove(path) }

// syncDir makes a rename last through a power failure, where the system can.
func (osDisk) syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	err = f.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}
