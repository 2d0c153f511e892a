package validate

import (
	"errors"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ErrRule matches every *Error: a rule refused a value.
var ErrRule = errors.New("value refused by a rule")

// Error says which rule of which field refused a value. It never contains the value.
type Error struct {
	// Field is the name that the caller passed, of any length, even if it is empty.
	Field string
	// Rule is a kind (email, email-dots, username, nickname, url), or one of pattern, text,
	// non-empty, size, codec, canonical, unassigned, control, invisible, reserved, secondary and
	// name.
	Rule string
	// Reason says what is wrong, without quoting the value.
	Reason string
}

// maxShown limits how many bytes of a field's name an error shows.
const maxShown = 64

// Error names the field and the rule, only once if they are the same.
func (e *Error) Error() string {
	if e.Field == "" || e.Field == e.Rule {
		return e.Rule + ": " + e.Reason
	}
	return quoteIfUnclear(e.Field) + ": " + e.Rule + ": " + e.Reason
}

// Is reports whether target is ErrRule.
func (e *Error) Is(target error) bool { return target == ErrRule }

// quoteIfUnclear returns name, shortened to about maxShown bytes, and quoted if some characters
// cannot be printed.
func quoteIfUnclear(name string) string {
	if len(name) > maxShown {
		name = strings.ToValidUTF8(name[:maxShown], "") + "…"
	}
	if utf8.ValidString(name) && !strings.ContainsFunc(name, notPrintable) {
		return name
	}
	return strconv.Quote(name)
}

func notPrintable(r rune) bool { return !unicode.IsPrint(r) }
