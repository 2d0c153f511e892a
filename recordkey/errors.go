package recordkey

import (
	"errors"
	"fmt"
	"strconv"
)

// ErrSyntax matches every *SyntaxError. The input is not a valid record key or namespace, or it
// cannot be a part of one, for example because it is empty or too long.
var ErrSyntax = errors.New("recordkey: bad syntax")

// SyntaxError describes what is wrong with an input to this package, and where.
type SyntaxError struct {
	Func   string // the function that returned the error, such as "Parse"
	Input  string // the whole input; of several arguments, the invalid one
	At     int    // offset in Input in bytes
	Reason string // what is wrong there
}

// maxQuoted limits how many bytes of the input an error message quotes.
const maxQuoted = 80

// Error returns a message that quotes the input. It quotes only the part around At if the input is
// long.
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
