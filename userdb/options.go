package userdb

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"time"

	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// Options of a DB. The zero Options are good for a start.
type Options struct {
	Schema      schema.Schema                // zero: schema.User()
	Namespace   recordkey.Namespace          // zero: the whole store
	NewUID      func() (string, error)       // nil: RandomUID(12)
	HashWorkers int                          // how many passwords are hashed at once; 0: GOMAXPROCS
	Logger      *slog.Logger                 // nil: silent
	OnEvent     func(context.Context, Event) // nil: events go to Logger alone; called on the verb's goroutine
	Peppers     [][]byte                     // none: no pepper; the first hashes, all verify

	// Replicas of every server that a change touches must have it within ReplicaTimeout, or the verb
	// returns ErrUnconfirmed besides what it made. That costs a round trip more. Tertiary records are
	// not waited for. 0: do not wait, and a failover may lose changes that were acknowledged.
	Replicas       int
	ReplicaTimeout time.Duration // 0: one second; more than the client's read timeout is not waited for
}

// RandomUID returns a generator of UIDs of n hexadecimal digits from a cryptographic source. n is
// at least 8 and at most 64; 12 digits are 48 bits. A UID that is taken is never used again for
// another entry: Create asks for the next one.
func RandomUID(n int) func() (string, error) {
	return func() (string, error) {
		if n < 8 || n > 64 {
			return "", fmt.Errorf("a UID of %d digits: want 8 to 64", n)
		}
		b := make([]byte, (n+1)/2)
		rand.Read(b) // never fails, says its documentation
		return hex.EncodeToString(b)[:n], nil
	}
}

func (o Options) withDefaults() Options {
	if len(o.Schema.Types) == 0 {
		o.Schema = schema.User()
	}
	if o.ReplicaTimeout == 0 {
		o.ReplicaTimeout = time.Second
	}
	if o.NewUID == nil {
		o.NewUID = RandomUID(12)
	}
	return o
}
