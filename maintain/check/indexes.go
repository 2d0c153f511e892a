package check

import (
	"context"
	"slices"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
)

// lookAtIndexes judges index sets by themselves; their members are judged by lookAtIndexMembers.
func (c *checker) lookAtIndexes(ctx context.Context, keys []recordkey.Key) (findings, error) {
	kinds, err := store.Kinds(ctx, c.Engine, records.Texts(keys))
	var fs findings
	for i, kind := range kinds {
		t, err := c.Type(keys[i].Type())
		switch {
		case err != nil:
			return nil, err
		case kind == store.KindNone:
		case kind != "set":
			fs.add(i, codeIndexKind, keys[i], "", "an index is a set, and this a %s", records.Quoted(kind))
		case !indexes(t, keys[i].Field()):
			fs.add(i, codeIndexUndeclared, keys[i], "", "the schema does not index %s", records.Quoted(keys[i].Field()))
		}
	}
	return fs, err
}

// indexes says whether the schema indexes a field, or a tertiary set, of that name.
func indexes(t *change.Type, name string) bool {
	return slices.Contains(t.Indexed, name) || t.Schema.Tertiary[name].Indexed
}

// lookAtIndexMembers judges members of index sets by the entries that they name (I4, I5).
func (c *checker) lookAtIndexMembers(ctx context.Context, ms []member) (findings, error) {
	var fs findings
	asked := make([]ownerRead, len(ms))
	sets := make([]store.Member, 0, len(ms))
	for i, m := range ms {
		t, err := c.Type(m.set.Type())
		if err != nil {
			return nil, err
		}
		key, code := ownerOf(t, m.set.Namespace(), m.text)
		if code != "" {
			fs.add(i, codeIndexOrphan, m.set, m.text, "a member %s is no PRK of type %s", records.Quoted(m.text), records.Quoted(t.Name))
			continue
		}
		if asked[i] = (ownerRead{t: t, key: key, field: store.FieldType, fine: notEmpty}); slices.Contains(t.Indexed, m.set.Field()) {
			asked[i].field = m.set.Field()
			asked[i].fine = func(facet string) bool { return facet == m.set.Value() }
		}
	}
	owners, err := c.owners(ctx, asked)
	if err != nil {
		return nil, err
	}
	var of []int
	for i, o := range owners {
		if set, inSet := judgeIndexMember(&fs, i, ms[i], asked[i].t, o); inSet {
			sets, of = append(sets, store.Member{Set: set, Value: ms[i].set.Value()}), append(of, i)
		}
	}
	has, err := c.Engine.Holds(ctx, sets)
	if err != nil {
		return nil, err
	}
	for j, i := range of {
		if !has[j] {
			stale(&fs, i, ms[i], owners[i])
		}
	}
	return c.stillIndexed(ctx, ms, fs)
}

// judgeIndexMember judges a member of the index of a field, or says which tertiary set must have the
// member that an index of members is about.
func judgeIndexMember(fs *findings, at int, m member, t *change.Type, o owner) (set recordkey.Key, inSet bool) {
	field := m.set.Field()
	switch {
	case !o.key.IsValid():
	case !o.live():
		fs.add(at, codeIndexOrphan, m.set, o.seen(), "a member %s is no entry", records.Printable(m.text))
	case slices.Contains(t.Indexed, field):
		if facet, has := o.fields[field]; !o.fine && (!has || facet != m.set.Value()) {
			stale(fs, at, m, o)
		}
	case t.Schema.Tertiary[field].Indexed:
		set, err := o.key.Tertiary(field)
		return set, err == nil
	}
	return recordkey.Key{}, false
}

func stale(fs *findings, at int, m member, o owner) {
	fs.add(at, codeIndexStale, m.set, o.seen(), "%s is in it, but does not have the value in %s", records.Printable(m.text), records.Quoted(m.set.Field()))
}

// stillIndexed keeps what was found about members that are still there, and still without their value in
// the tertiary set that the index is about.
func (c *checker) stillIndexed(ctx context.Context, ms []member, found findings) (findings, error) {
	if len(found) == 0 {
		return nil, nil
	}
	pairs, about := make([]store.Member, 0, 2*len(found)), make([]bool, len(found))
	for i, f := range found {
		in := store.Member{Set: ms[f.at].set, Value: ms[f.at].text}
		pair := in
		if set, is := c.setBehind(ms[f.at]); is && f.Code == codeIndexStale {
			pair, about[i] = set, true
		}
		pairs = append(pairs, in, pair)
	}
	has, err := c.Engine.HoldsAtOnce(ctx, pairs)
	if err != nil {
		return nil, err
	}
	var still findings
	for i, f := range found {
		if has[2*i] && !(about[i] && has[2*i+1]) {
			still = append(still, f)
		}
	}
	return still, nil
}

// setBehind is where a member of an index of members stands for one; false for a member of the index of a facet.
func (c *checker) setBehind(m member) (store.Member, bool) {
	t, err := c.Type(m.set.Type())
	if err != nil || slices.Contains(t.Indexed, m.set.Field()) {
		return store.Member{}, false
	}
	key, code := ownerOf(t, m.set.Namespace(), m.text)
	set, err := key.Tertiary(m.set.Field())
	return store.Member{Set: set, Value: m.set.Value()}, code == "" && err == nil
}
