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
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/internal/store/session"
	"github.com/coffeenode/userdb/internal/store/token"
)

// connLife limits the lifetime of connections that only read. If another server takes over an
// address, connections that write get READONLY errors, but connections that only read notice
// nothing.
const connLife = time.Minute

// A Cached is an engine that keeps copies of entries in this process. It reads them over separate
// connections, on which the server announces changes (RESP3, CLIENT TRACKING). All other calls
// bypass the copies.
type Cached struct {
	*Engine
	reader      *redis.Client
	copies      *copies
	closeReader func() error
}

var _ store.Engine = (*Cached)(nil)

// NewCached returns e with a cache. The cache is filled by a new client that has the options o.
func NewCached(e *Engine, o redis.Options, cache store.Cache) (*Cached, error) {
	if o.DB != 0 {
		return nil, fmt.Errorf("%w: go-redis caches only database 0, not %d; use a namespace instead", store.ErrCache, o.DB)
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

// Reader returns the client that fills the cache.
func (c *Cached) Reader() *redis.Client { return c.reader }

// Close implements [store.Engine]. Further calls return the same result.
func (c *Cached) Close() error { return errors.Join(c.closeReader(), c.Engine.Close()) }

// Survey implements [store.Engine]. It checks that the server supports the cache, since go-redis
// otherwise continues without one and reports nothing.
func (c *Cached) Survey(ctx context.Context, closely bool) (store.Survey, error) {
	s, err := c.Engine.Survey(ctx, closely)
	if err != nil {
		return s, err
	}
	if err := c.reader.HGetAll(ctx, probeKey).Err(); err != nil {
		return s, redisx.Fail(err)
	}
	if c.copies.prefix.Load() == nil || !c.copies.tracked.Load() {
		err = fmt.Errorf("%w: the server does not announce changes: caching needs RESP3 and CLIENT TRACKING (Redis 6 or later), "+
			"and the right to use them", store.ErrCache)
	}
	return s, err
}

// Find implements [store.Engine]. It uses a copy if the lookup allows that.
func (c *Cached) Find(ctx context.Context, lookups []store.Lookup) ([]store.Found, error) {
	if len(lookups) != 1 || !lookups[0].Cached || !lookups[0].PRK.IsValid() {
		return c.Engine.Find(ctx, lookups)
	}
	prk := lookups[0].PRK
	cmd := redis.NewMapStringStringCmd(ctx, "hgetall", prk.String())
	err := c.reader.Process(ctx, cmd)
	found := redisx.FoundAt(prk, cmd.Val(), err)
	return []store.Found{found}, store.StoreError(found.Err)
}

// The methods below that write drop the copy of the entry before they return. They do so even if
// they fail, because the outcome may be unknown, and a conflict shows that the copy is old.

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
func (c *Cached) Issue(ctx context.Context, i token.Issue) error {
	defer c.copies.forget(i.PRK.String())
	return c.Engine.Issue(ctx, i)
}

// StartSession implements [store.Engine].
func (c *Cached) StartSession(ctx context.Context, s session.Start) (session.Session, error) {
	defer c.copies.forget(s.PRK.String())
	return c.Engine.StartSession(ctx, s)
}

// Repair implements [store.Engine].
func (c *Cached) Repair(ctx context.Context, s store.RepairStep) (bool, error) {
	switch s := s.(type) {
	case store.Remove:
		defer c.copies.forget(s.Key)
	case store.Copy:
		defer c.copies.forget(s.To)
	case store.PlacePrepared:
		defer c.copies.forget(s.Entry.String())
	}
	return c.Engine.Repair(ctx, s)
}

const (
	probeKey = "~/cache" // a key that is never written
	maxReply = 16 << 10  // length in bytes of the longest reply that is kept
)

// copies holds replies to HGETALL for go-redis, which adds them, and removes those that the server
// reports as changed or no longer tracks. It holds only live entries, without password hashes. It
// is safe for concurrent use.
type copies struct {
	*redis.LocalCache
	prefix  atomic.Pointer[string] // what go-redis puts before every key; nil until known
	tracked atomic.Bool            // the server has sent a reply whose changes it will announce
}

var _ redis.Cache = (*copies)(nil)

func newCopies(c store.Cache) *copies {
	return &copies{LocalCache: redis.NewLocalCache(redis.CacheConfig{MaxEntries: c.Entries, MaxStaleness: c.Age})}
}

// forget removes the copy of a record. It also discards a reply that is still on its way, since
// that may be out of date. A read that begins later therefore returns the current record.
func (c *copies) forget(key string) {
	if prefix := c.prefix.Load(); prefix != nil {
		c.DeleteByRedisKey(*prefix + key)
	}
}

// Reserve implements [redis.Cache]. The first record that is read is at probeKey. From that read,
// Reserve learns the prefix that go-redis puts before a key.
func (c *copies) Reserve(cacheKey string, keys []string) (token uint64, fetch bool) {
	if c.prefix.Load() == nil {
		if prefix, ok := strings.CutSuffix(keys[0], probeKey); ok {
			c.prefix.Store(&prefix)
		}
	}
	return c.LocalCache.Reserve(cacheKey, keys)
}

// FulfillOwned implements [redis.Cache]. go-redis calls it only for replies whose changes the
// server announces.
func (c *copies) FulfillOwned(cacheKey string, token, conn uint64, reply []byte) bool {
	c.tracked.Store(true)
	kept, ok := cacheable(reply)
	if !ok {
		c.Cancel(cacheKey, token)
		return false
	}
	return c.LocalCache.FulfillOwned(cacheKey, token, conn, kept)
}

// cacheable returns the part of an HGETALL reply to keep: all fields except those with a password
// hash. It reports false if nothing may be kept, because the record is not a live entry ("not
// found" must never be stale), or because the reply is too long or malformed.
func cacheable(reply []byte) (kept []byte, ok bool) {
	pairs, rest, ok := cutHeader(reply, '%')
	if !ok || len(reply) > maxReply {
		return nil, false
	}
	body, live := make([]byte, 0, len(rest)), false
	left := pairs
	for range pairs {
		pair := rest
		var name, value []byte
		if name, rest, ok = cutBulk(rest); ok {
			value, rest, ok = cutBulk(rest)
		}
		switch {
		case !ok:
			return nil, false
		case string(name) == store.FieldPassword, string(name) == factor.FieldHash:
			left--
			continue
		case string(name) == store.FieldType:
			live = len(value) > 0
		}
		body = append(body, pair[:len(pair)-len(rest)]...)
	}
	return slices.Concat([]byte("%"+strconv.Itoa(left)+"\r\n"), body), live && len(rest) == 0
}

// cutBulk cuts a bulk string off the RESP in b, and returns its text and what follows it.
func cutBulk(b []byte) (text, rest []byte, ok bool) {
	n, rest, ok := cutHeader(b, '$')
	if !ok || n > len(rest)-2 || string(rest[n:n+2]) != "\r\n" {
		return nil, nil, false
	}
	return rest[:n], rest[n+2:], true
}

// cutHeader cuts the first line off the RESP in b, which must be of the given kind, and returns its
// number and what follows it.
func cutHeader(b []byte, kind byte) (n int, rest []byte, ok bool) {
	line, rest, ok := bytes.Cut(b, []byte("\r\n"))
	if !ok || len(line) < 2 || line[0] != kind {
		return 0, nil, false
	}
	n, err := strconv.Atoi(string(line[1:]))
	return n, rest, err == nil && n >= 0
}
