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

// Errors of methods that read.
var (
	// ErrNotFound means that no live entry matches the hint.
	ErrNotFound = store.ErrNotFound
	// ErrCorrupt means that a stored record is damaged: a key of an entry holds another Redis type,
	// a hash has no ~isa, a facet cannot be decoded, or two entries have the same value. Listings
	// continue after it. Use check.Run for details.
	ErrCorrupt = store.ErrCorrupt
	// ErrUnmarshal means that a facet does not fit the field of the struct that a Typed would store
	// it in. A *FieldError names the facet. Listings continue after it.
	ErrUnmarshal = errors.New("stored value does not fit")
	// ErrIndexBuilding means that a query or a search needs an index that 'userdb schema apply' has
	// not finished building. Try again when it has.
	ErrIndexBuilding = store.ErrIndexBuilding
	// ErrNoHistory means that Type.History found nothing and that the program records nothing,
	// because Options.History is not set.
	ErrNoHistory = errors.New("no history: Options.History is not set")
	// ErrCursor means that a continuation text did not come from a listing.
	ErrCursor = store.ErrCursor
)

// Errors of methods that write.
var (
	// ErrDuplicate means that one of the secondary values or the UID is not free: another entry has
	// it, or it is held or retired. A *FieldError names the field, never the entry.
	ErrDuplicate = store.ErrDuplicate
	// ErrConflict means that the entry has changed since the caller read it (I6), or kept changing
	// while a method retried.
	ErrConflict = store.ErrConflict
	// ErrInvalid means that a value breaks a rule. A *FieldError names the field and the rule.
	ErrInvalid = change.ErrInvalid
	// ErrSchemaMismatch means that the stored schema lays out records differently from the
	// program's. The text names the difference and the command that resolves it.
	ErrSchemaMismatch = store.ErrSchemaMismatch
)

// Errors of the store itself.
var (
	// ErrUnavailable means that the server does not answer or refuses the command. Nothing was
	// written. The error wraps the cause, and its text includes the server's error code, such as
	// OOM, READONLY, NOAUTH or LOADING.
	ErrUnavailable = store.ErrUnavailable
	// ErrOutcomeUnknown means that a change was sent and no reply came. The change was made
	// completely or not at all (I7). Read the entry to find out.
	ErrOutcomeUnknown = store.ErrOutcomeUnknown
	// ErrUnsuitable means that the invariants cannot be guaranteed with the client or server: the
	// client reads from replicas or from a cache or alters commands, or the records of one server
	// are spread over several. The error texts of Open and redisdb.New say what to change.
	ErrUnsuitable = store.ErrUnsuitable
	// ErrURL means that the URL does not name a store. The text says what is wrong with it.
	ErrURL = connect.ErrURL
	// ErrCache means that Options.CacheSize is set but this store cannot be cached. The text says
	// why.
	ErrCache = store.ErrCache
)

// Errors of a store in a file. Open returns them; methods that write also return ErrFileFull.
var (
	// ErrFileLocked means that another store, usually in another process, had the file open and did
	// not close it in time.
	ErrFileLocked = embedded.ErrLocked
	// ErrFileFull means that the disk has no room for the file or a change. Nothing was changed.
	ErrFileFull = embedded.ErrFull
	// ErrFileDamaged means that the contents of the file are damaged. The file is left unchanged.
	ErrFileDamaged = embedded.ErrDamaged
	// ErrFileExposed means that users other than this one and root can read or write the file. The
	// file is neither trusted nor changed.
	ErrFileExposed = embedded.ErrExposed
)

// ErrUnconfirmed means that a change was made, but not confirmed completely. Either it may not be
// on as many replicas as Options.Replicas demands, or a node of a cluster refused a write that
// follows the change, such as one to an index, for lack of permission or memory. check.Run repairs
// the latter. The other results of the method describe the entry as written. Repeating the call
// would make a second change.
var ErrUnconfirmed = store.ErrUnconfirmed

// Errors of logging in.
var (
	// ErrLogin means that the identifier, the password or the proof of a second factor is wrong, or
	// that the entry has no password or is disabled. The error does not say which.
	ErrLogin = errors.New("wrong identifier or password")
	// ErrFactor means that the entry has a second factor and only one step of the login was taken.
	// A *FactorError has a ticket for the second step.
	ErrFactor = errors.New("a second factor is required")
	// ErrNotVerified means that the owner of a session was last verified more than ten minutes ago
	// and must call VerifySession or RaiseSession first.
	ErrNotVerified = errors.New("the session was not verified within ten minutes")
	// ErrUnproven means that the entry was self-registered (NewEntry.SelfRegistered) and that
	// nobody has proved yet that they own its address. Until then, no second factor and no further
	// identifier can be added. A *FieldError names the field.
	ErrUnproven = change.ErrUnproven
	// ErrTooManyAttempts means that nothing was checked because of too many earlier attempts. A
	// *WaitError says how long to wait.
	ErrTooManyAttempts = errors.New("too many attempts")
)

// A WaitError says how long to wait after ErrTooManyAttempts, which it wraps.
type WaitError struct {
	Wait time.Duration // until the next attempt will be checked
}

func (e *WaitError) Error() string {
	return fmt.Sprintf("%s: wait %s", ErrTooManyAttempts, (e.Wait + time.Second - 1).Truncate(time.Second))
}

// Unwrap returns ErrTooManyAttempts.
func (e *WaitError) Unwrap() error { return ErrTooManyAttempts }

// A BusyError says that more passwords are waiting for a processor than can be hashed or checked in
// time, or that the origin, account or actor has used up its share of the queue. It wraps
// ErrUnavailable. Nothing was counted or changed.
type BusyError struct {
	Wait time.Duration // estimated time until the jobs in the queue are done
}

func (e *BusyError) Error() string { return ErrUnavailable.Error() + ": too many logins at once" }

// Unwrap returns ErrUnavailable.
func (e *BusyError) Unwrap() error { return ErrUnavailable }

// A FieldError names the field that caused an ErrDuplicate, ErrInvalid, ErrUnproven or
// ErrUnmarshal. It never says which entry has a value.
type FieldError struct {
	// Err is ErrDuplicate, ErrInvalid, ErrUnproven or ErrUnmarshal.
	Err error

	// Field names a field of the entry or another argument. It is "" if the entry as a whole is too
	// large.
	Field string

	// Rule names the rule that the value breaks: one of a schema, or a word such as "key", "size",
	// "kind" or "query". For ErrDuplicate it is "" if an entry has the value, "retired" for a UID
	// that is never reused, and "held" for a value that another entry has given up and still holds
	// (schema.Field.Hold). Show it to operators but never to visitors, as it reveals that an
	// account existed.
	Rule string

	// Reason describes the problem to people. For ErrDuplicate it is "", or says which of several
	// values of the field is taken.
	Reason string
}

func (e *FieldError) Error() string { return (*store.FieldError)(e).Error() }

// Unwrap returns e.Err.
func (e *FieldError) Unwrap() error { return e.Err }

func invalid(field, rule, reason string) error {
	return &FieldError{Err: ErrInvalid, Field: field, Rule: rule, Reason: reason}
}

// publicError converts the field error of an internal package to a *FieldError, and returns other
// errors unchanged.
func publicError(err error) error {
	if refused, ok := errors.AsType[*store.FieldError](err); ok {
		return (*FieldError)(refused)
	}
	return err
}
