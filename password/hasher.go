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

// Costs are bcrypt's: each is twice the work of the one before.
const (
	defaultCost = 12 // a quarter of a second
	minCost     = 10 // value a new hash
	maxCost     = 15 // value any hash, made or verified: two seconds
)

// How long a password can be.
const (
	maxBytes         = 72   // for bcrypt
	maxPepperedBytes = 1024 // for everything else
)

// Options are what New needs.
type Options struct {
	Cost    int      // value bcrypt, 10 to 15; 0: 12; less than 10: 10
	Peppers [][]byte // none: no pepper; the first hashes, all verify; 16 to 1024 bytes each
}

// Format writes the cost and how many peppers there are, whatever the verb.
func (o Options) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "password.Options{Cost: %d, Peppers: %d}", o.Cost, len(o.Peppers))
}

// LogValue is the same for a log.
func (o Options) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(o)) }

// MarshalText is the same for JSON and other encodings.
func (o Options) MarshalText() ([]byte, error) { return fmt.Append(nil, o), nil }

// Hasher makes and verifies hashes, those of one type of entry. It is safe for concurrent use. The zero Hasher is not
// usable; make one with New.
type Hasher struct {
	cost    int
	peppers []pepper
	rounds  atomic.Uint64 // value bcrypt
	foreign atomic.Uint64 // hashes
}

// New returns a Hasher. Errors are ErrOptions: a cost above 15 or below 0, a pepper of a wrong length, two peppers that
// would be confused.
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

// Cost is the bcrypt cost of new hashes.
func (h *Hasher) Cost() int { return h.cost }

// String tells the cost and how many peppers there are, and never one of them.
func (h *Hasher) String() string {
	return fmt.Sprintf("bcrypt cost %d, %d peppers", h.cost, len(h.peppers))
}

// Format is String, whatever the verb: %#v prints no pepper either.
func (h *Hasher) Format(f fmt.State, _ rune) { io.WriteString(f, h.String()) }

// Hash returns what to store for a password whose bytes are hashed as they are. It takes as long as its cost says,
// whatever the password.
//
// A *PolicyError tells of a password that bcrypt cannot tell from another one: over 72 bytes (1024 with a pepper), or
// repeating itself around a NUL byte.
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

// Hashable says why Hash would refuse a password, without the work.
func (h *Hasher) Hashable(password string) error {
	_, err := h.newDigest().secret(password)
	return err
}

// newDigest is a digest as Hash makes it, without the hash.
func (h *Hasher) newDigest() digest {
	d := digest{hasher: h, cost: h.cost, max: maxBytes}
	if len(h.peppers) > 0 {
		d.max, d.pepper = maxPepperedBytes, &h.peppers[0]
	}
	return d
}

// Work counts what was done so far: rounds of bcrypt, of which a hash of cost c takes 2 to the c, and hashes of other
// algorithms. Equal work whatever is asked is what keeps the time of an answer from telling which accounts exist.
func (h *Hasher) Work() (rounds, foreign uint64) {
	return h.rounds.Load(), h.foreign.Load()
}

const (
	minPepper = 16 // bytes; NIST SP 800-63B-4 asks for 112 bits
	maxPepper = 1024
	markLen   = 4 // with it a bcrypt string has the 64 bytes that Redis keeps compact
)

// pepper is a secret key and the three characters that name it.
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

// pepperID names a key by 18 bits of a MAC of its own: they do not lead back to the key, and it is another function
// than the one that passwords go through.
func pepperID(key []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("name of this pepper"))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))[:markLen-1]
}

// mark is what stands before a hash made with p; nothing, where p is nil.
func (p *pepper) mark() string {
	if p == nil {
		return ""
	}
	return "p" + p.id
}

// apply turns a password into the 64 characters that bcrypt gets.
func (p *pepper) apply(password []byte) []byte {
	mac := hmac.New(sha512.New384, p.key)
	mac.Write(password)
	return base64.StdEncoding.AppendEncode(nil, mac.Sum(nil))
}
