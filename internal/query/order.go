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

// A bound is one end of a range of values.
type bound struct {
	v     *schema.Value
	upper bool // the range ends at v; otherwise it begins there
	open  bool // the range does not include v
}

// bounds returns the bounds that the query sets.
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

// orderBy checks the order that a query requests, and stores it in s.
func (s *Selection) orderBy(q Query) error {
	bounds := q.bounds()
	if q.Order == "" && !q.Reverse && q.Prefix == "" && len(bounds) == 0 && q.Skip == 0 {
		return nil
	}
	if !slices.Contains(s.Type.Ordered, q.Order) {
		return change.Invalid(q.Order, "query", "not an ordered field; ordered fields"+joinFields(s.Type.Ordered))
	}
	if s.Type.Building.Has(q.Order, schema.RoleOrdered) {
		return errBuilding(q.Order)
	}
	if len(q.Prefix) > schema.MaxValue {
		return change.Invalid(q.Order, "query", "the prefix is over 4 KiB")
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
		return change.Invalid(q.Order, "query", "the prefix is empty in canonical form")
	}
	if q.Prefix != "" {
		s.restrictToPrefix(prefix)
	}
	if q.Prefix != "" || len(bounds) > 0 {
		s.narrow(change.FirstValue, false)
	}
	if s.skip = q.Skip; s.skip > 0 && (s.order.Min.Set || s.order.Max.Set || s.from != "") {
		return change.Invalid(q.Order, "query", "skip cannot be combined with bounds or a continuation")
	}
	return nil
}

// narrow excludes positions from bound onward if upper is true, and positions before bound
// otherwise.
func (s *Selection) narrow(bound string, upper bool) {
	low, high := &s.order.Min, &s.order.Max
	if !upper && (!low.Set || low.At < bound) {
		*low = store.Bound{At: bound, Set: true}
	}
	if upper && (!high.Set || high.At > bound) {
		*high = store.Bound{At: bound, Exclusive: true, Set: true}
	}
}

// restrictToPrefix restricts the range to positions with a prefix.
func (s *Selection) restrictToPrefix(prefix string) {
	s.narrow(prefix, false)
	end := []byte(prefix)
	for len(end) > 0 && end[len(end)-1] == 0xff { // 0xff cannot be incremented
		end = end[:len(end)-1]
	}
	if len(end) > 0 {
		end[len(end)-1]++
		s.narrow(string(end), true)
	}
}

// pageInOrder returns a page of an ordered selection.
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
	size := s.batch(want)
	if s.bytes != nil {
		want = min(want, scanBatch) // the limit on bytes does not count the members of the order
	}
	count := want + 1 // one member more tells whether anything follows the page
	var found []store.Found
	for {
		if s.onlyDisabled() {
			count = s.checks()
		}
		members, err := rd.members(ctx, s, at, count)
		if err != nil {
			return nil, "", err
		}
		var enabled enabledSet
		if s.onlyDisabled() {
			if enabled, err = rd.findEnabled(ctx, s, rd.ownersOf(s, members)); err != nil {
				return nil, "", err
			}
		}
		isEnabled := func(member string) bool { return len(enabled) > 0 && enabled.has(rd.ownerOf(member)) }
		rest := members
		for more := true; more && len(rest) > 0; more = s.MayRead() && len(found) < want {
			batch := cut(rest, min(size, want-len(found)), isEnabled)
			some, err := rd.entriesAt(ctx, s, slices.DeleteFunc(slices.Clone(batch), isEnabled))
			if err != nil {
				return nil, "", err
			}
			found, rest = append(found, some...), rest[len(batch):]
			at = bookmark{cursor: cursor, last: batch[len(batch)-1], taken: s.orderDigest()}
		}
		switch {
		case len(members) < count && len(rest) == 0:
			return found, "", nil
		case len(found) == want, len(found) > 0 && !s.onlyDisabled(), !s.MayRead():
			return found, at.String(), nil
		}
	}
}

// orderDigest returns a digest of the key of the ordered index. It distinguishes continuations in
// this index from those in others.
func (s Selection) orderDigest() []uint64 { return []uint64{digest(s.order.Key)} }

// Backwards reports whether a selection reads backwards from a position. If so, its entries are in
// the order in which they are read, with the one nearest to the position first.
func (s Selection) Backwards() bool { return strings.HasPrefix(s.from, backward) }

// Around returns the continuations that lead forward and backward from a page. rest is the
// continuation that was returned with the page. If the page is empty, the continuation in the
// opposite direction begins at the position after which the page was read, and includes it.
func (s Selection) Around(page []store.Record, rest string) (next, before string) {
	at := func(cursor, position string) string {
		return bookmark{cursor: cursor, last: position, taken: s.orderDigest()}.String()
	}
	first := ""
	if len(page) > 0 {
		// This cannot fail, because the index has the entry.
		p, _ := s.Type.Position(page[0], s.field)
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

// members reads the next members of the ordered index, starting at a bookmark.
func (rd *Reader) members(ctx context.Context, s Selection, at bookmark, want int) ([]string, error) {
	q := s.order
	q.Count = want
	if at.last == "" {
		q.Skip = s.skip
	}
	if last := at.last; last != "" {
		after := store.Bound{At: last, Exclusive: !strings.HasSuffix(at.cursor, inclusive), Set: true}
		if q.Reverse && (!q.Max.Set || last < q.Max.At) {
			q.Max = after
		}
		if !q.Reverse && (!q.Min.Set || last >= q.Min.At) {
			q.Min = after
		}
	}
	if q.Min.Set && q.Max.Set && q.Min.At > q.Max.At {
		return nil, nil
	}
	return rd.Engine.Order(ctx, q)
}

// entriesAt returns the entries of members of the ordered index, in their order. It skips entries
// that are not live, that do not belong there (I4, I5), or that are not selected. Errors come
// before all entries.
func (rd *Reader) entriesAt(ctx context.Context, s Selection, members []string) ([]store.Found, error) {
	found, err := rd.filter(ctx, s, lookups(rd.ownersOf(s, members))...)
	byMember := make(map[string]store.Found, len(found))
	var sorted []store.Found
	for _, f := range found {
		if f.Err != nil {
			sorted = append(sorted, f)
			continue
		}
		if p, ok := s.Type.Position(f.Record, s.field); ok {
			byMember[p.Member] = f
		}
	}
	for _, m := range members {
		if f, ok := byMember[m]; ok {
			sorted = append(sorted, f)
		}
	}
	return sorted, err
}

// ownerOf returns the key in a member of an ordered index, or the zero Key if it is damaged.
func (rd *Reader) ownerOf(member string) recordkey.Key {
	key, _ := recordkey.Parse(rd.NS.String() + change.PositionOwner(member))
	return key
}

// ownersOf returns the PRKs of the type in members of an ordered index, in the same order and
// without duplicates.
func (rd *Reader) ownersOf(s Selection, members []string) []recordkey.Key {
	var prks []recordkey.Key
	seen := map[recordkey.Key]bool{}
	for _, m := range members {
		if key := rd.ownerOf(m); rd.owns(s.Type, key) && !seen[key] {
			prks, seen[key] = append(prks, key), true
		}
	}
	return prks
}
