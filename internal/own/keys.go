package own

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
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

// Scopes are what a key may do; ScopeAdmin is all of it.
const (
	ScopeRead  = "read"
	ScopeWrite = "write"
	ScopeLogin = "login"
	ScopeSCIM  = "scim"
	ScopeAdmin = "admin"
)

// Scopes are all of them.
var Scopes = []string{ScopeRead, ScopeWrite, ScopeLogin, ScopeSCIM, ScopeAdmin}

// MostKeys is how many keys a store has.
const MostKeys = 1000

// secretPrefix is how the secret of a key begins, so that those who find one know what it is.
const secretPrefix = "udb_"

const keyType = "key"

// A Key is what lets a backend in. Its secret is not kept.
type Key struct {
	Hash      string    `userdb:"hash,primary"` // of the secret
	Name      string    `userdb:"name,secondary,ordered,required"`
	Scopes    []string  `userdb:"scopes"`
	Types     []string  `userdb:"types"`     // none: all
	Namespace string    `userdb:"namespace"` // which it is for and belongs to, as recordkey.ParseNamespace reads it
	Expires   time.Time `userdb:"expires"`   // zero: never
	By        string    `userdb:"by"`        // who made it, such as "operator:Olga"; "": not known, as Made
	Made      time.Time `userdb:"made"`
}

// ErrKey says what is wrong with a key that is to be made.
var ErrKey = coded.New(userdb.CodeUsage, "no such key can be")

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

// May reports whether the key has a scope.
func (k Key) May(scope string) bool {
	return slices.Contains(k.Scopes, scope) || slices.Contains(k.Scopes, ScopeAdmin)
}

// Sees reports whether the key may see a type.
func (k Key) Sees(typ string) bool { return len(k.Types) == 0 || slices.Contains(k.Types, typ) }

// Good reports whether the key has not expired.
func (k Key) Good(now time.Time) bool { return k.Expires.IsZero() || now.Before(k.Expires) }

// Keys are the API keys of a store, as those of a namespace see them. They are safe for concurrent use.
type Keys struct {
	all   *userdb.Type
	typed *userdb.Typed[Key]
	ns    string
}

// KeysOf returns the keys that those of the namespace of a view see.
func KeysOf(db *userdb.DB) (*Keys, error) {
	own, err := Open(db)
	if err != nil {
		return nil, err
	}
	t, err := own.Type(keyType)
	if err != nil {
		return nil, err
	}
	typed, err := userdb.Of[Key](t)
	return &Keys{t, typed, namespaceOf(db)}, err
}

// As returns the keys that those of another namespace see.
func (ks *Keys) As(ns string) *Keys { return &Keys{ks.all, ks.typed, ns} }

// Create makes a key, and returns its secret: 160 random bits after "udb_". The hash of k, its maker, which is the actor of the context, and
// its time are set here.
func (ks *Keys) Create(ctx context.Context, k Key) (secret string, err error) {
	if err := k.check(); err != nil {
		return "", err
	}
	n, err := ks.all.Count(ctx, userdb.Query{Order: "name"})
	if err != nil {
		return "", err
	}
	if n.Entries >= MostKeys {
		return "", fmt.Errorf("%w: the store has %d, and no more are kept: revoke some", ErrKey, MostKeys)
	}
	secret = secretPrefix + strings.ToLower(rand.Text()[:26]) + strings.ToLower(rand.Text()[:6])
	k.Hash, k.By, k.Made = Hash(secret), view.ActorOf(ctx).Who, time.Now().UTC().Truncate(time.Second)
	_, err = ks.typed.Create(ctx, k)
	return secret, err
}

func (k Key) check() error {
	if len(k.Scopes) == 0 {
		return fmt.Errorf("%w: it has no scope; there are %s", ErrKey, strings.Join(Scopes, ", "))
	}
	for _, scope := range k.Scopes {
		if !slices.Contains(Scopes, scope) {
			return fmt.Errorf("%w: scope %q; there are %s", ErrKey, scope, strings.Join(Scopes, ", "))
		}
	}
	_, err := recordkey.ParseNamespace(k.Namespace)
	return err
}

// Find is the key whose secret has the hash, of any namespace, also one that has expired; else ErrNotFound.
func (ks *Keys) Find(ctx context.Context, hash string) (Key, error) {
	return ks.typed.Find(ctx, hints.UID(hash))
}

// All are the keys, by their names.
func (ks *Keys) All(ctx context.Context) (all []Key, err error) {
	for k, err := range ks.typed.All(ctx, userdb.Query{Order: "name"}) {
		if err != nil {
			return nil, err
		}
		if Sees(ks.ns, k.Namespace) {
			all = append(all, k)
		}
	}
	return all, nil
}

// MadeBy returns the keys that an operator made in the console.
func (ks *Keys) MadeBy(ctx context.Context, operator string) ([]Key, error) {
	all, err := ks.All(ctx)
	return slices.DeleteFunc(all, func(k Key) bool { return k.By != view.OperatorPrefix+operator }), err
}

// Revoke ends the key of a name. Services that run hold to that within five seconds.
func (ks *Keys) Revoke(ctx context.Context, name string) error {
	k, err := ks.typed.Find(ctx, hints.Field("name", name))
	if err != nil {
		return err
	}
	if !Sees(ks.ns, k.Namespace) {
		return userdb.ErrNotFound
	}
	return ks.all.Delete(ctx, hints.UID(k.Hash))
}

// Hash is what is kept of a secret. It is long enough that nobody can try all: a slow hash would add nothing.
func Hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}
