package userdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/query"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// A Type is a view of one declared type: what a hint leaves open is of that type, and a hint that
// names another type is refused. It is safe for concurrent use.
type Type struct {
	db       *DB
	view     *view.View   // the two are by the schema in force when they were made
	declared *change.Type // see now
}

// now is the type by the schema in force, as far as this program knows it. A verb goes by one from its beginning to its end.
func (t *Type) now() *Type {
	v := t.db.view()
	if v == t.view {
		return t
	}
	return &Type{t.db, v, v.ByName[t.declared.Name]} // no view loses a type
}

// Name is the type as ~isa has it.
func (t *Type) Name() string { return t.declared.Name }

// Find returns the entry that a hint points at: one round trip; on a cluster two, but for a key or UID. ErrNotFound says
// that there is no live one, hints.ErrHint that the hint means nothing here. With Options.Cache, an entry that is sought
// by its UID or key may be a copy, and cost none.
func (t *Type) Find(ctx context.Context, h hints.Hint) (e Entry, err error) {
	ctx, v := t.db.begin(ctx, "Find", &err)
	defer v.end(&err)
	return t.db.find(ctx, h, t.declared.Name)
}

// find looks in the copies first, if there are any. typ "" is type-free.
func (db *DB) find(ctx context.Context, h hints.Hint, typ string) (Entry, error) {
	v, t, l, err := db.resolve(ctx, db.view(), h, typ)
	if err != nil {
		return Entry{}, err
	}
	l.Cached = true
	return (&Type{db, v, t}).entry(v.FindOne(ctx, l))
}

// resolve turns a hint into a lookup, with the view to go on by. A search by a field needs to know that all entries can be found by
// that: where the program does not know, it asks what is stored.
func (db *DB) resolve(ctx context.Context, v *view.View, h hints.Hint, typ string) (*view.View, *change.Type, store.Lookup, error) {
	t, l, err := v.Resolve(h, typ)
	if !errors.Is(err, ErrIndexBuilding) && (err != nil || t.Compared() || l.PRK.IsValid()) {
		return v, t, l, err
	}
	next, failed := db.look(ctx, v, v.Schema.Names()...)
	switch {
	case errors.Is(failed, ErrUnavailable):
		err = cmp.Or(err, failed)
	case failed == nil: // else the search goes by the program's own schema
		v = next
		t, l, err = v.Resolve(h, typ)
	}
	return v, t, l, err
}

// FindExhaustive is Find for hints.Any that goes on to search under fields that the schema no longer
// declares, by SCAN over the whole keyspace: for people, not for a hot path.
func (t *Type) FindExhaustive(ctx context.Context, h hints.Hint) (e Entry, err error) {
	ctx, v := t.db.begin(ctx, "FindExhaustive", &err)
	defer v.end(&err)
	e, err = t.db.find(ctx, h, t.declared.Name)
	if !errors.Is(err, ErrNotFound) {
		return e, err
	}
	t = t.now()
	return t.entry(t.view.FindUndeclared(ctx, h, t.declared.Name))
}

// Exists reports whether a hint points at a live entry; an SRK alone does not make one.
func (t *Type) Exists(ctx context.Context, h hints.Hint) (is bool, err error) {
	ctx, v := t.db.begin(ctx, "Exists", &err)
	defer v.end(&err)
	_, err = t.record(ctx, h)
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
		var err error
		ctx, v := t.db.begin(ctx, "FindAll", &err)
		defer v.end(&err)
		err = t.now().findAll(ctx, hs, yield)
	}
}

// findAll returns the error that ended it, of which it has told.
func (t *Type) findAll(ctx context.Context, hs []hints.Hint, yield func(Entry, error) bool) error {
	for some := range slices.Chunk(hs, findChunk) {
		found, err := t.findSome(ctx, some)
		if err != nil {
			yield(Entry{}, err)
			return err
		}
		for _, f := range found {
			if !yield(t.entry(f.Record, f.Err)) {
				return nil
			}
		}
	}
	return nil
}

// findSome looks for what hints mean, in their order.
func (t *Type) findSome(ctx context.Context, hs []hints.Hint) ([]store.Found, error) {
	all := make([]store.Found, len(hs))
	var lookups []store.Lookup
	var of []*store.Found
	for i, h := range hs {
		_, _, l, err := t.db.resolve(ctx, t.now().view, h, t.declared.Name)
		if all[i].Err = err; err == nil {
			lookups, of = append(lookups, l), append(of, &all[i])
		}
	}
	found, err := t.view.FindMany(ctx, lookups)
	for i, f := range found {
		*of[i] = f
	}
	return all, err
}

// record reads what a hint points at, with all the store's own fields.
func (t *Type) record(ctx context.Context, h hints.Hint) (store.Record, error) {
	t = t.now()
	v, _, l, err := t.db.resolve(ctx, t.view, h, t.declared.Name)
	if err != nil {
		return store.Record{}, err
	}
	return v.FindOne(ctx, l)
}

// A Query selects entries of a type. The zero Query selects all.
type Query struct {
	Where schema.Facets // each an indexed, a secondary or the primary field; all must hold
	Has   []string      // all of these tags; the schema must declare "tags" as an indexed set
	Limit int           // at most so many; 0: no limit for All, 100 for Page

	After  string // the Next of a Page: go on there
	Before string // for Page alone: the Back of one, instead of After

	// MostRead is for Page alone: it reads about so many entries, and looks through a hundred times
	// as many keys. A page may then have fewer entries than Limit, or none, and a Next. 0: until it
	// is full.
	MostRead int

	Disabled *bool // only entries that may not log in, or only those that may; nil: either. No index helps

	Order   string // an ordered field, by whose values entries come; those without one are left out. "": no order
	Reverse bool   // from the greatest value down

	// Bounds of an ordered listing. All that are set must hold; nil and "" set nothing.
	GT, GTE, LT, LTE *schema.Value // greater or less than, or equal
	Start, End       *schema.Value // both included; in reverse, a listing begins at Start and goes down to End
	Prefix           string        // of text in its canonical form, in which a domain of other letters is an A-label
}

// pageLimit is the limit of a Page that was asked for without one.
const pageLimit = 100

// All yields the entries that a query selects, reading in batches: memory stays flat and the server is never blocked.
// Without Order they come in no order, by SCAN. An entry that is there all the time is yielded at least once, one that
// comes or goes meanwhile perhaps, and, while the server's tables grow or shrink, or where it starts again or a replica
// takes its place, one may be yielded twice. An entry that cannot be read yields its ErrCorrupt, and the sequence goes
// on; any other error ends it.
//
// With Order they come by the values of an ordered field: numbers by size after NaN, dates by time, null before false
// before true, and text by its canonical form, so that alice, Alice and ALICE stand together and the prefix al finds them;
// bounds do not tell them apart either. Then they come by how the text is written, then by their PRKs. It is the order of
// code points, not of a dictionary: é comes after z, and with FoldExact case counts. An entry whose value changes meanwhile
// may be yielded twice, or not at all.
func (t *Type) All(ctx context.Context, q Query) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		var err error
		ctx, v := t.db.begin(ctx, "All", &err)
		defer v.end(&err)
		err = t.all(ctx, q, yield)
	}
}

// all returns the error that ended it, of which it has told.
func (t *Type) all(ctx context.Context, q Query, yield func(Entry, error) bool) error {
	t, s, err := t.selection(ctx, q)
	if err != nil {
		yield(Entry{}, public(err))
		return err
	}
	left := q.Limit
	for found, err := range t.view.Batches(ctx, s) {
		if err != nil {
			yield(Entry{}, err)
			return err
		}
		for _, f := range found {
			if left--; !yield(t.entry(f.Record, f.Err)) || left == 0 {
				return nil
			}
		}
	}
	return nil
}

// selection checks a query, with the type to go on by. An answer by an index needs to know that the index is whole: where the
// program does not know, it asks what is stored.
func (t *Type) selection(ctx context.Context, q Query) (*Type, query.Selection, error) {
	t = t.now()
	s, err := query.Select(t.declared, query.Query(q))
	if !errors.Is(err, ErrIndexBuilding) && (err != nil || t.declared.Compared() || !s.ByIndex()) {
		return t, s, err
	}
	if _, err := t.db.look(ctx, t.view, t.declared.Name); err != nil {
		return t, s, err
	}
	t = t.now()
	s, err = query.Select(t.declared, query.Query(q))
	return t, s, err
}

// A Page is some entries of a listing, in its order.
type Page struct {
	Entries []Entry
	Next    string // Query.After for the page after this one; "": there is none
	Back    string // Query.Before for the page before; "": there is none, or the listing has no Order
}

// Page returns up to q.Limit of the entries that All would yield: the first of them, or those after q.After or before
// q.Before, in the order of the listing. Pages lead back only in an order. Entries that cannot be read are left out: the
// error is ErrCorrupt and names the first of them, beside the others, which are good.
func (t *Type) Page(ctx context.Context, q Query) (p Page, err error) {
	ctx, v := t.db.begin(ctx, "Page", &err)
	defer v.end(&err)
	if q.Limit <= 0 {
		q.Limit = pageLimit
	}
	t, s, err := t.selection(ctx, q)
	if err != nil {
		return Page{}, public(err)
	}
	var records []store.Record
	var unreadable leftOut
	rest := ""
	for more := true; more; more = rest != "" && len(records) < q.Limit && s.MayRead() {
		var found []store.Found
		found, rest, err = t.view.Page(ctx, s, rest, q.Limit-len(records))
		if err != nil {
			return Page{}, err
		}
		for _, f := range found {
			e, err := t.entry(f.Record, f.Err)
			if err != nil {
				unreadable.add(err)
				continue
			}
			p.Entries, records = append(p.Entries, e), append(records, f.Record)
		}
	}
	p.Next, p.Back = s.Around(records, rest)
	if s.Backwards() {
		slices.Reverse(p.Entries)
	}
	return p, unreadable.err()
}

// leftOut is about entries that cannot be read.
type leftOut struct {
	n     int
	first error
}

func (l *leftOut) add(err error) {
	l.n++
	l.first = cmp.Or(l.first, err)
}

func (l *leftOut) err() error {
	if l.n < 2 {
		return l.first
	}
	return fmt.Errorf("%d are left out; the first: %w", l.n, l.first)
}

// A Total says how many entries a query selects.
type Total struct {
	Entries int64
	// Estimate says that there may be fewer: on a cluster, an index has members of changes that are under way or were cut
	// off, until check has repaired them.
	Estimate bool
}

// Count counts the live entries that a query selects, whatever its Limit; After and bounds count from there. Where one
// index decides, as for one value of an indexed field or for one tag, that is the size of the index: one command. All of a type
// are counted by their keys, by SCAN: damaged ones are among them, of which check tells; and while the server's tables grow or
// shrink, or where it starts again or a replica takes its place, one may be counted twice. Else entries are read, as All does: for
// people, not for a hot path. A damaged record that is no entry any more is not counted then: the error is ErrCorrupt and names
// the first, beside the count of the others. An entry with a damaged facet is one.
func (t *Type) Count(ctx context.Context, q Query) (total Total, err error) {
	ctx, v := t.db.begin(ctx, "Count", &err)
	defer v.end(&err)
	t, s, err := t.selection(ctx, q)
	if err != nil {
		return Total{}, public(err)
	}
	if index := s.Decides(); index.IsValid() {
		sizes, err := t.view.Engine.Sizes(ctx, []recordkey.Key{index})
		if err != nil {
			return Total{}, err
		}
		return Total{sizes[0], t.view.Config.Steps}, nil
	}
	var unreadable leftOut
	n, err := t.view.Count(ctx, s, unreadable.add)
	if err != nil {
		return Total{}, err
	}
	return Total{Entries: n}, unreadable.err()
}
