// Package admin keeps what the service needs beside the accounts, such as API keys, operators and
// jobs. They are ordinary entries, of types that this package declares, in a namespace of the store
// that callers cannot open.
package admin

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// Open returns a view of the store's own entries, over the connections of any view of the store.
func Open(db *userdb.DB) (*userdb.DB, error) {
	key, err := declareKey()
	job, jobErr := declareJob()
	if err := errors.Join(err, jobErr); err != nil {
		return nil, err
	}
	return view.Reconfigure(db, func(c *view.Config) {
		c.NS, c.OnSchema, c.History = view.Reserved, view.Later, false
		c.Schema = schema.Schema{Types: map[string]schema.Type{keyType: key, operatorType: declareOperator(), jobType: job}}
	})
}

// CanSee reports whether those who belong to the namespace by, such as operators, may see what
// belongs to the namespace of. They see their own namespace and those inside it; those of the root,
// "", see everything. Both names are in the form that recordkey.ParseNamespace reads.
func CanSee(by, of string) bool {
	outer, err := recordkey.ParseNamespace(by)
	inner, bad := recordkey.ParseNamespace(of)
	return err == nil && bad == nil && strings.HasPrefix(inner.String(), outer.String())
}

// namespaceOf returns the namespace of a view.
func namespaceOf(db *userdb.DB) string { return view.Of(db).NS.Path() }

// RecordEvent puts an event into the feed of db's namespace, whether or not histories are kept:
// something that an operator did, or that was done to one. about names what it concerns.
func RecordEvent(ctx context.Context, db *userdb.DB, kind userdb.EventKind, about string) error {
	return view.Of(db).NoteAct(ctx, kind, recordkey.Key{}, about)
}

// ActAs calls RecordEvent on behalf of an operator or, if operator is "", of somebody who is not
// signed in. What they did stands even if that fails: ActAs then only logs a warning.
func ActAs(ctx context.Context, db *userdb.DB, operator, origin string, kind userdb.EventKind, about string) {
	who := view.Actor{Name: view.OperatorPrefix + operator, Origin: origin}
	if operator == "" {
		who.Name = "visitor"
	}
	ctx = view.WithActor(ctx, who)
	if err := RecordEvent(ctx, db, kind, about); err != nil {
		view.Of(db).WarnMissing(ctx, kind, err)
	}
}

// CheckWritable checks that the store accepts writes. It writes a record without content that
// expires after a second.
func CheckWritable(ctx context.Context, db *userdb.DB) error {
	v := view.Of(db)
	key, err := recordkey.Own("ready")
	if err == nil {
		_, err = v.Engine.Limit(ctx, store.Limit{Counter: key.In(view.Reserved), Max: math.MaxInt32, Window: time.Second})
	}
	return err
}
