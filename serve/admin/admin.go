// Package admin keeps what the service stores in addition to accounts: API keys, operators, jobs,
// the links that operators made, settings, and the groups of directories. They are ordinary entries
// of types that this package declares, in namespaces of the store that callers cannot open.
package admin

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/store/throttle"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// Open returns a view of the API keys, operators, jobs, links and settings of a store. The view
// uses the connections of db, which may be any view of the store.
func Open(db *userdb.DB) (*userdb.DB, error) {
	key, err := declareKey()
	job, jobErr := declareJob()
	link, linkErr := declareLink()
	if err := errors.Join(err, jobErr, linkErr); err != nil {
		return nil, err
	}
	return view.Reconfigure(db, func(c *view.Config) {
		c.NS, c.OnSchema, c.History, c.Builtin = view.Reserved, view.Later, false, false
		c.Schema = schema.Schema{Types: map[string]schema.Type{
			keyType: key, operatorType: declareOperator(), jobType: job, linkType: link, settingType: declareSetting(),
		}}
	})
}

// openWithOperators returns the view that Open returns, its type with the given name, and the type
// of operators.
func openWithOperators(db *userdb.DB, name string) (adminDB *userdb.DB, t, operators *userdb.Type, err error) {
	if adminDB, err = Open(db); err != nil {
		return nil, nil, nil, err
	}
	if t, err = adminDB.Type(name); err != nil {
		return nil, nil, nil, err
	}
	operators, err = Operators(db)
	return adminDB, t, operators, err
}

// CanSee reports whether an operator of the namespace viewer may see the records of the namespace
// target. Operators see their own namespace and those inside it, so operators of the root, "", see
// everything. Both names are in the form that recordkey.ParseNamespace reads.
func CanSee(viewer, target string) bool {
	outer, err := recordkey.ParseNamespace(viewer)
	inner, innerErr := recordkey.ParseNamespace(target)
	return err == nil && innerErr == nil && strings.HasPrefix(inner.String(), outer.String())
}

func namespaceOf(db *userdb.DB) string { return view.Of(db).NS.Path() }

// RecordEvent appends an event to the feed of db's namespace, even if histories are disabled. The
// event is an act of an operator or a change to an operator. about names its object.
func RecordEvent(ctx context.Context, db *userdb.DB, kind userdb.EventKind, about string) error {
	return view.Of(db).NoteAct(ctx, kind, recordkey.Key{}, about)
}

// ActAs calls RecordEvent on behalf of an operator or, if operator is "", of somebody who is not
// signed in. If that fails, ActAs only logs a warning, because the action itself was done.
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

// storeTime returns the time by the store's clock, so that all processes agree on it. On a cluster,
// it is the clock of one server. v is the view of a DB that Open returned.
func storeTime(ctx context.Context, v *view.View) (time.Time, error) {
	if at := v.StoreTime(); !at.IsZero() {
		return at, nil
	}
	key, err := recordkey.Own("jobs")
	if err != nil {
		return time.Time{}, err
	}
	return v.Engine.Time(ctx, key.In(view.Reserved))
}

// CheckWritable returns an error unless the store accepts writes. To find out, it writes a record
// that expires after a second.
func CheckWritable(ctx context.Context, db *userdb.DB) error {
	v := view.Of(db)
	key, err := recordkey.Own("ready")
	if err == nil {
		_, err = v.Engine.Limit(ctx, throttle.Limit{Counter: key.In(view.Reserved), Max: math.MaxInt32, Window: time.Second})
	}
	return err
}
