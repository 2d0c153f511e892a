// Package embedded holds the records of a small site in this process and keeps them in one file.
//
// It answers the Redis commands of package single, including Lua scripts, from memory. Nothing
// listens on the network. The client that [Store.Client] returns talks to the engine in memory, so
// no other user of the machine can reach the records.
//
// # Durability
//
// A command that changes records is answered once the change is in the file. Commands that wait at
// the same time share one write and one sync of the file (saving.go). A command that reads a change
// that is not yet in the file also waits. [Store.Bulk] puts many changes into one write. Commands
// with a context of [Lazy] do not wait.
//
// If a write fails, for example because the disk is full, all commands that wait for it return
// [ErrUnsaved] and their changes are undone. Commands that only read run again. The records in
// memory are trees that share nodes with their copies (data.go), so that the store can also keep in
// memory the records as the file has them.
//
// After a failed sync, a system may never write its cached data to the disk. A failed write is
// therefore removed from the file, and the file is synced. Opening a store writes the data after
// the durable part again before anybody reads them. powerloss_test.go simulates such a system, with
// kills and power failures at each step.
//
// # The file
//
// The first page of 4,096 bytes begins with a line of JSON, which older programs understand. Two
// slots, written in turn, record the durable length. Frames follow, one for each write. A frame has
// a checksum, the checksum of the frame before it, a number, and changes of single records, fields
// or members (journal.go), in the order in which they were made. Numbers are little-endian.
//
//	first page  line of JSON, zeros, identity at 512, slot at 1,024, slot at 2,048
//	identity    key (8 bytes), size (8) and checksum (4) of the file that was kept
//	            (legacy_keep.go)
//	slot        number of the last frame (8), length of the file (8),
//	            checksum of the last frame (4), checksum of the slot and the identity (4)
//	frame       "udb\x02", key (8), checksum of the rest (4), checksum of the frame before it (4),
//	            length of the changes (4), number (8), changes
//
// The key is random, new in each file, and never shown. No stored text can therefore look like a
// frame, even to a program that reads the rest of a damaged file. Checksums are CRC-32C. Invalid
// data after the durable part come from a write that a crash interrupted: they are ignored, and the
// next write replaces them. Other invalid data are damage: the file is refused and not changed.
//
// Outdated changes remain in the file until it is rewritten. That happens while the store is in
// use, if the file exceeds twice the size of its records by 16 MiB (compact.go), and when a store
// is opened, if more than half of its file is no longer needed.
//
// # Limits
//
// One process at a time opens the file; it may let others use it (socket.go). All records are in
// memory. Records that strangers can cause have limits (expiring.go). There is only database 0, and
// records are strings, hashes, lists, sets, zsets or streams.
package embedded

import (
	"errors"
	"fmt"

	"github.com/coffeenode/userdb/internal/privatefile"
)

// Errors of a store. Package userdb exports ErrLocked, ErrDamaged, ErrFull and ErrExposed and
// documents them in full.
var (
	ErrLocked  = errors.New("embedded: file is locked")
	ErrServed  = errors.New("embedded: another process serves the file")
	ErrDamaged = errors.New("embedded: file is damaged")

	// ErrFull may come from anything that writes. From a change, it comes with ErrUnsaved.
	ErrFull = errors.New("embedded: disk is full")

	// ErrExposed means that a user other than this one and root may read or write the file, or its
	// lock file.
	ErrExposed = errors.New("embedded: file is exposed")

	// ErrUnsaved is returned if the file could not be written; it wraps the cause. The change is
	// undone, with one exception: if the written data cannot be removed either, and the system
	// crashes before the next write, the change may reappear.
	ErrUnsaved = errors.New("embedded: change not saved")

	// ErrPartlySaved is returned by a pipeline, and by the end of a bulk, if the file could not be
	// written but already held some of the changes. The others are undone.
	ErrPartlySaved = errors.New("embedded: only a part of the changes is saved")

	// ErrWaiting is returned if a context ends while a change waits for the write of the file. The
	// change has been made and the write continues: the change will be saved, or undone if the
	// write fails.
	ErrWaiting = errors.New("embedded: change not saved yet")

	// ErrClosed is returned by every use of a store after Close.
	ErrClosed = errors.New("embedded: store is closed")
)

// A DamageError describes where a file is damaged. It matches ErrDamaged.
type DamageError struct {
	Path   string
	Line   int   // from 1, in a file of JSON lines; otherwise 0
	Offset int64 // in bytes, if Line is 0
	Reason string
}

func (e *DamageError) Error() string {
	where := fmt.Sprintf("byte %d", e.Offset)
	if e.Line > 0 {
		where = fmt.Sprintf("line %d", e.Line)
	}
	return fmt.Sprintf("embedded: %s: %s: %s; the file was left as it is: put a backup in its place, or save what can still be read with 'userdb salvage NEW --store file:%s'",
		e.Path, where, e.Reason, e.Path)
}

// Is reports whether target is ErrDamaged.
func (e *DamageError) Is(target error) bool { return target == ErrDamaged }

// exposedError wraps the error of a file that others may read or write in ErrExposed.
func exposedError(err error) error {
	if errors.Is(err, privatefile.ErrUntrusted) || errors.Is(err, privatefile.ErrReadable) {
		return fmt.Errorf("%w: %w", ErrExposed, err)
	}
	return err
}
