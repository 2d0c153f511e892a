//go:build unix

package privatefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// open does not follow links and does not block on a pipe.
func open(path string, flag int, mode fs.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, flag|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, mode)
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.EMLINK) { // FreeBSD returns EMLINK
		return nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("it is a link")}
	}
	return f, err
}

// checkMine refuses a file that belongs to another user or has a second hard link. It makes the
// file unreadable to all other users.
func checkMine(f *os.File, info fs.FileInfo) error {
	if owner(info) != os.Geteuid() || info.Sys().(*syscall.Stat_t).Nlink > 1 {
		return fmt.Errorf("%w: it has another owner, or a second hard link", ErrUntrusted)
	}
	return f.Chmod(0o600)
}

// checkOwner refuses a file that belongs to a user other than this one and root.
func checkOwner(info fs.FileInfo) error {
	if isForeign(info) {
		return fmt.Errorf("%w: it belongs to the user %d", ErrUntrusted, owner(info))
	}
	return nil
}

// checkPrivate refuses a file that users other than this one and root may read or write.
func checkPrivate(_ *os.File, info fs.FileInfo) error {
	switch {
	case isForeign(info):
		return fmt.Errorf("%w: it belongs to the user %d; make a copy of your own", ErrUntrusted, owner(info))
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%w: its mode is %v; if its contents are right, run chmod go=", ErrUntrusted, info.Mode())
	case info.Mode().Perm()&0o044 != 0:
		return fmt.Errorf("%w: its mode is %v; run chmod go=", ErrReadable, info.Mode())
	}
	return nil
}

func owner(info fs.FileInfo) int      { return int(info.Sys().(*syscall.Stat_t).Uid) }
func isForeign(info fs.FileInfo) bool { return owner(info) != os.Geteuid() && owner(info) != 0 }
