// Package view is what packages userdb and maintain share of an open store: the records of one namespace, read by one
// schema, and how they are changed.
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
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// A Config is all that a View consists of.
type Config struct {
	Engine store.Engine
	Schema schema.Schema
	NS     recordkey.Namespace
	Log    *slog.Logger
	// Clock is what throttling and tokens go by, too; nil: they go by the server's, all else by OwnClock.
	Clock func() time.Time
	// OwnClock is the clock of this program; nil: time.Now.
	OwnClock func() time.Time
	// Replicas must have a change within ReplicaTime, or it is not confirmed; 0: nobody waits.
	Replicas    int
	ReplicaTime time.Duration
	Hashing     Hashing
	History     bool // changes leave a note
	OnSchema    OnSchema
	// Steps says that changes are made in several steps, between which indexes have members too many.
	Steps bool
}

// Hashing is what package userdb does about passwords.
type Hashing interface {
	// Hash holds a new password to the policy of a type, and hashes it. own are its owner's identifiers.
	Hash(ctx context.Context, t *change.Type, password string, own []string) (string, error)
	// Judge is Hash without the hash: it tells why Hash would refuse a password.
	Judge(ctx context.Context, t *change.Type, password string, own []string) error
	// Of is what makes and verifies the hashes of a type.
	Of(t *change.Type) *password.Hasher
	// PasswordSet does what follows a change that change.SetPassword had a part in.
	PasswordSet(ctx context.Context, t *change.Type, r store.Record)
	// Disabled is PasswordSet for change.Disable.
	Disabled(ctx context.Context, r store.Record)
}

// A View is complete when it is constructed, and safe for concurrent use.
type View struct {
	query.Reader
	Config Config // what New was given
}

// New checks the schema.
func New(c Config) (*View, error) {
	types, err := change.Compile(c.Schema, c.NS)
	if err != nil {
		return nil, err
	}
	return &View{query.Reader{Types: types, Engine: c.Engine}, c}, nil
}

// StoreTime is what throttling and tokens go by; the zero time: the server's clock.
func (v *View) StoreTime() time.Time {
	if v.Config.Clock != nil {
		return v.Config.Clock()
	}
	return time.Time{}
}

// Now is the time of this program, or that of Clock.
func (v *View) Now() time.Time {
	if at := v.StoreTime(); !at.IsZero() {
		return at
	}
	if v.Config.OwnClock != nil {
		return v.Config.OwnClock()
	}
	return time.Now()
}

// Apply lets the engine make a change, and explains what a schema mismatch consists of.
func (v *View) Apply(ctx context.Context, t *change.Type, c store.Change) (rev string, err error) {
	v.complete(ctx, &c)
	rev, err = v.Engine.Apply(ctx, c)
	if guard, may := v.givesUp(ctx, t, c, err); may {
		c.Schema = guard
		rev, err = v.Engine.Apply(ctx, c)
	}
	if err == nil {
		t.SetCompared()
	}
	return rev, explain(t, err)
}

// ApplyAll lets the engine make many changes, each of them all or nothing.
func (v *View) ApplyAll(ctx context.Context, cs []store.Change) []error {
	for i := range cs {
		v.complete(ctx, &cs[i])
	}
	errs := v.Engine.ApplyAll(ctx, cs)
	for i, err := range errs {
		if err != nil {
			t, _ := v.Type(cs[i].Key.Type()) // which has built the change
			errs[i] = explain(t, err)
		}
	}
	return errs
}

// complete adds to a change what the configuration says of all changes.
func (v *View) complete(ctx context.Context, c *store.Change) {
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
	return reply, explain(t, err)
}

// givesUp reports whether a change that was refused because the records have another canonical form does
// nothing but take values away, as they were written: that is right by any form (I1, I2), and the way out
// where two entries would have one value by this program's. The guard is that of the records.
func (v *View) givesUp(ctx context.Context, t *change.Type, c store.Change, err error) (store.Guard, bool) {
	if !Followable(err) || !c.Delete && (len(c.Release) == 0 || len(c.Claim)+len(c.Set) > 0) {
		return store.Guard{}, false
	}
	found, err := store.Hashes(ctx, v.Engine, []string{t.Guard.Key.String()})
	if err != nil {
		return store.Guard{}, false
	}
	stored, err := storedIn(t, found[0])
	guard := t.Guard
	guard.Fingerprint, guard.JSON = stored.Generation, stored.Text
	return guard, err == nil && !stored.UnderWay() && t.Schema.OtherForm(stored.Type)
}

// explain names the difference that a schema mismatch consists of, and what mends it.
func explain(t *change.Type, err error) error {
	mismatch, is := errors.AsType[*store.MismatchError](err)
	if !is {
		return err
	}
	if mismatch.Stored == "" {
		return fmt.Errorf("%w: type %s: the database has entries that no stored schema describes, and only one with fold %q may write to them; "+
			"write with that, or bring them over with 'userdb schema apply'", mismatch, t.Name, schema.FoldExact)
	}
	stored, err := change.ParseType(t.Name, mismatch.Stored)
	if err != nil {
		return fmt.Errorf("%w: type %s: the stored schema cannot be read", mismatch, t.Name)
	}
	difference := t.Schema.Difference(stored)
	mends := "use the stored schema ('userdb schema show'), or bring the records over with 'userdb schema apply'"
	switch {
	case t.Schema.OtherForm(stored):
		mends = "bring the records over with 'userdb schema apply' while no other program writes"
	case difference == "" && t.Guard.JSON == mismatch.Stored:
		difference, mends = "a change of the schema is under way", "'userdb schema apply' goes on with it"
	case difference == "":
		difference, mends = "it was changed meanwhile", "go on by the stored one"
	}
	return fmt.Errorf("%w: type %s: %s; %s", mismatch, t.Name, difference, mends)
}

// Reserved is the namespace of the store's own entries, such as API keys, which callers cannot open.
var Reserved, _ = recordkey.Namespace{}.Sub("~userdb")

// IsReserved reports whether a namespace is that one, or inside it.
func IsReserved(ns recordkey.Namespace) bool {
	return strings.HasPrefix(ns.String(), Reserved.String())
}

// A DB is a *userdb.DB, which this package cannot name: that one imports it.
type DB interface {
	Ping(ctx context.Context) error
	Schema() schema.Schema
}

// Package userdb sets these when it is loaded.
var (
	Of func(DB) *View // the view of a *userdb.DB, by the schema in force as far as it knows
	// FollowIn is the view of a *userdb.DB to go on by after a change of a type was refused that was built by another one; that
	// one, where nothing else is in force.
	FollowIn func(ctx context.Context, db DB, was *View, typ string) (*View, error)
	Like     func(DB, Config) (DB, error) // another *userdb.DB over the same connections
	// Cheapen makes the password hashes of a *userdb.DB, and of the views that are made of it afterwards, cheap: for tests.
	Cheapen func(DB) error
)

// ApplySchema brings the entries of a *userdb.DB to what its program declares more than is stored. Package migrate sets it.
var ApplySchema func(ctx context.Context, db DB) error

// With is Like with a configuration that edit may change: tests set a clock, or another engine.
func With[D DB](db D, edit func(*Config)) (D, error) {
	c := Of(db).Config
	edit(&c)
	other, err := Like(db, c)
	d, _ := other.(D)
	return d, err
}

// Secret is the secret of the view's namespace, in the database as ~/secret; where there is none yet, it stores a new one.
func (v *View) Secret(ctx context.Context) (string, error) {
	key, err := recordkey.Own("secret")
	if err != nil {
		return "", err
	}
	var fresh [32]byte
	rand.Read(fresh[:]) // never fails, says its documentation
	key = key.In(v.Config.NS)
	text, err := v.Engine.Secret(ctx, key, hex.EncodeToString(fresh[:]))
	if raw, bad := hex.DecodeString(text); err == nil && (bad != nil || len(raw) != len(fresh)) {
		err = &store.CorruptError{Key: key.String(), Reason: "not the 64 hexadecimal digits that were made"}
	}
	return text, err
}
