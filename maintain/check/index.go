package check

import (
	"context"
	"slices"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
)

// lookAtFacets looks whether entries are in the index sets of their facets (I5).
func (c *checker) lookAtFacets(ctx context.Context, fs *findings, es []*entry) error {
	var asked []store.Align
	var in []store.Member
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
			m := store.Align{Index: index.In(e.key.Namespace()), Member: e.prk, Entry: e.key}
			m.Facet = store.Facet{Field: field, Wire: facet}
			asked, in, of = append(asked, m), append(in, store.Member{Set: m.Index, Value: e.prk}), append(of, e)
		}
	}
	has, err := c.Engine.Holds(ctx, in, store.AnyMoment)
	for i := range has {
		if !has[i] {
			of[i].add(fs, indexMissing, asked[i].Index, records.Printable(of[i].prk), "").step = asked[i]
		}
	}
	return err
}

// lookAtIndexes judges index sets by themselves; their members are judged by lookAtIndexMembers.
func (c *checker) lookAtIndexes(ctx context.Context, items []item) (fs findings, err error) {
	kinds, err := store.Kinds(ctx, c.Engine, raws(items))
	for i, kind := range kinds {
		key := items[i].key
		t, field := c.types[key.Type()], key.Field()
		switch {
		case kind == store.KindNone:
		case kind != "set":
			fs.add(i, indexKind, key, "", records.Quoted(kind)).step = store.Remove{Key: items[i].raw, Kind: "set"}
		case !slices.Contains(t.Indexed, field) && !t.Schema.Tertiary[field].Indexed:
			fs.add(i, indexUndeclared, key, "", records.Quoted(field))
		}
	}
	return fs, err
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
	asked := make([]ownerRead, len(items))
	for i, it := range items {
		t := c.types[it.key.Type()]
		if key, wrong := ownerOf(t, it.key.Namespace(), it.member); wrong == nil {
			asked[i] = ownerRead{t: t, key: key, field: store.FieldType, fine: notEmpty}
		}
		if slices.Contains(t.Indexed, it.key.Field()) {
			asked[i].field, asked[i].fine = it.key.Field(), func(facet string) bool { return facet == it.key.Value() }
		}
	}
	owners, err := c.owners(ctx, asked)
	if err != nil {
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
	return c.still(ctx, fs, func(f finding) (in, too store.Member) {
		it := items[f.at]
		in = store.Member{Set: it.key, Value: it.member}
		if f.code == indexStale {
			if m, _ := c.membership(it, owners[f.at].key); m.Set.IsValid() {
				return in, store.Member{Set: m.Set, Value: m.Value}
			}
		}
		return in, in
	})
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
func (c *checker) still(ctx context.Context, found findings, where func(finding) (in, too store.Member)) (still findings, err error) {
	if len(found) == 0 {
		return nil, nil
	}
	pairs := make([]store.Member, 0, 2*len(found))
	for _, f := range found {
		in, too := where(f)
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

// lookAtPlaces looks whether entries are at their places in the ordered indexes (I5).
func (c *checker) lookAtPlaces(ctx context.Context, fs *findings, es []*entry) error {
	var asked []store.Ranked
	var of []*entry
	for _, e := range es {
		places, without := e.t.Places(store.Record{Key: e.key, Fields: e.fields})
		for _, field := range without {
			e.add(fs, orderUnplaced, e.key, records.Quoted(field)).seen += " " + field
		}
		for _, p := range places {
			asked, of = append(asked, p), append(of, e)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	placed, err := store.Placed(ctx, c.Engine, asked)
	for i := range placed {
		if !placed[i] {
			of[i].add(fs, orderMissing, asked[i].Key, records.Printable(of[i].prk)).step = store.Rank{Entry: of[i].key, At: asked[i]}
		}
	}
	return err
}

// orderOf returns the type and the field of which a record of the store's own is the ordered index.
func orderOf(key recordkey.Key) (typ, field string, is bool) {
	parts := key.Parts()
	if key.Kind() != recordkey.KindOwn || len(parts) != 3 || parts[0] != "order" {
		return "", "", false
	}
	return parts[1], parts[2], true
}

// ordered is the type and the field of an ordered index that the schema declares; nil: it declares none.
func (c *checker) ordered(key recordkey.Key) (*change.Type, string) {
	typ, field, _ := orderOf(key)
	if t := c.types[typ]; t != nil && slices.Contains(t.Ordered, field) {
		return t, field
	}
	return nil, ""
}

// lookAtOrders judges ordered indexes by themselves; their members are judged by lookAtOrderMembers.
func (c *checker) lookAtOrders(ctx context.Context, items []item) (fs findings, err error) {
	kinds, err := store.Kinds(ctx, c.Engine, raws(items))
	for i, kind := range kinds {
		key := items[i].key
		typ, field, _ := orderOf(key)
		switch t, _ := c.ordered(key); {
		case kind == store.KindNone:
		case kind != "zset":
			fs.add(i, orderKind, key, "", records.Quoted(kind)).step = store.Remove{Key: items[i].raw, Kind: "zset"}
		case t == nil:
			fs.add(i, orderUndeclared, key, "", records.Quoted(typ), records.Quoted(field))
		}
	}
	return fs, err
}

// lookAtOrderMembers judges places by the entries that they name (I4, I5).
func (c *checker) lookAtOrderMembers(ctx context.Context, items []item) (findings, error) {
	asked := make([]ownerRead, len(items))
	for i, m := range items {
		t, field := c.ordered(m.key)
		if key, wrong := ownerOf(t, m.key.Namespace(), change.PlaceOwner(m.member)); wrong == nil {
			fine := func(facet string) bool { return placedAt(t, key, field, facet, m.member) }
			asked[i] = ownerRead{t: t, key: key, field: field, fine: fine}
		}
	}
	owners, err := c.owners(ctx, asked)
	if err != nil {
		return nil, err
	}
	var fs findings
	for i, o := range owners {
		c.judgeOrderMember(&fs, i, items[i], o)
	}
	if len(fs) == 0 {
		return nil, nil
	}
	places := make([]store.Ranked, len(fs))
	for i, f := range fs {
		places[i] = store.Ranked{Key: items[f.at].key, Member: items[f.at].member}
	}
	placed, err := store.Placed(ctx, c.Engine, places)
	var still findings
	for i := range placed {
		if placed[i] {
			still = append(still, fs[i])
		}
	}
	return still, err
}

// judgeOrderMember judges a place by the entry that it names.
func (c *checker) judgeOrderMember(fs *findings, at int, m item, o owner) {
	t, field := c.ordered(m.key)
	facet, has := o.fields[field]
	var f *finding
	switch {
	case !o.key.IsValid():
		f = fs.add(at, orderOrphan, m.key, m.member, records.Quoted(m.member), " of type "+records.Quoted(t.Name))
	case o.fine:
	case !o.live():
		f = fs.add(at, orderOrphan, m.key, o.seen()+m.member, records.Quoted(m.member), "")
	case !has || !placedAt(t, o.key, field, facet, m.member):
		f = fs.add(at, orderStale, m.key, o.seen()+m.member, records.Printable(records.Relative(o.key)))
	}
	if f != nil {
		place := store.Ranked{Key: m.key, Member: m.member, Facet: store.Facet{Field: field, Wire: facet}}
		f.step = store.Rank{Entry: o.key, At: place, Free: true}
	}
}

// placedAt reports whether an entry with a facet belongs at a place.
func placedAt(t *change.Type, prk recordkey.Key, field, facet, member string) bool {
	places, _ := t.Places(store.Record{Key: prk, Fields: map[string]string{field: facet}})
	return len(places) == 1 && places[0].Member == member
}
