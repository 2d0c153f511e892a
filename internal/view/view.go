// Package view provides the open store that packages userdb and maintain share: the records of one
// namespace under one schema, with the methods that change them.
package view

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/query"
	"github.com/coffeenode/userdb/internal/sealed"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// A Config holds the settings of a View.
type Config struct {
	Engine store.Engine
	Schema schema.Schema
	NS     recordkey.Namespace
	Log    *slog.Logger
	// Clock returns the current time. If it is nil, throttling and tokens use the server's clock,
	// and everything else uses OwnClock.
	Clock func() time.Time
	// OwnClock returns the time by the clock of this program. If nil, time.Now is used.
	OwnClock func() time.Time
	// Replicas is the number of replicas that must receive a change within ReplicaTime for the
	// change to be confirmed. If zero, no change waits for replicas.
	Replicas    int
	ReplicaTime time.Duration
	Hashing     Hashing
	Keys        sealed.Ring // encrypts the secrets of second factors
	History     bool        // changes leave notes in histories
	OnSchema    OnSchema
	// Builtin says that Schema is not the program's own. If another schema is stored, the program
	// uses it as if it had declared it.
	Builtin bool
	// Steps says that the engine makes changes in several steps, between which indexes may have
	// extra members.
	Steps bool
}

// Hashing hashes and checks passwords. Package userdb implements it.
type Hashing interface {
	// Hash checks a new password against the policy of a type, and returns its hash. own holds the
	// owner's identifiers.
	Hash(ctx context.Context, t *change.Type, password string, own []string) (string, error)
	// Check returns the error that Hash would return, without computing the hash.
	Check(ctx context.Context, t *change.Type, password string, own []string) error
	// Matches reports whether a password matches a stored hash, which an import may have written. A
	// hash that cannot be verified matches nothing. The error says why nothing was compared.
	Matches(ctx context.Context, t *change.Type, hash string, imported bool, password string) (bool, error)
	// HasherFor returns the hasher that makes and verifies the hashes of a type.
	HasherFor(t *change.Type) *password.Hasher
	// PasswordSet is called after a change made with change.SetPassword.
	PasswordSet(ctx context.Context, t *change.Type, r store.Record)
	// Disabled is called after a change made with change.Disable.
	Disabled(ctx context.Context, r store.Record)
}

// A View is an open store as packages userdb and maintain use it. It does not change after New, and
// is safe for concurrent use.
type View struct {
	query.Reader
	Config Config // as passed to New
}

// New checks the schema and returns a view.
func New(c Config) (*View, error) {
	types, err := change.Compile(c.Schema, c.NS)
	if err != nil {
		return nil, err
	}
	if IsReserved(c.NS) { // only this program writes there, and it stores the schema first
		for _, t := range types.ByName {
			t.Guard.MayStore = true
		}
	}
	return &View{query.Reader{Types: types, Engine: c.Engine}, c}, nil
}

// StoreTime returns the time that throttling and tokens use. The zero time stands for the server's
// clock.
func (v *View) StoreTime() time.Time {
	if v.Config.Clock != nil {
		return v.Config.Clock()
	}
	return time.Time{}
}

// Now returns the time by Clock or, without one, by the clock of this program.
func (v *View) Now() time.Time {
	if at := v.StoreTime(); !at.IsZero() {
		return at
	}
	if v.Config.OwnClock != nil {
		return v.Config.OwnClock()
	}
	return time.Now()
}

// Apply makes a change. If the schema does not match, its error says what differs.
func (v *View) Apply(ctx context.Context, t *change.Type, c store.Change) (rev string, err error) {
	v.applyConfig(ctx, &c)
	rev, err = v.Engine.Apply(ctx, c)
	if guard, allowed := v.releaseGuard(ctx, t, c, err); allowed {
		c.Schema = guard
		rev, err = v.Engine.Apply(ctx, c)
	}
	if err == nil {
		t.SetCompared()
	}
	return rev, explainMismatch(t, err)
}

// ApplyAll makes many changes, each completely or not at all.
func (v *View) ApplyAll(ctx context.Context, cs []store.Change) []error {
	for i := range cs {
		v.applyConfig(ctx, &cs[i])
	}
	errs := v.Engine.ApplyAll(ctx, cs)
	for i, err := range errs {
		if err != nil {
			t, _ := v.Type(cs[i].Key.Type()) // this type built the change
			errs[i] = explainMismatch(t, err)
		}
	}
	return errs
}

// applyConfig sets the fields of a change that come from the configuration.
func (v *View) applyConfig(ctx context.Context, c *store.Change) {
	v.findDropped(ctx, c)
	c.Note = v.noteChange(ctx, c)
	c.Tokens.Now = v.StoreTime()
	c.Replicas, c.ReplicaTime = v.Config.Replicas, v.Config.ReplicaTime
}

// Tertiary runs a command on a tertiary record.
func (v *View) Tertiary(ctx context.Context, t *change.Type, op store.Op) (store.Reply, error) {
	op.Schema = t.Guard
	if op.Write {
		op.Note = v.Note(ctx, "tags", "", op.Key.Name())
	}
	reply, err := v.Engine.Tertiary(ctx, op)
	return reply, explainMismatch(t, err)
}

// releaseGuard returns the guard with which to repeat a refused change. It reports true only if the
// change was refused because the records have another canonical form, and if the change is a delete
// or only removes stored values. Removing stored values is correct under any form (I1, I2), and it
// resolves the case of two entries that would have the same value under this program's form.
func (v *View) releaseGuard(ctx context.Context, t *change.Type, c store.Change, err error) (store.Guard, bool) {
	if !IsSchemaChanged(err) || !c.Delete && (len(c.Release) == 0 || len(c.Claim)+len(c.Set) > 0) {
		return store.Guard{}, false
	}
	found, err := store.Hashes(ctx, v.Engine, []string{t.Guard.Key.String()})
	if err != nil {
		return store.Guard{}, false
	}
	stored, err := parseStored(t, found[0])
	guard := t.Guard
	guard.Fingerprint, guard.JSON = stored.Generation, stored.Text
	return guard, err == nil && !stored.ChangeUnderWay() && t.Schema.HasOtherForm(stored.Type)
}

// explainMismatch returns err. If err is a schema mismatch, it adds the difference and the remedy.
func explainMismatch(t *change.Type, err error) error {
	mismatch, ok := errors.AsType[*store.MismatchError](err)
	if !ok {
		return err
	}
	if mismatch.Stored == "" {
		return fmt.Errorf("%w: type %s: the database has entries that no stored schema describes, and only a schema with fold %q and without ordered fields may write to them; "+
			"use such a schema, or bring them over with 'userdb schema apply'", mismatch, t.Name, schema.FoldExact)
	}
	stored, err := change.ParseType(t.Name, mismatch.Stored)
	if err != nil {
		return fmt.Errorf("%w: type %s: the stored schema cannot be read", mismatch, t.Name)
	}
	difference := t.Schema.Difference(stored)
	remedy := "use the stored schema ('userdb schema show'), or convert the records with 'userdb schema apply'"
	switch {
	case t.Schema.HasOtherForm(stored):
		remedy = "convert the records with 'userdb schema apply' while no other program writes"
	case difference == "" && t.Guard.JSON == mismatch.Stored:
		difference, remedy = "a change of the schema is under way", "'userdb schema apply' continues it"
	case difference == "":
		difference, remedy = "it was changed in the meantime", "continue with the stored one"
	}
	return fmt.Errorf("%w: type %s: %s; %s", mismatch, t.Name, difference, remedy)
}

// Reserved is the namespace of the store's own entries, such as API keys. Callers cannot open it.
var Reserved, _ = recordkey.Namespace{}.Sub("~userdb")

// IsReserved reports whether ns is Reserved or inside it.
func IsReserved(ns recordkey.Namespace) bool {
	return strings.HasPrefix(ns.String(), Reserved.String())
}

// A DB is a *userdb.DB. This package cannot name that type, since package userdb imports this one.
type DB interface {
	Ping(ctx context.Context) error
	Schema() schema.Schema
	internals() Hooks // implemented only by embedding a Handle
}

// Hooks are the methods of a *userdb.DB that only the packages of this module can call.
type Hooks interface {
	// View returns the view under the schema in force, as far as the DB knows it.
	View() *View
	// Refresh returns the view with which to retry a refused change of a type. old is the view that
	// built the change; Refresh returns it if no other schema is in force.
	Refresh(ctx context.Context, old *View, typ string) (*View, error)
	// RefreshForRead does the same as Refresh for a caller that only reads. It stores nothing.
	RefreshForRead(ctx context.Context, old *View, typ string) (*View, error)
	// WithConfig returns another *userdb.DB over the same connections.
	WithConfig(Config) (DB, error)
	// UseCheapHashes makes the password hashes of the DB cheap, and those of DBs made from it
	// later. It is for tests, and for the tour of the command.
	UseCheapHashes() error
	// DeriveKeys returns a key of 32 bytes for each of Options.Keys, derived from it for a purpose.
	DeriveKeys(purpose string) [][]byte
}

// A Handle makes the Hooks of the DB that embeds it reachable from this package only.
type Handle struct{ hooks Hooks }

// NewHandle returns a Handle for a DB to embed.
func NewHandle(h Hooks) Handle { return Handle{h} }

func (h Handle) internals() Hooks { return h.hooks }

var _ interface{ internals() Hooks } = Handle{} // a DB has it by embedding a Handle

// HooksOf returns the hooks of a *userdb.DB.
func HooksOf(db DB) Hooks { return db.internals() }

// Of returns the view of a *userdb.DB under the schema in force, as far as the DB knows it.
func Of(db DB) *View { return db.internals().View() }

// Reconfigure calls edit with a copy of the DB's configuration. It returns another DB that has the
// edited configuration and uses the same connections. Tests use it to set a clock or another
// engine.
func Reconfigure[D DB](db D, edit func(*Config)) (D, error) {
	c := Of(db).Config
	edit(&c)
	other, err := db.internals().WithConfig(c)
	d, _ := other.(D)
	return d, err
}

// secretBytes is the length of a namespace's secret.
const secretBytes = 32

// Secret returns the secret of the view's namespace, which is stored at ~/secret. If none is
// stored, it stores last, the result of an earlier call. If last is also "", it stores a new one.
func (v *View) Secret(ctx context.Context, last string) (string, error) {
	key, err := recordkey.Own("secret")
	if err != nil {
		return "", err
	}
	if last == "" {
		var fresh [secretBytes]byte
		rand.Read(fresh[:]) // never fails, according to its documentation
		last = hex.EncodeToString(fresh[:])
	}
	key = key.In(v.Config.NS)
	text, err := v.Engine.Secret(ctx, key, last)
	if raw, bad := hex.DecodeString(text); err == nil && (bad != nil || len(raw) != secretBytes) {
		err = &store.CorruptError{Key: key.String(), Reason: "not 64 hexadecimal digits"}
	}
	return text, err
}
