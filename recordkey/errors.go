package recordkey

import (
	"errors"
	"fmt"
	"strconv"
)

// ErrSyntax is what every *SyntaxError is: a text that is no record key, no crumb or no
// namespace, or a part that no key can hold.
var ErrSyntax = errors.New("recordkey: bad syntax")

// SyntaxError says what is wrong with a text given to this package, and where.
type SyntaxError struct {
	Func   string // the function that refused, such as "Parse"
	Input  string // the whole text it was given; of several, the one at fault
	At     int    // offset in Input, in bytes
	Reason string // what is wrong there
}

// maxQuoted is how many bytes of an input an error message shows.
const maxQuoted = 80

// Error quotes the input, of a long one the part around the place.
func (e *SyntaxError) Error() string {
	from := max(0, min(e.At-maxQuoted/2, len(e.Input)-maxQuoted))
	to := min(len(e.Input), from+maxQuoted)
	before, after := "", ""
	if from > 0 {
		before = "…"
	}
	if to < len(e.Input) {
		after = "…"
	}
	return fmt.Sprintf("recordkey.%s: %s%s%s at byte %d: %s",
		e.Func, before, strconv.Quote(e.Input[from:to]), after, e.At, e.Reason)
}

// Is reports whether target is ErrSyntax.
func (e *SyntaxError) Is(target error) bool { return target == ErrSyntax }
