package userdb

import (
	"errors"
	"fmt"
	"time"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/connect"
	"github.com/coffeenode/userdb/internal/embedded"
	"github.com/coffeenode/userdb/internal/store"
)

// Errors of reading.
var (
	// ErrNotFound: no live entry answers to the hint.
	ErrNotFound = store.ErrNotFound
	// ErrCorrupt: a record of another Redis type under an entry's key, a hash without ~isa, a facet that its codec
	// cannot read, a value that belongs to two entries. Listings go on after it; check.Run says more.
	ErrCorrupt = store.ErrCorrupt
	// ErrUnmarshal: a facet that the struct of a Typed cannot hold. A *FieldError names it. Listings go on after it.
	ErrUnmarshal = errors.New("stored value does not fit")
	// ErrIndexBuilding: a query by an index, or a search by a field, that 'userdb schema apply' is bringing entries to. Nothing was
	// answered; when all entries are there, it will be.
	ErrIndexBuilding = store.ErrIndexBuilding
	// ErrCursor: a text that no listing gave as its continuation.
	ErrCursor = store.ErrCursor
)

// Errors of changing.
var (
	// ErrDuplicate: a secondary value, or the UID, is taken. A *FieldError says which field, never by whom.
	ErrDuplicate = store.ErrDuplicate
	// ErrConflict: the entry has another Rev by now than the one that the change was built from (I6), or
	// it kept changing while a verb tried again.
	ErrConflict = store.ErrConflict
	// ErrInvalid: a rule refuses a value. A *FieldError says which field and which rule.
	ErrInvalid = change.ErrInvalid
	// ErrSchemaMismatch: the schema in the database lays records out in another way. The text names
	// the difference and the command that mends it.
	ErrSchemaMismatch = store.ErrSchemaMismatch
)

// Errors of the store itself.
var (
	// ErrUnavailable: no server, or one that refuses. The cause, with the server's own word (OOM,
	// READONLY, NOAUTH, LOADING), stays in the text and in the chain. Nothing was written.
	ErrUnavailable = store.ErrUnavailable
	// ErrOutcomeUnknown: a change was sent and no answer came; it may have been made or not, wholly
	// in both cases (I7). Read the entry to find out.
	ErrOutcomeUnknown = store.ErrOutcomeUnknown
	// ErrUnsuitable: a client or a server with which the promise cannot be kept: one that reads from replicas or from
	// a cache, through which commands do not come back as they were sent, or that spreads the records of one
	// server over several. Open and New say what to change.
	ErrUnsuitable = store.ErrUnsuitable
	// ErrURL: a store that no URL of ours names. The text says what is wrong with it.
	ErrURL = connect.ErrURL
	// ErrCache: Options.Cache is set, and of this store nothing can be copied; the text says why.
	ErrCache = store.ErrCache
)

// Errors of a store in a file. They come from Open, but for ErrFileFull.
var (
	// ErrFileLocked: another store, mostly another process, has the file and did not let go of it in time.
	ErrFileLocked = embedded.ErrLocked
	// ErrFileFull: a change would take the file over its limit. Nothing is changed; a Redis server has no such limit.
	ErrFileFull = embedded.ErrFull
	// ErrFileDamaged: the file is not as it was written. It is left as it is.
	ErrFileDamaged = embedded.ErrDamaged
	// ErrFileExposed: others than this user and root may write the file. Nothing in it is believed, or changed.
	ErrFileExposed = embedded.ErrExposed
)

// ErrUnconfirmed: a change was made, but is not known to be on as many replicas as Options.Replicas says; or a node of a
// cluster refuses what is due after it, such as index members, for want of a right or of memory: check.Run repairs that.
// What the verb returns besides is what was written; doing it again would be a second change.
var ErrUnconfirmed = store.ErrUnconfirmed

// Errors of logging in.
var (
	// ErrLogin: the identifier or the password is wrong, the entry has no password, or it is
	// disabled. Which of them is never said.
	ErrLogin = errors.New("wrong identifier or password")
	// ErrTooManyAttempts: nothing was checked. A *WaitError says how long to wait.
	ErrTooManyAttempts = errors.New("too many attempts")
)

// A WaitError stands in the chain of ErrTooManyAttempts.
type WaitError struct {
	Wait time.Duration // how long nothing will be checked
}

func (e *WaitError) Error() string {
	return fmt.Sprintf("%s: wait %s", ErrTooManyAttempts, (e.Wait + time.Second - 1).Truncate(time.Second))
}

// Unwrap gives ErrTooManyAttempts.
func (e *WaitError) Unwrap() error { return ErrTooManyAttempts }

// A BusyError stands in the chain of ErrUnavailable: more passwords wait for a processor than can
// be hashed or checked in time. Nothing was counted or changed.
type BusyError struct {
	Wait time.Duration // how long those take that came before, by what the last ones took
}

func (e *BusyError) Error() string { return ErrUnavailable.Error() + ": too many logins at once" }

// Unwrap returns ErrUnavailable.
func (e *BusyError) Unwrap() error { return ErrUnavailable }

// A FieldError stands in the chain of ErrDuplicate, ErrInvalid and ErrUnmarshal. It never says who holds a value.
type FieldError struct {
	Err    error  // ErrDuplicate, ErrInvalid or ErrUnmarshal
	Field  string // of the entry, or what else was given; "": the entry as a whole is too large
	Rule   string // which rule refuses the value, as in a schema, or "key", "size", "kind", "query" and the like; "" for ErrDuplicate
	Reason string // the same for people; "" for ErrDuplicate
}

func (e *FieldError) Error() string { return (*store.FieldError)(e).Error() }

// Unwrap gives Err.
func (e *FieldError) Unwrap() error { return e.Err }

func invalid(field, rule, reason string) error {
	return &FieldError{Err: ErrInvalid, Field: field, Rule: rule, Reason: reason}
}

// public turns what internal packages say about a field into a FieldError.
func public(err error) error {
	if refused, is := errors.AsType[*store.FieldError](err); is {
		return (*FieldError)(refused)
	}
	return err
}
