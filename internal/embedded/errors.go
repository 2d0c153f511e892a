package embedded

import (
	"errors"
	"fmt"

	"github.com/coffeenode/userdb/internal/ownfile"
)

var (
	// ErrLocked occurs in Open when another store, mostly another process, has
	// the file and did not let go of it before the context ended.
	ErrLocked = errors.New("embedded: file is locked")

	// ErrFull occurs when a change would take the file over its limit. Nothing
	// is changed; a Redis server has no such limit.
	ErrFull = errors.New("embedded: store is full")

	// ErrDamaged occurs in Open when the file is not as it was written. The
	// file is left as it is. DamageError says more.
	ErrDamaged = errors.New("embedded: file is damaged")

	// ErrExposed occurs in Open when others than this user and root may write the
	// file or its lock file: what is in it could be anybody's, accounts of
	// administrators among it. Nothing is changed.
	ErrExposed = errors.New("embedded: file is exposed")

	// ErrUnsaved occurs when the file could not be written; the cause is
	// wrapped. The change is undone. In one case it may yet be there: the new
	// file had its name already, and only syncing the directory failed.
	ErrUnsaved = errors.New("embedded: change not saved")

	// ErrWaiting occurs when a context ends while a change waits for the write
	// of the file. The change is made, and the write goes on: it will be saved,
	// or undone if the write fails.
	ErrWaiting = errors.New("embedded: change not saved yet")

	// ErrClosed occurs in every use of a store after Close.
	ErrClosed = errors.New("embedded: store is closed")
)

// A DamageError says where a file is damaged. It Is ErrDamaged.
type DamageError struct {
	Path   string
	Line   int // from 1
	Reason string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("embedded: %s: line %d: %s; the file was left as it is: put a backup in its place, or move it away to begin empty",
		e.Path, e.Line, e.Reason)
}

// Is reports whether target is ErrDamaged.
func (e *DamageError) Is(target error) bool { return target == ErrDamaged }

// exposed names the error of a file that others may write.
func exposed(err error) error {
	if errors.Is(err, ownfile.ErrOthers) {
		return fmt.Errorf("%w: %w", ErrExposed, err)
	}
	return err
}

func fullError(what string) error {
	return fmt.Errorf("%w: %s; use a Redis server instead (redis://HOST:PORT)", ErrFull, what)
}
