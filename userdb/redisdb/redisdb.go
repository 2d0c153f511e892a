// Package redisdb opens a store through a go-redis client of the caller. Programs that open stores
// by URL, with userdb.Open, do not need it: no type of package userdb mentions go-redis.
package redisdb

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/connect"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/userdb"
)

// New returns a DB that uses the caller's client, a *redis.Client or *redis.ClusterClient. Close
// does not close the client.
//
// If the client's ContextTimeoutEnabled is off, a call may return up to one read timeout after its
// context ended. Connections that the client makes from now on are closed if a reply announces an
// impossible size: a string of over 512 MiB, or over 16 million elements.
func New(ctx context.Context, c redis.UniversalClient, o userdb.Options) (*userdb.DB, error) {
	engine, err := connect.Use(c, store.Cache{Entries: o.CacheSize, Age: o.CacheMaxAge})
	if err != nil {
		return nil, err
	}
	return userdb.OpenEngine(ctx, engine, o)
}

// An Observer is a userdb.Observer that is also notified of the clients of a DB.
type Observer interface {
	userdb.Observer
	// Client is called for each Redis client of a DB before Open or New sends anything through it.
	// opened reports whether the DB opened the client itself. A client that was passed to New may
	// be reported more than once.
	Client(c redis.UniversalClient, opened bool)
}
