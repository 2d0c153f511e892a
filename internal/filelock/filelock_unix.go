//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

// Package filelock locks files, so that processes can tell whether another one still uses them.
package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// TryLock locks an open file and reports whether it got the lock. It does not wait for a lock that
// another open file holds. The lock ends when the file is closed, at the latest with the process.
func TryLock(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return err == nil, err
}
