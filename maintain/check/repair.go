package check

import (
	"cmp"
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

// A repair goes over the records up to three times. The first round repairs what one record shows by itself: what no
// entry holds goes, indexes are brought in line. It notes the secondary values of damaged entries. A pass over all
// entries finds those that two have; Keep decides about them, or they are left. The second round repairs entries, and
// claims no value that two have for either. The third repairs what depended on that.
type repair struct {
	round int

	mu            sync.Mutex
	needsRound    bool            // something is left for the next round
	noted         map[uint64]bool // problems that no writer is in the middle of, as an earlier round found out
	suspectValues []uint64        // digests of values that entries have, of those that an entry has seen at another twice
	contested     map[uint64]bool // digests of the values that several entries have and Keep does not decide about
}

const (
	roundRecords = iota + 1
	roundEntries
	roundRest
)

// repairAll looks, repairs and looks again.
func (c *checker) repairAll(ctx context.Context) error {
	c.fix = &repair{noted: map[uint64]bool{}}
	for _, k := range c.o.Keep {
		t, is := c.ByName[k.Type()]
		if !is || k.Kind() != recordkey.KindPRK || k.Field() != t.Schema.Primary || k.Namespace() != (recordkey.Namespace{}) {
			return fmt.Errorf("%w: %s", ErrKeep, records.Quoted(k.String()))
		}
	}
	for round := roundRecords; round <= roundRest; round++ {
		c.fix.round, c.fix.needsRound = round, false
		if err := c.runRound(ctx); err != nil || !c.fix.needsRound {
			return err
		}
		if round == roundRecords {
			if err := c.resolveContests(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// repair ends what was found about items, as far as this round does: first the records, then each entry at once. It
// returns what is left of that.
func (c *checker) repair(ctx context.Context, d candidate) (left findings, err error) {
	due := filter(d.found, func(f finding) bool { return c.fix.repairsNow(f.code) })
	slices.SortStableFunc(due, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.code.remedy, b.code.remedy), cmp.Compare(a.at, b.at))
	})
	due = slices.CompactFunc(due, func(a, b finding) bool {
		return a.at == b.at && a.code.remedy == fixEntry && b.code.remedy == fixEntry
	})
	for _, f := range due {
		var err error
		if f.code.remedy == fixEntry {
			err = c.repairEntry(ctx, d.items[f.at].key)
		} else {
			err = c.applyStep(ctx, f.step)
		}
		if err != nil && !leavesProblem(err) {
			return nil, err
		}
	}
	if len(due) == 0 {
		return nil, nil
	}
	return d.check.run(ctx, itemsWithFindings(d.items, due))
}

// take takes a step that changes or removes one record, if what was found is still so.
func (c *checker) applyStep(ctx context.Context, step store.Step) error {
	if step == nil {
		return nil
	}
	_, err := c.Engine.Mend(ctx, step)
	return err
}

// overtaken reports whether a step met something that leaves the problem as it is, such as a record of another Redis
// type, which is a problem of its own.
func leavesProblem(err error) bool {
	return errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrDuplicate) ||
		errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrCorrupt) || redisx.WrongType(err)
}

// due reports whether this round repairs problems of a code.
func (r *repair) repairsNow(c *code) bool {
	return c.remedy == fixRecord || c.remedy == fixEntry && r.round == roundEntries
}

// results are the findings to tell in this round: each is told once, when it is known what became of it.
func (r *repair) reportable(found, left findings) (reported findings) {
	still := map[uint64]bool{}
	for _, f := range left {
		still[f.digest()] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range found {
		f.Repaired = r.repairsNow(f.code) && !still[f.digest()]
		r.needsRound = r.needsRound || f.Repaired && f.code == deleteUnfinished && r.round == roundRecords // its index members are orphans by now
		switch at := r.reportRound(f); {
		case at > r.round:
			r.needsRound = true
		case at == r.round && !(f.code == valueShared && r.contested[f.values[0]]): // of which decide has told
			reported = append(reported, f)
		}
	}
	return reported
}

// when is the round in which a finding is told.
func (r *repair) reportRound(f finding) int {
	switch {
	case f.code.remedy == fixEntry:
		return roundEntries
	case f.code.remedy == fixRecord && !f.Repaired:
		return roundRest
	case f.code.remedy == fixRecord:
		return r.round
	}
	return roundRecords
}

// believes reports whether all that was found was noted before.
func (r *repair) allNoted(found findings) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return !slices.ContainsFunc(found, func(f finding) bool { return !r.noted[f.digest()] })
}

// note remembers what was found, and in the first round the values that other entries may have, too.
func (r *repair) noteFindings(found findings) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range found {
		r.noted[f.digest()] = true
		if r.round != roundRecords {
			continue
		}
		r.suspectValues = append(r.suspectValues, f.values...)
		if f.code != srkMissing && f.code != srkWrong {
			r.suspectValues = append(r.suspectValues, f.values...)
		}
	}
}

// decide finds the values that two entries have among those that were noted, tells of them, and gives each that Keep
// decides about to its entry.
func (c *checker) resolveContests(ctx context.Context) error {
	slices.Sort(c.fix.suspectValues)
	wanted := map[uint64]bool{}
	for i, d := range c.fix.suspectValues {
		if !c.checksAll || i > 0 && c.fix.suspectValues[i-1] == d {
			wanted[d] = true
		}
	}
	c.fix.suspectValues = nil
	ownFields := func(r store.Record) map[string]string { return r.Fields }
	c.fix.contested = map[uint64]bool{}
	names := c.Schema.Names()
	for i, name := range names {
		progress := func(done, about int64) { c.reportProgress(ctx, (int64(i)*about+done)/int64(len(names)), about) }
		found, err := records.Contests(ctx, c.View, c.ByName[name], wanted, ownFields, progress)
		if err != nil {
			return err
		}
		for _, k := range found {
			decided, err := c.resolveContest(ctx, k)
			if err != nil {
				return err
			}
			c.fix.contested[records.Digest(name, k.Value)] = !decided
		}
	}
	return nil
}

// stillHeld leaves out of a contest the entries that gave their value to another while all were gone through: two that
// are left have the same rev in two looks.
func (c *checker) dropFormerHolders(ctx context.Context, k *records.Contest) error {
	keys := records.Map(k.Holders, func(prk recordkey.Key) string { return prk.In(c.NS).String() })
	var r report
	before, now := read(ctx, &r, c.Engine, keys, store.Hashes), read(ctx, &r, c.Engine, keys, store.Hashes)
	all := k.Holders
	k.Holders = nil
	for i, prk := range all {
		if before[i].Fields[store.FieldRev] == now[i].Fields[store.FieldRev] && slices.Contains(k.Type.Values(now[i].Fields), k.Value) {
			k.Holders = append(k.Holders, prk)
		}
	}
	return r.err
}

// give tells of a contest, and takes the value from all but the one entry that Keep names, if it names one.
func (c *checker) resolveContest(ctx context.Context, k *records.Contest) (decided bool, err error) {
	if err := c.dropFormerHolders(ctx, k); err != nil || len(k.Holders) < 2 {
		return true, err
	}
	keeper := c.chosenKeeper(k)
	for _, prk := range k.Holders {
		if prk == keeper || !keeper.IsValid() {
			continue
		}
		m := change.Mending{Lose: k.Value} // the facets that have it stay under ~lost:FIELD
		err := c.changeEntry(ctx, prk.In(c.NS), func(store.Record) (change.Mending, bool, error) { return m, true, nil })
		if err != nil {
			return false, err
		}
	}
	srk, err := recordkey.SRK(k.Type.Name, k.Field, k.Value)
	if err != nil {
		return false, err
	}
	var r report
	f := r.add(0, valueShared, srk, "", choicesText(k.Holders, keeper))
	f.Choices, f.Repaired = k.Holders, keeper.IsValid()
	return f.Repaired, c.send(ctx, update{found: r.found})
}

// keeper is the one holder that is to keep the value; the zero Key: none was named, or two.
func (c *checker) chosenKeeper(k *records.Contest) recordkey.Key {
	kept := filter(k.Holders, func(prk recordkey.Key) bool { return slices.Contains(c.o.Keep, prk) })
	if len(kept) != 1 {
		return recordkey.Key{}
	}
	return kept[0]
}

// choices tells what each choice means.
func choicesText(holders []recordkey.Key, keeper recordkey.Key) string {
	names := records.Map(holders, func(prk recordkey.Key) string { return records.Printable(prk.String()) })
	all := strings.Join(names, " and ") + " have this value"
	if keeper.IsValid() {
		return all + "; " + records.Printable(keeper.String()) + " keeps it, and what the others wrote stands in their field ~lost:…"
	}
	return all + "; to keep one of them keeps it findable by this value, and moves what the others wrote into their field ~lost:…, " +
		"by which nobody finds them"
}
