package maintain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
)

// A contest is a secondary value that several entries have.
type contest struct {
	t       *change.Type
	value   string
	field   string          // under which the first of them has it
	holders []recordkey.Key // relative PRKs, sorted
}

// decide finds the values that two entries have among those that were noted, tells of them, and gives
// each that Keep decides about to its entry.
func (c *checker) decide(ctx context.Context, o CheckOptions) error {
	wanted := c.fix.shared
	slices.Sort(c.fix.suspects)
	for i, d := range c.fix.suspects {
		if !c.whole || i > 0 && c.fix.suspects[i-1] == d {
			wanted[d] = true
		}
	}
	c.fix.suspects, c.fix.shared = nil, nil
	found, err := contestsAmong(ctx, c.View, c.Schema.Names(), wanted, asItIs, o.Progress)
	if err == nil {
		err = c.stillContests(ctx, found)
	}
	if err != nil {
		return err
	}
	c.fix.contests = found
	for _, d := range sortedContests(found) {
		decided, err := c.give(ctx, found[d])
		if err != nil {
			return err
		}
		if decided {
			delete(found, d)
		}
	}
	return nil
}

// stillContests leaves out entries that gave their value to another while all were gone through: what is left
// is held by two entries that have the same revision in two looks.
func (c *checker) stillContests(ctx context.Context, found map[uint64]*contest) error {
	for d, k := range found {
		keys := make([]string, len(k.holders))
		for i, prk := range k.holders {
			keys[i] = prk.In(c.NS).String()
		}
		before, err := store.Hashes(ctx, c.Engine, keys)
		if err != nil {
			return err
		}
		now, err := store.Hashes(ctx, c.Engine, keys)
		if err != nil {
			return err
		}
		var holders []recordkey.Key
		for i, prk := range k.holders {
			if before[i].Fields[store.FieldRev] == now[i].Fields[store.FieldRev] && slices.Contains(k.t.Values(now[i].Fields), k.value) {
				holders = append(holders, prk)
			}
		}
		if k.holders = holders; len(holders) < 2 {
			delete(found, d)
		}
	}
	return nil
}

func asItIs(_ *change.Type, r store.Record) map[string]string { return r.Fields }

func sortedContests(found map[uint64]*contest) []uint64 {
	ds := make([]uint64, 0, len(found))
	for d := range found {
		ds = append(ds, d)
	}
	slices.SortFunc(ds, func(a, b uint64) int {
		return strings.Compare(found[a].t.Name+"/"+found[a].value, found[b].t.Name+"/"+found[b].value)
	})
	return ds
}

// contestsAmong goes over all entries and finds out who has the values with the digests wanted. as
// says by which facets an entry is judged.
func contestsAmong(ctx context.Context, c *view.View, names []string, wanted map[uint64]bool, as func(*change.Type, store.Record) map[string]string, progress func(done, about int64)) (map[uint64]*contest, error) {
	found := map[uint64]*contest{}
	if len(wanted) == 0 {
		return found, nil
	}
	err := eachEntry(ctx, c, names, progress, func(t *change.Type, r store.Record) error {
		prk := r.Key.In(recordkey.Namespace{})
		for _, srk := range t.Secondaries(as(t, r)) {
			d := digest(t.Name, srk.Value())
			if !wanted[d] {
				continue
			}
			if found[d] == nil {
				found[d] = &contest{t: t, value: srk.Value(), field: srk.Field()}
			}
			if k := found[d]; k.value == srk.Value() && !slices.Contains(k.holders, prk) {
				k.holders = append(k.holders, prk)
			}
		}
		return nil
	})
	for d, k := range found {
		if slices.SortFunc(k.holders, recordkey.Key.Compare); len(k.holders) < 2 {
			delete(found, d)
		}
	}
	return found, err
}

// eachEntry calls f for all entries of some types, whole or damaged, one after the other. SCAN may give
// an entry twice.
func eachEntry(ctx context.Context, c *view.View, names []string, progress func(done, about int64), f func(*change.Type, store.Record) error) error {
	about, err := c.Engine.Size(ctx)
	if err != nil {
		return err
	}
	for i, name := range names {
		t, err := c.Type(name)
		if err != nil {
			return err
		}
		for done, cursor := int64(0), ""; ; {
			keys, next, err := c.Engine.Scan(ctx, t.Guard().Entries, cursor, scanBatch)
			if err != nil {
				return err
			}
			if err := entriesAt(ctx, c, t, keys, f); err != nil {
				return err
			}
			if done = min(done+scanBatch, about); progress != nil {
				progress((int64(i)*about+done)/int64(len(names)), about)
			}
			if cursor = next; cursor == "" {
				break
			}
		}
	}
	return nil
}

func entriesAt(ctx context.Context, c *view.View, t *change.Type, raws []string, f func(*change.Type, store.Record) error) error {
	var keys []recordkey.Key
	slices.Sort(raws)
	for _, raw := range slices.Compact(raws) {
		k, err := recordkey.Parse(raw)
		if err == nil && k.Kind() == recordkey.KindPRK && k.Type() == t.Name && k.Field() == t.Schema.Primary && k.Namespace() == c.NS {
			keys = append(keys, k)
		}
	}
	for some := range slices.Chunk(keys, lookBatch) {
		hashes, err := store.Hashes(ctx, c.Engine, texts(some))
		if err != nil {
			return err
		}
		for i, h := range hashes {
			if h.Other || gone(h.Fields) {
				continue
			}
			if err := f(t, store.Record{Key: some[i], Fields: h.Fields}); err != nil {
				return err
			}
		}
	}
	return nil
}

// give tells of a contest, and takes the value from all but the one entry that Keep names, if it
// names one.
func (c *checker) give(ctx context.Context, k *contest) (decided bool, err error) {
	keeper := k.keeper(c.fix.keep)
	if keeper.IsValid() {
		for _, prk := range k.holders {
			if prk == keeper {
				continue
			}
			if err := c.lose(ctx, k, prk.In(c.NS)); err != nil {
				return false, err
			}
		}
	}
	srk, err := recordkey.SRK(k.t.Name, k.field, k.value)
	if err != nil {
		return false, err
	}
	var fs findings
	f := fs.add(0, codeValueShared, srk, "", "%s", k.text(keeper))
	f.Choices, f.Repaired = k.holders, keeper.IsValid()
	return f.Repaired, c.emit(problems(fs), nil)
}

// keeper is the one holder that is to keep the value; the zero Key: nobody decided, or for two.
func (k *contest) keeper(keep map[recordkey.Key]bool) recordkey.Key {
	var keeper recordkey.Key
	for _, prk := range k.holders {
		if keep[prk] && keeper.IsValid() {
			return recordkey.Key{}
		}
		if keep[prk] {
			keeper = prk
		}
	}
	return keeper
}

// text says what each choice means.
func (k *contest) text(keeper recordkey.Key) string {
	names := make([]string, len(k.holders))
	for i, prk := range k.holders {
		names[i] = printable(prk.String())
	}
	all := strings.Join(names, " and ") + " have this value"
	if keeper.IsValid() {
		return fmt.Sprintf("%s; %s keeps it, and what the others wrote stands in their field ~lost:…", all, printable(keeper.String()))
	}
	return fmt.Sprintf("%s; to keep one of them keeps it findable by this value, and moves what the others wrote into their field ~lost:…, "+
		"by which nobody finds them", all)
}

// lose takes a value from an entry: the facets that have it stay under ~lost:FIELD.
func (c *checker) lose(ctx context.Context, k *contest, prk recordkey.Key) error {
	return c.mendOnce(ctx, k.t, prk, func(store.Record) (change.Mending, bool) {
		return change.Mending{
			Claim: func(recordkey.Key) bool { return false },
			Lose:  func(value string) bool { return value == k.value },
		}, true
	})
}
