package store

import (
	"context"

	"github.com/coffeenode/userdb/recordkey"
)

// A Mover carries many entries in and out.
type Mover interface {
	// CreateAll makes entries the short way, many in one round trip, each whole or not at all: those of which
	// nothing is there yet. No two of them, nor of those that another call makes meanwhile, may need one key;
	// see Needs. What it did not make is left to ApplyAll, with its answer.
	CreateAll(ctx context.Context, cs []Change) []Tried
	// Overlaps says whether it pays to have several calls of CreateAll under way.
	Overlaps() bool
	// ApplyAll makes changes, each as Apply does, whole or not at all, many at a time. Of creates that exclude
	// each other the first is made. tried is what CreateAll answered; nil: it was not asked.
	ApplyAll(ctx context.Context, cs []Change, tried []Tried) ([]Version, []error)
	// Bulk begins a run of changes that a store which is kept in a file saves together: those that are
	// made with the context it returns are answered before that. end saves them; if it fails, none of
	// them was made. Other stores keep every change at once.
	Bulk(ctx context.Context) (bulk context.Context, end func(context.Context) error)
	// Wholes reads entries, each with tertiary records of its own as they were at one moment. On a cluster
	// it is one moment for the entry, but a tertiary record may be newer than the others.
	Wholes(ctx context.Context, reads []WholeRead) ([]Whole, error)
}

// Tried is what CreateAll did about a change. The zero Tried: nothing.
type Tried struct {
	Token string // of the version
	Done  bool
	Maybe bool // it may have been made: no answer came
}

// A WholeRead asks for an entry with tertiary records, each of one Redis type.
type WholeRead struct {
	PRK  recordkey.Key
	Keys []recordkey.Key
	Kind []string
}

// A Whole is the answer: the entry, or why there is none, and the contents of each record asked for.
type Whole struct {
	Found
	Parts []Part
}

// A Part is a tertiary record: of Kind "none" where there is none, else of the Redis type asked for, or
// of another one and then without values. They are as in Members.Values.
type Part struct {
	Kind   string
	Values []string
}
