//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package embedded

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// tryLock reports whether it got the lock, without waiting for it.
func tryLock(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return err == nil, err
}
