package maintain

import "errors"

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
