package userdb

import (
	"context"
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
	view    *view.View
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
	db, err := open(ctx, engine, o)
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
	return open(ctx, engine, o)
}

func open(ctx context.Context, engine store.Engine, o Options) (*DB, error) {
	db, err := newDB(view.Config{
		Engine: engine, Schema: o.Schema, NS: o.Namespace, Log: o.Logger,
		Replicas: o.Replicas, ReplicaTime: o.ReplicaTimeout,
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
	db.view.Config.Steps = s.Steps
	return db, nil
}

// newDB makes a DB of a configuration, whose passwords are hashed by hs.
func newDB(c view.Config, hs *hashers, o Options) (*DB, error) {
	o.Peppers = nil // the hashers have them
	db := &DB{hashers: &hashers{pool: hs.pool, hasher: hs.hasher}, secret: &atomic.Pointer[string]{}, options: o}
	db.hashers.db, c.Hashing = db, db.hashers
	var err error
	if db.view, err = view.New(c); err != nil {
		return nil, err
	}
	if err := db.hashers.add(c.Schema); err != nil {
		return nil, err
	}
	return db, nil
}

func init() {
	view.Of = func(db view.DB) *view.View { return db.(*DB).view }
	view.Like = func(db view.DB, c view.Config) (view.DB, error) { return newDB(c, db.(*DB).hashers, db.(*DB).options) }
}

// Close ends what Open began: it waits for hashing that is under way, and closes the connections. A second call does nothing.
func (db *DB) Close() error {
	db.hashers.pool.Close()
	return db.view.Engine.Close()
}

// Ping asks the server for an answer; ErrUnavailable keeps the cause.
func (db *DB) Ping(ctx context.Context) error { return db.view.Engine.Ping(ctx) }

// In is a view of another namespace over the same connections. Closing one closes all.
func (db *DB) In(ns recordkey.Namespace) (*DB, error) {
	c := db.view.Config
	c.NS = ns
	return newDB(c, db.hashers, db.options)
}

// With is a view by another schema over the same connections. Closing one closes all.
func (db *DB) With(s schema.Schema) (*DB, error) {
	c := db.view.Config
	c.Schema = s
	return newDB(c, db.hashers, db.options)
}

// Schema is the one that this view reads and writes by.
func (db *DB) Schema() schema.Schema { return db.view.Schema }

// Type is a view of one declared type, or a *schema.Error.
func (db *DB) Type(name string) (*Type, error) {
	t, err := db.view.Type(name)
	if err != nil {
		return nil, err
	}
	return &Type{db: db, declared: t}, nil
}

// Find returns the entry that a type-free hint points at: one that names its type itself. With
// Options.Cache it may be a copy.
func (db *DB) Find(ctx context.Context, h hints.Hint) (Entry, error) { return db.find(ctx, h, "") }
