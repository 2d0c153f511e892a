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

// A Type is a view of one type of entries. Hints that name no type mean this one; hints that name
// another type are refused. A Type is safe for concurrent use.
type Type struct {
	db       *DB
	view     *view.View   // under the schema that was in force when the Type was made; see current
	declared *change.Type // the type in that schema
}

// current returns the type under the schema in force, as far as this program knows it. A method
// uses the same result from its beginning to its end.
func (t *Type) current() *Type {
	v := t.db.view()
	if v == t.view {
		return t
	}
	return &Type{t.db, v, v.ByName[t.declared.Name]} // later views have every type of earlier ones
}

// Name returns the name of the type, the value of ~isa.
func (t *Type) Name() string { return t.declared.Name }

// Schema returns the schema of the type in force. It must not be changed.
func (t *Type) Schema() schema.Type { return t.current().declared.Schema }

// Find returns the entry that h identifies. It takes one round trip; on a cluster it takes two
// unless the hint is a key or a UID. With Options.CacheSize, an entry that is found by its UID or
// key may come from the cache, without a round trip. The error is ErrNotFound if there is no live
// entry, and hints.ErrHint if the hint is invalid for this type.
func (t *Type) Find(ctx context.Context, h hints.Hint) (e Entry, err error) {
	ctx, v := t.db.begin(ctx, "Find", &err)
	defer v.end(&err)
	return t.db.find(ctx, h, t.declared.Name)
}

// find returns the entry that h identifies, from the cache if it is there. If typ is "", the hint
// must name the type.
func (db *DB) find(ctx context.Context, h hints.Hint, typ string) (Entry, error) {
	v, t, l, err := db.resolve(ctx, db.view(), h, typ)
	if err != nil {
		return Entry{}, err
	}
	l.Cached = true
	return (&Type{db, v, t}).entry(v.FindOne(ctx, l))
}

// resolve converts a hint to a lookup, and returns the view to continue with. A search by a field
// is only valid if all entries can be found by it. If the program does not know whether they can,
// resolve reads the stored schema.
func (db *DB) resolve(ctx context.Context, v *view.View, h hints.Hint, typ string) (*view.View, *change.Type, store.Lookup, error) {
	t, l, err := v.Resolve(h, typ)
	if !errors.Is(err, ErrIndexBuilding) && (err != nil || t.Compared() || l.PRK.IsValid()) {
		return v, t, l, err
	}
	next, refreshErr := db.refreshForRead(ctx, v, v.Schema.Names()...)
	switch {
	case errors.Is(refreshErr, ErrUnavailable):
		err = cmp.Or(err, refreshErr)
	case refreshErr == nil: // otherwise search under the program's own schema
		v = next
		t, l, err = v.Resolve(h, typ)
	}
	return v, t, l, err
}

// FindExhaustive does the same as Find. If nothing is found for a hint made by hints.Any, it also
// searches fields that the schema no longer declares, with SCAN over the whole keyspace. It is slow
// and not meant for hot paths.
func (t *Type) FindExhaustive(ctx context.Context, h hints.Hint) (e Entry, err error) {
	ctx, v := t.db.begin(ctx, "FindExhaustive", &err)
	defer v.end(&err)
	e, err = t.db.find(ctx, h, t.declared.Name)
	if !errors.Is(err, ErrNotFound) {
		return e, err
	}
	t = t.current()
	return t.entry(t.view.FindUndeclared(ctx, h, t.declared.Name))
}

// Exists reports whether a hint identifies a live entry. An SRK without its entry does not count.
func (t *Type) Exists(ctx context.Context, h hints.Hint) (exists bool, err error) {
	ctx, v := t.db.begin(ctx, "Exists", &err)
	defer v.end(&err)
	_, err = t.record(ctx, h)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// findBatchSize is the number of hints that FindAll looks up in one round trip.
const findBatchSize = 256

// FindAll yields the entries that the hints identify, in the same order. It takes one round trip,
// on a cluster two, for every 256 hints. If a hint is invalid, or its entry is absent or cannot be
// read, FindAll yields the error and continues; it ends early only if the store does not answer.
func (t *Type) FindAll(ctx context.Context, hs ...hints.Hint) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		var err error
		ctx, v := t.db.begin(ctx, "FindAll", &err)
		defer v.end(&err)
		err = t.current().findAll(ctx, hs, yield)
	}
}

// findAll yields the entries and returns the error that ended the sequence, which it has also
// yielded.
func (t *Type) findAll(ctx context.Context, hs []hints.Hint, yield func(Entry, error) bool) error {
	for batch := range slices.Chunk(hs, findBatchSize) {
		found, err := t.findBatch(ctx, batch)
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

// findBatch returns the results for some hints, in the same order.
func (t *Type) findBatch(ctx context.Context, hs []hints.Hint) ([]store.Found, error) {
	results := make([]store.Found, len(hs))
	var lookups []store.Lookup
	var targets []*store.Found
	for i, h := range hs {
		_, _, l, err := t.db.resolve(ctx, t.current().view, h, t.declared.Name)
		if results[i].Err = err; err == nil {
			lookups, targets = append(lookups, l), append(targets, &results[i])
		}
	}
	found, err := t.view.FindMany(ctx, lookups)
	for i, f := range found {
		*targets[i] = f
	}
	return results, err
}

// record returns the record that a hint identifies, including the store's own fields.
func (t *Type) record(ctx context.Context, h hints.Hint) (store.Record, error) {
	t = t.current()
	v, _, l, err := t.db.resolve(ctx, t.view, h, t.declared.Name)
	if err != nil {
		return store.Record{}, err
	}
	return v.FindOne(ctx, l)
}

// A Query selects entries of a type. The zero Query selects all.
type Query struct {
	// Where holds facets that the entries must have. Each must be an indexed or secondary field or
	// the primary one.
	Where schema.Facets

	// Tags holds tags that the entries must have. The schema must declare "tags" as an indexed set.
	Tags []string

	// Has holds members that other sets of the entries must have, by the name of the tertiary
	// record, which the schema must declare as an indexed set.
	Has map[string][]string

	// WithSets names tertiary sets, such as "tags", whose members Entry.Members returns. For every
	// 64 entries of the result, one more round trip reads these sets, and the entries again. No
	// limit counts the members: if sets may be large, give Page a small Limit. If such a record has
	// another Redis type, its entry is ErrCorrupt.
	WithSets []string

	// Limit is the maximum number of entries. If zero, All has no limit and Page has 100.
	Limit int

	// After is the Next of an earlier Page. The listing continues after that page.
	After string

	// Before is the Prev of an earlier Page. The listing returns the page before that one. It is
	// only for Page and cannot be used with After.
	Before string

	// MaxRead is the approximate number of entries after which Page stops reading. Page also stops
	// after scanning a hundred times as many keys, or after checking whether ten times as many
	// entries are disabled. The page may then have fewer entries than Limit, or none, although it
	// has a Next. If zero, Page reads until the page is full. It is only for Page.
	MaxRead int

	// MaxBytes is the approximate size of the entries, in bytes of field names and facets, after
	// which Page stops reading. Members of sets do not count. Page reads 16 entries at a time, so
	// the last of these reads may exceed it. The page may then have fewer entries than Limit, or
	// none, although it has a Next. If zero, there is no limit. It is only for Page.
	MaxBytes int

	// Disabled selects only entries that are disabled, or only those that are not. If nil, it
	// selects both. There is no index for it: every entry that the rest of the query selects is
	// looked at.
	Disabled *bool

	// Order names an ordered field to sort by. Entries without the field come before all others. If
	// "", the listing has no order.
	Order string

	// Reverse sorts in descending order. Entries without the field then come last.
	Reverse bool

	// Skip is the number of entries to pass over at the beginning of a listing with an Order. They
	// are not read, however many they are. Skip cannot be used with bounds, After or Before.
	Skip int64

	// GT, GTE, LT, LTE, Start, End and Prefix are bounds of a listing with an Order. An entry must
	// be within all bounds that are set. Bounds leave out entries without the field.
	GT, GTE, LT, LTE *schema.Value // greater than, at least, less than, at most

	// Start and End are the first and the last value, both included. With Reverse, Start is the
	// greater one.
	Start, End *schema.Value

	// Prefix is the beginning of a text in its canonical form, in which an internationalized domain
	// is an A-label.
	Prefix string
}

// pageLimit is the default limit of Page.
const pageLimit = 100

// All yields the entries that a query selects. It reads in batches, so that memory use stays flat
// and the server is never blocked. If an entry cannot be read, All yields ErrCorrupt and continues;
// any other error ends the sequence.
//
// Without Order, the entries come in no particular order, as SCAN returns them. An entry that
// exists all the time is yielded at least once. An entry that is created or deleted while All runs
// may or may not be yielded. If the server's tables are resized, the server restarts, a replica
// takes its place or slots of a cluster move while All runs, an entry may be yielded twice.
//
// If an index of the query is removed while All runs, or was removed before, All yields
// ErrSchemaMismatch or ErrInvalid. If it is being built, All yields ErrIndexBuilding. If the
// type's schema changes again and again while All runs, All yields ErrConflict.
//
// With Order, the entries are sorted by the values of an ordered field, after those without a
// value: numbers by size, after NaN; dates by time; null before false before true; text by its
// canonical form, so that alice, Alice and ALICE are together, all have the prefix al, and bounds
// do not distinguish them. Entries with equal values are sorted by the text as written, then by
// PRK. Text is sorted by code points and not as in a dictionary: é comes after z, and with
// FoldExact case counts. An entry whose value changes while All runs may be yielded twice or not at
// all.
func (t *Type) All(ctx context.Context, q Query) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		var err error
		ctx, v := t.db.begin(ctx, "All", &err)
		defer v.end(&err)
		err = t.all(ctx, q, yield)
	}
}

// all yields the entries and returns the error that ended the sequence, which it has also yielded.
func (t *Type) all(ctx context.Context, q Query, yield func(Entry, error) bool) error {
	for range maxSchemaChanges {
		used, yielded, err := t.allOnce(ctx, q, yield)
		if err != nil || used == nil {
			return err
		}
		same, err := used.confirmIndexes(ctx, q)
		// If entries were yielded, the listing cannot be repeated. It is complete if the current
		// schema still has the index.
		for n := 0; err == nil && !same && yielded && n < maxSchemaChanges; n++ {
			same, err = used.current().confirmIndexes(ctx, q)
		}
		if err == nil && !same && yielded {
			err = errSchemaChanging
		}
		if err != nil {
			yield(Entry{}, publicError(err))
		}
		if err != nil || same {
			return err
		}
	}
	yield(Entry{}, errSchemaChanging)
	return errSchemaChanging
}

// allOnce yields the entries, and reports whether there were any. If the listing may have ended
// early because its index was removed, allOnce returns the type that it used. It has yielded the
// error that it returns.
func (t *Type) allOnce(ctx context.Context, q Query, yield func(Entry, error) bool) (used *Type, yielded bool, err error) {
	t, s, err := t.compileQuery(ctx, q)
	if err != nil {
		yield(Entry{}, publicError(err))
		return nil, false, err
	}
	left, batches := q.Limit, 0
	for found, err := range t.view.Batches(ctx, s) {
		if err != nil {
			yield(Entry{}, err)
			return nil, yielded, err
		}
		if q.Limit > 0 {
			found = found[:min(len(found), left)]
		}
		sets, err := t.readSets(ctx, found, q.WithSets)
		if err != nil {
			yield(Entry{}, err)
			return nil, yielded, err
		}
		for i, f := range found {
			e, err := t.entry(f.Record, f.Err)
			e.sets, yielded = sets[i], true
			if left--; !yield(e, err) || left == 0 {
				return nil, yielded, nil
			}
		}
		batches++
	}
	// Without Disabled, an index that takes several reads yields several batches. A single batch
	// came from one read, which cannot have ended early.
	if batches == 1 && yielded && q.Disabled == nil {
		return nil, yielded, nil
	}
	return t, yielded, nil
}

// setBatch is the number of entries whose sets readSets reads in one round trip.
const setBatch = 64

// readSets returns the members of tertiary sets of entries that were found, by the name of the set.
// Entries that were deleted meanwhile, or cannot be read, have a nil map. If a record is not a set,
// readSets sets the Err of its entry.
func (t *Type) readSets(ctx context.Context, found []store.Found, names []string) ([]map[string][]string, error) {
	sets, names := make([]map[string][]string, len(found)), distinct(names)
	var reads []store.EntryRead
	var at []int // the index in found of each read
	for i, f := range found {
		if f.Err != nil || len(names) == 0 {
			continue
		}
		read := store.EntryRead{PRK: f.Record.Key}
		for _, name := range names {
			key, _, err := t.declared.TertiaryKey(f.Record.Key, name, "set", nil)
			if err != nil {
				return nil, publicError(err)
			}
			read.Keys, read.Kinds = append(read.Keys, key), append(read.Kinds, "set")
		}
		reads, at = append(reads, read), append(at, i)
	}
	for batch := range slices.Chunk(reads, setBatch) {
		entries, err := t.view.Engine.Read(ctx, batch)
		if err != nil {
			return nil, err
		}
		for i, e := range entries {
			members, err := setMembers(batch[i], e, names)
			if err != nil {
				found[at[i]].Err = err
			} else {
				sets[at[i]] = members
			}
		}
		at = at[len(entries):]
	}
	return sets, nil
}

// setMembers returns the members of the sets of an entry, by name, or nil if the entry was deleted
// meanwhile. It returns an error if the entry or one of its sets is damaged.
func setMembers(read store.EntryRead, e store.Entry, names []string) (map[string][]string, error) {
	if errors.Is(e.Err, ErrNotFound) {
		return nil, nil
	}
	if errors.Is(e.Err, ErrCorrupt) {
		return nil, e.Err
	}
	members := map[string][]string{}
	for n, part := range e.Parts {
		if part.Kind != "set" && part.Kind != store.KindNone {
			return nil, &store.CorruptError{Key: read.Keys[n].String(), Reason: "a " + part.Kind + ", not a set"}
		}
		members[names[n]] = store.SortedUnique("set", part.Values)
	}
	return members, nil
}

// compileQuery checks a query, and returns the type to continue with. An index can answer a query
// only if it is complete. If the program does not know whether it is, compileQuery reads the stored
// schema.
func (t *Type) compileQuery(ctx context.Context, q Query) (*Type, query.Selection, error) {
	t = t.current()
	s, err := query.Select(t.declared, query.Query(q))
	if !errors.Is(err, ErrIndexBuilding) && (err != nil || t.declared.Compared() || !s.ByIndex()) {
		return t, s, err
	}
	if _, err := t.db.refreshForRead(ctx, t.view, t.declared.Name); err != nil {
		return t, s, err
	}
	t = t.current()
	s, err = query.Select(t.declared, query.Query(q))
	return t, s, err
}

// maxSchemaChanges is how many times a query is repeated because the stored schema changed.
const maxSchemaChanges = 4

var errSchemaChanging = fmt.Errorf("%w: the schema was changed during the listing", ErrConflict)

// confirmIndexes is for a query under t that found nothing more by an index, perhaps because the
// index was removed. It reports whether the stored schema is still that of t. If it is not, the
// query must run again under the current schema. If the stored schema lacks the index,
// confirmIndexes returns an error.
func (t *Type) confirmIndexes(ctx context.Context, q Query) (same bool, err error) {
	s, err := query.Select(t.declared, query.Query(q))
	if err != nil || !s.ByIndex() {
		return true, err
	}
	known := t.db.view() // not always t.view: another type may have changed
	next, mismatch := t.db.refreshForRead(ctx, known, t.declared.Name)
	now := next.ByName[t.declared.Name]
	if errors.Is(mismatch, ErrSchemaMismatch) {
		if now, err = known.LackedIndexes(ctx, t.declared.Name); err != nil {
			return false, err
		}
	} else if mismatch != nil {
		return false, mismatch
	}
	if _, err = query.Select(now, query.Query(q)); errors.Is(err, ErrIndexBuilding) {
		err = cmp.Or(mismatch, err)
	}
	return now.Guard.Fingerprint == t.declared.Guard.Fingerprint, err
}

// A Page holds some entries of a listing, in the order of the listing.
type Page struct {
	Entries []Entry
	Next    string // Query.After for the next page; "" if this is the last
	Prev    string // Query.Before for the page before; "" if this is the first or there is no Order
}

// Page returns up to q.Limit of the entries that All would yield: the first ones, or those after
// q.After or before q.Before. q.Before needs an Order. Entries that cannot be read are left out;
// the error is then ErrCorrupt and names the first of them, and the returned entries are valid.
func (t *Type) Page(ctx context.Context, q Query) (p Page, err error) {
	ctx, v := t.db.begin(ctx, "Page", &err)
	defer v.end(&err)
	if q.Limit <= 0 {
		q.Limit = pageLimit
	}
	return confirmed(ctx, q, t.page)
}

// confirmed returns what read returns. If entries may be missing because an index was removed, read
// also returns the type that it used; confirmed then compares its schema with the stored one, and
// calls read again if they differ.
func confirmed[T any](ctx context.Context, q Query, read func(context.Context, Query) (*Type, T, error)) (T, error) {
	var none T
	for range maxSchemaChanges {
		used, result, err := read(ctx, q)
		if err != nil || used == nil {
			return result, err
		}
		same, err := used.confirmIndexes(ctx, q)
		if err != nil {
			return none, publicError(err)
		}
		if same {
			return result, nil
		}
	}
	return none, errSchemaChanging
}

// page returns what Page returns. If entries may be missing, it also returns the type that it used.
func (t *Type) page(ctx context.Context, q Query) (used *Type, p Page, err error) {
	t, s, err := t.compileQuery(ctx, q)
	if err != nil {
		return nil, Page{}, publicError(err)
	}
	var records []store.Record
	var unreadable skippedEntries
	rest, reads := "", 0
	for more := true; more; more = rest != "" && len(records) < q.Limit && s.MayRead() {
		var found []store.Found
		found, rest, err = t.view.Page(ctx, s, rest, q.Limit-len(records))
		reads++
		if err != nil {
			return nil, Page{}, err
		}
		sets, err := t.readSets(ctx, found, q.WithSets)
		if err != nil {
			return nil, Page{}, err
		}
		for i, f := range found {
			e, err := t.entry(f.Record, f.Err)
			if err != nil {
				unreadable.add(err)
				continue
			}
			e.sets = sets[i]
			p.Entries, records = append(p.Entries, e), append(records, f.Record)
		}
	}
	p.Next, p.Prev = s.Around(records, rest)
	if s.Backwards() {
		slices.Reverse(p.Entries)
	}
	// A later page finds out whether the index was removed. One read of an order misses nothing.
	if rest != "" || reads == 1 && q.Order != "" && len(records) > 0 && q.Disabled == nil {
		t = nil
	}
	return t, p, unreadable.err()
}

// skippedEntries counts the entries that a listing leaves out, and keeps the first error.
type skippedEntries struct {
	n     int
	first error
}

func (l *skippedEntries) add(err error) {
	l.n++
	l.first = cmp.Or(l.first, err)
}

func (l *skippedEntries) err() error {
	if l.n < 2 {
		return l.first
	}
	return fmt.Errorf("%d entries are left out; the first: %w", l.n, l.first)
}

// A Total says how many entries a query selects.
type Total struct {
	Entries int64
	// Estimate reports whether Entries may be too high. On a cluster, an index may have members
	// from changes that are still running or were interrupted; check.Run removes the latter.
	Estimate bool
}

// Count returns the number of live entries that a query selects, after q.After and within its
// bounds. It ignores q.Limit.
//
// If a single index holds the answer, Count returns the size of the index or of a part of it, with
// one command. That is so for one value of an indexed field, for one tag, for an Order with or
// without a prefix and bounds and, except on a cluster, for all entries of a type that has an
// ordered field. On a cluster, set Order to get an estimate of that number from the index.
//
// Without such an index, or if nothing is in it, Count scans the keys to count all entries of a
// type. It may then count an entry twice for the same reasons for which All may yield one twice,
// and it also counts damaged records that are no longer entries. A damaged index also makes Count
// wrong. check.Run finds both kinds of damage.
//
// For any other query, Count reads the entries as All does, which is slow and not meant for hot
// paths. Damaged records that are no longer entries are not counted. The error is then ErrCorrupt
// and names the first of them; the count of the others is valid. Entries with a damaged facet are
// counted.
func (t *Type) Count(ctx context.Context, q Query) (total Total, err error) {
	ctx, v := t.db.begin(ctx, "Count", &err)
	defer v.end(&err)
	return confirmed(ctx, q, t.count)
}

// count returns what Count returns. If entries may be missing because an index was removed, it also
// returns the type that it used.
func (t *Type) count(ctx context.Context, q Query) (used *Type, total Total, err error) {
	t, s, err := t.compileQuery(ctx, q)
	if err != nil {
		return nil, Total{}, publicError(err)
	}
	if s.SelectsAll() && !t.view.Config.Steps {
		if n, err := t.countByOrder(ctx, q); n > 0 || err != nil {
			return nil, Total{Entries: n}, err
		}
	}
	if index := s.DecidingIndex(); index.IsValid() {
		sizes, err := t.view.Engine.Cardinalities(ctx, []recordkey.Key{index})
		if err != nil {
			return nil, Total{}, err
		}
		return t.ifNone(sizes[0]), Total{Entries: sizes[0], Estimate: t.view.Config.Steps}, nil
	}
	if part, ok := s.Range(); ok {
		n, err := t.view.Engine.CountOrder(ctx, part)
		if err != nil {
			return nil, Total{}, publicError(err)
		}
		return t.ifNone(n), Total{Entries: n, Estimate: t.view.Config.Steps}, nil
	}
	var unreadable skippedEntries
	n, err := t.view.Count(ctx, s, unreadable.add)
	if err != nil {
		return nil, Total{}, err
	}
	return t, Total{Entries: n}, unreadable.err()
}

// ifNone returns t if n, the count from one read of an index, is 0. Otherwise it returns nil.
func (t *Type) ifNone(n int64) *Type {
	if n > 0 {
		return nil
	}
	return t
}

// countByOrder returns the size of an ordered index, which holds every entry of the type. It
// returns 0 if there is no such index or nothing is in it. The index may be empty although there
// are entries, if another program wrote them to a store without a schema.
func (t *Type) countByOrder(ctx context.Context, q Query) (int64, error) {
	for _, q.Order = range t.declared.Ordered {
		in, ordered, err := t.compileQuery(ctx, q)
		if err != nil || !ordered.DecidingIndex().IsValid() {
			continue
		}
		sizes, err := in.view.Engine.Cardinalities(ctx, []recordkey.Key{ordered.DecidingIndex()})
		if err != nil {
			return 0, err
		}
		return sizes[0], nil
	}
	return 0, nil
}
