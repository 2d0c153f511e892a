package query

import (
	"context"
	"slices"

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
		return change.Invalid(q.Order, "query", "not an ordered field; only by those can entries be listed in order")
	}
	codec := s.Type.Schema.Codec(q.Order)
	if q.Prefix != "" && codec != schema.CodecText && codec != schema.CodecIdentity {
		return change.Invalid(q.Order, "query", "only text has a prefix")
	}
	key, err := s.Type.OrderKey(q.Order)
	if err != nil {
		return err
	}
	s.field, s.order = q.Order, store.Order{Key: key, Reverse: q.Reverse}
	for _, b := range bounds {
		at, ok := change.OrderBound(codec, b.v.Wire(), b.upper != b.open)
		if !ok {
			return change.Invalid(s.field, "query", "not a value of this field, or over 1 KiB")
		}
		s.narrow(at, b.upper)
	}
	if q.Prefix != "" {
		s.prefix(change.EscapeZero(q.Prefix))
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
	if err != nil {
		return nil, "", err
	}
	for {
		members, err := rd.members(ctx, s, at.last, want)
		if err != nil {
			return nil, "", err
		}
		found, err := rd.entriesAt(ctx, s, members)
		if err != nil || len(members) < want {
			return found, "", err
		}
		at = bookmark{cursor: inOrder, last: members[len(members)-1]}
		if len(found) > 0 {
			return found, at.String(), nil
		}
	}
}

// members reads the next members of the ordered index, after the last one.
func (rd *Reader) members(ctx context.Context, s Selection, last string, want int) ([]string, error) {
	q := s.order
	q.Count = want
	if last != "" {
		after := store.Bound{At: last, Open: true, Is: true}
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
	for _, m := range members {
		key, err := recordkey.Parse(rd.NS.String() + change.PlaceOwner(m))
		if err == nil && rd.owns(s.Type, key) && !slices.Contains(prks, key) {
			prks = append(prks, key)
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
