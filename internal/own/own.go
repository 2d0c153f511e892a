// Package own keeps what the service needs besides the accounts, such as API keys, operators and jobs. They are entries like all others, of types
// declared here, in a namespace of the store that callers cannot open.
package own

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

// Open is a view of the store's own entries, over the connections of any view of the store.
func Open(db *userdb.DB) (*userdb.DB, error) {
	key, err := declareKey()
	job, jobErr := declareJob()
	if err := errors.Join(err, jobErr); err != nil {
		return nil, err
	}
	return view.With(db, func(c *view.Config) {
		c.NS, c.OnSchema, c.History = view.Reserved, view.Later, false
		c.Schema = schema.Schema{Types: map[string]schema.Type{keyType: key, operatorType: declareOperator(), jobType: job}}
	})
}

// Sees reports whether those of the namespace by, such as operators, see what belongs to the namespace of: their own, and those
// within it. Those of the root, "", see all. Both are as recordkey.ParseNamespace reads them.
func Sees(by, of string) bool {
	outer, err := recordkey.ParseNamespace(by)
	inner, bad := recordkey.ParseNamespace(of)
	return err == nil && bad == nil && strings.HasPrefix(inner.String(), outer.String())
}

// namespaceOf returns the namespace of a view.
func namespaceOf(db *userdb.DB) string { return view.Of(db).NS.Path() }

// Act tells in the feed of a view's namespace what an operator did, or what was done about one, whether or not histories are kept. about
// names what it was done to.
func Act(ctx context.Context, db *userdb.DB, kind userdb.EventKind, about string) error {
	return view.Of(db).Act(ctx, kind, recordkey.Key{}, about)
}

// ActAs calls Act for an operator; "": for somebody who is not signed in.
func ActAs(ctx context.Context, db *userdb.DB, operator, origin string, kind userdb.EventKind, about string) error {
	who := view.Actor{Who: view.OperatorPrefix + operator, Origin: origin}
	if operator == "" {
		who.Who = "visitor"
	}
	ctx = view.WithActor(ctx, who)
	return Act(ctx, db, kind, about)
}

// Ready asks the store to write something, which says nothing and is gone after a second.
func Ready(ctx context.Context, db *userdb.DB) error {
	v := view.Of(db)
	key, err := recordkey.Own("ready")
	if err == nil {
		_, err = v.Engine.Limit(ctx, store.Limit{Counter: key.In(view.Reserved), Most: math.MaxInt32, Window: time.Second})
	}
	return err
}
