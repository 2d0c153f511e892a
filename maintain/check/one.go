package check

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
)

// checkOne checks the entries that a hint may mean, then the records that they lead to, then the
// records that name them. If there is no entry, it reports that under the first key of the hint.
func (c *checker) checkOne(ctx context.Context) error {
	t, target, err := c.Target(c.o.Only, "")
	if err != nil {
		return err
	}
	var keys []recordkey.Key
	// target.Keys also has the keys for fields whose rules forbid the value, since damaged records
	// need not follow the rules.
	for _, k := range target.Keys {
		keys = append(keys, k.In(c.NS))
	}
	var r report
	prks := c.resolveHint(ctx, &r, t, keys)
	if r.err != nil {
		return r.err
	}
	var es []*entry // as first read
	check := func(ctx context.Context, r *report, items []item) {
		if seen := c.checkEntries(ctx, r, items); es == nil {
			es = seen
		}
	}
	if err := c.examine(ctx, check, records.Map(prks, newItem)); err != nil {
		return err
	}
	if len(es) == 0 {
		check := func(ctx context.Context, r *report, _ []item) { c.checkMissing(ctx, r, t, keys) }
		if err := c.examine(ctx, check, make([]item, 1)); err != nil {
			return err
		}
	}
	if err := c.publishHistory(ctx, prks); err != nil {
		return err
	}
	related := relatedRecords(t, prks, keys, es)
	if err := c.checkRecords(ctx, related); err != nil || len(prks) == 0 {
		return err
	}
	pattern := recordkey.Glob(c.NS.String()+recordkey.Escape(t.Name)) + "/*"
	return c.forEachBatch(ctx, pattern, func(ctx context.Context, keys []string) error { return c.checkRelated(ctx, keys, prks, related.srks) })
}

// publishHistory adds to the feed the events of the entries' histories that are missing there. It
// does so only in the first round of a repair, and only on a store where one write takes several
// steps, which is a cluster: elsewhere no event can be missing.
func (c *checker) publishHistory(ctx context.Context, prks []recordkey.Key) error {
	if c.fix == nil || c.fix.round != roundRecords || !c.inSteps {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(publishers)
	for _, prk := range prks {
		group.Go(func() error {
			_, err := c.Engine.Repair(ctx, store.Publish{Entry: prk})
			return err
		})
	}
	return group.Wait()
}

// publishers is the number of histories that are added to the feed at the same time.
const publishers = 16

// resolveHint returns the entries that a hint may mean: the one under its key if that is a PRK,
// otherwise those that its SRKs name.
func (c *checker) resolveHint(ctx context.Context, r *report, t *change.Type, keys []recordkey.Key) (prks []recordkey.Key) {
	if len(keys) == 1 && keys[0].Kind() == recordkey.KindPRK {
		return keys
	}
	for i, stored := range read(ctx, r, c.Engine, records.Map(keys, recordkey.Key.String), store.Texts) {
		key, wrong := parseOwner(t, keys[i].Namespace(), stored.Wire)
		if wrong == nil && !slices.Contains(prks, key) {
			prks = append(prks, key)
		}
	}
	return prks
}

// checkMissing reports an entry_missing problem if keys lead to no entry.
func (c *checker) checkMissing(ctx context.Context, r *report, t *change.Type, keys []recordkey.Key) {
	prks := c.resolveHint(ctx, r, t, keys)
	for i, h := range read(ctx, r, c.Engine, records.Map(prks, recordkey.Key.String), store.Hashes) {
		if entryAt(new(report), t, 0, prks[i], h) != nil {
			return
		}
	}
	key := "" // no key can hold the value
	if len(keys) > 0 {
		key = records.Relative(keys[0])
	}
	r.addRaw(0, entryMissing, key, "")
}

// relatedRecords returns the records that entries lead to: the SRKs by which they were found, the
// SRKs of their values in all secondary fields, their histories, their second factors, their staged
// elements and those to be dropped, and the ordered indexes of their type.
func relatedRecords(t *change.Type, prks, keys []recordkey.Key, es []*entry) (related classified) {
	related.positionOwners = map[string]bool{}
	for _, prk := range prks {
		related.positionOwners[records.Relative(prk)] = true
		if historyKey, err := history.Key(prk); err == nil {
			related.histories = append(related.histories, newItem(historyKey))
		}
		if factorKey, err := factor.Key(prk); err == nil {
			related.factors = append(related.factors, newItem(factorKey))
		}
	}
	for _, e := range es {
		fill := store.ParseFill(e.key, e.fields[store.FieldFill])
		for _, p := range fill.Parts {
			related.staged = append(related.staged, item{raw: store.PreparedKey(p.Set, fill.Rev), key: p.Set, member: fill.Rev})
			related.dropped = append(related.dropped, item{raw: store.DropKey(p.Set, fill.Rev), key: p.Set, member: fill.Rev})
		}
		for _, d := range store.ParseDropped(e.key, e.fields[store.FieldDrop]) {
			related.dropped = append(related.dropped, item{raw: store.DropKey(d.Record, d.Rev), key: d.Record, member: d.Rev})
		}
	}
	srks := slices.DeleteFunc(slices.Clone(keys), func(k recordkey.Key) bool { return k.Kind() == recordkey.KindPRK })
	for _, s := range observations(es) {
		srks = append(srks, s.record)
	}
	slices.SortFunc(srks, recordkey.Key.Compare)
	related.srks = records.Map(slices.Compact(srks), newItem)
	for _, field := range t.Ordered {
		if key, err := t.OrderKey(field); err == nil && len(prks) > 0 {
			related.orders = append(related.orders, newItem(key))
		}
	}
	return related
}

// checkRelated checks those of the given records that belong to the entries, except known SRKs.
func (c *checker) checkRelated(ctx context.Context, keys []string, prks []recordkey.Key, known []item) error {
	s := c.classify(keys)
	named := append(slices.Clone(s.srks), s.unparsable...)
	values, err := store.Texts(ctx, c.Engine, rawKeys(named))
	if err != nil {
		return err
	}
	var related classified
	related.tertiary = filter(s.tertiary, func(it item) bool { return slices.Contains(prks, it.key.PRK()) })
	for i, stored := range values {
		owner, err := recordkey.Parse(store.Owner(stored.Wire))
		switch {
		case err != nil || !slices.Contains(prks, owner.In(c.NS)):
		case i >= len(s.srks):
			related.unparsable = append(related.unparsable, named[i])
		case !slices.Contains(known, named[i]):
			related.srks = append(related.srks, named[i])
		}
	}
	if err := c.checkRecords(ctx, related); err != nil {
		return err
	}
	return c.checkContainingSets(ctx, s.indexes, prks)
}

// checkContainingSets checks the index sets that contain one of the entries.
func (c *checker) checkContainingSets(ctx context.Context, indexes []item, prks []recordkey.Key) error {
	var all []item
	for _, index := range indexes {
		for _, prk := range prks {
			all = append(all, item{index.raw, index.key, records.Relative(prk)})
		}
	}
	asked := records.Map(all, func(m item) store.Member { return store.Member{Set: m.key, Value: m.member} })
	in, err := c.Engine.HasMembers(ctx, asked, false)
	if err != nil {
		return err
	}
	var ms []item
	for i, m := range all {
		if in[i] {
			ms = append(ms, m)
		}
	}
	sets := slices.CompactFunc(slices.Clone(ms), func(a, b item) bool { return a.raw == b.raw })
	if err := c.examine(ctx, c.checkIndexes, sets); err != nil {
		return err
	}
	return c.examine(ctx, c.checkIndexMembers, ms)
}
