package single

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
)

const (
	probe    = "~/cache" // a record of the store's own that nobody writes
	longCopy = 16 << 10  // bytes of the longest reply that is kept
)

// copies keeps replies to HGETALL for go-redis, which fills it and takes out what the server says has
// changed, or what it will not hear about any more. What is kept is fit to be kept: entries, without
// their passwords' hashes. Safe for concurrent use.
type copies struct {
	*redis.LocalCache
	prefix atomic.Pointer[string] // what go-redis puts before a key; nil: it has not asked yet
	told   atomic.Bool            // there was a reply of which a change would be heard
}

var _ redis.Cache = (*copies)(nil)

func newCopies(c store.Cache) *copies {
	return &copies{LocalCache: redis.NewLocalCache(redis.CacheConfig{MaxEntries: c.Entries, MaxStaleness: c.Age})}
}

// forget takes out the copy of a record. A reply that is under way is not kept either: it may be from
// before. So whoever asks from now on gets what the server has now.
func (c *copies) forget(key string) {
	if prefix := c.prefix.Load(); prefix != nil {
		c.DeleteByRedisKey(*prefix + key)
	}
}

// Reserve implements [redis.Cache]. The first record asked for is the probe, which shows how go-redis
// calls a key.
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

// fit is a reply to HGETALL as it is kept. It is false for one that is not: no live entry, for "not
// found" must never be old; one that is too long; or no reply of that form at all.
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
