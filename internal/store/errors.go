package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/recordkey"
)

// Errors that engines return. Package userdb exports them under the same names.
var (
	ErrNotFound       = errors.New("not found")
	ErrDuplicate      = errors.New("taken")
	ErrConflict       = errors.New("changed meanwhile")
	ErrIndexBuilding  = errors.New("the index is being built")
	ErrSchemaMismatch = errors.New("schema differs from the one in the database")
	ErrCorrupt        = errors.New("damaged record")
	ErrUnavailable    = errors.New("store unavailable")
	ErrOutcomeUnknown = errors.New("outcome unknown")
	ErrCursor         = errors.New("not a cursor of this listing")
	// ErrUnsuitable reports a server or client with which the promises of docs/guarantees.md cannot
	// be kept.
	ErrUnsuitable = errors.New("unsuitable Redis server or client")
	// ErrCache reports that entries cannot be copied into this process.
	ErrCache = errors.New("entries of this store cannot be cached")
	// ErrUnconfirmed reports that a change was made, but may be incomplete or may have reached
	// fewer replicas than it asked for.
	ErrUnconfirmed = errors.New("committed, not confirmed")
)

// ErrReply means that a reply was of a kind that the command never returns, or that the client
// returned neither a reply nor an error. Either the client changes what it sends, or the other end
// is not a Redis server. ErrReply never means "no": the command may or may not have been carried
// out.
var ErrReply = errors.New("reply of an unexpected kind")

// A FieldError names the field that caused an ErrDuplicate or a change.ErrInvalid, and the rule. It
// never says which other entry has the value.
type FieldError struct {
	Err         error
	Field, Rule string
	Reason      string
}

func (e *FieldError) Error() string {
	s := e.Err.Error() + ": " + e.Field
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	return s
}

// Unwrap returns the underlying error.
func (e *FieldError) Unwrap() error { return e.Err }

// DuplicateField returns the error for a UID or secondary value that another entry already has.
func DuplicateField(field string) error { return &FieldError{Err: ErrDuplicate, Field: field} }

// Rules of a FieldError for a UID or value that no entry has, and that nobody may take.
const (
	RuleRetired = "retired" // the UID belonged to an entry that was deleted
	RuleHeld    = "held"    // another entry gave the value up, and still keeps it from others
)

// RetiredUID returns the error for a UID that belonged to an entry that was deleted.
func RetiredUID(field string) error {
	return &FieldError{Err: ErrDuplicate, Field: field, Rule: RuleRetired, Reason: "it belonged to an entry that was deleted"}
}

// DuplicateOf returns the error for an SRK that another entry has. c claims that SRK, or checks it
// because c claims its value under another field. The error names the field under which c claims
// the value, and does not reveal the other entry's field.
func DuplicateOf(c Change, srk recordkey.Key) error { return DuplicateField(fieldClaimed(c, srk)) }

// fieldClaimed returns the field under which c claims the value of an SRK that it claims or checks.
func fieldClaimed(c Change, srk recordkey.Key) string {
	for _, claim := range c.Claim {
		if claim.Value() == srk.Value() && !slices.Contains(c.Claim, srk) {
			return claim.Field()
		}
	}
	return srk.Field()
}

// HeldOf does what [DuplicateOf] does for an SRK whose value another entry gave up and still keeps
// from others.
func HeldOf(c Change, srk recordkey.Key) error {
	return &FieldError{Err: ErrDuplicate, Field: fieldClaimed(c, srk), Rule: RuleHeld}
}

// A MismatchError holds the schema in the database. Stored is "" if entries exist but no schema is
// stored.
type MismatchError struct{ Stored string }

func (e *MismatchError) Error() string { return ErrSchemaMismatch.Error() }

// Is reports whether target is ErrSchemaMismatch.
func (e *MismatchError) Is(target error) bool { return target == ErrSchemaMismatch }

// A CorruptError says what is wrong with one record.
type CorruptError struct{ Key, Reason string }

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s: %s: %s", ErrCorrupt, oneLine(e.Key), e.Reason)
}

// Is reports whether target is ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// oneLine makes a key safe to print on one line, whatever it contains.
func oneLine(key string) string {
	const most = 200
	if len(key) > most {
		key = key[:most] + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, key)
}

// IsEntryError reports whether an error concerns only one entry.
func IsEntryError(err error) bool {
	return errors.Is(err, ErrNotFound) || errors.Is(err, ErrCorrupt)
}

// StoreError returns err if it concerns the whole store, and nil if it concerns only one entry.
func StoreError(err error) error {
	if IsEntryError(err) {
		return nil
	}
	return err
}

// IsWrongType reports whether a server answered that a record has the wrong Redis type for a
// command.
func IsWrongType(err error) bool {
	reply, is := errors.AsType[interface {
		error
		RedisError()
	}](err)
	return is && strings.HasPrefix(reply.Error(), "WRONGTYPE")
}
