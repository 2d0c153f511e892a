package hints

import (
	"errors"
	"strconv"
	"strings"
)

// ErrHint matches every *Error: a hint cannot be parsed, or has no meaning under the schema. A
// valid hint that leads to no entry is not an ErrHint.
var ErrHint = errors.New("hints: bad hint")

// Error says why a hint is refused.
type Error struct {
	// Hint is the operator's text or the key, quoted as in Go and cut after 80 bytes. For other
	// hints it names only their form, such as field "email", * or {…}, because a visitor's text may
	// be a mistyped password and an entry may contain a hash.
	Hint string
	// Reason says what is wrong with the hint.
	Reason string
}

// Error returns a text with Hint and Reason.
func (e *Error) Error() string {
	if e.Hint == "" {
		return "hints: " + e.Reason
	}
	return "hints: " + e.Hint + ": " + e.Reason
}

// Is reports whether target is ErrHint.
func (e *Error) Is(target error) bool { return target == ErrHint }

// maxShown limits how many bytes of a text an error quotes.
const maxShown = 80

// hintError returns the error for an operator's text.
func hintError(text, reason string) error {
	return &Error{Hint: quoted(text), Reason: reason}
}

func quoted(text string) string {
	if len(text) > maxShown {
		return strconv.Quote(strings.ToValidUTF8(text[:maxShown], "")) + "…"
	}
	return strconv.Quote(text)
}
