package check

import (
	"context"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
)

// lookAtTertiary judges tertiary records by their entries (I4) and by what the schema declares.
func (c *checker) lookAtTertiary(ctx context.Context, items []item) (findings, error) {
	owners := make([]owner, len(items))
	for i, it := range items {
		owners[i] = owner{t: c.types[it.key.Type()], key: it.key.PRK(), field: store.FieldType, fits: notEmpty}
	}
	kinds, err := store.Kinds(ctx, c.Engine, raws(items))
	if err != nil {
		return nil, err
	}
	if err := c.readOwners(ctx, owners); err != nil {
		return nil, err
	}
	var fs findings
	for i, o := range owners {
		if kinds[i] != store.KindNone {
			judgeTertiary(&fs, i, items[i], kinds[i], o)
		}
	}
	return fs, nil
}

func judgeTertiary(fs *findings, at int, it item, kind string, o owner) {
	name := it.key.Name()
	declared, is := o.t.Schema.Tertiary[name]
	switch {
	case !o.live():
		f := fs.add(at, tertiaryOrphan, it.key, o.seen(), records.Printable(records.Relative(o.key)))
		f.step = store.Remove{Key: it.raw, Owner: it.key.PRK().String()}
	case !is:
		fs.add(at, tertiaryUndeclared, it.key, o.seen(), records.Quoted(name))
	case declared.Kind != kind:
		fs.add(at, tertiaryKind, it.key, o.seen(), declared.Kind, records.Quoted(kind))
	}
}

// lookAtMembers looks whether live entries are in the index sets of the members of their indexed sets
// (I5).
func (c *checker) lookAtMembers(ctx context.Context, items []item) (findings, error) {
	var fs findings
	var asked []store.Member
	var of []int
	for i, m := range items {
		index, err := indexOf(m)
		if err != nil {
			fs.add(i, indexUnkeyable, m.key, m.member, "a member", records.Unkeyable(m.member))
			continue
		}
		asked, of = append(asked, index), append(of, i)
	}
	has, err := c.Engine.Holds(ctx, asked, store.AnyMoment)
	if err != nil {
		return nil, err
	}
	for j, i := range of {
		if has[j] {
			continue
		}
		m, in := items[i], asked[j]
		why := ", but has the member in " + records.Quoted(m.key.Name())
		f := fs.add(i, indexMissing, in.Set, in.Value, records.Printable(in.Value), why)
		f.step = store.Align{Index: in.Set, Member: in.Value, Entry: m.key.PRK(), Set: m.key, Value: m.member}
	}
	if fs, err = c.ofLive(ctx, items, fs); err != nil {
		return nil, err
	}
	return c.still(ctx, items, fs)
}

// indexOf is where an index set must have the entry of a member; an error where no key can name that set.
func indexOf(m item) (store.Member, error) {
	index, err := recordkey.Index(m.key.Type(), m.key.Name(), m.member)
	return store.Member{Set: index.In(m.key.Namespace()), Value: records.Relative(m.key.PRK())}, err
}

// ofLive keeps what was found about members of sets of live entries.
func (c *checker) ofLive(ctx context.Context, items []item, found findings) (live findings, err error) {
	owners := make([]owner, len(found))
	for i, f := range found {
		key := items[f.at].key
		owners[i] = owner{t: c.types[key.Type()], key: key.PRK()}
	}
	if err := c.readOwners(ctx, owners); err != nil {
		return nil, err
	}
	for i, o := range owners {
		if o.live() {
			found[i].seen += " " + o.seen()
			live = append(live, found[i])
		}
	}
	return live, nil
}

// What was laid ready for entries on a cluster and is not in its place yet (store.Fill) belongs to an entry that exists
// and is acknowledged, to a create that is under way, or to nobody. No create commits what it laid ready longer ago.
const longestAttempt = time.Hour + 10*time.Second

// lookAtStaged judges elements that were laid ready.
func (c *checker) lookAtStaged(ctx context.Context, items []item) (findings, error) {
	reads := make([]store.LookAt, 0, 2*len(items))
	for _, it := range items {
		prk := it.key.PRK().String()
		for _, field := range []string{store.FieldType, store.FieldFill} {
			reads = append(reads, store.LookAt{Key: prk, As: store.LookField, Field: field})
		}
	}
	staged, err := store.Inspect(ctx, c.Engine, raws(items), 1)
	if err != nil {
		return nil, err
	}
	facets, err := c.Engine.Look(ctx, reads)
	if err != nil {
		return nil, err
	}
	var fs findings
	for i, it := range items {
		prk, isa, fill := it.key.PRK(), facets[2*i].Wire, facets[2*i+1].Wire
		age := store.StageLife - time.Duration(staged[i].TTL)*time.Millisecond
		switch {
		case staged[i].Type == store.KindNone:
		case isa != "" && store.ParseFill(prk, fill).Rev == it.member:
			fs.add(i, fillWaiting, it.key, fill, staged[i].Size).step = store.Complete{Entry: prk, Fill: fill}
		case age > longestAttempt:
			f := fs.addRaw(i, fillOrphan, it.raw[len(c.NS.String()):], fill, records.Printable(records.Relative(prk)))
			f.step = store.Remove{Key: it.raw}
		}
	}
	return fs, nil
}
