//go:build unix

package ownfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// open follows no link, and waits for nobody at a pipe.
func open(path string, flag int, mode fs.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, flag|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, mode)
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.EMLINK) { // as FreeBSD says it
		return nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("it is a link")}
	}
	return f, err
}

// mine reports what is wrong with a file that this user has made.
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

// trusted reports what is wrong with a link that somebody else than this user and root has made.
func trusted(info fs.FileInfo) error {
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	if owner != os.Geteuid() && owner != 0 {
		return fmt.Errorf("%w: it is a link of the user %d", ErrOthers, owner)
	}
	return nil
}

// closed reports what is wrong with a file that only this user, and root, may write.
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
