// Package embedded runs miniredis, a Redis in Go, inside this process and keeps its records in one
// file.
//
// Nothing listens on the network. The client that [Store.Client] returns talks to miniredis in
// memory, so no other user of the machine can reach the records.
//
// # Durability
//
// A command that changes records is answered once the change is in the file. Commands that wait at
// the same time share one write. The whole file is written each time: to a temporary file next to
// it, which is synced and renamed over the old one, so that a crash at any moment leaves either the
// old records or the new ones. [Store.Bulk] puts many changes into one write.
//
// If a write fails, for example because the disk is full, all commands that wait for it return
// [ErrUnsaved] and the old file stays. Before the next command runs, the records in memory are
// replaced by those of the file. Until then, other readers in the process may see a change that is
// undone.
//
// # The file
//
//	{"userdb":"embedded","version":1,"crc":"…"}
//	{"key":"user/name:Bob/~prk","string":"user/uid:17c0","crc":"…"}
//	{"key":"user/uid:17c0","hash":{"name":"Bob","~isa":"user"},"crc":"…"}
//	{"base64":true,"key":"/w==","list":["AA=="],"until":1767225600000,"crc":"…"}
//	{"records":3,"crc":"…"}
//
// Each line holds one record, and lines are sorted by key. The value is named after its Redis type:
// string, hash, list, set, zset (pairs of member and score) or stream. A record with bytes that are
// not UTF-8 has all its text in base64. until is the time at which it expires, in milliseconds
// since 1970. crc is the CRC-32C of everything in the file before it, without line ends and earlier
// sums, so that damage is found on its line. A file that differs from this in any way is refused
// and not changed.
//
// # Limits
//
// One process at a time opens the file; it may let others use it (socket.go). A file holds at most
// 50,000 records and 1 GiB. At most 20,000 of them may be records of the store itself that expire;
// those that strangers can cause have limits of their own (expiring.go). There is only database 0,
// and there are only strings, hashes, lists, sets, zsets and streams. The only client is the engine
// of package single, which sends no pattern that miniredis cannot match and no command that blocks.
// Records expire late by at most a twentieth of the time that the store is busy: a millisecond in a
// small store, about half a second with 50,000 records.
package embedded

import (
	"errors"
	"fmt"

	"github.com/coffeenode/userdb/internal/privatefile"
)

// Errors of Open. A change may also return ErrFull. Package userdb exports them and documents them
// in full.
var (
	ErrLocked  = errors.New("embedded: file is locked")
	ErrServed  = errors.New("embedded: another process serves the file")
	ErrFull    = errors.New("embedded: store is full")
	ErrDamaged = errors.New("embedded: file is damaged")
	// ErrExposed means that a user other than this one and root may read or write the file, or its
	// lock file.
	ErrExposed = errors.New("embedded: file is exposed")

	// ErrUnsaved is returned if the file could not be written; it wraps the cause. The change is
	// undone. There is one exception: if the new file already had its name and only syncing the
	// directory failed, the change may still be there.
	ErrUnsaved = errors.New("embedded: change not saved")

	// ErrWaiting is returned if a context ends while a change waits for the write of the file. The
	// change has been made and the write goes on: the change will be saved, or undone if the write
	// fails.
	ErrWaiting = errors.New("embedded: change not saved yet")

	// ErrClosed is returned by every use of a store after Close.
	ErrClosed = errors.New("embedded: store is closed")
)

// A DamageError describes where a file is damaged. It matches ErrDamaged.
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

// exposedError wraps the error of a file that others may read or write in ErrExposed.
func exposedError(err error) error {
	if errors.Is(err, privatefile.ErrOthers) || errors.Is(err, privatefile.ErrReadable) {
		return fmt.Errorf("%w: %w", ErrExposed, err)
	}
	return err
}

func fullError(what string) error {
	return fmt.Errorf("%w: %s; use a Redis server instead (redis://HOST:PORT)", ErrFull, what)
}
