package password

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"

	"golang.org/x/crypto/bcrypt"

	"github.com/coffeenode/userdb/internal/hashcost"
)

// Costs of bcrypt. Adding 1 to the cost doubles the work.
const (
	defaultCost = 12 // a quarter of a second
	minCost     = 10 // of a new hash
	maxCost     = 15 // of any hash, new or verified: two seconds
)

// Limits on the length of a password in bytes.
const (
	maxBytes         = 72   // for bcrypt
	maxPepperedBytes = 1024 // with a pepper, and for most other algorithms
)

// Options configures a Hasher.
type Options struct {
	// Cost is the bcrypt cost of new hashes, 10 to 15. 0 means 12, and 1 to 9 mean 10.
	Cost int

	// Peppers are secret keys of 16 to 1024 bytes each. New hashes use the first; all can verify.
	// Without peppers, passwords are hashed as they are.
	Peppers [][]byte
}

// Format writes the cost and the number of peppers for every verb, so that no pepper is printed.
func (o Options) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "password.Options{Cost: %d, Peppers: %d}", o.Cost, len(o.Peppers))
}

// LogValue returns the same text as Format, for logs.
func (o Options) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(o)) }

// MarshalText returns the same text as Format, for JSON and other encodings.
func (o Options) MarshalText() ([]byte, error) { return fmt.Append(nil, o), nil }

// A Hasher writes and verifies the password hashes of one type of entry. It is safe for concurrent
// use. The zero Hasher is not usable; call New.
type Hasher struct {
	cost    int
	peppers []pepper
	rounds  atomic.Uint64 // of bcrypt
	foreign atomic.Uint64 // hashes of other algorithms
}

// New returns a Hasher. The error matches ErrOptions if the cost is above 15 or below 0, if a
// pepper has an invalid length, or if two peppers have the same name.
func New(o Options) (*Hasher, error) {
	o.Cost = cmp.Or(o.Cost, defaultCost)
	if o.Cost < 0 || o.Cost > maxCost {
		return nil, fmt.Errorf("%w: bcrypt cost %d is not between 0 and %d", ErrOptions, o.Cost, maxCost)
	}
	peppers, err := newPeppers(o.Peppers)
	if err != nil {
		return nil, err
	}
	return &Hasher{cost: hashcost.Of(max(o.Cost, minCost)), peppers: peppers}, nil
}

func init() { hashcost.Set = func(h hashcost.Hasher, cost int) { h.(*Hasher).cost = cost } }

// Cost returns the bcrypt cost of new hashes.
func (h *Hasher) Cost() int { return h.cost }

// String returns the cost and the number of peppers, but no pepper.
func (h *Hasher) String() string {
	return fmt.Sprintf("bcrypt cost %d, %d peppers", h.cost, len(h.peppers))
}

// Format writes String for every verb, so that even %#v prints no pepper.
func (h *Hasher) Format(f fmt.State, _ rune) { io.WriteString(f, h.String()) }

// Hash returns the text to store for a password. It hashes the bytes of the password unchanged. If
// it returns no error, its duration depends only on the cost.
//
// The error is a *PolicyError if the password has more than 72 bytes (1024 with a pepper), or is a
// shorter password repeated with a NUL byte between the copies, which bcrypt cannot distinguish
// from the shorter one.
func (h *Hasher) Hash(password string) (string, error) {
	d := h.newDigest()
	secret, err := d.secret(password)
	if err != nil {
		return "", err
	}
	h.rounds.Add(1 << h.cost)
	hash, err := bcrypt.GenerateFromPassword(secret, h.cost)
	if err != nil {
		return "", fmt.Errorf("hashing with cost %d: %w", h.cost, err)
	}
	return d.pepper.mark() + string(hash), nil
}

// Hashable returns the error that Hash would return, without hashing.
func (h *Hasher) Hashable(password string) error {
	_, err := h.newDigest().secret(password)
	return err
}

// newDigest returns the digest of a new hash, without the hash itself.
func (h *Hasher) newDigest() digest {
	d := digest{hasher: h, cost: h.cost, max: maxBytes}
	if len(h.peppers) > 0 {
		d.max, d.pepper = maxPepperedBytes, &h.peppers[0]
	}
	return d
}

// Work returns the work done so far: rounds of bcrypt, of which a hash of cost c takes 2 to the
// power of c, and hashes of other algorithms. Tests use it to check that every request does the
// same work, so that response times do not reveal which accounts exist.
func (h *Hasher) Work() (rounds, foreign uint64) {
	return h.rounds.Load(), h.foreign.Load()
}

const (
	minPepper = 16 // bytes; NIST SP 800-63B-4 requires 112 bits
	maxPepper = 1024
	markLen   = 4 // with the mark, a bcrypt hash has 64 bytes, which Redis still stores compactly
)

// A pepper is a secret key and the three characters that identify it.
type pepper struct {
	id  string
	key []byte
}

func newPeppers(keys [][]byte) ([]pepper, error) {
	var all []pepper
	for i, key := range keys {
		if len(key) < minPepper || len(key) > maxPepper {
			return nil, fmt.Errorf("%w: pepper %d has %d bytes, not %d to %d",
				ErrOptions, i+1, len(key), minPepper, maxPepper)
		}
		p := pepper{id: pepperID(key), key: slices.Clone(key)}
		if j := slices.IndexFunc(all, func(q pepper) bool { return q.id == p.id }); j >= 0 {
			return nil, fmt.Errorf("%w: peppers %d and %d have the same name: replace one", ErrOptions, j+1, i+1)
		}
		all = append(all, p)
	}
	return all, nil
}

// pepperID returns three characters that identify a key: 18 bits of a MAC, which do not reveal the
// key. The MAC differs from the one that is applied to passwords.
func pepperID(key []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("name of this pepper"))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))[:markLen-1]
}

// mark returns the prefix of hashes made with p, or "" if p is nil.
func (p *pepper) mark() string {
	if p == nil {
		return ""
	}
	return "p" + p.id
}

// apply returns the 64 characters that bcrypt receives for a password.
func (p *pepper) apply(password []byte) []byte {
	mac := hmac.New(sha512.New384, p.key)
	mac.Write(password)
	return base64.StdEncoding.AppendEncode(nil, mac.Sum(nil))
}
