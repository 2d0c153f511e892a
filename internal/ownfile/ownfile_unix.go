//go:build unix

package ownfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// open follows no link, and does not wait at a pipe.
func open(path string, flag int, mode fs.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, flag|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, mode)
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.EMLINK) { // as FreeBSD says it
		return nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("it is a link")}
	}
	return f, err
}

// mine refuses a file that this user has not made, or not alone.
func mine(f *os.File) error {
	info, err := regular(f)
	if err != nil {
		return err
	}
	stat := info.Sys().(*syscall.Stat_t)
	if int(stat.Uid) != os.Geteuid() || stat.Nlink > 1 {
		return fmt.Errorf("%w: it has another owner, or a second name", ErrOthers)
	}
	return nil
}

func seal(f *os.File) error { return f.Chmod(0o600) }

// trusted refuses a link that another user than this one and root has made.
func trusted(info fs.FileInfo) error {
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	if owner != os.Geteuid() && owner != 0 {
		return fmt.Errorf("%w: it is a link of the user %d", ErrOthers, owner)
	}
	return nil
}

// closed refuses a file that others than this user and root may write.
func closed(f *os.File) error {
	info, err := regular(f)
	if err != nil {
		return err
	}
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	switch {
	case owner != os.Geteuid() && owner != 0:
		return fmt.Errorf("%w: it belongs to the user %d; make a copy of your own", ErrOthers, owner)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%w: its mode is %v; if what is in it is right: chmod go-w", ErrOthers, info.Mode())
	}
	return nil
}
