package transfer

import (
	"errors"
	"fmt"
)

// ErrInput is an input that Import cannot read, or options that say nothing.
var ErrInput = errors.New("bad input")

// A ReadError is an input of an import that could not be read to its end. All lines before Line are done with.
type ReadError struct {
	Line   int64 // the first line of text, from 1, that was not read, nor what is behind it
	Offset int64 // where it begins, in bytes
	Err    error // why; an ErrInput where it is not the reader that failed
}

func (e *ReadError) Error() string {
	return fmt.Sprintf("reading the input: line %d, and what is behind it, was not read: %v", e.Line, e.Err)
}

// Unwrap returns the reason.
func (e *ReadError) Unwrap() error { return e.Err }
