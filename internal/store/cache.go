package store

import (
	"context"
	"errors"
	"time"

	"github.com/coffeenode/userdb/recordkey"
)

// ErrCache is a store of which no copies can be kept in this process.
var ErrCache = errors.New("entries of this store cannot be cached")

// A Cache says how many entries are copied into this process, about, and how old a copy gets at most.
// The zero Cache is none.
type Cache struct {
	Entries int
	Age     time.Duration
}

// A Cacher is an Engine that keeps copies of entries in this process. A copy goes when the server
// says that the entry has changed, which is a moment after it has; so only those read it whom an
// entry as it was that moment ago does no harm. Find never does.
type Cacher interface {
	Engine
	// FindCached answers a lookup of a PRK, if it can without asking the server. What this engine
	// wrote itself it has seen, once the writing has returned.
	FindCached(ctx context.Context, prk recordkey.Key) (Found, error)
}
