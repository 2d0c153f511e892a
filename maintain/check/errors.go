package check

import "errors"

// ErrKeep is in Options.Keep what is no PRK of a declared type.
var ErrKeep = errors.New("not the record key of an entry")
