package embedded

import (
	"errors"
	"fmt"
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

func (osDisk) syncDir(dir string) error { return privatefile.SyncDir(dir) }

// isFull reports whether err means that the disk is full or the user's quota is used up.
func isFull(err error) bool {
	if runtime.GOOS == "windows" {
		const handleDiskFull, diskFull = syscall.Errno(39), syscall.Errno(112)
		return errors.Is(err, handleDiskFull) || errors.Is(err, diskFull)
	}
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// MarkFull returns err. If it means that a disk is full, the result also matches ErrFull.
func MarkFull(err error) error {
	if !isFull(err) || errors.Is(err, ErrFull) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrFull, err)
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
