package admin

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/coded"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// Scopes say what a key may do. ScopeAdmin includes all others.
const (
	ScopeRead  = "read"
	ScopeWrite = "write"
	ScopeLogin = "login"
	ScopeSCIM  = "scim"
	ScopeAdmin = "admin"
)

// Scopes lists all scopes.
var Scopes = []string{ScopeRead, ScopeWrite, ScopeLogin, ScopeSCIM, ScopeAdmin}

// MaxKeys is the maximum number of keys of one namespace.
const MaxKeys = 1000

var maxKeys = MaxKeys // tests lower it

// secretPrefix begins the secret of every key, so that people and scanners recognize a leaked one.
const secretPrefix = "udb_"

const keyType = "key"

// A Key is an API key. It lets a program use the service. The store keeps only a hash of its
// secret.
type Key struct {
	Hash   string   `userdb:"hash,primary"` // of the secret
	Name   string   `userdb:"name,secondary,ordered,required"`
	Scopes []string `userdb:"scopes"`
	Types  []string `userdb:"types"` // the types that it may see; empty means all
	// Namespace is the namespace that the key belongs to and gives access to, in the form that
	// recordkey.ParseNamespace reads.
	Namespace string    `userdb:"namespace"`
	Expires   time.Time `userdb:"expires"` // zero means never
	CreatedBy string    `userdb:"by"`      // who made it, such as "operator:Olga"; "" if unknown
	CreatedAt time.Time `userdb:"made"`    // zero if unknown
}

var (
	// ErrKey means that a key cannot be made; an error that wraps it says why.
	ErrKey = coded.New(userdb.CodeUsage, "the key cannot be made")
	// ErrTooManyKeys means that a namespace has MaxKeys keys.
	ErrTooManyKeys = coded.New(userdb.CodeUsage, fmt.Sprintf("the namespace has %d keys, the most it can have; revoke some first", MaxKeys))
)

func declareKey() (schema.Type, error) {
	t, err := schema.From[Key]()
	if err != nil {
		return t, err
	}
	t.Fold = schema.FoldCasefold
	name := t.Fields["name"]
	name.Pattern = `^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`
	t.Fields["name"] = name
	return t, nil
}

// HasScope reports whether the key has the given scope, or ScopeAdmin, which includes all others.
func (k Key) HasScope(scope string) bool {
	return slices.Contains(k.Scopes, scope) || slices.Contains(k.Scopes, ScopeAdmin)
}

// CanSee reports whether the key may see a type.
func (k Key) CanSee(typ string) bool { return len(k.Types) == 0 || slices.Contains(k.Types, typ) }

// Valid reports whether the key has not expired.
func (k Key) Valid(now time.Time) bool { return k.Expires.IsZero() || now.Before(k.Expires) }

// Keys holds the API keys of a store, as seen from one namespace. It is safe for concurrent use.
type Keys struct {
	all       *userdb.Type
	typed     *userdb.Typed[Key]
	operators *userdb.Type
	ns        string
}

// OpenKeys returns the keys that can be seen from the namespace of db.
func OpenKeys(db *userdb.DB) (*Keys, error) {
	adminDB, err := Open(db)
	if err != nil {
		return nil, err
	}
	t, err := adminDB.Type(keyType)
	if err != nil {
		return nil, err
	}
	operators, err := adminDB.Type(operatorType)
	if err != nil {
		return nil, err
	}
	typed, err := userdb.Of[Key](t)
	return &Keys{t, typed, operators, namespaceOf(db)}, err
}

// In returns the keys as seen from another namespace.
func (ks *Keys) In(ns string) *Keys { return &Keys{ks.all, ks.typed, ks.operators, ns} }

// Create makes a key and returns its secret: "udb_" followed by 160 random bits. It sets the hash
// of k, the time at which k is made, and who makes it: the actor of the context. If the maker is an
// operator who has been disabled or has been given another password, Create leaves no key and
// returns ErrOperatorDisabled.
func (ks *Keys) Create(ctx context.Context, k Key) (secret string, err error) {
	if err := k.check(); err != nil {
		return "", err
	}
	if err := ks.checkNumber(ctx, k.Namespace); err != nil {
		return "", err
	}
	secret = secretPrefix + strings.ToLower(rand.Text()[:26]) + strings.ToLower(rand.Text()[:6])
	k.Hash, k.CreatedBy, k.CreatedAt = Hash(secret), view.ActorOf(ctx).Name, time.Now().UTC().Truncate(time.Second)
	if _, err = ks.typed.Create(ctx, k); err != nil {
		return "", err
	}
	if name, ok := strings.CutPrefix(k.CreatedBy, view.OperatorPrefix); ok {
		if err = checkOperator(ctx, ks.operators, name); err != nil {
			return "", errors.Join(err, ks.delete(ctx, k))
		}
	}
	return secret, nil
}

// checkNumber returns ErrTooManyKeys if a namespace cannot have another key.
func (ks *Keys) checkNumber(ctx context.Context, ns string) error {
	n, err := ks.all.Count(ctx, userdb.Query{Order: "name"})
	if err != nil || n.Entries < int64(maxKeys) {
		return err
	}
	keys := 0
	for k, err := range ks.typed.All(ctx, userdb.Query{Order: "name"}) {
		if err != nil {
			return err
		}
		if k.Namespace == ns {
			keys++
		}
	}
	if keys >= maxKeys {
		return ErrTooManyKeys
	}
	return nil
}

func (k Key) check() error {
	if len(k.Scopes) == 0 {
		return fmt.Errorf("%w: it has no scope; the scopes are %s", ErrKey, strings.Join(Scopes, ", "))
	}
	for _, scope := range k.Scopes {
		if !slices.Contains(Scopes, scope) {
			return fmt.Errorf("%w: unknown scope %q; the scopes are %s", ErrKey, scope, strings.Join(Scopes, ", "))
		}
	}
	_, err := recordkey.ParseNamespace(k.Namespace)
	return err
}

// Find returns the key whose secret has the given hash, in any namespace and even if it has
// expired. It returns ErrNotFound if there is none.
func (ks *Keys) Find(ctx context.Context, hash string) (Key, error) {
	return ks.typed.Find(ctx, hints.UID(hash))
}

// All returns the keys, sorted by name.
func (ks *Keys) All(ctx context.Context) (all []Key, err error) {
	for k, err := range ks.typed.All(ctx, userdb.Query{Order: "name"}) {
		if err != nil {
			return nil, err
		}
		if CanSee(ks.ns, k.Namespace) {
			all = append(all, k)
		}
	}
	return all, nil
}

// MadeBy returns the keys that an operator made in the console.
func (ks *Keys) MadeBy(ctx context.Context, operator string) ([]Key, error) {
	all, err := ks.All(ctx)
	return slices.DeleteFunc(all, func(k Key) bool { return k.CreatedBy != view.OperatorPrefix+operator }), err
}

// Revoke deletes the key with a name. Running services stop accepting it within five seconds.
func (ks *Keys) Revoke(ctx context.Context, name string) error {
	k, err := ks.typed.Find(ctx, hints.Field("name", name))
	if err != nil {
		return err
	}
	if !CanSee(ks.ns, k.Namespace) {
		return userdb.ErrNotFound
	}
	return ks.all.Delete(ctx, hints.UID(k.Hash))
}

// delete deletes a key that was just made, even if ctx has ended. It returns nil if somebody has
// revoked the key meanwhile.
func (ks *Keys) delete(ctx context.Context, k Key) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	err := ks.all.Delete(ctx, hints.UID(k.Hash))
	if errors.Is(err, userdb.ErrNotFound) {
		return nil
	}
	return err
}

// undoTimeout limits the work to undo a refused key, link or job.
const undoTimeout = 10 * time.Second

// Hash returns the hash that the store keeps of a secret. A slow hash would add nothing, because
// nobody can guess a secret of this length.
func Hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}
