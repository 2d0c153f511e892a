package migrate

import "errors"

var (
	// ErrCollision is a schema by which two entries would have one secondary value, or that needs a key
	// that no record can have. Nothing was changed.
	ErrCollision = errors.New("the records do not fit the schema")
	// ErrNamespace is a namespace that cannot be copied or dropped.
	ErrNamespace = errors.New("not a namespace for this")
	// ErrNotEmpty is a namespace to copy to that holds records.
	ErrNotEmpty = errors.New("the namespace holds records already")
)
