//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd || windows)

package filelock

import (
	"errors"
	"os"
)

// TryLock always fails, because these systems have no such locks.
func TryLock(*os.File) (bool, error) {
	return false, errors.ErrUnsupported
}
