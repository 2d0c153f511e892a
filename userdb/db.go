package userdb

import (
	"context"
	"maps"
	"sync/atomic"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/connect"
	"github.com/coffeenode/userdb/internal/sealed"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/storedschema"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// A DB is a view of a store: the records of one namespace, read under one schema. It is safe for
// concurrent use. Every method returns when its context ends.
type DB struct {
	handle
	current *atomic.Pointer[view.View] // under the schema in force, as far as this program knows it
	hashers *hashers
	secret  *atomic.Pointer[loadedSecret] // the key of digest; see loadSecret
	options Options
}

// handle lets DB embed a view.Handle in a field that is not exported.
type handle = view.Handle

// Open connects to the store at url and pings it. The url has one of these forms:
//
//	memory:                                      embedded; gone after Close
//	file:PATH                                    embedded; kept in one file
//	redis://USER:PASSWORD@HOST:PORT/DB           one server; rediss:// with TLS; unix://PATH
//	redis+sentinel://HOST:PORT?master_name=NAME  the master that Sentinels name
//	redis+cluster://HOST:PORT?addr=HOST:PORT     a Redis Cluster, by any of its nodes
//
// The query parameters are those of go-redis. With rediss, rediss+sentinel and rediss+cluster there
// are three more: tls_ca names a PEM file of CAs to trust instead of the system's; tls_cert and
// tls_key name PEM files with the client's own certificate and key. With skip_verify=true the
// server's certificate is not verified, and Open logs a warning. Errors never quote the URL.
//
// Open returns an error for a setup that would break the invariants: a client that reads from
// replicas, or a cluster opened as if it were one server. If the fault lies with the server, for
// example because it evicts records, Open logs a warning to Options.Logger instead.
//
// The caller must call Close to close the connections.
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

// OpenEngine returns a DB that uses an engine, which the DB does not own. It is for package
// redisdb: engines are internal to this module.
func OpenEngine(ctx context.Context, engine store.Engine, o Options) (*DB, error) {
	return open(ctx, engine, false, o.withDefaults())
}

// checkNamespace returns an error if ns is reserved for the store's own entries.
func checkNamespace(ns recordkey.Namespace) error {
	if view.IsReserved(ns) {
		return &recordkey.SyntaxError{Func: "In", Input: ns.Path(), Reason: "the store's own namespace"}
	}
	return nil
}

// open returns a DB that uses engine. owned reports whether the engine was opened for this DB, and
// is passed on to observers of clients.
func open(ctx context.Context, engine store.Engine, owned bool, o Options) (*DB, error) {
	if err := checkNamespace(o.Namespace); err != nil {
		return nil, err
	}
	connect.ReportClients(engine, owned, o.Observers)
	db, err := newDB(view.Config{
		Engine: engine, Schema: o.Schema, NS: o.Namespace, Log: o.Logger,
		Replicas: o.Replicas, ReplicaTime: o.ReplicaTimeout, History: o.History, OnSchema: view.OnSchema(o.OnSchema), Builtin: o.builtin,
	}, newHashers(o), o)
	if err != nil {
		return nil, err
	}
	if err := engine.Ping(ctx); err != nil {
		return nil, err
	}
	s, err := engine.Survey(ctx, false)
	for _, w := range store.Warnings(s.Servers) {
		if w.BreaksPromise {
			o.Logger.WarnContext(ctx, w.Text)
		}
	}
	if err != nil {
		return nil, err
	}
	db.view().Config.Steps = s.MultiStep
	if o.OnSchema == SchemaDeferred {
		return db, nil
	}
	if o.builtin {
		if err := db.adoptStored(ctx); err != nil {
			return nil, err
		}
	}
	return db, db.compareSchema(ctx)
}

// adoptStored uses the stored types for a program that declares none. It keeps the built-in type if
// that is not stored, and leaves out types whose schema cannot be read.
func (db *DB) adoptStored(ctx context.Context) error {
	old := db.view()
	stored, unreadable, err := storedschema.Readable(ctx, old.Engine, old.NS)
	for _, err := range unreadable {
		db.options.Logger.WarnContext(ctx, "a type is left out: "+err.Error())
	}
	if err != nil || len(stored.Types) == 0 {
		return publicError(err)
	}
	c := old.Config
	c.Schema.Types = maps.Clone(c.Schema.Types)
	maps.Copy(c.Schema.Types, stored.Types)
	next, err := view.New(c)
	if err != nil {
		return err
	}
	return db.install(old, next)
}

// compareSchema calls Options.ApplySchema, if it is set. It then compares the schema that the
// program declares with the stored one, and installs the resulting view.
func (db *DB) compareSchema(ctx context.Context) error {
	if db.options.ApplySchema != nil {
		if err := db.options.ApplySchema(ctx, db); err != nil {
			return err
		}
	}
	v, err := db.view().Follow(ctx, view.StoreExtension, db.Schema().Names()...)
	if err == nil {
		err = db.install(db.view(), v)
	}
	return err
}

// refresh returns the view to continue with after a change of type typ was refused because it was
// built under an older schema. It returns old if no other schema is in force.
func (db *DB) refresh(ctx context.Context, old *view.View, typ string) (*view.View, error) {
	if v := db.view(); v != old { // another call has replaced it
		return v, nil
	}
	next, err := old.Follow(ctx, view.StoreExtension, typ)
	if err != nil || next == old {
		return old, err
	}
	if err := db.install(old, next); err != nil {
		return nil, err
	}
	return db.view(), nil
}

// refreshForRead returns the view to continue with for a caller that only reads. Unlike refresh, it
// stores nothing.
func (db *DB) refreshForRead(ctx context.Context, old *view.View, types ...string) (*view.View, error) {
	next, err := old.Follow(ctx, view.KeepExtension, types...)
	if err != nil {
		return old, err
	}
	return next, db.install(old, next)
}

// view returns the view under the schema in force, as far as this program knows it.
func (db *DB) view() *view.View { return db.current.Load() }

// install installs next as the current view, unless another call has already replaced old.
func (db *DB) install(old, next *view.View) error {
	if err := db.hashers.add(next.Schema); err != nil {
		return err
	}
	db.current.CompareAndSwap(old, next)
	return nil
}

// newDB returns a DB with the configuration c that hashes passwords with hs.
func newDB(c view.Config, hs *hashers, o Options) (*DB, error) {
	o.Peppers = nil // only the hashers keep them
	if len(o.Keys) > 0 {
		ring, err := sealed.New(o.Keys)
		if err != nil {
			return nil, invalid("Keys", "keys", err.Error())
		}
		o.Keys, c.Keys = nil, ring
	}
	db := &DB{
		hashers: &hashers{pool: hs.pool, newHasher: hs.newHasher}, secret: &atomic.Pointer[loadedSecret]{}, options: o,
		current: &atomic.Pointer[view.View]{},
	}
	db.handle = view.NewHandle(hooks{db})
	db.hashers.db, c.Hashing = db, db.hashers
	v, err := view.New(c)
	if err == nil {
		err = db.install(nil, v)
	}
	if err != nil {
		return nil, err
	}
	return db, nil
}

// hooks implements [view.Hooks].
type hooks struct{ db *DB }

func (h hooks) View() *view.View { return h.db.view() }

func (h hooks) Refresh(ctx context.Context, old *view.View, typ string) (*view.View, error) {
	return h.db.refresh(ctx, old, typ)
}

func (h hooks) RefreshForRead(ctx context.Context, old *view.View, typ string) (*view.View, error) {
	return h.db.refreshForRead(ctx, old, typ)
}

func (h hooks) DeriveKeys(purpose string) [][]byte { return h.db.view().Config.Keys.Derive(purpose) }

func (h hooks) WithConfig(c view.Config) (view.DB, error) {
	return newDB(c, h.db.hashers, h.db.options)
}

func (h hooks) UseCheapHashes() error { return h.db.hashers.lowerCost(h.db.Schema()) }

// Close waits for running password hashes and closes the connections that Open made. On a cluster
// it first waits, for up to ten seconds, for what is still due after changes, such as index members
// and the feed. Calling it again does nothing.
func (db *DB) Close() error {
	db.hashers.pool.Close()
	return db.view().Engine.Close()
}

// Ping checks that the server answers. The error is ErrUnavailable and wraps the cause. Ping
// returns nil for a server that answers but refuses all writes, because it is full or cannot save.
func (db *DB) Ping(ctx context.Context) (err error) {
	ctx, v := db.begin(ctx, "Ping", &err)
	defer v.end(&err)
	return db.view().Engine.Ping(ctx)
}

// In returns a view of another namespace over the same connections. Closing either DB closes both.
// The schema of the view is compared with the one stored in that namespace at the first write, as
// with SchemaDeferred. The namespace ~userdb belongs to the store itself; for it, In returns a
// *recordkey.SyntaxError.
func (db *DB) In(ns recordkey.Namespace) (*DB, error) {
	if err := checkNamespace(ns); err != nil {
		return nil, err
	}
	c := db.view().Config
	c.NS = ns
	return newDB(c, db.hashers, db.options)
}

// With returns a view under another schema over the same connections. Closing either DB closes
// both. The schema is compared with the stored one at the first write, as with SchemaDeferred.
func (db *DB) With(s schema.Schema) (*DB, error) {
	c := db.view().Config
	c.Schema, c.Builtin = s, false
	return newDB(c, db.hashers, db.options)
}

// Schema returns the schema that this view reads and writes under: the one in force, as far as the
// view knows it.
func (db *DB) Schema() schema.Schema { return db.view().Schema }

// Type returns a view of one type. The error is a *schema.Error if the schema does not declare it.
func (db *DB) Type(name string) (*Type, error) {
	v := db.view()
	t, err := v.Type(name)
	if err != nil {
		return nil, err
	}
	return &Type{db, v, t}, nil
}

// Find returns the entry that h identifies, as Type.Find does. The hint must name the type.
func (db *DB) Find(ctx context.Context, h hints.Hint) (e Entry, err error) {
	ctx, v := db.begin(ctx, "Find", &err)
	defer v.end(&err)
	return db.find(ctx, h, "")
}
