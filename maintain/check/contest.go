package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
)

// decide finds the values that two entries have among those that were noted, tells of them, and gives
// each that Keep decides about to its entry.
func (c *checker) decide(ctx context.Context, o Options) error {
	wanted := c.fix.shared
	slices.Sort(c.fix.suspects)
	for i, d := range c.fix.suspects {
		if !c.whole || i > 0 && c.fix.suspects[i-1] == d {
			wanted[d] = true
		}
	}
	c.fix.suspects, c.fix.shared = nil, nil
	found, err := records.Contests(ctx, c.View, c.Schema.Names(), wanted, asItIs, o.Progress)
	if err == nil {
		err = c.stillContests(ctx, found)
	}
	if err != nil {
		return err
	}
	c.fix.contests = found
	for _, d := range records.SortedContests(found) {
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
func (c *checker) stillContests(ctx context.Context, found map[uint64]*records.Contest) error {
	for d, k := range found {
		keys := make([]string, len(k.Holders))
		for i, prk := range k.Holders {
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
		for i, prk := range k.Holders {
			if before[i].Fields[store.FieldRev] == now[i].Fields[store.FieldRev] && slices.Contains(k.Type.Values(now[i].Fields), k.Value) {
				holders = append(holders, prk)
			}
		}
		if k.Holders = holders; len(holders) < 2 {
			delete(found, d)
		}
	}
	return nil
}

func asItIs(_ *change.Type, r store.Record) map[string]string { return r.Fields }

// give tells of a contest, and takes the value from all but the one entry that Keep names, if it
// names one.
func (c *checker) give(ctx context.Context, k *records.Contest) (decided bool, err error) {
	keeper := keeperOf(k, c.fix.keep)
	if keeper.IsValid() {
		for _, prk := range k.Holders {
			if prk == keeper {
				continue
			}
			if err := c.lose(ctx, k, prk.In(c.NS)); err != nil {
				return false, err
			}
		}
	}
	srk, err := recordkey.SRK(k.Type.Name, k.Field, k.Value)
	if err != nil {
		return false, err
	}
	var fs findings
	f := fs.add(0, codeValueShared, srk, "", "%s", textOf(k, keeper))
	f.Choices, f.Repaired = k.Holders, keeper.IsValid()
	return f.Repaired, c.emit(problems(fs), nil)
}

// keeperOf is the one holder that is to keep the value; the zero Key: nobody decided, or for two.
func keeperOf(k *records.Contest, keep map[recordkey.Key]bool) recordkey.Key {
	var keeper recordkey.Key
	for _, prk := range k.Holders {
		if keep[prk] && keeper.IsValid() {
			return recordkey.Key{}
		}
		if keep[prk] {
			keeper = prk
		}
	}
	return keeper
}

// textOf says what each choice means.
func textOf(k *records.Contest, keeper recordkey.Key) string {
	names := make([]string, len(k.Holders))
	for i, prk := range k.Holders {
		names[i] = records.Printable(prk.String())
	}
	all := strings.Join(names, " and ") + " have this value"
	if keeper.IsValid() {
		return fmt.Sprintf("%s; %s keeps it, and what the others wrote stands in their field ~lost:…", all, records.Printable(keeper.String()))
	}
	return fmt.Sprintf("%s; to keep one of them keeps it findable by this value, and moves what the others wrote into their field ~lost:…, "+
		"by which nobody finds them", all)
}

// lose takes a value from an entry: the facets that have it stay under ~lost:FIELD.
func (c *checker) lose(ctx context.Context, k *records.Contest, prk recordkey.Key) error {
	return c.mendOnce(ctx, k.Type, prk, func(store.Record) (change.Mending, bool) {
		return change.Mending{
			Claim: func(recordkey.Key) bool { return false },
			Lose:  func(value string) bool { return value == k.Value },
		}, true
	})
}
