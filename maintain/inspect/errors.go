package inspect

import "errors"

// ErrFormat is a format of records that Dump does not know.
var ErrFormat = errors.New("no such format of a dump")
