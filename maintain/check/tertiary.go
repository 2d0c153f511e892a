package check

import (
	"context"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// lookAtTertiary judges tertiary records by their entries (I4) and by what the schema declares.
func (c *checker) lookAtTertiary(ctx context.Context, keys []recordkey.Key) (findings, error) {
	asked := make([]ownerRead, len(keys))
	for i, k := range keys {
		t, err := c.Type(k.Type())
		if err != nil {
			return nil, err
		}
		asked[i] = ownerRead{t: t, key: k.PRK(), field: store.FieldType, fine: notEmpty}
	}
	kinds, err := store.Kinds(ctx, c.Engine, records.Texts(keys))
	if err != nil {
		return nil, err
	}
	owners, err := c.owners(ctx, asked)
	var fs findings
	for i, o := range owners {
		if kinds[i] != store.KindNone {
			judgeTertiary(&fs, i, keys[i], kinds[i], asked[i].t.Schema, o)
		}
	}
	return fs, err
}

func notEmpty(isa string) bool { return isa != "" }

func judgeTertiary(fs *findings, at int, key recordkey.Key, kind string, t schema.Type, o owner) {
	declared, is := t.Tertiary[key.Name()]
	switch {
	case !o.live():
		fs.add(at, codeTertiaryOrphan, key, o.seen(), "%s is no entry", records.Printable(records.Relative(o.key)))
	case !is:
		fs.add(at, codeTertiaryUndeclared, key, o.seen(), "the schema declares no tertiary record %s", records.Quoted(key.Name()))
	case declared.Kind != kind:
		fs.add(at, codeTertiaryKind, key, o.seen(), "the schema declares a %s, and this is a %s", declared.Kind, records.Quoted(kind))
	}
}

// A member is one of a set: of a tertiary set a text, of an index set the PRK of an entry.
type member struct {
	set  recordkey.Key
	text string
}

const (
	setBatch    = 100 // how many sets are begun at a time
	memberBatch = 500 // how many members of one are read at a time, about
)

// members judges all members of sets: a batch of small sets at once, a large one bit by bit.
func (c *checker) members(ctx context.Context, sets []recordkey.Key, look func(context.Context, []member) (findings, error), mend func(context.Context, member, findings) error) error {
	for len(sets) > 0 {
		some := sets[:min(setBatch, len(sets))]
		sets = sets[len(some):]
		pages, err := store.Sets(ctx, c.Engine, records.Texts(some), memberBatch)
		if err != nil {
			return err
		}
		var ms []member
		for i, p := range pages {
			ms = appendMembers(ms, some[i], p.Members)
		}
		if err := settle(ctx, c, ms, look, mend); err != nil {
			return err
		}
		for i, p := range pages {
			if err := c.rest(ctx, some[i], p.Next, look, mend); err != nil {
				return err
			}
		}
	}
	return nil
}

// rest judges what is left of a large set.
func (c *checker) rest(ctx context.Context, set recordkey.Key, cursor string, look func(context.Context, []member) (findings, error), mend func(context.Context, member, findings) error) error {
	for cursor != "" {
		members, next, err := c.Engine.ScanIndex(ctx, set, cursor, memberBatch)
		switch {
		case store.IsEntryError(err):
			return nil // meanwhile another record
		case err != nil:
			return err
		}
		if err := settle(ctx, c, appendMembers(nil, set, members), look, mend); err != nil {
			return err
		}
		cursor = next
	}
	return nil
}

func appendMembers(ms []member, set recordkey.Key, texts []string) []member {
	for _, text := range texts {
		ms = append(ms, member{set, text})
	}
	return ms
}

// indexed are those of some tertiary keys that name sets whose members are indexed.
func (c *checker) indexed(keys []recordkey.Key) (some []recordkey.Key) {
	for _, k := range keys {
		if c.Schema.Types[k.Type()].Tertiary[k.Name()].Indexed {
			some = append(some, k)
		}
	}
	return some
}

// indexOf is where an index set must have the entry of a member; an error where no key can name that set.
func indexOf(m member) (store.Member, error) {
	index, err := recordkey.Index(m.set.Type(), m.set.Name(), m.text)
	return store.Member{Set: index.In(m.set.Namespace()), Value: records.Relative(m.set.PRK())}, err
}

// lookAtMembers looks whether live entries are in the index sets of the members of their indexed sets
// (I5).
func (c *checker) lookAtMembers(ctx context.Context, ms []member) (findings, error) {
	var fs findings
	var asked []store.Member
	var of []int
	for i, m := range ms {
		index, err := indexOf(m)
		if err != nil {
			fs.add(i, codeIndexUnkeyable, m.set, m.text, "no index key can name a member: it is %s", records.Unkeyable(m.text))
			continue
		}
		asked, of = append(asked, index), append(of, i)
	}
	has, err := c.Engine.Holds(ctx, asked)
	if err != nil {
		return nil, err
	}
	for j, i := range of {
		if !has[j] {
			fs.add(i, codeIndexMissing, asked[j].Set, asked[j].Value, "%s is not in it, but has the member in %s",
				records.Printable(asked[j].Value), records.Quoted(ms[i].set.Name()))
		}
	}
	return c.stillMembers(ctx, ms, fs)
}

// stillMembers keeps what was found about members that are still there, of live entries, and still not
// in their index.
func (c *checker) stillMembers(ctx context.Context, ms []member, found findings) (findings, error) {
	if len(found) == 0 {
		return nil, nil
	}
	pairs := make([]store.Member, 0, 2*len(found))
	reads := make([]ownerRead, len(found))
	for i, f := range found {
		m := ms[f.at]
		t, err := c.Type(m.set.Type())
		if err != nil {
			return nil, err
		}
		reads[i] = ownerRead{t: t, key: m.set.PRK()}
		in := store.Member{Set: m.set, Value: m.text}
		index, err := indexOf(m)
		if err != nil {
			index = in
		}
		pairs = append(pairs, in, index)
	}
	owners, err := c.owners(ctx, reads)
	if err != nil {
		return nil, err
	}
	has, err := c.Engine.HoldsAtOnce(ctx, pairs)
	if err != nil {
		return nil, err
	}
	var still findings
	for i, f := range found {
		indexed := f.Code == codeIndexMissing && has[2*i+1]
		if has[2*i] && !indexed && owners[i].live() {
			f.seen += " " + owners[i].seen()
			still = append(still, f)
		}
	}
	return still, nil
}
