package serve

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/coffeenode/userdb/internal/own"
	"github.com/coffeenode/userdb/userdb"
)

// keyAge is how long a key is trusted after it was read. A revocation therefore takes effect
// everywhere within this time.
const keyAge = 4 * time.Second

// Limits on wrong keys. An origin that sends more than wrongKeys of them within wrongsWindow is
// told to wait. Valid keys are accepted at any time. Counts of at most mostOrigins origins are
// kept.
const (
	wrongKeys    = 20
	mostOrigins  = 10_000
	wrongsWindow = time.Minute
)

// A keyring caches API keys by the hashes of their secrets.
type keyring struct {
	keys    *own.Keys
	lookups *budget // limits lookups of keys that are not cached

	mu    sync.Mutex
	known map[string]knownKey // by the hash of the secret
	wrong map[string]int      // how many, by origin, since began
	began time.Time

	now func() time.Time
}

type knownKey struct {
	own.Key
	read time.Time
}

func newKeyring(db *userdb.DB, lookups *budget) (*keyring, error) {
	keys, err := own.KeysOf(db)
	return &keyring{keys: keys, lookups: lookups, known: map[string]knownKey{}, wrong: map[string]int{}, now: time.Now}, err
}

var errWrongKey = problem(userdb.CodeKey, "the request has no valid API key: create one with 'userdb apikey create', and send it as Authorization: Bearer KEY")

// of returns the key in the Authorization header of a request.
func (k *keyring) of(ctx context.Context, header, origin string) (own.Key, error) {
	scheme, secret, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") || secret == "" || len(secret) > 200 {
		return own.Key{}, k.refused(origin)
	}
	hash, now := own.Hash(strings.TrimSpace(secret)), k.now()
	k.mu.Lock()
	known, has := k.known[hash]
	k.mu.Unlock()
	if !has || now.Sub(known.read) > keyAge {
		limited, cancel := within(ctx)
		defer cancel()
		if !has {
			leave, err := k.lookups.take(limited)
			if err != nil {
				return own.Key{}, err
			}
			defer leave()
		}
		key, err := k.keys.Find(limited, hash)
		if err != nil && !errors.Is(err, userdb.ErrNotFound) {
			return own.Key{}, err
		}
		k.mu.Lock()
		if err != nil {
			delete(k.known, hash)
		} else {
			known = knownKey{key, now}
			k.known[hash] = known
		}
		k.mu.Unlock()
		if err != nil {
			return own.Key{}, k.refused(origin)
		}
	}
	if !known.Good(now) {
		return own.Key{}, k.refused(origin)
	}
	return known.Key, nil
}

// refused counts a wrong key and returns the error to respond with.
func (k *keyring) refused(origin string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	if now.Sub(k.began) > wrongsWindow || len(k.wrong) >= mostOrigins {
		k.wrong, k.began = map[string]int{}, now
	}
	k.wrong[origin]++
	if k.wrong[origin] <= wrongKeys {
		return errWrongKey
	}
	return problem(userdb.CodeThrottled, "too many wrong keys from this address").retry(int64(wrongsWindow.Seconds()))
}
