package serve

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// Limits on wrong keys. To an origin that sends more than maxWrongKeys of them within
// wrongKeyWindow, the service responds with code throttled. Valid keys are accepted at any time.
// When maxOrigins origins have been counted, counting starts again for all of them.
const (
	maxWrongKeys   = 20
	maxOrigins     = 10_000
	wrongKeyWindow = time.Minute
)

// A keyCache holds API keys by the hashes of their secrets.
type keyCache struct {
	keys    *admin.Keys
	lookups *budget // limits lookups of keys that are not cached

	mu          sync.Mutex
	cached      map[string]cachedKey // by the hash of the secret
	failures    map[string]int       // wrong keys since windowStart, by origin
	windowStart time.Time

	now func() time.Time
}

type cachedKey struct {
	admin.Key
	readAt time.Time
}

func newKeyCache(db *userdb.DB, lookups *budget) (*keyCache, error) {
	keys, err := admin.OpenKeys(db)
	return &keyCache{keys: keys, lookups: lookups, cached: map[string]cachedKey{}, failures: map[string]int{}, now: time.Now}, err
}

var errWrongKey = problem(userdb.CodeKey, "the request has no valid API key: create one with 'userdb apikey create', and send it as Authorization: Bearer KEY")

// find returns the valid key in the Authorization header of a request. If there is none, it counts
// that as a wrong key of the origin.
func (k *keyCache) find(ctx context.Context, header, origin string) (admin.Key, error) {
	key, err := k.lookUp(ctx, header, k.lookups)
	if errors.Is(err, userdb.ErrNotFound) {
		return admin.Key{}, k.reject(origin)
	}
	return key, err
}

// recheck returns errWrongKey if a key that was valid no longer is. It returns nil if the store
// does not answer. It takes no slot for its lookup, so that the lookups of others cannot delay it.
func (k *keyCache) recheck(ctx context.Context, header string) error {
	if _, err := k.lookUp(ctx, header, nil); errors.Is(err, userdb.ErrNotFound) {
		return errWrongKey
	}
	return nil
}

// lookUp returns the valid key in a header, or ErrNotFound. For a key that is not cached, it takes
// a slot from lookups, unless lookups is nil.
func (k *keyCache) lookUp(ctx context.Context, header string, lookups *budget) (admin.Key, error) {
	scheme, secret, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") || secret == "" || len(secret) > 200 {
		return admin.Key{}, userdb.ErrNotFound
	}
	hash, now := admin.Hash(strings.TrimSpace(secret)), k.now()
	k.mu.Lock()
	cached, has := k.cached[hash]
	k.mu.Unlock()
	if !has || now.Sub(cached.readAt) > admin.KeyMaxAge {
		limited, cancel := withStoreTimeout(ctx)
		defer cancel()
		if !has && lookups != nil {
			leave, err := lookups.take(limited)
			if err != nil {
				return admin.Key{}, err
			}
			defer leave()
		}
		key, err := k.keys.Find(limited, hash)
		if err != nil && !errors.Is(err, userdb.ErrNotFound) {
			return admin.Key{}, err
		}
		k.mu.Lock()
		if err != nil {
			delete(k.cached, hash)
		} else {
			cached = cachedKey{key, now}
			k.cached[hash] = cached
		}
		k.mu.Unlock()
		if err != nil {
			return admin.Key{}, err
		}
	}
	if !cached.Valid(now) {
		return admin.Key{}, userdb.ErrNotFound
	}
	return cached.Key, nil
}

// reject counts a wrong key and returns the error to respond with.
func (k *keyCache) reject(origin string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	if now.Sub(k.windowStart) > wrongKeyWindow || len(k.failures) >= maxOrigins {
		k.failures, k.windowStart = map[string]int{}, now
	}
	k.failures[origin]++
	if k.failures[origin] <= maxWrongKeys {
		return errWrongKey
	}
	return problem(userdb.CodeThrottled, "too many wrong keys from this address").withRetryAfter(int64(wrongKeyWindow.Seconds()))
}
