package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/recordkey"
)

// What an engine answers; userdb exports them under the same names.
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
	ErrUnsuitable     = errors.New("unsuitable Redis server or client")      // the promise cannot be kept with it
	ErrCache          = errors.New("entries of this store cannot be cached") // no copies of them can be kept in this process
	ErrUnconfirmed    = errors.New("committed, not confirmed")               // not known to be whole, or on as many replicas as asked for
)

// ErrReply is a reply of another kind than the command has, or none at all without an error: through a client that
// changes what it sends, or from what is no Redis server. It never means "no": whether the command was carried
// out is not known.
var ErrReply = errors.New("a reply of another kind than the command has")

// A FieldError names the field that an ErrDuplicate or a change.ErrInvalid is about, and for the latter the rule. It
// never says which entry has a value.
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

// Unwrap gives what the error is.
func (e *FieldError) Unwrap() error { return e.Err }

// Taken is the error that another entry has the UID, or the value of a secondary field.
func Taken(field string) error { return &FieldError{Err: ErrDuplicate, Field: field} }

// Duplicate is the error that another entry holds srk, one that c claims or looks at elsewhere. It names the field
// that c claims the value for: the other's field is not told.
func Duplicate(c Change, srk recordkey.Key) error {
	for _, claim := range c.Claim {
		if claim.Value() == srk.Value() && !slices.Contains(c.Claim, srk) {
			return Taken(claim.Field())
		}
	}
	return Taken(srk.Field())
}

// A MismatchError carries the schema in the database; Stored is "" where entries exist and none is stored.
type MismatchError struct{ Stored string }

func (e *MismatchError) Error() string { return ErrSchemaMismatch.Error() }

// Is makes the error an ErrSchemaMismatch.
func (e *MismatchError) Is(target error) bool { return target == ErrSchemaMismatch }

// CorruptError says what is wrong with one record.
type CorruptError struct{ Key, Reason string }

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s: %s: %s", ErrCorrupt, oneLine(e.Key), e.Reason)
}

// Is makes the error an ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// oneLine keeps an error on one line, whatever the key is.
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

// IsEntryError reports whether an error concerns one entry only.
func IsEntryError(err error) bool {
	return errors.Is(err, ErrNotFound) || errors.Is(err, ErrCorrupt)
}

// NotOfEntry returns an error that concerns the store and not one entry alone; nil for others.
func NotOfEntry(err error) error {
	if IsEntryError(err) {
		return nil
	}
	return err
}
