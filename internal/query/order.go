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

// A Range bounds an ordered listing; all that is set must hold. Start and End include themselves; in
// reverse, a listing begins at Start and goes down to End.
type Range struct {
	GT, GTE, LT, LTE, Start, End *schema.Value
	Prefix                       string // of text
}

// An Ordering is a checked ordered listing.
type Ordering struct {
	field    string
	order    store.Order
	Selected Selection
}

// Order checks an ordered listing of what a selection means.
func Order(s Selection, field string, r Range, reverse bool) (Ordering, error) {
	t := s.Type
	if !slices.Contains(t.Ordered, field) {
		return Ordering{}, change.Invalid(field, "query", "not an ordered field; only by those can entries be listed in order")
	}
	if r.Prefix != "" && !isText(t.Schema.Codec(field)) {
		return Ordering{}, change.Invalid(field, "query", "only text has a prefix")
	}
	key, err := t.OrderKey(field)
	if err != nil {
		return Ordering{}, err
	}
	o := Ordering{field: field, order: store.Order{Key: key, Reverse: reverse}, Selected: s}
	low, high := r.Start, r.End
	if reverse {
		low, high = high, low
	}
	for _, b := range []struct {
		v           *schema.Value
		upper, open bool
	}{{r.GT, false, true}, {r.GTE, false, false}, {low, false, false}, {r.LT, true, true}, {r.LTE, true, false}, {high, true, false}} {
		if b.v == nil {
			continue
		}
		if err := o.bound(t, *b.v, b.upper, b.open); err != nil {
			return Ordering{}, err
		}
	}
	o.prefix(r.Prefix)
	return o, nil
}

func isText(c schema.Codec) bool { return c == schema.CodecText || c == schema.CodecIdentity }

// bound narrows the range by one value.
func (o *Ordering) bound(t *change.Type, v schema.Value, upper, open bool) error {
	at, ok := change.OrderBound(t.Schema.Codec(o.field), v.Wire(), upper != open)
	if !ok {
		return change.Invalid(o.field, "query", "not a value of this field, or over 1 KiB")
	}
	if upper {
		o.notFrom(at)
	} else {
		o.from(at)
	}
	return nil
}

// from narrows the range to what is not before a text; notFrom to what is before it.
func (o *Ordering) from(at string) {
	if !o.order.Min.Is || o.order.Min.At < at {
		o.order.Min = store.Bound{At: at, Is: true}
	}
}

func (o *Ordering) notFrom(at string) {
	if !o.order.Max.Is || o.order.Max.At > at {
		o.order.Max = store.Bound{At: at, Open: true, Is: true}
	}
}

func (o *Ordering) prefix(text string) {
	if text == "" {
		return
	}
	begin := change.OrderPrefix(text)
	o.from(begin)
	end := []byte(begin)
	for len(end) > 0 && end[len(end)-1] == 0xff { // nothing is behind all that begins so
		end = end[:len(end)-1]
	}
	if len(end) > 0 {
		end[len(end)-1]++
		o.notFrom(string(end))
	}
}

// Ordered reads at most want entries of an ordered listing behind a continuation, and the continuation
// for the rest.
func (c *Reader) Ordered(ctx context.Context, o Ordering, after string, want int) ([]store.Found, string, error) {
	last, err := parseOrderMark(after)
	if err != nil {
		return nil, "", err
	}
	for {
		members, err := c.orderPage(ctx, o, last, want)
		if err != nil {
			return nil, "", err
		}
		found, err := c.placed(ctx, o, members)
		if err != nil {
			return nil, "", err
		}
		if len(members) < want {
			return found, "", nil
		}
		if last = members[len(members)-1]; len(found) > 0 {
			return found, orderMark(last), nil
		}
	}
}

func (c *Reader) orderPage(ctx context.Context, o Ordering, last string, want int) ([]string, error) {
	q := o.order
	q.Count = want
	if last != "" {
		behind := store.Bound{At: last, Open: true, Is: true}
		if q.Reverse && (!q.Max.Is || last < q.Max.At) {
			q.Max = behind
		}
		if !q.Reverse && (!q.Min.Is || last >= q.Min.At) {
			q.Min = behind
		}
	}
	if q.Min.Is && q.Max.Is && q.Min.At > q.Max.At {
		return nil, nil
	}
	return c.Engine.Order(ctx, q)
}

// placed are the entries of places, in their order: those that are live, stand there by right (I4, I5) and
// are selected.
func (c *Reader) placed(ctx context.Context, o Ordering, members []string) ([]store.Found, error) {
	t := o.Selected.Type
	var prks []recordkey.Key
	for _, m := range members {
		key, err := recordkey.Parse(c.NS.String() + change.PlaceOwner(m))
		if err == nil && key.Kind() == recordkey.KindPRK && key.Type() == t.Name && key.Field() == t.Schema.Primary && !slices.Contains(prks, key) {
			prks = append(prks, key)
		}
	}
	found, err := c.filter(ctx, o.Selected, prks)
	if err != nil {
		return nil, err
	}
	return inPlace(t, o.field, members, found), nil
}

// inPlace puts what was found into the order of the places, each where it stands by right. What cannot be
// read comes first.
func inPlace(t *change.Type, field string, members []string, found []store.Found) []store.Found {
	by := make(map[string]store.Found, len(found))
	var sorted []store.Found
	for _, f := range found {
		if f.Err != nil {
			sorted = append(sorted, f)
			continue
		}
		if wire, has := f.Record.Fields[field]; has {
			if p, ok := t.Place(f.Record.Key, field, wire); ok {
				by[p.Member] = f
			}
		}
	}
	for _, m := range members {
		if f, ok := by[m]; ok {
			sorted = append(sorted, f)
		}
	}
	return sorted
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
