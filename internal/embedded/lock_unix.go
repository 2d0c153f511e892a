//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package embedded

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// tryLock reports whether it got the lock, without waiting.
func tryLock(f *os.File) (bool, error) {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, unix.EINTR):
			return false, err
		}
	}
}
