package single

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

// connLife ends connections that only read: where another server takes over at one address, a writer is told so by
// READONLY, and a reader by nothing.
const connLife = time.Minute

// A Cached is an engine with copies of entries in this process, read over connections of their own on which the server
// says what changes (RESP3, CLIENT TRACKING). All else goes past the copies.
type Cached struct {
	*Engine
	reader      *redis.Client
	copies      *copies
	closeReader func() error
}

var _ store.Engine = (*Cached)(nil)

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

// Reader is the client that copies are read through.
func (c *Cached) Reader() *redis.Client { return c.reader }

// Close implements [store.Engine]; further calls return the same.
func (c *Cached) Close() error { return errors.Join(c.closeReader(), c.Engine.Close()) }

// Survey implements [store.Engine]: go-redis goes on without a cache, and says nothing, where the server refuses what
// it needs.
func (c *Cached) Survey(ctx context.Context, closely bool) (store.Survey, error) {
	s, err := c.Engine.Survey(ctx, closely)
	if err != nil {
		return s, err
	}
	if err := c.reader.HGetAll(ctx, probe).Err(); err != nil {
		return s, redisx.Fail(err)
	}
	if c.copies.prefix.Load() == nil || !c.copies.told.Load() {
		err = fmt.Errorf("%w: the server does not tell what changes: it needs RESP3 and CLIENT TRACKING (Redis 6 or later), "+
			"and leave to use them", store.ErrCache)
	}
	return s, err
}

// Find implements [store.Engine], where a copy will do by a copy.
func (c *Cached) Find(ctx context.Context, lookups []store.Lookup) ([]store.Found, error) {
	if len(lookups) != 1 || !lookups[0].Cached || !lookups[0].PRK.IsValid() {
		return c.Engine.Find(ctx, lookups)
	}
	prk := lookups[0].PRK
	cmd := redis.NewMapStringStringCmd(ctx, "hgetall", prk.String())
	err := c.reader.Process(ctx, cmd)
	found := redisx.FoundAt(prk, cmd.Val(), err)
	return []store.Found{found}, store.NotOfEntry(found.Err)
}

// The writing verbs below forget the copy of what they wrote before they return: whether it was written or not, for an
// outcome may be unknown, and a conflict tells that the copy is old.

// Apply implements [store.Engine].
func (c *Cached) Apply(ctx context.Context, change store.Change) (string, error) {
	defer c.copies.forget(change.Key.String())
	return c.Engine.Apply(ctx, change)
}

// ApplyAll implements [store.Engine].
func (c *Cached) ApplyAll(ctx context.Context, cs []store.Change) []error {
	defer func() {
		for i := range cs {
			c.copies.forget(cs[i].Key.String())
		}
	}()
	return c.Engine.ApplyAll(ctx, cs)
}

// Issue implements [store.Engine].
func (c *Cached) Issue(ctx context.Context, i store.Issue) error {
	defer c.copies.forget(i.PRK.String())
	return c.Engine.Issue(ctx, i)
}

// StartSession implements [store.Engine].
func (c *Cached) StartSession(ctx context.Context, s store.Start) (store.Session, error) {
	defer c.copies.forget(s.PRK.String())
	return c.Engine.StartSession(ctx, s)
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

const (
	probe    = "~/cache" // a record of the store's own that is never written
	longCopy = 16 << 10  // bytes of the longest reply that is kept
)

// copies keeps replies to HGETALL for go-redis, which fills it and takes out what the server says has changed, or what
// it will not hear about any more. What is kept is fit to be kept: entries, without their passwords' hashes. Safe for
// concurrent use.
type copies struct {
	*redis.LocalCache
	prefix atomic.Pointer[string] // what go-redis puts before a key; nil: it has not asked yet
	told   atomic.Bool            // there was a reply of which a change would be heard
}

var _ redis.Cache = (*copies)(nil)

func newCopies(c store.Cache) *copies {
	return &copies{LocalCache: redis.NewLocalCache(redis.CacheConfig{MaxEntries: c.Entries, MaxStaleness: c.Age})}
}

// forget takes out the copy of a record. A reply that is under way is not kept either: it may be from before. So those
// who ask from now on get what the server has now.
func (c *copies) forget(key string) {
	if prefix := c.prefix.Load(); prefix != nil {
		c.DeleteByRedisKey(*prefix + key)
	}
}

// Reserve implements [redis.Cache]. The first record asked for is the probe, which shows how go-redis calls a key.
func (c *copies) Reserve(cacheKey string, keys []string) (token uint64, fetch bool) {
	if c.prefix.Load() == nil {
		if prefix, ok := strings.CutSuffix(keys[0], probe); ok {
			c.prefix.Store(&prefix)
		}
	}
	return c.LocalCache.Reserve(cacheKey, keys)
}

// FulfillOwned implements [redis.Cache]. Only replies are brought here of which a change would be heard.
func (c *copies) FulfillOwned(cacheKey string, token, conn uint64, reply []byte) bool {
	c.told.Store(true)
	kept, ok := fit(reply)
	if !ok {
		c.Cancel(cacheKey, token)
		return false
	}
	return c.LocalCache.FulfillOwned(cacheKey, token, conn, kept)
}

// fit is a reply to HGETALL as it is kept. It is false for one that is not: no live entry, for "not found" must never
// be old; one that is too long; or no reply of that form at all.
func fit(reply []byte) (kept []byte, ok bool) {
	pairs, rest, ok := header(reply, '%')
	if !ok || len(reply) > longCopy {
		return nil, false
	}
	body, live := make([]byte, 0, len(rest)), false
	left := pairs
	for range pairs {
		pair := rest
		var name, value []byte
		if name, rest, ok = bulk(rest); ok {
			value, rest, ok = bulk(rest)
		}
		switch {
		case !ok:
			return nil, false
		case string(name) == store.FieldPassword:
			left--
			continue
		case string(name) == store.FieldType:
			live = len(value) > 0
		}
		body = append(body, pair[:len(pair)-len(rest)]...)
	}
	return slices.Concat([]byte("%"+strconv.Itoa(left)+"\r\n"), body), live && len(rest) == 0
}

// bulk cuts a text off RESP.
func bulk(b []byte) (text, rest []byte, ok bool) {
	n, rest, ok := header(b, '$')
	if !ok || n > len(rest)-2 || string(rest[n:n+2]) != "\r\n" {
		return nil, nil, false
	}
	return rest[:n], rest[n+2:], true
}

// header cuts a line off RESP: what it begins, and how many.
func header(b []byte, kind byte) (n int, rest []byte, ok bool) {
	line, rest, ok := bytes.Cut(b, []byte("\r\n"))
	if !ok || len(line) < 2 || line[0] != kind {
		return 0, nil, false
	}
	n, err := strconv.Atoi(string(line[1:]))
	return n, rest, err == nil && n >= 0
}
