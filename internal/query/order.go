package query

import (
	"context"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// A bound is an end of a range of values.
type bound struct {
	v           *schema.Value
	upper, open bool
}

// bounds are those that a query sets.
func (q Query) bounds() []bound {
	low, high := q.Start, q.End
	if q.Reverse {
		low, high = high, low
	}
	all := []bound{
		{q.GT, false, true},
		{q.GTE, false, false},
		{low, false, false},
		{q.LT, true, true},
		{q.LTE, true, false},
		{high, true, false},
	}
	return slices.DeleteFunc(all, func(b bound) bool { return b.v == nil })
}

// orderBy checks the order that a query asks for, if it asks for one.
func (s *Selection) orderBy(q Query) error {
	bounds := q.bounds()
	if q.Order == "" && !q.Reverse && q.Prefix == "" && len(bounds) == 0 {
		return nil
	}
	if !slices.Contains(s.Type.Ordered, q.Order) {
		return change.Invalid(q.Order, "query", "not an ordered field; ordered fields"+joinFields(s.Type.Ordered))
	}
	if s.Type.Building.Has(q.Order, schema.RoleOrdered) {
		return errBuilding(q.Order)
	}
	prefix, isText := s.Type.OrderPrefix(q.Order, q.Prefix)
	if q.Prefix != "" && !isText {
		return change.Invalid(q.Order, "query", "only text has a prefix")
	}
	key, err := s.Type.OrderKey(q.Order)
	if err != nil {
		return err
	}
	s.field, s.order = q.Order, store.Order{Key: key, Reverse: q.Reverse}
	for _, b := range bounds {
		at, ok := s.Type.OrderBound(q.Order, b.v.Wire(), b.upper != b.open)
		if !ok {
			return change.Invalid(s.field, "query", "not a value of this field, or over 1 KiB")
		}
		s.narrow(at, b.upper)
	}
	if q.Prefix != "" && prefix == "" {
		return change.Invalid(q.Order, "query", "nothing of the prefix is left in the canonical form")
	}
	if q.Prefix != "" {
		s.prefix(prefix)
	}
	return nil
}

// narrow narrows the range to what is not before a text or, with upper, to what is before it.
func (s *Selection) narrow(at string, upper bool) {
	low, high := &s.order.Min, &s.order.Max
	if !upper && (!low.Is || low.At < at) {
		*low = store.Bound{At: at, Is: true}
	}
	if upper && (!high.Is || high.At > at) {
		*high = store.Bound{At: at, Open: true, Is: true}
	}
}

// prefix narrows the range to what begins with a text.
func (s *Selection) prefix(begin string) {
	s.narrow(begin, false)
	end := []byte(begin)
	for len(end) > 0 && end[len(end)-1] == 0xff { // nothing comes after all that begins so
		end = end[:len(end)-1]
	}
	if len(end) > 0 {
		end[len(end)-1]++
		s.narrow(string(end), true)
	}
}

// pageInOrder is Page of an ordered selection.
func (rd *Reader) pageInOrder(ctx context.Context, s Selection, after string, want int) ([]store.Found, string, error) {
	at, err := parseBookmark(after, true)
	if err == nil && at.last != "" && !slices.Equal(at.taken, s.orderDigest()) {
		err = store.ErrCursor
	}
	if err != nil {
		return nil, "", err
	}
	cursor := inOrder
	if s.Backwards() {
		s.order.Reverse, cursor = !s.order.Reverse, backward
	}
	for {
		members, err := rd.members(ctx, s, at, want)
		if err != nil {
			return nil, "", err
		}
		found, err := rd.entriesAt(ctx, s, members)
		if err != nil || len(members) < want {
			return found, "", err
		}
		at = bookmark{cursor: cursor, last: members[len(members)-1], taken: s.orderDigest()}
		if len(found) > 0 || !s.MayRead() {
			return found, at.String(), nil
		}
	}
}

// mark tells the continuations of an order from those of another one.
func (s Selection) orderDigest() []uint64 { return []uint64{digest(s.order.Key)} }

// Backwards reports whether a selection leads back. Its entries come in the order in which they are read: from the one before
// the place, away from it.
func (s Selection) Backwards() bool { return strings.HasPrefix(s.from, backward) }

// Around are the continuations that lead on from a page, and back from it: of records as they were read, with the
// continuation for what is left. From an empty page they lead where it was come from.
func (s Selection) Around(page []store.Record, rest string) (next, before string) {
	at := func(cursor, place string) string {
		return bookmark{cursor: cursor, last: place, taken: s.orderDigest()}.String()
	}
	first := ""
	if len(page) > 0 {
		p, _ := s.Type.Place(page[0].Key, s.field, page[0].Fields[s.field]) // it was found there
		first = p.Member
	}
	switch from, _ := parseBookmark(s.from, true); {
	case s.field == "" || s.from == "":
		return rest, ""
	case s.Backwards() && first == "":
		return at(inOrder+inclusive, from.last), rest
	case s.Backwards():
		return at(inOrder, first), rest
	case first == "":
		return rest, at(backward+inclusive, from.last)
	}
	return rest, at(backward, first)
}

// members reads the next members of the ordered index, from a bookmark on.
func (rd *Reader) members(ctx context.Context, s Selection, at bookmark, want int) ([]string, error) {
	q := s.order
	q.Count = want
	if last := at.last; last != "" {
		after := store.Bound{At: last, Open: !strings.HasSuffix(at.cursor, inclusive), Is: true}
		if q.Reverse && (!q.Max.Is || last < q.Max.At) {
			q.Max = after
		}
		if !q.Reverse && (!q.Min.Is || last >= q.Min.At) {
			q.Min = after
		}
	}
	if q.Min.Is && q.Max.Is && q.Min.At > q.Max.At {
		return nil, nil
	}
	return rd.Engine.Order(ctx, q)
}

// entriesAt are the entries of members of the ordered index, in their order: those that are live, belong there
// (I4, I5) and are selected. What cannot be read comes first.
func (rd *Reader) entriesAt(ctx context.Context, s Selection, members []string) ([]store.Found, error) {
	var prks []recordkey.Key
	met := map[recordkey.Key]bool{}
	for _, m := range members {
		key, err := recordkey.Parse(rd.NS.String() + change.PlaceOwner(m))
		if err == nil && rd.owns(s.Type, key) && !met[key] {
			prks, met[key] = append(prks, key), true
		}
	}
	found, err := rd.filter(ctx, s, lookups(prks)...)
	by := make(map[string]store.Found, len(found))
	var sorted []store.Found
	for _, f := range found {
		if f.Err != nil {
			sorted = append(sorted, f)
			continue
		}
		if wire, has := f.Record.Fields[s.field]; has {
			if p, ok := s.Type.Place(f.Record.Key, s.field, wire); ok {
				by[p.Member] = f
			}
		}
	}
	for _, m := range members {
		if f, ok := by[m]; ok {
			sorted = append(sorted, f)
		}
	}
	return sorted, err
}
