package userdb

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/connect"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// A DB is a view of a store: the records of one namespace, read by one schema. It is safe for
// concurrent use. Every method ends with its context.
type DB struct {
	current *atomic.Pointer[view.View] // by the schema in force
	hashers *hashers
	secret  *atomic.Pointer[string] // keys digests; see loadSecret
	options Options
}

// Open connects to the store that a URL names, and asks it for an answer:
//
//	memory:                                      embedded, gone with Close
//	file:PATH                                    embedded, kept in one file
//	redis://USER:PASSWORD@HOST:PORT/DB           one server; rediss:// with TLS; unix://PATH
//	redis+sentinel://HOST:PORT?master_name=NAME  the master that Sentinels name
//	redis+cluster://HOST:PORT?addr=HOST:PORT     a Redis Cluster; any of its nodes
//
// Query parameters are those of go-redis and, with rediss, rediss+sentinel and rediss+cluster, tls_ca, tls_cert
// and tls_key: files in PEM with the CAs to believe in place of the system's, and with the client's own certificate
// and key. skip_verify=true leaves the server's certificate unverified, with a warning. No error quotes a URL. Close
// closes the connections. What breaks the promise is refused (a client that reads from replicas, a cluster opened as
// if it were one server) or, where it lies with the server (one that evicts records), a warning to Options.Logger.
func Open(ctx context.Context, url string, o Options) (*DB, error) {
	o = o.withDefaults()
	engine, err := connect.Open(ctx, url, o.cache())
	if err != nil {
		return nil, err
	}
	for _, w := range connect.Warnings(url) {
		o.Logger.WarnContext(ctx, w)
	}
	db, err := open(ctx, engine, true, o)
	if err != nil {
		engine.Close()
	}
	return db, err
}

// New takes a client of the caller's, which Close leaves open. For a client whose
// ContextTimeoutEnabled is off, calls end with their context or a read timeout later. Connections that the client makes
// from now on end at a reply that announces what no server has (a text over 512 MiB, over 16 million items).
func New(ctx context.Context, c redis.UniversalClient, o Options) (*DB, error) {
	o = o.withDefaults()
	engine, err := connect.Use(c, o.cache())
	if err != nil {
		return nil, err
	}
	return open(ctx, engine, false, o)
}

// notReserved refuses the namespace of the store's own entries.
func notReserved(ns recordkey.Namespace) error {
	if view.IsReserved(ns) {
		return &recordkey.SyntaxError{Func: "In", Input: ns.Path(), Reason: "the store's own namespace"}
	}
	return nil
}

// open goes by an engine, whose client is its own if it was opened for it.
func open(ctx context.Context, engine store.Engine, opened bool, o Options) (*DB, error) {
	if err := notReserved(o.Namespace); err != nil {
		return nil, err
	}
	for _, c := range connect.Clients(engine) {
		for _, w := range o.Observers {
			w.Client(c, opened)
		}
	}
	db, err := newDB(view.Config{
		Engine: engine, Schema: o.Schema, NS: o.Namespace, Log: o.Logger,
		Replicas: o.Replicas, ReplicaTime: o.ReplicaTimeout, History: o.History, OnSchema: view.OnSchema(o.OnSchema),
	}, newHashers(o), o)
	if err != nil {
		return nil, err
	}
	if err := engine.Ping(ctx); err != nil {
		return nil, err
	}
	s, err := engine.Survey(ctx, false)
	for _, w := range store.Warnings(s.Servers) {
		if w.Breaks {
			o.Logger.WarnContext(ctx, w.Text)
		}
	}
	if err != nil {
		return nil, err
	}
	db.view().Config.Steps = s.Steps
	if o.OnSchema == SchemaLater {
		return db, nil
	}
	return db, db.compare(ctx)
}

// compare holds what the program declares to what is stored, and goes by that.
func (db *DB) compare(ctx context.Context) error {
	if db.options.OnSchema == SchemaApply {
		if view.ApplySchema == nil {
			return fmt.Errorf("%w: SchemaApply needs the program to import github.com/coffeenode/userdb/maintain/migrate", ErrSchemaMismatch)
		}
		if err := view.ApplySchema(ctx, db); err != nil {
			return err
		}
	}
	v, err := db.view().Follow(ctx, view.Store, db.Schema().Names()...)
	if err == nil {
		err = db.use(db.view(), v)
	}
	return err
}

// follow is the view to go on by after a change of a type was refused that was built by another one; that one, where nothing else is
// in force.
func (db *DB) follow(ctx context.Context, was *view.View, typ string) (*view.View, error) {
	if v := db.view(); v != was { // another call has followed
		return v, nil
	}
	next, err := was.Follow(ctx, view.Store, typ)
	if err != nil || next == was {
		return was, err
	}
	if err := db.use(was, next); err != nil {
		return nil, err
	}
	return db.view(), nil
}

// look is follow for those who read, and stores nothing.
func (db *DB) look(ctx context.Context, was *view.View, types ...string) (*view.View, error) {
	next, err := was.Follow(ctx, view.Keep, types...)
	if err != nil {
		return was, err
	}
	return next, db.use(was, next)
}

// view is the one by the schema in force, as far as this program knows it.
func (db *DB) view() *view.View { return db.current.Load() }

// use goes on by another view, unless others have changed it meanwhile.
func (db *DB) use(was, next *view.View) error {
	if err := db.hashers.add(next.Schema); err != nil {
		return err
	}
	db.current.CompareAndSwap(was, next)
	return nil
}

// newDB makes a DB of a configuration, whose passwords are hashed by hs.
func newDB(c view.Config, hs *hashers, o Options) (*DB, error) {
	o.Peppers = nil // the hashers have them
	db := &DB{
		hashers: &hashers{pool: hs.pool, hasher: hs.hasher}, secret: &atomic.Pointer[string]{}, options: o,
		current: &atomic.Pointer[view.View]{},
	}
	db.hashers.db, c.Hashing = db, db.hashers
	v, err := view.New(c)
	if err == nil {
		err = db.use(nil, v)
	}
	if err != nil {
		return nil, err
	}
	return db, nil
}

func init() {
	view.Of = func(db view.DB) *view.View { return db.(*DB).view() }
	view.FollowIn = func(ctx context.Context, db view.DB, was *view.View, typ string) (*view.View, error) {
		return db.(*DB).follow(ctx, was, typ)
	}
	view.Like = func(db view.DB, c view.Config) (view.DB, error) { return newDB(c, db.(*DB).hashers, db.(*DB).options) }
	view.Cheapen = func(db view.DB) error { return db.(*DB).hashers.cheapen(db.Schema()) }
}

// Close ends what Open began: it waits for hashing that is under way, and closes the connections. A second call does nothing.
func (db *DB) Close() error {
	db.hashers.pool.Close()
	return db.view().Engine.Close()
}

// Ping asks the server for an answer; ErrUnavailable keeps the cause.
func (db *DB) Ping(ctx context.Context) (err error) {
	ctx, v := db.begin(ctx, "Ping", &err)
	defer v.end(&err)
	return db.view().Engine.Ping(ctx)
}

// In is a view of another namespace over the same connections. Closing one closes all. Its schema is compared with the one that is
// stored there at its first write, as with SchemaLater. The namespace ~userdb is the store's own, and a *recordkey.SyntaxError.
func (db *DB) In(ns recordkey.Namespace) (*DB, error) {
	if err := notReserved(ns); err != nil {
		return nil, err
	}
	c := db.view().Config
	c.NS = ns
	return newDB(c, db.hashers, db.options)
}

// With is a view by another schema over the same connections. Closing one closes all. It is compared with the stored schema
// at its first write, as with SchemaLater.
func (db *DB) With(s schema.Schema) (*DB, error) {
	c := db.view().Config
	c.Schema = s
	return newDB(c, db.hashers, db.options)
}

// Schema is the one that this view reads and writes by: the one in force, as far as the view knows it.
func (db *DB) Schema() schema.Schema { return db.view().Schema }

// Type is a view of one declared type, or a *schema.Error.
func (db *DB) Type(name string) (*Type, error) {
	v := db.view()
	t, err := v.Type(name)
	if err != nil {
		return nil, err
	}
	return &Type{db, v, t}, nil
}

// Find returns the entry that a type-free hint points at: one that names its type itself. With
// Options.Cache it may be a copy.
func (db *DB) Find(ctx context.Context, h hints.Hint) (e Entry, err error) {
	ctx, v := db.begin(ctx, "Find", &err)
	defer v.end(&err)
	return db.find(ctx, h, "")
}
