package check

import (
	"context"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/throttle"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
)

const (
	// concurrentBatches is the number of batches checked at once, so that the server has work while
	// this process judges other batches.
	concurrentBatches = 3
	setBatch          = 100 // number of sets read together
	memberBatch       = 500 // approximate number of members read from a set at a time
)

func rawKeys(items []item) []string {
	return records.Map(items, func(it item) string { return it.raw })
}

// checkAll checks all records of the view.
func (c *checker) checkAll(ctx context.Context) error {
	return c.forEachBatch(ctx, recordkey.Glob(c.NS.String())+"*", func(ctx context.Context, keys []string) error {
		return c.checkRecords(ctx, c.classify(keys))
	})
}

// forEachBatch calls do with batches of the keys that match pattern, in several goroutines, and
// reports progress.
func (c *checker) forEachBatch(ctx context.Context, pattern string, do func(ctx context.Context, keys []string) error) error {
	progress := func(done, about int64) { c.reportProgress(ctx, done, about) }
	w := records.Walk{Pattern: pattern, Size: records.ScanBatch, AtOnce: concurrentBatches, Progress: progress}
	return w.Each(ctx, c.View, do)
}

// A classified value holds items sorted by their kind.
type classified struct {
	entries, undeclared, srks, tertiary, indexes, unparsable []item
	// orders, throttles, histories, factors, staged and dropped are records of the store's own:
	// ordered indexes, login counters, histories, second factors, staged elements and elements that
	// are to be dropped.
	orders, throttles, histories, factors, staged, dropped []item

	// positionOwners holds the relative PRKs of the entries whose positions are checked; nil means
	// all.
	positionOwners map[string]bool
}

// classify sorts keys by the kind of their record. It omits keys of namespaces inside the view and
// of other programs, most of the store's own records and, of undeclared types, all but the entries.
func (c *checker) classify(keys []string) (s classified) {
	prefix := c.NS.String()
	for _, raw := range keys {
		if strings.HasPrefix(raw[len(prefix):], "~") {
			c.classifyOwn(&s, raw)
			continue
		}
		key, err := recordkey.Parse(raw)
		it := item{raw: raw, key: key}
		_, declared := c.ByName[key.Type()]
		switch {
		case err != nil && looksLikeOurs(raw[len(prefix):], c.Schema):
			s.unparsable = append(s.unparsable, it)
		case err != nil:
		case !declared && key.Kind() == recordkey.KindPRK:
			s.undeclared = append(s.undeclared, it)
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

func (c *checker) classifyOwn(s *classified, raw string) {
	if set, rev, ok := store.ParsePreparedKey(raw); ok && set.Namespace() == c.NS {
		s.staged = append(s.staged, item{raw: raw, key: set, member: rev})
		return
	}
	if record, rev, ok := store.ParseDropKey(raw); ok && record.Namespace() == c.NS {
		s.dropped = append(s.dropped, item{raw: raw, key: record, member: rev})
		return
	}
	key, err := recordkey.Parse(raw)
	if err != nil || key.Kind() != recordkey.KindOwn || key.Namespace() != c.NS {
		return
	}
	if _, _, ok := orderOf(key); ok {
		s.orders = append(s.orders, item{raw: raw, key: key})
	}
	if isHistory(key) {
		s.histories = append(s.histories, item{raw: raw, key: key})
	}
	if isFactorRecord(key) {
		s.factors = append(s.factors, item{raw: raw, key: key})
	}
	if throttle.IsKey(key) {
		s.throttles = append(s.throttles, item{raw: raw, key: key})
	}
}

// checkRecords checks records of every kind, page by page, and then the members of sets.
func (c *checker) checkRecords(ctx context.Context, s classified) error {
	if err := c.publishHistory(ctx, records.Map(s.entries, func(it item) recordkey.Key { return it.key })); err != nil {
		return err
	}
	for _, some := range []struct {
		check checkFunc
		items []item
	}{
		{c.checkUnparsable, s.unparsable},
		{c.checkUndeclared, s.undeclared},
		{c.checkThrottles, s.throttles},
		{c.checkHistories, s.histories},
		{c.checkFactorRecords, s.factors},
		{c.checkStaged, s.staged},
		{c.checkDropped, s.dropped},
		{func(ctx context.Context, r *report, items []item) { c.checkEntries(ctx, r, items) }, s.entries},
		{c.checkSRKs, s.srks},
		{c.checkTertiary, s.tertiary},
		{c.checkIndexes, slices.Concat(s.indexes, s.orders)},
	} {
		if err := c.examine(ctx, some.check, some.items); err != nil {
			return err
		}
	}
	indexed := func(it item) bool { return c.ByName[it.key.Type()].Schema.Tertiary[it.key.Name()].Indexed }
	if err := c.forEachMember(ctx, c.checkMembers, filter(s.tertiary, indexed)); err != nil {
		return err
	}
	if err := c.forEachMember(ctx, c.checkIndexMembers, s.indexes); err != nil {
		return err
	}
	return c.checkPositions(ctx, s.orders, s.positionOwners)
}

func filter[T any](items []T, keep func(T) bool) (some []T) {
	for _, it := range items {
		if keep(it) {
			some = append(some, it)
		}
	}
	return some
}

// forEachMember checks all members of sets: several small sets together, a large set page by page.
func (c *checker) forEachMember(ctx context.Context, check checkFunc, sets []item) error {
	for batch := range slices.Chunk(sets, setBatch) {
		pages, err := store.Sets(ctx, c.Engine, rawKeys(batch), memberBatch)
		if err != nil {
			return err
		}
		var ms []item
		for i, p := range pages {
			ms = append(ms, membersOf(batch[i], p.Items)...)
		}
		if err := c.examine(ctx, check, ms); err != nil {
			return err
		}
		for i, p := range pages {
			if err := c.checkRemaining(ctx, check, batch[i], p.Next); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkRemaining checks the rest of a large set, from cursor on.
func (c *checker) checkRemaining(ctx context.Context, check checkFunc, set item, cursor string) error {
	if cursor == "" {
		return nil
	}
	for members, err := range c.Engine.ScanAll(ctx, store.Scan{Index: set.key, Cursor: cursor, Count: memberBatch}) {
		if store.IsEntryError(err) {
			break // it was replaced by a record of another kind
		}
		if err == nil {
			err = c.examine(ctx, check, membersOf(set, members))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func membersOf(set item, members []string) []item {
	return records.Map(members, func(m string) item { return item{set.raw, set.key, m} })
}

// checkPositions checks the members of the ordered indexes that the schema declares: all of them
// or, if owners is not nil, only the members of these entries.
func (c *checker) checkPositions(ctx context.Context, orders []item, owners map[string]bool) error {
	for _, order := range orders {
		for q := (store.Order{Key: order.key, Count: memberBatch}); c.orderedType(order.key) != nil; {
			members, err := c.Engine.Order(ctx, q)
			if store.IsEntryError(err) {
				break // another Redis type
			}
			if err != nil {
				return err
			}
			wanted := filter(membersOf(order, members), func(m item) bool { return owners == nil || owners[change.PositionOwner(m.member)] })
			if err := c.examine(ctx, c.checkOrderMembers, wanted); err != nil {
				return err
			}
			if len(members) < q.Count {
				break
			}
			q.Min = store.Bound{At: members[len(members)-1], Exclusive: true, Set: true}
		}
	}
	return nil
}

// checkUndeclared reports entries of types that the schema does not declare.
func (c *checker) checkUndeclared(ctx context.Context, r *report, items []item) {
	reads := records.Map(items, func(it item) store.RawRead {
		return store.RawRead{Key: it.raw, As: store.RawField, Field: store.FieldType}
	})
	for i, isa := range read(ctx, r, c.Engine, reads, readFields) {
		if isa.Wire != "" {
			r.add(i, schemaMissing, items[i].key, "", records.Quoted(items[i].key.Type()))
		}
	}
}
