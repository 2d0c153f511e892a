package query

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// A Range bounds an ordered listing, as userdb.Range says.
type Range struct {
	GT, GTE, LT, LTE *schema.Value
	Start, End       *schema.Value
	Prefix           string
}

// orderBy checks the order that a query asks for.
func (s *Selection) orderBy(q Query) error {
	if !slices.Contains(s.Type.Ordered, q.Order) {
		return change.Invalid(q.Order, "query", "not an ordered field; only by those can entries be listed in order")
	}
	if q.Range.Prefix != "" && !isText(s.Type.Schema.Codec(q.Order)) {
		return change.Invalid(q.Order, "query", "only text has a prefix")
	}
	key, err := s.Type.OrderKey(q.Order)
	if err != nil {
		return err
	}
	s.field, s.order = q.Order, store.Order{Key: key, Reverse: q.Reverse}
	low, high := q.Range.Start, q.Range.End
	if q.Reverse {
		low, high = high, low
	}
	for _, b := range []struct {
		v           *schema.Value
		upper, open bool
	}{
		{q.Range.GT, false, true},
		{q.Range.GTE, false, false},
		{low, false, false},
		{q.Range.LT, true, true},
		{q.Range.LTE, true, false},
		{high, true, false},
	} {
		if b.v == nil {
			continue
		}
		if err := s.bound(*b.v, b.upper, b.open); err != nil {
			return err
		}
	}
	s.prefix(q.Range.Prefix)
	return nil
}

func isText(c schema.Codec) bool { return c == schema.CodecText || c == schema.CodecIdentity }

// bound narrows the range by one value.
func (s *Selection) bound(v schema.Value, upper, open bool) error {
	at, ok := change.OrderBound(s.Type.Schema.Codec(s.field), v.Wire(), upper != open)
	if !ok {
		return change.Invalid(s.field, "query", "not a value of this field, or over 1 KiB")
	}
	if upper {
		s.notFrom(at)
	} else {
		s.from(at)
	}
	return nil
}

// from narrows the range to what is not before a text; notFrom to what is before it.
func (s *Selection) from(at string) {
	if !s.order.Min.Is || s.order.Min.At < at {
		s.order.Min = store.Bound{At: at, Is: true}
	}
}

func (s *Selection) notFrom(at string) {
	if !s.order.Max.Is || s.order.Max.At > at {
		s.order.Max = store.Bound{At: at, Open: true, Is: true}
	}
}

func (s *Selection) prefix(text string) {
	if text == "" {
		return
	}
	begin := change.OrderPrefix(text)
	s.from(begin)
	end := []byte(begin)
	for len(end) > 0 && end[len(end)-1] == 0xff { // nothing comes after all that begins so
		end = end[:len(end)-1]
	}
	if len(end) > 0 {
		end[len(end)-1]++
		s.notFrom(string(end))
	}
}

// pageInOrder is Page of an ordered selection.
func (c *Reader) pageInOrder(ctx context.Context, s Selection, after string, want int) ([]store.Found, string, error) {
	last, err := parseOrderMark(after)
	if err != nil {
		return nil, "", err
	}
	for {
		members, err := c.members(ctx, s, last, want)
		if err != nil {
			return nil, "", err
		}
		found, err := c.entriesAt(ctx, s, members)
		if err != nil || len(members) < want {
			return found, "", err
		}
		if last = members[len(members)-1]; len(found) > 0 {
			return found, orderMark(last), nil
		}
	}
}

// members reads the next members of the ordered index, after the last one.
func (c *Reader) members(ctx context.Context, s Selection, last string, want int) ([]string, error) {
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
	return c.Engine.Order(ctx, q)
}

// entriesAt are the entries of members of the ordered index, in their order: those that are live, belong there
// (I4, I5) and are selected. What cannot be read comes first.
func (c *Reader) entriesAt(ctx context.Context, s Selection, members []string) ([]store.Found, error) {
	var prks []recordkey.Key
	for _, m := range members {
		key, err := recordkey.Parse(c.NS.String() + change.PlaceOwner(m))
		if err == nil && c.owns(s.Type, key) && !slices.Contains(prks, key) {
			prks = append(prks, key)
		}
	}
	found, err := c.filter(ctx, s, prks)
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

// A continuation of an ordered listing is the last place, as text.
const orderMarkPrefix = "o."

func orderMark(last string) string {
	return orderMarkPrefix + base64.RawURLEncoding.EncodeToString([]byte(last))
}

func parseOrderMark(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	encoded, ok := strings.CutPrefix(text, orderMarkPrefix)
	last, err := base64.RawURLEncoding.DecodeString(encoded)
	if !ok || err != nil || len(last) == 0 || len(text) > maxBookmark {
		return "", store.ErrCursor
	}
	return string(last), nil
}
