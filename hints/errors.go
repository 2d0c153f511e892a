package hints

import (
	"errors"
	"strconv"
	"strings"
)

// ErrHint is what every *Error is: a hint that cannot be read, or that means nothing under
// the schema. That nothing is found under a good hint is no such error.
var ErrHint = errors.New("hints: bad hint")

// Error says why a hint is refused.
type Error struct {
	// Hint is the operator's text or the key, as Go would quote it, and cut after 80 bytes. Of
	// other hints it says only what they are, such as field "email", * or entry: a visitor's
	// text may be a mistyped password, and an entry may hold a hash.
	Hint string
	// Reason says what is wrong with it.
	Reason string
}

// Error says what was given, as far as it may be told, and why it is refused.
func (e *Error) Error() string {
	if e.Hint == "" {
		return "hints: " + e.Reason
	}
	return "hints: " + e.Hint + ": " + e.Reason
}

// Is reports whether target is ErrHint.
func (e *Error) Is(target error) bool { return target == ErrHint }

// maxShown is the greatest part of a text that an error quotes, in bytes.
const maxShown = 80

// refuse is the error for an operator's text.
func refuse(text, reason string) error {
	return &Error{Hint: quoted(text), Reason: reason}
}

func quoted(text string) string {
	if len(text) > maxShown {
		return strconv.Quote(strings.ToValidUTF8(text[:maxShown], "")) + "…"
	}
	return strconv.Quote(text)
}
