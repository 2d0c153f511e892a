// Package onekey is what both engines do alike: single commands, pipelines of them, and scripts on records of one slot.
package onekey

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store/redisx"
)

// Keys are those methods of an engine that need one slot at a time.
type Keys struct {
	client  *redisx.Client
	finds   *redisx.Batcher[*batchedFind]
	options Options
}

// Options say what the server behind a client can do.
type Options struct {
	// OneSlot: one command may read many strings.
	OneSlot bool
	// WholeSets: a set is read at once. The embedded server's cursors count members, so that one which leaves the set
	// would make another be missed.
	WholeSets bool
}

// New returns them for what is behind a client.
func New(client *redisx.Client, o Options) *Keys {
	ks := &Keys{client: client, options: o}
	ks.finds = redisx.NewBatcher(redisx.BatchMost, ks.findBatch)
	return ks
}

// Client is the client that the engine was given, for tests that look at the records themselves.
func (ks *Keys) Client() redis.UniversalClient { return ks.client.UniversalClient }

// Ping implements [store.Engine].
func (ks *Keys) Ping(ctx context.Context) error { return redisx.Fail(ks.client.Ping(ctx).Err()) }
