package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
)

// A repair goes over the records up to three times. The first round repairs what can be told from one
// record by itself: what nobody holds goes, index sets are brought in line. It notes the secondary values
// of entries that something is wrong with. Whether two entries have one of those is found out by a
// pass over all entries: then it is decided by Keep, or left. The second round repairs entries; no value that
// two have is claimed for either. The third repairs what depended on that.
type repair struct {
	round int
	keep  map[recordkey.Key]bool

	mu       sync.Mutex
	again    bool            // something is left for the next round
	believed map[uint64]bool // problems that no writer is in the middle of, as an earlier round found out
	suspects []uint64        // digests of values that two entries may have
	shared   map[uint64]bool // those of them that an entry has seen at another
	contests map[uint64]*records.Contest
}

const (
	roundRecords = iota + 1
	roundEntries
	roundRest
)

// repairAll looks, repairs and looks again.
func (c *checker) repairAll(ctx context.Context) error {
	c.fix = &repair{keep: map[recordkey.Key]bool{}, shared: map[uint64]bool{}, believed: map[uint64]bool{}}
	for _, k := range c.o.Keep {
		t, is := c.types[k.Type()]
		if !is || k.Kind() != recordkey.KindPRK || k.Field() != t.Schema.Primary || k.Namespace() != (recordkey.Namespace{}) {
			return fmt.Errorf("%w: %s", ErrKeep, records.Quoted(k.String()))
		}
		c.fix.keep[k] = true
	}
	for round := roundRecords; round <= roundRest; round++ {
		c.fix.round, c.fix.again = round, false
		if err := c.round(ctx); err != nil || !c.fix.again {
			return err
		}
		if round == roundRecords {
			if err := c.decide(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// repair ends what was found about items, as far as this round does, and returns those that it tried to.
func (c *checker) repair(ctx context.Context, d doubt) (tried []item, err error) {
	due := make([]findings, len(d.items))
	for _, f := range d.found {
		if c.fix.due(f.code) {
			due[f.at] = append(due[f.at], f)
		}
	}
	for i, fs := range due {
		if len(fs) == 0 {
			continue
		}
		if err := c.repairItem(ctx, d.items[i], fs); err != nil && !overtaken(err) {
			return nil, err
		}
		tried = append(tried, d.items[i])
	}
	return tried, nil
}

func (c *checker) repairItem(ctx context.Context, it item, due findings) error {
	entry := false
	for _, f := range due {
		if f.code == ownThrottle { // no step can tell sound counters from others, and the look may be long ago
			if now, err := c.lookAtThrottles(ctx, []item{it}); err != nil || len(now) == 0 {
				return err
			}
		}
		if f.code.remedy == ofEntry {
			entry = true
		} else if err := c.take(ctx, f.step); err != nil {
			return err
		}
	}
	if !entry {
		return nil
	}
	return c.repairEntry(ctx, it.key)
}

// take takes a step that changes or removes one record, if what was found is still so.
func (c *checker) take(ctx context.Context, step store.Step) error {
	if step == nil {
		return nil
	}
	_, err := c.Engine.Mend(ctx, step)
	return err
}

// overtaken reports whether a step met something that leaves the problem as it is, such as a record of another Redis type,
// which is a problem of its own.
func overtaken(err error) bool {
	return errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrDuplicate) ||
		errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrCorrupt) || redisx.WrongType(err)
}

// due reports whether this round repairs problems of a code.
func (r *repair) due(c *code) bool {
	return c.remedy == ofRecord || c.remedy == ofEntry && r.round == roundEntries
}

// results are the findings to tell in this round: each is told once, when it is known what became of it.
func (r *repair) results(found, left findings) (told findings) {
	still := map[uint64]bool{}
	for _, f := range left {
		still[f.digest()] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range found {
		f.Repaired = r.due(f.code) && !still[f.digest()]
		switch when := r.when(f); {
		case when > r.round:
			r.again = true
		case when == r.round && !(f.code == valueShared && r.contests[f.values[0]] != nil): // of which decide has told
			told = append(told, f)
		}
	}
	return told
}

// when is the round in which a finding is told.
func (r *repair) when(f finding) int {
	switch {
	case f.code.remedy == ofEntry:
		return roundEntries
	case f.code.remedy == ofRecord && !f.Repaired:
		return roundRest
	case f.code.remedy == ofRecord:
		return r.round
	}
	return roundRecords
}

// believes reports whether all that was found was noted before.
func (r *repair) believes(found findings) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return !slices.ContainsFunc(found, func(f finding) bool { return !r.believed[f.digest()] })
}

// note remembers what was found, and in the first round the values that other entries may have, too.
func (r *repair) note(found findings) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range found {
		r.believed[f.digest()] = true
		for _, value := range f.values {
			switch {
			case r.round != roundRecords:
			case f.code == srkMissing || f.code == srkWrong:
				r.suspects = append(r.suspects, value)
			default:
				r.shared[value] = true
			}
		}
	}
}

// decide finds the values that two entries have among those that were noted, tells of them, and gives
// each that Keep decides about to its entry.
func (c *checker) decide(ctx context.Context) error {
	wanted := c.fix.shared
	slices.Sort(c.fix.suspects)
	for i, d := range c.fix.suspects {
		if !c.entire || i > 0 && c.fix.suspects[i-1] == d {
			wanted[d] = true
		}
	}
	c.fix.suspects, c.fix.shared = nil, nil
	asItIs := func(_ *change.Type, r store.Record) map[string]string { return r.Fields }
	progress := func(done, about int64) { _ = c.send(ctx, news{done: done, about: about}) } // an end of ctx ends the pass, too
	found, err := records.Contests(ctx, c.View, c.Schema.Names(), wanted, asItIs, progress)
	if err != nil {
		return err
	}
	c.fix.contests = found
	for _, d := range records.SortedContests(found) {
		if err := c.stillHeld(ctx, found[d]); err != nil {
			return err
		}
		if len(found[d].Holders) < 2 {
			delete(found, d)
			continue
		}
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

// stillHeld leaves out of a contest the entries that gave their value to another while all were gone through: two
// that are left have the same revision in two looks.
func (c *checker) stillHeld(ctx context.Context, k *records.Contest) error {
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
	k.Holders = holders
	return nil
}

// give tells of a contest, and takes the value from all but the one entry that Keep names, if it
// names one.
func (c *checker) give(ctx context.Context, k *records.Contest) (decided bool, err error) {
	keeper := c.fix.keeper(k)
	for _, prk := range k.Holders {
		if prk == keeper || !keeper.IsValid() {
			continue
		}
		err := c.amend(ctx, k.Type, prk.In(c.NS), func(store.Record) (change.Mending, bool, error) {
			return change.Mending{
				Claim: func(recordkey.Key) bool { return false },
				Lose:  func(value string) bool { return value == k.Value }, // the facets that have it stay under ~lost:FIELD
			}, true, nil
		})
		if err != nil {
			return false, err
		}
	}
	srk, err := recordkey.SRK(k.Type.Name, k.Field, k.Value)
	if err != nil {
		return false, err
	}
	var fs findings
	f := fs.add(0, valueShared, srk, "", choices(k.Holders, keeper))
	f.Choices, f.Repaired = k.Holders, keeper.IsValid()
	return f.Repaired, c.tell(ctx, fs)
}

// keeper is the one holder that is to keep the value; the zero Key: nobody decided, or for two.
func (r *repair) keeper(k *records.Contest) (keeper recordkey.Key) {
	for _, prk := range k.Holders {
		if r.keep[prk] && keeper.IsValid() {
			return recordkey.Key{}
		}
		if r.keep[prk] {
			keeper = prk
		}
	}
	return keeper
}

// choices tells what each choice means.
func choices(holders []recordkey.Key, keeper recordkey.Key) string {
	names := make([]string, len(holders))
	for i, prk := range holders {
		names[i] = records.Printable(prk.String())
	}
	all := strings.Join(names, " and ") + " have this value"
	if keeper.IsValid() {
		return all + "; " + records.Printable(keeper.String()) + " keeps it, and what the others wrote stands in their field ~lost:…"
	}
	return all + "; to keep one of them keeps it findable by this value, and moves what the others wrote into their field ~lost:…, " +
		"by which nobody finds them"
}
