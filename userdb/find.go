package userdb

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/query"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/schema"
)

// A Type is a view of one declared type: what a hint leaves open is of that type, and a hint that
// names another type is refused. It is safe for concurrent use.
type Type struct {
	db       *DB
	declared *change.Type
}

// Name is the type as ~isa has it.
func (t *Type) Name() string { return t.declared.Name }

// Find returns the entry that a hint points at: one round trip; on a cluster two, but for a key or UID. ErrNotFound says
// that there is no live one, hints.ErrHint that the hint means nothing here. With Options.Cache, an entry that is sought
// by its UID or key may be a copy, and cost none.
func (t *Type) Find(ctx context.Context, h hints.Hint) (Entry, error) {
	return t.db.find(ctx, h, t.declared.Name)
}

// find looks in the copies first, if there are any. typ "" is type-free.
func (db *DB) find(ctx context.Context, h hints.Hint, typ string) (Entry, error) {
	t, l, err := db.view.Resolve(h, typ)
	if err != nil {
		return Entry{}, err
	}
	l.Cached = true
	return (&Type{db: db, declared: t}).entry(db.view.FindOne(ctx, l))
}

// FindExhaustive is Find for hints.Any that goes on to search under fields that the schema no longer
// declares, by SCAN over the whole keyspace: for people, not for a hot path.
func (t *Type) FindExhaustive(ctx context.Context, h hints.Hint) (Entry, error) {
	e, err := t.Find(ctx, h)
	if !errors.Is(err, ErrNotFound) {
		return e, err
	}
	return t.entry(t.db.view.FindUndeclared(ctx, h, t.declared.Name))
}

// Exists reports whether a hint points at a live entry; an SRK alone does not make one.
func (t *Type) Exists(ctx context.Context, h hints.Hint) (bool, error) {
	_, err := t.record(ctx, h)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// findChunk is how many hints FindAll asks for in one round trip.
const findChunk = 256

// FindAll returns the entries that hints point at, in their order, one round trip (on a cluster two) for every 256. An
// entry that is absent or cannot be read, and a hint that means nothing here, yield their error, and the
// sequence goes on; it ends early only where the store does not answer.
func (t *Type) FindAll(ctx context.Context, hs ...hints.Hint) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for some := range slices.Chunk(hs, findChunk) {
			found, err := t.findSome(ctx, some)
			if err != nil {
				yield(Entry{}, err)
				return
			}
			for _, f := range found {
				if !yield(t.entry(f.Record, f.Err)) {
					return
				}
			}
		}
	}
}

// findSome looks for what hints mean, in their order.
func (t *Type) findSome(ctx context.Context, hs []hints.Hint) ([]store.Found, error) {
	all := make([]store.Found, len(hs))
	var lookups []store.Lookup
	var of []*store.Found
	for i, h := range hs {
		_, l, err := t.db.view.Resolve(h, t.declared.Name)
		if all[i].Err = err; err == nil {
			lookups, of = append(lookups, l), append(of, &all[i])
		}
	}
	found, err := t.db.view.FindMany(ctx, lookups)
	for i, f := range found {
		*of[i] = f
	}
	return all, err
}

// record reads what a hint points at, with all the store's own fields.
func (t *Type) record(ctx context.Context, h hints.Hint) (store.Record, error) {
	_, r, err := t.db.view.Find(ctx, h, t.declared.Name)
	return r, err
}

// A Query selects entries of a type. The zero Query selects all.
type Query struct {
	Where schema.Facets // each an indexed, a secondary or the primary field; all must hold
	Has   []string      // all of these tags; the schema must declare "tags" as an indexed set
	After string        // the continuation that Page gave; "": from the beginning
	Limit int           // at most so many; 0: no limit for All, 100 for Page

	Disabled *bool // only entries that may not log in, or only those that may; nil: either. No index helps

	Order   string // an ordered field, by whose values entries come; those without one are left out. "": no order
	Reverse bool   // from the greatest value down

	// Bounds of an ordered listing. All that are set must hold; nil and "" set nothing.
	GT, GTE, LT, LTE *schema.Value // greater or less than, or equal
	Start, End       *schema.Value // both included; in reverse, a listing begins at Start and goes down to End
	Prefix           string        // of text
}

// pageLimit is the limit of a Page that was asked for without one.
const pageLimit = 100

// All yields the entries that a query selects, reading in batches: memory stays flat and the server is never blocked.
// Without Order they come in no order, by SCAN. An entry that is there all the time is yielded at least once, one that
// comes or goes meanwhile perhaps, and, while the server's tables grow or shrink, or where it starts again or a replica
// takes its place, one may be yielded twice. An entry that cannot be read yields its ErrCorrupt, and the sequence goes
// on; any other error ends it.
//
// With Order they come by the values of an ordered field, and by their PRKs where those are equal: text by code points,
// numbers by size after NaN, dates by time, null before false before true. Case and accents count: it is the order of
// the bytes, not of a dictionary. An entry whose value changes meanwhile may be yielded twice, or not at all.
func (t *Type) All(ctx context.Context, q Query) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		s, err := query.Select(t.declared, query.Query(q))
		if err != nil {
			yield(Entry{}, public(err))
			return
		}
		left := q.Limit
		for found, err := range t.db.view.Batches(ctx, s, q.After) {
			if err != nil {
				yield(Entry{}, err)
				return
			}
			for _, f := range found {
				if left--; !yield(t.entry(f.Record, f.Err)) || left == 0 {
					return
				}
			}
		}
	}
}

// Page returns up to q.Limit of the entries that All would yield, and the continuation for the next page, "" at the
// end. Entries that cannot be read are left out, and joined into err beside the others, which are good.
func (t *Type) Page(ctx context.Context, q Query) (es []Entry, next string, err error) {
	if q.Limit <= 0 {
		q.Limit = pageLimit
	}
	s, err := query.Select(t.declared, query.Query(q))
	if err != nil {
		return nil, "", public(err)
	}
	var unreadable []error
	for next = q.After; ; {
		var found []store.Found
		found, next, err = t.db.view.Page(ctx, s, next, q.Limit-len(es))
		if err != nil {
			return nil, "", err
		}
		for _, f := range found {
			if e, err := t.entry(f.Record, f.Err); err != nil {
				unreadable = append(unreadable, err)
			} else {
				es = append(es, e)
			}
		}
		if next == "" || len(es) >= q.Limit {
			return es, next, errors.Join(unreadable...)
		}
	}
}

// Count returns how many live entries the type has, by SCAN: for people, not for a hot path.
func (t *Type) Count(ctx context.Context) (int64, error) {
	var n int64
	for found, err := range t.db.view.Batches(ctx, query.Selection{Type: t.declared}, "") {
		if err != nil {
			return 0, err
		}
		for _, f := range found {
			if f.Err == nil {
				n++
			}
		}
	}
	return n, nil
}
