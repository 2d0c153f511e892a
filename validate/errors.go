package validate

import (
	"errors"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ErrRule is what every *Error is, by errors.Is: a value that a rule refuses.
var ErrRule = errors.New("value refused by a rule")

// Error says which rule of which field refuses a value. It never holds the value.
type Error struct {
	// Field is the name as it was given, of any length; empty for an entry.
	Field string
	// Rule is a kind (email, username, nickname, url), or pattern, text,
	// non-empty, size, codec, canonical, unassigned, control, invisible, reserved, secondary or name.
	Rule string
	// Reason says what is wrong, without the value.
	Reason string
}

// maxShown is how many bytes of a field's name an error shows.
const maxShown = 64

// Error names field and rule, once if they are the same.
func (e *Error) Error() string {
	if e.Field == "" || e.Field == e.Rule {
		return e.Rule + ": " + e.Reason
	}
	return quoteIfUnclear(e.Field) + ": " + e.Rule + ": " + e.Reason
}

// Is reports whether target is ErrRule.
func (e *Error) Is(target error) bool { return target == ErrRule }

// quoteIfUnclear makes a name fit for one line.
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
