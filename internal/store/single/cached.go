package single

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// connLife ends connections that only read: where another server takes over behind one address, a
// writer is told so by READONLY, and a reader by nothing.
const connLife = time.Minute

// A Cached is an engine with copies of entries in this process, read over connections of their own on
// which the server says what changes (RESP3, CLIENT TRACKING). All else goes past the copies.
type Cached struct {
	*Engine
	reader      *redis.Client
	copies      *copies
	closeReader func() error
}

var _ store.Cacher = (*Cached)(nil)

// NewCached returns e with a cache, filled by a client of its own with the options o.
func NewCached(e *Engine, o redis.Options, cache store.Cache) (*Cached, error) {
	if o.DB != 0 {
		return nil, fmt.Errorf("%w: go-redis caches database 0 alone, and this is %d; use a namespace instead", store.ErrCache, o.DB)
	}
	c := &Cached{Engine: e, copies: newCopies(cache)}
	o.Protocol, o.ClientSideCache = 3, c.copies
	if o.ConnMaxLifetime <= 0 {
		o.ConnMaxLifetime = connLife
	}
	c.reader = redis.NewClient(&o)
	c.closeReader = sync.OnceValue(c.reader.Close)
	return c, nil
}

// Close implements [store.Engine]; further calls return the same.
func (c *Cached) Close() error { return errors.Join(c.closeReader(), c.Engine.Close()) }

// Survey implements [store.Surveyor]: go-redis goes on without a cache, and says nothing, where the
// server refuses what it needs.
func (c *Cached) Survey(ctx context.Context) ([]string, error) {
	warnings, err := c.Engine.Survey(ctx)
	if err != nil {
		return warnings, err
	}
	if err := c.reader.HGetAll(ctx, probe).Err(); err != nil {
		return warnings, redisx.Fail(err)
	}
	if c.copies.prefix.Load() == nil || !c.copies.told.Load() {
		err = fmt.Errorf("%w: the server does not tell what changes: it needs RESP3 and CLIENT TRACKING (Redis 6 or later), and leave to use them", store.ErrCache)
	}
	return warnings, err
}

// FindCached implements [store.Cacher].
func (c *Cached) FindCached(ctx context.Context, prk recordkey.Key) (store.Found, error) {
	cmd := redis.NewMapStringStringCmd(ctx, "hgetall", prk.String())
	err := c.reader.Process(ctx, cmd)
	found := redisx.FoundAt(prk, cmd.Val(), err)
	return found, store.NotOfEntry(found.Err)
}

// The writing verbs below forget the copy of what they wrote before they return: whether it was
// written or not, for an outcome may be unknown, and a conflict tells that the copy is old.

// Apply implements [store.Engine].
func (c *Cached) Apply(ctx context.Context, change store.Change) (store.Version, error) {
	defer c.copies.forget(change.Key.String())
	return c.Engine.Apply(ctx, change)
}

// Issue implements [store.Tokener].
func (c *Cached) Issue(ctx context.Context, i store.Issue) error {
	defer c.copies.forget(i.PRK.String())
	return c.Engine.Issue(ctx, i)
}

// ApplyAll implements [store.Mover].
func (c *Cached) ApplyAll(ctx context.Context, cs []store.Change, tried []store.Tried) ([]store.Version, []error) {
	defer c.forgetAll(cs)
	return c.Engine.ApplyAll(ctx, cs, tried)
}

// CreateAll implements [store.Mover].
func (c *Cached) CreateAll(ctx context.Context, cs []store.Change) []store.Tried {
	defer c.forgetAll(cs)
	return c.Engine.CreateAll(ctx, cs)
}

func (c *Cached) forgetAll(cs []store.Change) {
	for i := range cs {
		c.copies.forget(cs[i].Key.String())
	}
}

// Mend implements [store.Engine].
func (c *Cached) Mend(ctx context.Context, s store.Step) (bool, error) {
	switch s := s.(type) {
	case store.Remove:
		defer c.copies.forget(s.Key)
	case store.Copy:
		defer c.copies.forget(s.To)
	case store.Complete:
		defer c.copies.forget(s.Entry.String())
	}
	return c.Engine.Mend(ctx, s)
}
