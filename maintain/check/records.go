package check

import (
	"context"
	"iter"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/query"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
)

const (
	judges      = 3   // how many batches are judged at once, so that the server never waits for us
	setBatch    = 100 // how many sets are begun at a time
	memberBatch = 500 // how many members of one are read at a time, about
)

func raws(items []item) []string {
	keys := make([]string, len(items))
	for i, it := range items {
		keys[i] = it.raw
	}
	return keys
}

// all judges all records of the view.
func (c *checker) all(ctx context.Context) error {
	return c.each(ctx, recordkey.Glob(c.NS.String())+"*", func(ctx context.Context, keys []string) error {
		return c.judge(ctx, c.sort(keys))
	})
}

// each hands the keys that match a pattern to several goroutines, and tells how far it is.
func (c *checker) each(ctx context.Context, pattern string, do func(ctx context.Context, keys []string) error) error {
	about, err := store.Records(ctx, c.Engine)
	if err != nil {
		return err
	}
	group, judging := errgroup.WithContext(ctx)
	group.SetLimit(judges)
	done := int64(0)
	for keys, failed := range c.scan(judging, pattern) {
		if err = failed; err != nil {
			break
		}
		group.Go(func() error { return do(judging, keys) })
		done = min(done+records.ScanBatch, about)
		if err = c.send(judging, news{done: done, about: about}); err != nil {
			break
		}
	}
	if failed := group.Wait(); failed != nil {
		return failed
	}
	if err != nil {
		return err
	}
	return c.send(ctx, news{done: about, about: about})
}

// scan yields the keys that match a pattern, each batch sorted and without those that SCAN found twice in it.
func (c *checker) scan(ctx context.Context, pattern string) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		for cursor := ""; ; {
			keys, next, err := c.Engine.Scan(ctx, store.Scan{Pattern: pattern, Cursor: cursor, Count: records.ScanBatch})
			slices.Sort(keys)
			if !yield(slices.Compact(keys), err) || err != nil || next == "" {
				return
			}
			cursor = next
		}
	}
}

// sorted are items by what they are.
type sorted struct {
	entries, strangers, srks, tertiary, indexes, unparsable []item
	orders, throttles, staged                               []item // the store's own: of ordered fields, counters, elements laid ready

	placesOf map[string]bool // the relative PRKs of the entries whose places in orders are judged; nil: all
}

// sort leaves out what is not the view's: namespaces inside it, most of the store's own records, and keys of
// other programs.
func (c *checker) sort(keys []string) (s sorted) {
	prefix := c.NS.String()
	for _, raw := range keys {
		if strings.HasPrefix(raw[len(prefix):], "~") {
			c.sortOwn(&s, raw)
			continue
		}
		key, err := recordkey.Parse(raw)
		it := item{raw: raw, key: key}
		_, declared := c.types[key.Type()]
		switch {
		case err != nil && likeOurs(raw[len(prefix):], c.Schema):
			s.unparsable = append(s.unparsable, it)
		case err != nil:
		case !declared && key.Kind() == recordkey.KindPRK:
			s.strangers = append(s.strangers, it)
		case !declared:
		case key.Kind() == recordkey.KindPRK:
			s.entries = append(s.entries, it)
		case key.Kind() == recordkey.KindSRK:
			s.srks = append(s.srks, it)
		case key.Kind() == recordkey.KindTertiary:
			s.tertiary = append(s.tertiary, it)
		case key.Kind() == recordkey.KindIndex:
			s.indexes = append(s.indexes, it)
		}
	}
	return s
}

func (c *checker) sortOwn(s *sorted, raw string) {
	if set, rev, ok := store.ParseStage(raw); ok && set.Namespace() == c.NS {
		s.staged = append(s.staged, item{raw: raw, key: set, member: rev})
		return
	}
	key, err := recordkey.Parse(raw)
	if err != nil || key.Kind() != recordkey.KindOwn || key.Namespace() != c.NS {
		return
	}
	if _, _, is := orderOf(key); is {
		s.orders = append(s.orders, item{raw: raw, key: key})
	}
	if parts := key.Parts(); len(parts) == 4 && parts[0] == "throttle" { // ~/throttle/TYPE/WHAT/WHOSE
		s.throttles = append(s.throttles, item{raw: raw, key: key})
	}
}

// judge looks at records of every kind, page by page, and then at the members of sets.
func (c *checker) judge(ctx context.Context, s sorted) error {
	for _, some := range []struct {
		look  look
		items []item
	}{
		{c.lookAtUnparsable, s.unparsable},
		{c.lookAtStrangers, s.strangers},
		{c.lookAtThrottles, s.throttles},
		{c.lookAtStaged, s.staged},
		{c.lookAtEntries, s.entries},
		{c.lookAtSRKs, s.srks},
		{c.lookAtTertiary, s.tertiary},
		{c.lookAtIndexes, s.indexes},
		{c.lookAtOrders, s.orders},
	} {
		if err := c.confirmAll(ctx, some.look, some.items); err != nil {
			return err
		}
	}
	indexed := func(it item) bool { return c.types[it.key.Type()].Schema.Tertiary[it.key.Name()].Indexed }
	if err := c.members(ctx, c.lookAtMembers, filter(s.tertiary, indexed)); err != nil {
		return err
	}
	if err := c.members(ctx, c.lookAtIndexMembers, s.indexes); err != nil {
		return err
	}
	return c.places(ctx, s.orders, s.placesOf)
}

func filter(items []item, keep func(item) bool) (some []item) {
	for _, it := range items {
		if keep(it) {
			some = append(some, it)
		}
	}
	return some
}

// members judges all members of sets: those of many small sets at once, a large one page by page.
func (c *checker) members(ctx context.Context, look look, sets []item) error {
	for some := range slices.Chunk(sets, setBatch) {
		pages, err := store.Sets(ctx, c.Engine, raws(some), memberBatch)
		if err != nil {
			return err
		}
		var ms []item
		for i, p := range pages {
			ms = append(ms, membersOf(some[i], p.Items)...)
		}
		if err := c.confirm(ctx, look, ms); err != nil {
			return err
		}
		for i, p := range pages {
			if err := c.rest(ctx, look, some[i], p.Next); err != nil {
				return err
			}
		}
	}
	return nil
}

// rest judges what is left of a large set.
func (c *checker) rest(ctx context.Context, look look, set item, cursor string) error {
	for cursor != "" {
		members, next, err := c.Engine.Scan(ctx, store.Scan{Index: set.key, Cursor: cursor, Count: memberBatch})
		switch {
		case store.IsEntryError(err):
			return nil // meanwhile another record
		case err != nil:
			return err
		}
		if err := c.confirm(ctx, look, membersOf(set, members)); err != nil {
			return err
		}
		cursor = next
	}
	return nil
}

func membersOf(set item, members []string) []item {
	ms := make([]item, len(members))
	for i, m := range members {
		ms[i] = item{raw: set.raw, key: set.key, member: m}
	}
	return ms
}

// places judges the members of ordered indexes that the schema declares: all, or those of some entries.
func (c *checker) places(ctx context.Context, orders []item, of map[string]bool) error {
	for _, order := range orders {
		t, _ := c.ordered(order.key)
		for q := (store.Order{Key: order.key, Count: memberBatch}); t != nil; {
			members, err := c.Engine.Order(ctx, q)
			if store.IsEntryError(err) {
				break // another Redis type
			}
			if err != nil {
				return err
			}
			mine := filter(membersOf(order, members), func(m item) bool { return of == nil || of[change.PlaceOwner(m.member)] })
			if err := c.confirm(ctx, c.lookAtOrderMembers, mine); err != nil {
				return err
			}
			if len(members) < q.Count {
				break
			}
			q.Min = store.Bound{At: members[len(members)-1], Open: true, Is: true}
		}
	}
	return nil
}

// one judges the entry that a hint points at, and what belongs to it.
func (c *checker) one(ctx context.Context) error {
	s, err := c.Resolve(c.o.Only, "")
	if err != nil {
		return err
	}
	prks, srks, err := c.meant(ctx, s)
	if err != nil {
		return err
	}
	mine, err := c.around(ctx, s.Type, prks, srks)
	if err != nil {
		return err
	}
	if err := c.judge(ctx, mine); err != nil || len(prks) == 0 {
		return err
	}
	pattern := recordkey.Glob(c.NS.String()+recordkey.Escape(s.Type.Name)) + "/*"
	return c.each(ctx, pattern, func(ctx context.Context, keys []string) error { return c.belongings(ctx, keys, prks, mine.srks) })
}

// around are some entries and SRKs, and what the entries lead to: the SRKs of their values under all secondary fields, what
// was laid ready for them, and the ordered indexes of their type.
func (c *checker) around(ctx context.Context, t *change.Type, prks, srks []recordkey.Key) (mine sorted, err error) {
	hashes, err := store.Hashes(ctx, c.Engine, records.Texts(prks))
	if err != nil {
		return mine, err
	}
	mine.placesOf = map[string]bool{}
	for i, prk := range prks {
		mine.entries, mine.placesOf[records.Relative(prk)] = append(mine.entries, itemOf(prk)), true
		if e := entryAt(new(findings), t, 0, prk, hashes[i]); e != nil {
			e.judge(new(findings))
			for _, s := range sights([]*entry{e}) {
				srks = append(srks, s.record)
			}
		}
		fill := store.ParseFill(prk, hashes[i].Fields[store.FieldFill])
		for _, p := range fill.Parts {
			mine.staged = append(mine.staged, item{raw: store.StageKey(p.Set, fill.Rev), key: p.Set, member: fill.Rev})
		}
	}
	slices.SortFunc(srks, recordkey.Key.Compare)
	for _, srk := range slices.Compact(srks) {
		mine.srks = append(mine.srks, itemOf(srk))
	}
	for _, field := range t.Ordered {
		key, err := t.OrderKey(field)
		if err != nil || len(prks) == 0 {
			return mine, err
		}
		mine.orders = append(mine.orders, itemOf(key))
	}
	return mine, nil
}

// meant is which entries a hint may mean, live or not, and by which SRKs. It reports where there is
// no live one; its key is then the first that was looked at, or empty where there was none.
func (c *checker) meant(ctx context.Context, s query.Sought) (prks, srks []recordkey.Key, err error) {
	key := ""
	if s.Lookup.PRK.IsValid() {
		prks, key = []recordkey.Key{s.Lookup.PRK}, records.Relative(s.Lookup.PRK)
	} else {
		for _, k := range s.Target.Keys { // also fields in which the value cannot be by the rules: damage knows none
			srks = append(srks, k.In(c.NS))
		}
		if len(srks) > 0 {
			key = records.Relative(srks[0])
		}
		if prks, err = c.named(ctx, s.Type, srks); err != nil {
			return nil, nil, err
		}
	}
	presence := func(ctx context.Context, _ []item) (fs findings, err error) {
		now := prks
		if len(srks) > 0 {
			now, err = c.named(ctx, s.Type, srks)
		}
		asked := make([]ownerRead, len(now))
		for i, prk := range now {
			asked[i] = ownerRead{t: s.Type, key: prk, field: store.FieldType, fine: notEmpty}
		}
		if err != nil {
			return nil, err
		}
		owners, err := c.owners(ctx, asked)
		if !slices.ContainsFunc(owners, owner.live) {
			fs.addRaw(0, entryMissing, key, "")
		}
		return fs, err
	}
	return prks, srks, c.confirm(ctx, presence, make([]item, 1))
}

// named are the entries that SRKs name.
func (c *checker) named(ctx context.Context, t *change.Type, srks []recordkey.Key) ([]recordkey.Key, error) {
	srvs, err := store.Texts(ctx, c.Engine, records.Texts(srks))
	var prks []recordkey.Key
	for i, srv := range srvs {
		key, wrong := ownerOf(t, srks[i].Namespace(), srv.Wire)
		if wrong == nil && !slices.Contains(prks, key) {
			prks = append(prks, key)
		}
	}
	return prks, err
}

// belongings judges those of some keys that belong to entries, but for the SRKs that are known.
func (c *checker) belongings(ctx context.Context, keys []string, prks []recordkey.Key, known []item) error {
	s := c.sort(keys)
	named := append(slices.Clone(s.srks), s.unparsable...)
	srvs, err := store.Texts(ctx, c.Engine, raws(named))
	if err != nil {
		return err
	}
	var mine sorted
	mine.tertiary = filter(s.tertiary, func(it item) bool { return slices.Contains(prks, it.key.PRK()) })
	for i, srv := range srvs {
		owner, err := recordkey.Parse(store.Owner(srv.Wire))
		switch {
		case err != nil || !slices.Contains(prks, owner.In(c.NS)):
		case i >= len(s.srks):
			mine.unparsable = append(mine.unparsable, named[i])
		case !slices.Contains(known, named[i]):
			mine.srks = append(mine.srks, named[i])
		}
	}
	if err := c.judge(ctx, mine); err != nil {
		return err
	}
	return c.memberships(ctx, s.indexes, prks)
}

// memberships judges index sets that entries are in.
func (c *checker) memberships(ctx context.Context, indexes []item, prks []recordkey.Key) error {
	var asked []store.Member
	var of []item
	for _, index := range indexes {
		for _, prk := range prks {
			member := records.Relative(prk)
			asked, of = append(asked, store.Member{Set: index.key, Value: member}), append(of, item{index.raw, index.key, member})
		}
	}
	in, err := c.Engine.Holds(ctx, asked, store.AnyMoment)
	if err != nil {
		return err
	}
	var sets, ms []item
	for i, m := range of {
		if in[i] {
			sets, ms = append(sets, item{raw: m.raw, key: m.key}), append(ms, m)
		}
	}
	if err := c.confirm(ctx, c.lookAtIndexes, slices.Compact(sets)); err != nil {
		return err
	}
	return c.confirm(ctx, c.lookAtIndexMembers, ms)
}

// lookAtStrangers looks for entries of types that the schema does not declare.
func (c *checker) lookAtStrangers(ctx context.Context, items []item) (fs findings, err error) {
	reads := make([]store.LookAt, len(items))
	for i, it := range items {
		reads[i] = store.LookAt{Key: it.raw, As: store.LookField, Field: store.FieldType}
	}
	isas, err := c.Engine.Look(ctx, reads)
	for i, isa := range isas {
		if isa.Wire != "" {
			fs.add(i, schemaMissing, items[i].key, "", records.Quoted(items[i].key.Type()))
		}
	}
	return fs, err
}
