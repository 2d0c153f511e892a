package embedded

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"syscall"

	"github.com/coffeenode/userdb/internal/privatefile"
)

type osDisk struct{}

func (osDisk) create(path string) (diskFile, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

func (osDisk) open(path string) (diskFile, error) {
	f, err := privatefile.Open(path, os.O_RDWR)
	if err != nil { // a nil *os.File is not a nil diskFile
		return nil, exposedError(err)
	}
	return f, nil
}

func (osDisk) link(from, to string) error { return os.Link(from, to) }

func (osDisk) remove(path string) error { return os.Remove(path) }

func (osDisk) rename(from, to string) error { return os.Rename(from, to) }

// syncDir makes a rename survive a power failure, if the system can do that.
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

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
