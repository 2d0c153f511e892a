package check

import (
	"context"
	"slices"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/query"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
)

// one judges the entry that a hint points at, and what belongs to it.
func (c *checker) one(ctx context.Context, o Options) error {
	s, err := c.Resolve(o.Only, "")
	if err != nil {
		return err
	}
	prks, srks, err := c.meant(ctx, s)
	if err != nil {
		return err
	}
	for _, prk := range prks {
		if err := settle(ctx, c, []recordkey.Key{prk}, c.lookAtEntries, c.mendEntry); err != nil {
			return err
		}
		if srks, err = c.appendSRKs(ctx, srks, prk); err != nil {
			return err
		}
	}
	waiting, err := c.stagedFor(ctx, prks)
	if err != nil {
		return err
	}
	if err := chunks(ctx, c, waiting, c.lookAtStaged, c.mendStaged); err != nil {
		return err
	}
	slices.SortFunc(srks, recordkey.Key.Compare)
	srks = slices.Compact(srks)
	if err := settle(ctx, c, srks, c.lookAtSRKs, c.mendSRK); err != nil || len(prks) == 0 {
		return err
	}
	if err := c.placesOf(ctx, s.Type, prks); err != nil {
		return err
	}
	pattern := recordkey.Glob(c.NS.String()+recordkey.Escape(s.Type.Name)) + "/*"
	return c.stream(ctx, pattern, o.Progress, func(c *checker, ctx context.Context, keys []string) error {
		return c.belongings(ctx, keys, prks, srks)
	})
}

// meant is which entries a hint may mean, live or not, and by which SRKs. It reports where there is
// no live one; its key is then the first that was looked at, or empty where there was none.
func (c *checker) meant(ctx context.Context, s query.Sought) (prks, srks []recordkey.Key, err error) {
	if s.Lookup.PRK.IsValid() {
		prks = []recordkey.Key{s.Lookup.PRK}
	} else {
		srks = c.srksMeant(s)
		if prks, err = c.named(ctx, s.Type, srks); err != nil {
			return nil, nil, err
		}
	}
	look := func(ctx context.Context, of []query.Sought) (findings, error) {
		return c.lookAtPresence(ctx, of[0])
	}
	return prks, srks, settle(ctx, c, []query.Sought{s}, look, nil)
}

// srksMeant are the SRKs that a hint means, also under fields in which the value cannot be by the rules:
// damage knows none.
func (c *checker) srksMeant(s query.Sought) []recordkey.Key {
	srks := make([]recordkey.Key, len(s.Target.Keys))
	for i, k := range s.Target.Keys {
		srks[i] = k.In(c.NS)
	}
	return srks
}

// named are the entries that SRKs name.
func (c *checker) named(ctx context.Context, t *change.Type, srks []recordkey.Key) ([]recordkey.Key, error) {
	srvs, err := store.Texts(ctx, c.Engine, records.Texts(srks))
	var prks []recordkey.Key
	for i, srv := range srvs {
		key, code := ownerOf(t, srks[i].Namespace(), srv.Wire)
		if code == "" && !slices.Contains(prks, key) {
			prks = append(prks, key)
		}
	}
	return prks, err
}

// lookAtPresence reports a hint that leads to no entry.
func (c *checker) lookAtPresence(ctx context.Context, s query.Sought) (findings, error) {
	keys, prks := []recordkey.Key{s.Lookup.PRK}, []recordkey.Key{s.Lookup.PRK}
	if !s.Lookup.PRK.IsValid() {
		var err error
		keys = c.srksMeant(s)
		if prks, err = c.named(ctx, s.Type, keys); err != nil {
			return nil, err
		}
	}
	asked := make([]ownerRead, len(prks))
	for i, prk := range prks {
		asked[i] = ownerRead{t: s.Type, key: prk, field: store.FieldType, fine: notEmpty}
	}
	owners, err := c.owners(ctx, asked)
	var fs findings
	if !slices.ContainsFunc(owners, func(o owner) bool { return o.live() }) {
		where := ""
		if len(keys) > 0 {
			where = records.Relative(keys[0])
		}
		fs.addRaw(0, codeEntryMissing, where, "", "there is no entry")
	}
	return fs, err
}

// appendSRKs adds the SRKs of an entry's values under all secondary fields.
func (c *checker) appendSRKs(ctx context.Context, srks []recordkey.Key, prk recordkey.Key) ([]recordkey.Key, error) {
	hashes, err := store.Hashes(ctx, c.Engine, []string{prk.String()})
	if err != nil {
		return nil, err
	}
	if e := c.entry(new(findings), 0, prk, hashes[0]); e != nil {
		e.judge(new(findings))
		for _, s := range sights([]*entry{e}) {
			srks = append(srks, s.srk)
		}
	}
	return srks, nil
}

// belongings judges those of some keys that belong to entries, but for the SRKs that are known.
func (c *checker) belongings(ctx context.Context, keys []string, prks, known []recordkey.Key) error {
	s := c.sort(keys)
	mine := sorted{tertiary: slices.DeleteFunc(s.tertiary, func(k recordkey.Key) bool { return !slices.Contains(prks, k.PRK()) })}
	srvs, err := store.Texts(ctx, c.Engine, append(records.Texts(s.srks), s.unparsable...))
	if err != nil {
		return err
	}
	for i, srv := range srvs {
		owner, err := recordkey.Parse(store.Owner(srv.Wire))
		switch {
		case err != nil || !slices.Contains(prks, owner.In(c.NS)):
		case i >= len(s.srks):
			mine.unparsable = append(mine.unparsable, s.unparsable[i-len(s.srks)])
		case !slices.Contains(known, s.srks[i]):
			mine.srks = append(mine.srks, s.srks[i])
		}
	}
	if err := c.judge(ctx, mine); err != nil {
		return err
	}
	return c.memberships(ctx, s.indexes, prks)
}

// memberships judges index sets that entries are in.
func (c *checker) memberships(ctx context.Context, indexes, prks []recordkey.Key) error {
	var asked []store.Member
	for _, index := range indexes {
		for _, prk := range prks {
			asked = append(asked, store.Member{Set: index, Value: records.Relative(prk)})
		}
	}
	in, err := c.Engine.Holds(ctx, asked)
	if err != nil {
		return err
	}
	var sets []recordkey.Key
	var ms []member
	for i, a := range asked {
		if in[i] {
			sets, ms = append(sets, a.Set), append(ms, member{a.Set, a.Value})
		}
	}
	if err := settle(ctx, c, slices.Compact(sets), c.lookAtIndexes, c.mendIndex); err != nil {
		return err
	}
	return settle(ctx, c, ms, c.lookAtIndexMembers, c.mendIndexMember)
}
