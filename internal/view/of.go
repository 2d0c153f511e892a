package view

import (
	"context"

	"github.com/coffeenode/userdb/schema"
)

// A DB is a *userdb.DB, which this package cannot name: that one imports it.
type DB interface {
	Ping(ctx context.Context) error
	Schema() schema.Schema
}

var (
	of   func(DB) *View
	with func(DB, Config) (DB, error)
)

// Register is called once, by package userdb: ofDB is the view of a DB, and withConfig another DB over the same
// connections.
func Register(ofDB func(DB) *View, withConfig func(DB, Config) (DB, error)) {
	of, with = ofDB, withConfig
}

// Of is the view of a *userdb.DB.
func Of(db DB) *View { return of(db) }

// With is another *userdb.DB over the same connections, with a configuration that edit may change: tests set
// a clock, or another engine.
func With[D DB](db D, edit func(*Config)) (D, error) {
	c := of(db).Config()
	edit(&c)
	other, err := with(db, c)
	d, _ := other.(D)
	return d, err
}
