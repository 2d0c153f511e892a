package check

import (
	"context"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
)

// Codes of problems with ordered indexes.
const (
	codeOrderKind       = "order_kind"
	codeOrderMissing    = "order_missing"
	codeOrderOrphan     = "order_orphan"
	codeOrderStale      = "order_stale"
	codeOrderUndeclared = "order_undeclared"
	codeOrderUnplaced   = "order_unplaced"
)

func init() {
	for code, fact := range map[string]struct {
		invariant int
		warning   bool
	}{
		codeOrderKind:       {5, false},
		codeOrderMissing:    {5, false},
		codeOrderOrphan:     {4, false},
		codeOrderStale:      {5, false},
		codeOrderUndeclared: {0, true},
		codeOrderUnplaced:   {5, false},
	} {
		facts[code] = fact
	}
	for _, code := range []string{codeOrderKind, codeOrderMissing, codeOrderOrphan, codeOrderStale} {
		classes[code] = classRecord
	}
}

// mendOrder makes room where an ordered index is no sorted set.
func (c *checker) mendOrder(ctx context.Context, key recordkey.Key, due findings) error {
	if due[0].Code != codeOrderKind {
		return nil
	}
	_, err := c.Engine.Mend(ctx, store.Remove{Key: key.String(), Kind: "zset"})
	return err
}

// mendPlaces puts an entry at its places in ordered indexes.
func (c *checker) mendPlaces(ctx context.Context, t *change.Type, prk recordkey.Key) error {
	hashes, err := store.Hashes(ctx, c.Engine, []string{prk.String()})
	if err != nil {
		return err
	}
	places, _ := t.Places(store.Record{Key: prk, Fields: hashes[0].Fields})
	for _, p := range places {
		if _, err := c.Engine.Mend(ctx, store.Rank{Entry: prk, At: p}); err != nil {
			return err
		}
	}
	return nil
}

// mendPlace takes a place out of an ordered index that is not its entry's.
func (c *checker) mendPlace(ctx context.Context, m member, _ findings) error {
	typ, field, _ := orderOf(m.set)
	t, err := c.Type(typ)
	if err != nil {
		return err
	}
	key, code := ownerOf(t, m.set.Namespace(), change.PlaceOwner(m.text))
	if code != "" {
		_, err = c.Engine.Mend(ctx, store.Rank{At: store.Ranked{Key: m.set, Member: m.text}, Free: true})
		return err
	}
	hashes, err := store.Hashes(ctx, c.Engine, []string{key.String()})
	if err != nil {
		return err
	}
	facet, has := hashes[0].Fields[field]
	if has && placedAt(t, key, field, facet, m.text) {
		return nil
	}
	at := store.Ranked{Key: m.set, Member: m.text, Facet: store.Facet{Field: field, Wire: facet}}
	_, err = c.Engine.Mend(ctx, store.Rank{Entry: key, At: at, Free: true})
	return err
}

// orderOf says of which type and field a record of the store's own is the ordered index.
func orderOf(key recordkey.Key) (typ, field string, is bool) {
	parts := key.Parts()
	if key.Kind() != recordkey.KindOwn || len(parts) != 3 || parts[0] != "order" {
		return "", "", false
	}
	return parts[1], parts[2], true
}

// ordersAmong are those of some keys that name ordered indexes of the view.
func (c *checker) ordersAmong(keys []string) (orders []recordkey.Key) {
	prefix := c.NS.String() + "~/order/"
	for _, raw := range keys {
		if !strings.HasPrefix(raw, prefix) {
			continue
		}
		key, err := recordkey.Parse(raw)
		if _, _, is := orderOf(key); err == nil && is {
			orders = append(orders, key)
		}
	}
	return orders
}

// lookAtPlaces looks whether entries are at their places in the ordered indexes (I5).
func (c *checker) lookAtPlaces(ctx context.Context, fs *findings, es []*entry) error {
	var asked []store.Ranked
	var of []*entry
	for _, e := range es {
		places, without := e.t.Places(store.Record{Key: e.key, Fields: e.fields})
		for _, field := range without {
			e.add(fs, codeOrderUnplaced, e.key, "%s has no place in the order of the field: over 1 KiB, or not readable", records.Quoted(field)).seen += " " + field
		}
		for _, p := range places {
			asked, of = append(asked, p), append(of, e)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	placed, err := c.Engine.Placed(ctx, asked)
	for i := range placed {
		if !placed[i] {
			of[i].add(fs, codeOrderMissing, asked[i].Key, "%s is not at its place in it", records.Printable(of[i].prk))
		}
	}
	return err
}

// lookAtOrders judges ordered indexes by themselves; their members are judged by lookAtOrderMembers.
func (c *checker) lookAtOrders(ctx context.Context, keys []recordkey.Key) (findings, error) {
	kinds, err := store.Kinds(ctx, c.Engine, records.Texts(keys))
	var fs findings
	for i, kind := range kinds {
		typ, field, _ := orderOf(keys[i])
		t, err := c.Type(typ)
		switch {
		case kind == store.KindNone:
		case kind != "zset":
			fs.add(i, codeOrderKind, keys[i], "", "an ordered index is a sorted set, and this a %s", records.Quoted(kind))
		case err != nil || !slices.Contains(t.Ordered, field):
			fs.add(i, codeOrderUndeclared, keys[i], "", "the schema keeps no order of %s %s", records.Quoted(typ), records.Quoted(field))
		}
	}
	return fs, err
}

// orders judges ordered indexes, and all of their members, or those that keep says.
func (c *checker) orders(ctx context.Context, keys []recordkey.Key, keep func(string) bool) error {
	if err := settle(ctx, c, keys, c.lookAtOrders, c.mendOrder); err != nil {
		return err
	}
	for _, key := range keys {
		if err := c.orderMembers(ctx, key, keep); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) orderMembers(ctx context.Context, key recordkey.Key, keep func(string) bool) error {
	typ, field, _ := orderOf(key)
	if t, err := c.Type(typ); err != nil || !slices.Contains(t.Ordered, field) {
		return nil
	}
	q := store.Order{Key: key, Count: memberBatch}
	for {
		members, err := c.Engine.Order(ctx, q)
		if store.IsEntryError(err) {
			return nil // another Redis type
		}
		if err != nil {
			return err
		}
		var ms []member
		for _, m := range members {
			if keep == nil || keep(m) {
				ms = append(ms, member{key, m})
			}
		}
		if err := settle(ctx, c, ms, c.lookAtOrderMembers, c.mendPlace); err != nil {
			return err
		}
		if len(members) < q.Count {
			return nil
		}
		q.Min = store.Bound{At: members[len(members)-1], Open: true, Is: true}
	}
}

// lookAtOrderMembers judges places by the entries that they name (I4, I5).
func (c *checker) lookAtOrderMembers(ctx context.Context, ms []member) (findings, error) {
	var fs findings
	asked := make([]ownerRead, len(ms))
	for i, m := range ms {
		typ, field, _ := orderOf(m.set)
		t, err := c.Type(typ)
		if err != nil {
			return nil, err
		}
		key, code := ownerOf(t, m.set.Namespace(), change.PlaceOwner(m.text))
		if code != "" {
			fs.add(i, codeOrderOrphan, m.set, m.text, "a member %s names no entry of type %s", records.Quoted(m.text), records.Quoted(t.Name))
			continue
		}
		asked[i] = ownerRead{t: t, key: key, field: field, fine: func(facet string) bool {
			return placedAt(t, key, field, facet, m.text)
		}}
	}
	owners, err := c.owners(ctx, asked)
	if err != nil {
		return nil, err
	}
	for i, o := range owners {
		_, field, _ := orderOf(ms[i].set)
		facet, has := o.fields[field]
		switch {
		case !o.key.IsValid() || o.fine:
		case !o.live():
			fs.add(i, codeOrderOrphan, ms[i].set, o.seen()+ms[i].text, "a member %s names no entry", records.Quoted(ms[i].text))
		case !has || !placedAt(asked[i].t, o.key, field, facet, ms[i].text):
			fs.add(i, codeOrderStale, ms[i].set, o.seen()+ms[i].text, "%s is at a place in it that is not its own", records.Printable(records.Relative(o.key)))
		}
	}
	return c.stillPlaced(ctx, ms, fs)
}

// placedAt says whether an entry with a facet belongs at a place.
func placedAt(t *change.Type, prk recordkey.Key, field, facet, member string) bool {
	places, _ := t.Places(store.Record{Key: prk, Fields: map[string]string{field: facet}})
	return len(places) == 1 && places[0].Member == member
}

// stillPlaced keeps what was found about members that are still there.
func (c *checker) stillPlaced(ctx context.Context, ms []member, found findings) (findings, error) {
	if len(found) == 0 {
		return nil, nil
	}
	asked := make([]store.Ranked, len(found))
	for i, f := range found {
		asked[i] = store.Ranked{Key: ms[f.at].set, Member: ms[f.at].text}
	}
	placed, err := c.Engine.Placed(ctx, asked)
	var still findings
	for i := range placed {
		if placed[i] {
			still = append(still, found[i])
		}
	}
	return still, err
}

// placesOf judges the places of some entries.
func (c *checker) placesOf(ctx context.Context, t *change.Type, prks []recordkey.Key) error {
	mine := map[string]bool{}
	for _, prk := range prks {
		mine[records.Relative(prk)] = true
	}
	var orders []recordkey.Key
	for _, field := range t.Ordered {
		key, err := t.OrderKey(field)
		if err != nil {
			return err
		}
		orders = append(orders, key)
	}
	return c.orders(ctx, orders, func(m string) bool { return mine[change.PlaceOwner(m)] })
}
