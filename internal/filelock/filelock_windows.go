package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// TryLock locks an open file and reports whether it got the lock. It does not wait for a lock that
// another open file holds. The lock ends when the file is closed, at the latest with the process.
func TryLock(f *os.File) (bool, error) {
	const how = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	err := windows.LockFileEx(windows.Handle(f.Fd()), how, 0, 1, 0, &windows.Overlapped{})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}
