package userdb

import (
	"context"
	"errors"
	"iter"

	"github.com/coffeenode/userdb/internal/query"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/schema"
)

// A Query selects entries of a type. The zero Query selects all.
type Query struct {
	Where schema.Facets // each an indexed, a secondary or the primary field; all must hold
	Has   []string      // all of these tags; the schema must declare "tags" as an indexed set
	After string        // the continuation that Page gave; "": from the beginning
	Limit int           // at most so many; 0: no limit for All, 100 for Page

	Disabled *bool // only entries that may not log in, or only those that may; nil: either. No index helps

	Order   string // an ordered field, by whose values entries come; those without one are left out. "": no order
	Reverse bool   // from the greatest value down
	Range   Range  // of values of Order
}

// A Range bounds an ordered listing. All that is set must hold; nil sets nothing. Start and End include
// themselves; in reverse a listing begins at Start and goes down to End. Prefix is for text.
type Range = query.Range

// pageLimit is the limit of a Page that was asked for without one.
const pageLimit = 100

// All yields the entries that a query selects, reading in batches: memory stays flat and the server is
// never blocked. Without Order they come in no order, by SCAN. An entry that is there all the time is yielded at least
// once, one that comes or goes meanwhile perhaps, and, while the server's tables grow or shrink, or where it begins anew
// or a replica takes its place, one may be yielded twice. An entry that cannot be read yields its ErrCorrupt, and the sequence goes
// on; any other error ends it.
//
// With Order they come by the values of an ordered field, and by their PRKs where those are equal: text by
// code points, numbers by size behind NaN, dates by time, null before false before true. Case and
// accents count: it is the order of the bytes, not of a dictionary. An entry whose value changes
// meanwhile may be yielded twice, or not at all.
func (t *Type) All(ctx context.Context, q Query) iter.Seq2[Entry, error] {
	if q.ordered() {
		return t.allOrdered(ctx, q)
	}
	return func(yield func(Entry, error) bool) {
		s, err := t.selection(q)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		left := q.Limit
		for found, err := range t.db.view.Batches(ctx, s, q.After) {
			if err != nil {
				yield(Entry{}, err)
				return
			}
			for _, f := range found {
				e, err := t.found(f)
				if left--; !yield(e, err) || left == 0 {
					return
				}
			}
		}
	}
}

// Page returns up to q.Limit of the entries that All would yield, and the continuation for the next
// page, "" at the end. Entries that cannot be read are left out, and joined into err beside the
// others, which are good.
func (t *Type) Page(ctx context.Context, q Query) (es []Entry, next string, err error) {
	if q.Limit <= 0 {
		q.Limit = pageLimit
	}
	page, err := t.pager(q)
	if err != nil {
		return nil, "", err
	}
	var unreadable []error
	next = q.After
	for len(es) < q.Limit {
		var found []store.Found
		found, next, err = page(ctx, next, q.Limit-len(es))
		if err != nil {
			return nil, "", err
		}
		for _, f := range found {
			if e, err := t.found(f); err != nil {
				unreadable = append(unreadable, err)
			} else {
				es = append(es, e)
			}
		}
		if next == "" {
			break
		}
	}
	return es, next, errors.Join(unreadable...)
}

// pager reads pages of a query.
func (t *Type) pager(q Query) (func(ctx context.Context, after string, want int) ([]store.Found, string, error), error) {
	s, err := t.selection(q)
	if err != nil {
		return nil, err
	}
	if !q.ordered() {
		return func(ctx context.Context, after string, want int) ([]store.Found, string, error) {
			return t.db.view.Page(ctx, s, after, want)
		}, nil
	}
	o, err := query.Order(s, q.Order, q.Range, q.Reverse)
	return func(ctx context.Context, after string, want int) ([]store.Found, string, error) {
		return t.db.view.Ordered(ctx, o, after, want)
	}, err
}

func (t *Type) selection(q Query) (query.Selection, error) {
	s, err := query.Select(t.t, q.Where, q.Has)
	s.Disabled = q.Disabled
	return s, err
}

func (q Query) ordered() bool { return q.Order != "" || q.Reverse || q.Range != (Range{}) }

// orderedBatch is how many places are read at a time.
const orderedBatch = 256

// allOrdered is All for a query with an order.
func (t *Type) allOrdered(ctx context.Context, q Query) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		page, err := t.pager(q)
		next, left := q.After, q.Limit
		for begun := false; err == nil && (next != "" || !begun); begun = true {
			var found []store.Found
			found, next, err = page(ctx, next, orderedBatch)
			for _, f := range found {
				e, err := t.found(f)
				if left--; !yield(e, err) || left == 0 {
					return
				}
			}
		}
		if err != nil {
			yield(Entry{}, err)
		}
	}
}

// Count says how many live entries the type has, by SCAN: for people, not for a hot path.
func (t *Type) Count(ctx context.Context) (int64, error) {
	var n int64
	for found, err := range t.db.view.Batches(ctx, query.Selection{Type: t.t}, "") {
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
