package check

import (
	"context"
	"slices"
	"time"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// checkMemberships checks that entries are in the index sets of their facets and at their positions
// in the ordered indexes (I5).
func (c *checker) checkMemberships(ctx context.Context, r *report, es []*entry) {
	var at []store.Ranked // where entries must be, in ordered indexes and index sets
	var of []*entry       // the entry for each element of at
	for _, e := range es {
		for _, v := range e.t.IndexedValues(e.fields) {
			field, facet := v.Field, v.Wire
			if e.t.Building.Has(field, schema.RoleIndexed) {
				continue
			}
			index, ok := e.t.IndexKey(field, facet)
			if !ok {
				e.add(r, indexUnkeyable, e.key, records.Quoted(field), records.Unkeyable(facet))
				continue
			}
			at = append(at, store.Ranked{Key: index, Member: e.prk, Facet: store.Facet{Field: field, Wire: facet}})
			of = append(of, e)
		}
		positions, unordered := e.t.Positions(store.Record{Key: e.key, Fields: e.fields})
		for _, field := range unordered {
			e.add(r, orderUnplaced, e.key, records.Quoted(field)).seen += " " + field
		}
		for _, position := range positions {
			if b := e.t.Building; b.Has(position.Facet.Field, schema.RoleOrdered) || b.PlacesUnset(position.Facet.Field) {
				continue
			}
			at, of = append(at, position), append(of, e)
		}
	}
	asked := records.Map(at, func(p store.Ranked) store.Member {
		return store.Member{Set: p.Key, Value: p.Member, Ordered: p.Key.Kind() != recordkey.KindIndex}
	})
	for i, has := range readHasMembers(ctx, r, c.Engine, asked, false) {
		e, step := of[i], store.Align{Entry: of[i].key, At: at[i]}
		switch {
		case has:
		case step.Ordered():
			e.add(r, orderMissing, at[i].Key, records.Printable(e.prk)).step = step
		default:
			e.add(r, indexMissing, at[i].Key, records.Printable(e.prk), "").step = step
		}
	}
}

// checkIndexes checks index sets and ordered indexes themselves. checkIndexMembers and
// checkOrderMembers check their members.
func (c *checker) checkIndexes(ctx context.Context, r *report, items []item) {
	for i, kind := range read(ctx, r, c.Engine, rawKeys(items), store.Kinds) {
		key := items[i].key
		want, wrong := "set", indexKind
		typ, field, ordered := orderOf(key)
		if ordered {
			want, wrong = "zset", orderKind
		}
		switch {
		case kind == store.KindNone:
		case kind != want:
			r.add(i, wrong, key, "", records.Quoted(kind)).step = store.Remove{Key: items[i].raw, Kind: want}
		case ordered && c.orderedType(key) == nil:
			r.add(i, orderUndeclared, key, "", records.Quoted(typ), records.Quoted(field))
		case !ordered && !c.declaresIndex(key):
			r.add(i, indexUndeclared, key, "", records.Quoted(key.Field()))
		}
	}
}

// declaresIndex reports whether the schema declares an index set.
func (c *checker) declaresIndex(set recordkey.Key) bool {
	t, field := c.ByName[set.Type()], set.Field()
	return slices.Contains(t.Indexed, field) || t.Schema.Tertiary[field].Indexed
}

// alignStep returns the step that adds an entry to an index set or removes it from there, according
// to the entry's values. It also reports whether the schema declares the index set.
func (c *checker) alignStep(index item, entry recordkey.Key) (m store.Align, declared bool) {
	t, field := c.ByName[index.key.Type()], index.key.Field()
	at := store.Ranked{Key: index.key, Member: index.member, Facet: store.Facet{Wire: index.key.Value()}}
	if slices.Contains(t.Indexed, field) {
		at.Facet.Field = field
		return store.Align{Entry: entry, At: at}, true
	}
	set, err := entry.Tertiary(field)
	return store.Align{Entry: entry, At: at, Set: set}, err == nil && t.Schema.Tertiary[field].Indexed
}

// checkIndexMembers checks the members of index sets against the entries that they name (I4, I5).
func (c *checker) checkIndexMembers(ctx context.Context, r *report, items []item) {
	owners := records.Map(items, func(it item) owner {
		t := c.ByName[it.key.Type()]
		key, _ := parseOwner(t, it.key.Namespace(), it.member)
		if slices.Contains(t.Indexed, it.key.Field()) {
			field, value := it.key.Field(), it.key.Value()
			return owner{
				t: t, key: key, field: field,
				fits:    func(facet string, has bool) bool { return has && facet == value },
				further: func(fields map[string]string) bool { return (store.Record{Fields: fields}).HasWritten(field, value) },
			}
		}
		return owner{t: t, key: key, field: store.FieldType, fits: notEmpty}
	})
	c.readOwners(ctx, r, owners)
	stale := func(at int, m store.Align) {
		it := items[at]
		r.add(at, indexStale, it.key, owners[at].keyAndRev(), records.Printable(it.member), records.Quoted(it.key.Field())).step = m
	}
	var ofSets []store.Align
	var of []int
	for i, o := range owners {
		it := items[i]
		m, declared := c.alignStep(it, o.key)
		switch {
		case !o.key.IsValid():
			r.add(i, indexOrphan, it.key, it.member, records.Quoted(it.member), "a PRK of type "+records.Quoted(o.t.Name)).step = m
		case !o.live:
			f := r.add(i, indexOrphan, it.key, o.keyAndRev(), records.Printable(it.member), "an entry")
			f.step = m
			if !declared {
				f.step = store.Remove{Key: it.raw, Member: it.member, Owner: o.key.String()}
			}
		case declared && m.Set.IsValid():
			ofSets, of = append(ofSets, m), append(of, i)
		case declared && !o.matches():
			stale(i, m)
		}
	}
	sets := records.Map(ofSets, func(m store.Align) store.Member { return store.Member{Set: m.Set, Value: m.At.Facet.Wire} })
	for j, has := range readHasMembers(ctx, r, c.Engine, sets, false) {
		if !has {
			stale(of[j], ofSets[j])
		}
	}
	c.dropChanged(ctx, r, items)
}

// dropChanged drops findings that are no longer true because of a concurrent change. It reads all
// sets involved at one moment. A finding about a member remains if the member is still in its set
// and, if it must also be in a second set, is still missing there.
func (c *checker) dropChanged(ctx context.Context, r *report, items []item) {
	if len(r.found) == 0 {
		return
	}
	pairs := make([]store.Member, 0, 2*len(r.found))
	for _, f := range r.found {
		set := items[f.at].key
		in := store.Member{Set: set, Value: items[f.at].member, Ordered: set.Kind() == recordkey.KindOwn}
		second := in
		if a, _ := f.step.(store.Align); a.Set.IsValid() && f.code != indexOrphan {
			if second = (store.Member{Set: a.Set, Value: a.At.Facet.Wire}); second == in {
				second = store.Member{Set: a.At.Key, Value: a.At.Member}
			}
		}
		pairs = append(pairs, in, second)
	}
	has := readHasMembers(ctx, r, c.Engine, pairs, true)
	var unchanged findings
	for i, f := range r.found {
		if has[2*i] && (pairs[2*i] == pairs[2*i+1] || !has[2*i+1]) {
			unchanged = append(unchanged, f)
		}
	}
	r.found = unchanged
}

// orderOf returns the type and the field of the ordered index under key. It returns false if key is
// not that of an ordered index.
func orderOf(key recordkey.Key) (typ, field string, ok bool) {
	parts := key.Parts()
	if key.Kind() != recordkey.KindOwn || len(parts) != 3 || parts[0] != "order" {
		return "", "", false
	}
	return parts[1], parts[2], true
}

// orderedType returns the type of an ordered index, or nil if the schema does not declare that
// index.
func (c *checker) orderedType(key recordkey.Key) *change.Type {
	typ, field, _ := orderOf(key)
	if t := c.ByName[typ]; t != nil && slices.Contains(t.Ordered, field) {
		return t
	}
	return nil
}

// checkOrderMembers checks positions in ordered indexes against the entries that they name (I4,
// I5).
func (c *checker) checkOrderMembers(ctx context.Context, r *report, items []item) {
	owners := records.Map(items, func(m item) owner {
		t := c.orderedType(m.key)
		_, field, _ := orderOf(m.key)
		key, _ := parseOwner(t, m.key.Namespace(), change.PositionOwner(m.member))
		fits := func(facet string, has bool) bool {
			r := store.Record{Key: key}
			if has {
				r.Fields = map[string]string{field: facet}
			}
			position, ok := t.Position(r, field)
			return ok && position.Member == m.member
		}
		return owner{t: t, key: key, field: field, fits: fits}
	})
	c.readOwners(ctx, r, owners)
	for i, o := range owners {
		var f *finding
		switch m := items[i]; {
		case !o.key.IsValid():
			f = r.add(i, orderOrphan, m.key, m.member, records.Quoted(m.member), " of type "+records.Quoted(o.t.Name))
		case !o.live:
			f = r.add(i, orderOrphan, m.key, o.keyAndRev()+m.member, records.Quoted(m.member), "")
		case !o.matches():
			f = r.add(i, orderStale, m.key, o.keyAndRev()+m.member, records.Printable(records.Relative(o.key)))
		default:
			continue
		}
		wire, has := o.fields[o.field]
		position := store.Ranked{Key: items[i].key, Member: items[i].member, Facet: store.Facet{Field: o.field, Wire: wire}, Unset: !has}
		f.step = store.Align{Entry: o.key, At: position, Vacate: true}
	}
	c.dropChanged(ctx, r, items)
}

// checkTertiary checks tertiary records against their entries (I4) and against the schema.
func (c *checker) checkTertiary(ctx context.Context, r *report, items []item) {
	owners := records.Map(items, func(it item) owner {
		return owner{t: c.ByName[it.key.Type()], key: it.key.PRK(), field: store.FieldType, fits: notEmpty}
	})
	kinds := read(ctx, r, c.Engine, rawKeys(items), store.Kinds)
	c.readOwners(ctx, r, owners)
	for i, o := range owners {
		key := items[i].key
		declared, ok := o.t.Schema.Tertiary[key.Name()]
		switch {
		case kinds[i] == store.KindNone:
		case !o.live:
			f := r.add(i, tertiaryOrphan, key, o.keyAndRev(), records.Printable(records.Relative(o.key)))
			f.step = store.Remove{Key: items[i].raw, Owner: o.key.String()}
		case !ok:
			r.add(i, tertiaryUndeclared, key, o.keyAndRev(), records.Quoted(key.Name()))
		case declared.Kind != kinds[i]:
			r.add(i, tertiaryKind, key, o.keyAndRev(), declared.Kind, records.Quoted(kinds[i]))
		}
	}
}

// checkMembers checks that live entries are in the index sets of all members of their indexed sets
// (I5).
func (c *checker) checkMembers(ctx context.Context, r *report, items []item) {
	var asked []store.Member
	var of []int
	for i, m := range items {
		if c.ByName[m.key.Type()].Building.Has(m.key.Name(), schema.RoleIndexed) {
			continue
		}
		index, err := recordkey.Index(m.key.Type(), m.key.Name(), m.member)
		if err != nil {
			r.add(i, indexUnkeyable, m.key, m.member, "a member", records.Unkeyable(m.member))
			continue
		}
		asked, of = append(asked, store.Member{Set: index.In(c.NS), Value: records.Relative(m.key.PRK())}), append(of, i)
	}
	for j, has := range readHasMembers(ctx, r, c.Engine, asked, false) {
		if i, in := of[j], asked[j]; !has {
			m := items[i]
			why := ", but has the member in " + records.Quoted(m.key.Name())
			f := r.add(i, indexMissing, in.Set, in.Value, records.Printable(in.Value), why)
			at := store.Ranked{Key: in.Set, Member: in.Value, Facet: store.Facet{Wire: m.member}}
			f.step = store.Align{Entry: m.key.PRK(), At: at, Set: m.key}
		}
	}
	owners := records.Map(r.found, func(f finding) owner {
		key := items[f.at].key
		return owner{t: c.ByName[key.Type()], key: key.PRK()}
	})
	c.readOwners(ctx, r, owners)
	var live findings
	for i, o := range owners {
		if o.live {
			r.found[i].seen += " " + o.keyAndRev()
			live = append(live, r.found[i])
		}
	}
	r.found = live
	c.dropChanged(ctx, r, items)
}

// longestAttempt is how long a create can take to commit its staged elements. Elements staged on a
// cluster (see store.Fill) belong to an existing entry or to a create in progress. Those that no
// entry uses and that are older than longestAttempt are left over.
const longestAttempt = time.Hour + 10*time.Second

// checkStaged checks staged elements.
func (c *checker) checkStaged(ctx context.Context, r *report, items []item) {
	reads := make([]store.RawRead, 0, 2*len(items))
	for _, it := range items {
		prk := it.key.PRK().String()
		for _, field := range []string{store.FieldType, store.FieldFill} {
			reads = append(reads, store.RawRead{Key: prk, As: store.RawField, Field: field})
		}
	}
	staged := read(ctx, r, c.Engine, rawKeys(items), func(ctx context.Context, e store.Maintenance, keys []string) ([]store.Raw, error) {
		return store.Inspect(ctx, e, keys, 1)
	})
	facets := read(ctx, r, c.Engine, reads, readFields)
	for i, it := range items {
		prk, isa, fill := it.key.PRK(), facets[2*i].Wire, facets[2*i+1].Wire
		age := store.PreparedLife - time.Duration(staged[i].TTL)*time.Millisecond
		switch {
		case staged[i].Type == store.KindNone:
		case isa != "" && store.ParseFill(prk, fill).Rev == it.member:
			r.add(i, fillWaiting, it.key, fill, staged[i].Size).step = store.PlacePrepared{Entry: prk, Fill: fill}
		case age > longestAttempt:
			f := r.addRaw(i, fillOrphan, it.raw[len(c.NS.String()):], fill, records.Printable(records.Relative(prk)))
			f.step = store.Remove{Key: it.raw}
		}
	}
}

// checkDropped reports large records that changes have set aside and that are not dropped yet.
func (c *checker) checkDropped(ctx context.Context, r *report, items []item) {
	sizes := read(ctx, r, c.Engine, rawKeys(items), func(ctx context.Context, e store.Maintenance, keys []string) ([]store.Raw, error) {
		return store.Inspect(ctx, e, keys, 1)
	})
	for i, it := range items {
		if sizes[i].Type == store.KindNone {
			continue
		}
		f := r.addRaw(i, dropWaiting, it.raw[len(c.NS.String()):], "", sizes[i].Size)
		f.step = store.Drain{Dropped: store.Dropped{Record: it.key, Rev: it.member}}
	}
}
