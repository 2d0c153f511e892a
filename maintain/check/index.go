package check

import (
	"context"
	"slices"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
)

// lookAtMemberships looks whether entries are in the index sets of their facets, and at their places in the ordered
// indexes (I5).
func (c *checker) lookAtMemberships(ctx context.Context, fs *findings, es []*entry) error {
	var at []store.Ranked // where they must be, in index sets too
	var of []*entry
	for _, e := range es {
		for _, field := range e.t.Indexed {
			facet, has := e.fields[field]
			if !has {
				continue
			}
			index, err := recordkey.Index(e.t.Name, field, facet)
			if err != nil {
				e.add(fs, indexUnkeyable, e.key, records.Quoted(field), records.Unkeyable(facet))
				continue
			}
			at = append(at, store.Ranked{Key: index.In(c.NS), Member: e.prk, Facet: store.Facet{Field: field, Wire: facet}})
			of = append(of, e)
		}
		places, without := e.t.Places(store.Record{Key: e.key, Fields: e.fields})
		for _, field := range without {
			e.add(fs, orderUnplaced, e.key, records.Quoted(field)).seen += " " + field
		}
		for _, place := range places {
			at, of = append(at, place), append(of, e)
		}
	}
	asked := mapped(at, func(r store.Ranked) store.Member {
		return store.Member{Set: r.Key, Value: r.Member, Ordered: r.Key.Kind() != recordkey.KindIndex}
	})
	has, err := c.Engine.Holds(ctx, asked, store.AnyMoment)
	for i := range has {
		switch e := of[i]; {
		case has[i]:
		case asked[i].Ordered:
			e.add(fs, orderMissing, at[i].Key, records.Printable(e.prk)).step = store.Rank{Entry: e.key, At: at[i]}
		default:
			step := store.Align{Index: at[i].Key, Member: e.prk, Entry: e.key, Facet: at[i].Facet}
			e.add(fs, indexMissing, at[i].Key, records.Printable(e.prk), "").step = step
		}
	}
	return err
}

// lookAtIndexes judges index sets and ordered indexes by themselves; their members are judged by lookAtIndexMembers and
// lookAtOrderMembers.
func (c *checker) lookAtIndexes(ctx context.Context, items []item) (fs findings, err error) {
	kinds, err := store.Kinds(ctx, c.Engine, raws(items))
	for i, kind := range kinds {
		key := items[i].key
		want, wrong := "set", indexKind
		typ, field, ordered := orderOf(key)
		if ordered {
			want, wrong = "zset", orderKind
		}
		switch {
		case kind == store.KindNone:
		case kind != want:
			fs.add(i, wrong, key, "", records.Quoted(kind)).step = store.Remove{Key: items[i].raw, Kind: want}
		case ordered && c.ordered(key) == nil:
			fs.add(i, orderUndeclared, key, "", records.Quoted(typ), records.Quoted(field))
		case !ordered && !c.indexes(key):
			fs.add(i, indexUndeclared, key, "", records.Quoted(key.Field()))
		}
	}
	return fs, err
}

// indexes reports whether the schema declares an index set.
func (c *checker) indexes(set recordkey.Key) bool {
	t, field := c.types[set.Type()], set.Field()
	return slices.Contains(t.Indexed, field) || t.Schema.Tertiary[field].Indexed
}

// membership is an entry's place in an index set that the schema declares.
func (c *checker) membership(index item, entry recordkey.Key) (m store.Align, declared bool) {
	t, field, value := c.types[index.key.Type()], index.key.Field(), index.key.Value()
	m = store.Align{Index: index.key, Member: index.member, Entry: entry}
	if slices.Contains(t.Indexed, field) {
		m.Facet = store.Facet{Field: field, Wire: value}
		return m, true
	}
	set, err := entry.Tertiary(field)
	m.Set, m.Value = set, value
	return m, err == nil && t.Schema.Tertiary[field].Indexed
}

// lookAtIndexMembers judges members of index sets by the entries that they name (I4, I5).
func (c *checker) lookAtIndexMembers(ctx context.Context, items []item) (findings, error) {
	owners := mapped(items, func(it item) owner {
		t := c.types[it.key.Type()]
		key, _ := ownerOf(t, it.key.Namespace(), it.member)
		if slices.Contains(t.Indexed, it.key.Field()) {
			return owner{t: t, key: key, field: it.key.Field(), fits: func(facet string) bool { return facet == it.key.Value() }}
		}
		return owner{t: t, key: key, field: store.FieldType, fits: notEmpty}
	})
	if err := c.readOwners(ctx, owners); err != nil {
		return nil, err
	}
	var fs findings
	var sets []store.Member
	var of []int
	for i, o := range owners {
		if m, unknown := c.judgeIndexMember(&fs, i, items[i], o); unknown {
			sets, of = append(sets, store.Member{Set: m.Set, Value: m.Value}), append(of, i)
		}
	}
	has, err := c.Engine.Holds(ctx, sets, store.AnyMoment)
	if err != nil {
		return nil, err
	}
	for j, i := range of {
		if !has[j] {
			c.addStale(&fs, i, items[i], owners[i])
		}
	}
	return c.still(ctx, items, fs)
}

// judgeIndexMember judges a member of an index set by its entry. Of an index of a tertiary set it is unknown whether that has
// the value.
func (c *checker) judgeIndexMember(fs *findings, at int, it item, o owner) (m store.Align, unknown bool) {
	if !o.key.IsValid() {
		f := fs.add(at, indexOrphan, it.key, it.member, records.Quoted(it.member), "PRK of type "+records.Quoted(it.key.Type()))
		f.step = store.Align{Index: it.key, Member: it.member, Facet: store.Facet{Field: it.key.Field(), Wire: it.key.Value()}}
		return m, false
	}
	m, declared := c.membership(it, o.key)
	facet, has := o.fields[m.Facet.Field]
	switch {
	case !o.live():
		fs.add(at, indexOrphan, it.key, o.seen(), records.Printable(it.member), "entry").step = c.takeOut(it, o)
	case !declared:
	case m.Set.IsValid():
		return m, true
	case !o.fine && (!has || facet != m.Facet.Wire):
		c.addStale(fs, at, it, o)
	}
	return m, false
}

func (c *checker) addStale(fs *findings, at int, it item, o owner) {
	fs.add(at, indexStale, it.key, o.seen(), records.Printable(it.member), records.Quoted(it.key.Field())).step = c.takeOut(it, o)
}

// takeOut is a step that takes out of an index set what does not belong there.
func (c *checker) takeOut(it item, o owner) store.Step {
	if m, declared := c.membership(it, o.key); declared {
		return m
	}
	return store.Remove{Key: it.raw, Member: it.member, Owner: o.key.String()}
}

// still keeps the findings about members that are in their set still and not, at the same moment, where they must be too.
func (c *checker) still(ctx context.Context, items []item, found findings) (still findings, err error) {
	if len(found) == 0 {
		return nil, nil
	}
	pairs := make([]store.Member, 0, 2*len(found))
	for _, f := range found {
		in := store.Member{Set: items[f.at].key, Value: items[f.at].member}
		too := in
		if a, _ := f.step.(store.Align); a.Set.IsValid() && f.code != indexOrphan {
			if too = (store.Member{Set: a.Set, Value: a.Value}); too == in {
				too = store.Member{Set: a.Index, Value: a.Member}
			}
		}
		pairs = append(pairs, in, too)
	}
	has, err := c.Engine.Holds(ctx, pairs, store.OneMoment)
	if err != nil {
		return nil, err
	}
	for i, f := range found {
		if has[2*i] && (pairs[2*i] == pairs[2*i+1] || !has[2*i+1]) {
			still = append(still, f)
		}
	}
	return still, nil
}

// orderOf returns the type and the field of which a record of the store's own is the ordered index.
func orderOf(key recordkey.Key) (typ, field string, is bool) {
	parts := key.Parts()
	if key.Kind() != recordkey.KindOwn || len(parts) != 3 || parts[0] != "order" {
		return "", "", false
	}
	return parts[1], parts[2], true
}

// ordered is the type of an ordered index that the schema declares; nil: it declares none.
func (c *checker) ordered(key recordkey.Key) *change.Type {
	typ, field, _ := orderOf(key)
	if t := c.types[typ]; t != nil && slices.Contains(t.Ordered, field) {
		return t
	}
	return nil
}

// lookAtOrderMembers judges places by the entries that they name (I4, I5).
func (c *checker) lookAtOrderMembers(ctx context.Context, items []item) (findings, error) {
	owners := mapped(items, func(m item) owner {
		t := c.ordered(m.key)
		_, field, _ := orderOf(m.key)
		key, _ := ownerOf(t, m.key.Namespace(), change.PlaceOwner(m.member))
		return owner{t: t, key: key, field: field, fits: func(facet string) bool { return placedAt(t, key, field, facet, m.member) }}
	})
	if err := c.readOwners(ctx, owners); err != nil {
		return nil, err
	}
	var fs, still findings
	for i, o := range owners {
		judgeOrderMember(&fs, i, items[i], o)
	}
	if len(fs) == 0 {
		return nil, nil
	}
	placed, err := store.Placed(ctx, c.Engine, mapped(fs, func(f finding) store.Ranked { return f.step.(store.Rank).At }))
	for i := range placed {
		if placed[i] {
			still = append(still, fs[i])
		}
	}
	return still, err
}

// judgeOrderMember judges a place by the entry that it names.
func judgeOrderMember(fs *findings, at int, m item, o owner) {
	facet, has := o.fields[o.field]
	var f *finding
	switch {
	case !o.key.IsValid():
		f = fs.add(at, orderOrphan, m.key, m.member, records.Quoted(m.member), " of type "+records.Quoted(o.t.Name))
	case o.fine:
	case !o.live():
		f = fs.add(at, orderOrphan, m.key, o.seen()+m.member, records.Quoted(m.member), "")
	case !has || !o.fits(facet):
		f = fs.add(at, orderStale, m.key, o.seen()+m.member, records.Printable(records.Relative(o.key)))
	}
	if f != nil {
		place := store.Ranked{Key: m.key, Member: m.member, Facet: store.Facet{Field: o.field, Wire: facet}}
		f.step = store.Rank{Entry: o.key, At: place, Free: true}
	}
}

// placedAt reports whether an entry with a facet belongs at a place.
func placedAt(t *change.Type, prk recordkey.Key, field, facet, member string) bool {
	places, _ := t.Places(store.Record{Key: prk, Fields: map[string]string{field: facet}})
	return len(places) == 1 && places[0].Member == member
}
