package userdb

import (
	"context"
	"errors"
	"iter"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
)

// A Type is a view of one declared type: what a hint leaves open is of that type, and a hint that
// names another type is refused. It is safe for concurrent use.
type Type struct {
	db *DB
	t  *change.Type
}

// Name is the type as ~isa has it.
func (t *Type) Name() string { return t.t.Name }

// Find returns the entry that a hint points at: one round trip. ErrNotFound says that there is no
// live one, hints.ErrHint that the hint means nothing here. With Options.Cache, an entry that is sought by its
// UID or key may be a copy, and cost none.
func (t *Type) Find(ctx context.Context, h hints.Hint) (Entry, error) {
	_, r, err := t.db.view.FindCached(ctx, h, t.t.Name)
	if err != nil {
		return Entry{}, err
	}
	return t.entry(r)
}

// FindExhaustive is Find for hints.Any that goes on to search under fields that the schema no longer
// declares, by SCAN over the whole keyspace: for people, not for a hot path.
func (t *Type) FindExhaustive(ctx context.Context, h hints.Hint) (Entry, error) {
	e, err := t.Find(ctx, h)
	if !errors.Is(err, ErrNotFound) {
		return e, err
	}
	s, err := t.db.view.Resolve(h, t.t.Name)
	if err != nil {
		return Entry{}, err
	}
	r, err := t.db.view.FindUndeclared(ctx, s)
	if err != nil {
		return Entry{}, err
	}
	return t.entry(r)
}

// Exists says whether a hint points at a live entry; an SRK alone is none.
func (t *Type) Exists(ctx context.Context, h hints.Hint) (bool, error) {
	_, err := t.record(ctx, h)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// findChunk is how many hints FindAll asks for in one round trip.
const findChunk = 256

// FindAll returns the entries that hints point at, in their order, one round trip for every 256. An
// entry that is absent or cannot be read, and a hint that is none, yield their error, and the
// sequence goes on; it ends early only where the store does not answer.
func (t *Type) FindAll(ctx context.Context, hs ...hints.Hint) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for len(hs) > 0 {
			n := min(findChunk, len(hs))
			if !t.findSome(ctx, hs[:n], yield) {
				return
			}
			hs = hs[n:]
		}
	}
}

// findSome yields one chunk, and says whether to go on.
func (t *Type) findSome(ctx context.Context, hs []hints.Hint, yield func(Entry, error) bool) bool {
	refused := make([]error, len(hs))
	var lookups []store.Lookup
	for i, h := range hs {
		s, err := t.db.view.Resolve(h, t.t.Name)
		if refused[i] = err; err == nil {
			lookups = append(lookups, s.Lookup)
		}
	}
	found, err := t.db.view.Look(ctx, lookups)
	if err != nil {
		yield(Entry{}, err)
		return false
	}
	for _, err := range refused {
		var e Entry
		if err == nil {
			e, err = t.found(found[0])
			found = found[1:]
		}
		if !yield(e, err) {
			return false
		}
	}
	return true
}

func (t *Type) found(f store.Found) (Entry, error) {
	if f.Err != nil {
		return Entry{}, f.Err
	}
	return t.entry(f.Record)
}

// record reads what a hint points at, with all the store's own fields.
func (t *Type) record(ctx context.Context, h hints.Hint) (store.Record, error) {
	_, r, err := t.db.view.Find(ctx, h, t.t.Name)
	return r, err
}
