// Package embedded is a Redis without a server: miniredis inside this process, kept in one file.
//
// Nothing listens. The client that [Store.Client] returns talks to miniredis in memory, so no other user of the machine
// can reach the records.
//
// # Durability
//
// A command that changes records is answered when the change is in the file. Commands that wait at the same time share
// one write. The file is always written whole, to a temporary file beside it, synced, and renamed over the old one, so
// a crash at any moment leaves the old records or the new ones.
// [Store.Bulk] puts many changes into one write.
//
// When a write fails, on a full disk say, all commands that wait for it get
// [ErrUnsaved], the old file stays, and the records in memory go back to what
// the file holds before the next command runs. Until they are told, other readers in the process may see such a change.
//
// # The file
//
//	{"userdb":"embedded","version":1,"crc":"…"}
//	{"key":"user/name:Bob/~prk","string":"user/uid:17c0","crc":"…"}
//	{"key":"user/uid:17c0","hash":{"name":"Bob","~isa":"user"},"crc":"…"}
//	{"base64":true,"key":"/w==","list":["AA=="],"until":1767225600000,"crc":"…"}
//	{"records":3,"crc":"…"}
//
// One record a line, sorted by key. The value stands under its Redis type: string, hash, list, set, or zset (pairs of
// member and score). A record with bytes that are not UTF-8 has all its text in base64. until is when it expires, in
// milliseconds since 1970. crc is the CRC-32C of everything in the file up to it, line ends and the sums before it left
// out, so that damage is found on its line. A file that is not exactly so is refused and left alone.
//
// # Limits
//
// One process at a time, which may let others ask it (socket.go), 50,000 records (of the store's own that end by themselves 20,000:
// passing.go), 1 GiB, database 0, strings, hashes, lists, sets and zsets. The one client is
// the engine of package single, which sends no pattern that miniredis cannot match, and no command that waits. Expiry
// lags by at most a twentieth of the time that the store is busy: a millisecond while it is small, about half a second
// at 50,000 records.
package embedded

import (
	"errors"
	"fmt"

	"github.com/coffeenode/userdb/internal/ownfile"
)

// The errors of Open; a change may be ErrFull, too. Package userdb exports them, and says more.
var (
	ErrLocked  = errors.New("embedded: file is locked")
	ErrServed  = errors.New("embedded: another process serves the file")
	ErrFull    = errors.New("embedded: store is full")
	ErrDamaged = errors.New("embedded: file is damaged")
	ErrExposed = errors.New("embedded: file is exposed") // its lock file too: others than this user and root may write one

	// ErrUnsaved occurs when the file could not be written; the cause is wrapped. The change is undone. In one case it
	// may yet be there: the new file had its name already, and only syncing the directory failed.
	ErrUnsaved = errors.New("embedded: change not saved")

	// ErrWaiting occurs when a context ends while a change waits for the write of the file. The change is made, and the
	// write goes on: it will be saved, or undone if the write fails.
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
