package maintain

import (
	"errors"
	"fmt"
)

var (
	// ErrFormat is a format of records that Dump does not know.
	ErrFormat = errors.New("no such format of a dump")
	// ErrCollision is a schema by which two entries would have one secondary value, or that needs a key
	// that no record can have. Nothing was changed.
	ErrCollision = errors.New("the records do not fit the schema")
	// ErrNamespace is a namespace that cannot be copied or dropped.
	ErrNamespace = errors.New("not a namespace for this")
	// ErrNotEmpty is a namespace to copy to that holds records.
	ErrNotEmpty = errors.New("the namespace holds records already")
	// ErrKeep is in CheckOptions.Keep what is no PRK of a declared type.
	ErrKeep = errors.New("not the record key of an entry")
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
