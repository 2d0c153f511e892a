//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd || windows)

package embedded

import (
	"errors"
	"os"
)

// tryLock always fails: without a lock two processes would overwrite each other's records.
func tryLock(*os.File) (bool, error) {
	return false, errors.ErrUnsupported
}
