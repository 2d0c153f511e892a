package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
)

// A repair goes through the records up to three times. The first round repairs what a single record
// shows to be wrong: it removes records without an entry and corrects indexes. It also notes the
// secondary values of damaged entries. A pass over all entries then finds the values that two
// entries have; Keep decides about them, or they stay. The second round repairs entries, but claims
// no contested value. The third repairs what depended on the second.
type repair struct {
	round int

	mu         sync.Mutex
	needsRound bool // something is left for the next round
	// noted holds digests of problems that an earlier round confirmed: no writer is in the middle
	// of them.
	noted map[uint64]bool
	// suspectValues holds digests of values that damaged entries have. A value that another entry
	// may also have is listed at least twice.
	suspectValues []uint64
	// contested holds digests of values that several entries have and Keep does not decide.
	contested map[uint64]bool
}

const (
	roundRecords = iota + 1
	roundEntries
	roundRest
)

// repairAll checks and repairs in up to three rounds.
func (c *checker) repairAll(ctx context.Context) error {
	c.fix = &repair{noted: map[uint64]bool{}}
	for _, k := range c.o.Keep {
		t, ok := c.ByName[k.Type()]
		if !ok || k.Kind() != recordkey.KindPRK || k.Field() != t.Schema.Primary || k.Namespace() != (recordkey.Namespace{}) {
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

// repair fixes what the current round can fix of the findings in d: first single records, then
// entries, each in one change. It then checks the repaired records again, and returns what is still
// wrong with them.
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

// applyStep applies a step that changes or removes one record, unless the record has changed since
// it was checked.
func (c *checker) applyStep(ctx context.Context, step store.RepairStep) error {
	if step == nil {
		return nil
	}
	_, err := c.Engine.Repair(ctx, step)
	return err
}

// leavesProblem reports whether a step failed for a reason that only leaves the problem in place.
// An example is a record of another Redis type, which is a problem of its own.
func leavesProblem(err error) bool {
	return errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrDuplicate) ||
		errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrCorrupt) || store.IsWrongType(err)
}

// repairsNow reports whether this round repairs problems of a code.
func (r *repair) repairsNow(c *code) bool {
	return c.remedy == fixRecord || c.remedy == fixEntry && r.round == roundEntries
}

// reportable returns the findings to report in this round. Each finding is reported once, when the
// outcome of its repair is known.
func (r *repair) reportable(found, left findings) (reported findings) {
	still := map[uint64]bool{}
	for _, f := range left {
		still[f.digest()] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range found {
		f.Repaired = r.repairsNow(f.code) && !still[f.digest()]
		// The index members of the deleted entry are orphans now.
		r.needsRound = r.needsRound || f.Repaired && f.code == deleteUnfinished && r.round == roundRecords
		switch at := r.reportRound(f); {
		case at > r.round:
			r.needsRound = true
		// resolveContest has already reported contested values.
		case at == r.round && !(f.code == valueShared && r.contested[f.values[0]]):
			reported = append(reported, f)
		}
	}
	return reported
}

// reportRound returns the round in which a finding is reported.
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

// allNoted reports whether all findings were noted before.
func (r *repair) allNoted(found findings) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return !slices.ContainsFunc(found, func(f finding) bool { return !r.noted[f.digest()] })
}

// noteFindings records the findings and, in the first round, the values that other entries may also
// have.
func (r *repair) noteFindings(found findings) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range found {
		r.noted[f.digest()] = true
		if r.round != roundRecords {
			continue
		}
		r.suspectValues = append(r.suspectValues, f.values...)
		// With srk_missing or srk_wrong, the other entry has a finding of its own, which lists the
		// value again. With any other code, this finding lists it twice.
		if f.code != srkMissing && f.code != srkWrong {
			r.suspectValues = append(r.suspectValues, f.values...)
		}
	}
}

// resolveContests finds those of the suspect values that two entries have, reports them, and gives
// each value that Keep decides to its entry.
func (c *checker) resolveContests(ctx context.Context) error {
	slices.Sort(c.fix.suspectValues)
	wanted := map[uint64]bool{}
	for i, d := range c.fix.suspectValues {
		if !c.checksAll || i > 0 && c.fix.suspectValues[i-1] == d {
			wanted[d] = true
		}
	}
	c.fix.suspectValues = nil
	c.fix.contested = map[uint64]bool{}
	names := c.Schema.Names()
	for i, name := range names {
		progress := func(done, about int64) { c.reportProgress(ctx, (int64(i)*about+done)/int64(len(names)), about) }
		found, err := records.Contests(ctx, c.View, c.ByName[name], wanted, settledFields(c.ByName[name]), progress)
		if err != nil {
			return err
		}
		for _, k := range found {
			decided, err := c.resolveContest(ctx, k)
			if err != nil {
				return err
			}
			c.fix.contested[records.Digest(name, k.Type.UniqueText(k.SRK))] = !decided
		}
	}
	return nil
}

// settledFields returns a function that returns the fields of an entry without those that a schema
// change makes part of a search in any field: until it is done, two entries may share such a value.
func settledFields(t *change.Type) func(store.Record) map[string]string {
	return func(r store.Record) map[string]string {
		if t.Building == nil {
			return r.Fields
		}
		fields := maps.Clone(r.Fields)
		maps.DeleteFunc(fields, func(field, text string) bool {
			if store.IsFurther(field) {
				f, _ := store.ParseFurther(field, text)
				field = f.Field
			}
			return t.Building.BecomesTyped(field)
		})
		return fields
	}
}

// dropFormerOwners removes from a contest the entries that gave up the value while all entries
// were read. It reads all owners twice: those whose rev is the same in both reads had the value at
// one moment between the two.
func (c *checker) dropFormerOwners(ctx context.Context, k *records.Contest) error {
	keys := records.Map(k.Owners, func(prk recordkey.Key) string { return prk.In(c.NS).String() })
	var r report
	before, now := read(ctx, &r, c.Engine, keys, store.Hashes), read(ctx, &r, c.Engine, keys, store.Hashes)
	all := k.Owners
	k.Owners = nil
	for i, prk := range all {
		if before[i].Fields[store.FieldRev] == now[i].Fields[store.FieldRev] && slices.Contains(k.Type.UniqueTexts(now[i].Fields), k.Type.UniqueText(k.SRK)) {
			k.Owners = append(k.Owners, prk)
		}
	}
	return r.err
}

// resolveContest reports a contest, unless fewer than two owners are left. If Keep names exactly
// one of them, resolveContest takes the value from all others. decided is false if several entries
// keep the value.
func (c *checker) resolveContest(ctx context.Context, k *records.Contest) (decided bool, err error) {
	if err := c.dropFormerOwners(ctx, k); err != nil || len(k.Owners) < 2 {
		return true, err
	}
	keeper := c.chosenKeeper(k)
	for _, prk := range k.Owners {
		if prk == keeper || !keeper.IsValid() {
			continue
		}
		// Facets with the value move to ~lost:FIELD.
		m := change.RepairLimits{Lose: k.SRK.Value(), From: k.Type.SettledRivals(k.SRK.Field())}
		err := c.changeEntry(ctx, prk.In(c.NS), func(store.Record) (change.RepairLimits, bool, error) { return m, true, nil })
		if err != nil {
			return false, err
		}
	}
	var r report
	f := r.add(0, valueShared, k.SRK.In(recordkey.Namespace{}), "", choicesText(k.Owners, keeper))
	f.Choices, f.Repaired = k.Owners, keeper.IsValid()
	return f.Repaired, c.send(ctx, update{found: r.found})
}

// chosenKeeper returns the owner that Keep names, or the zero Key if it names none or more than
// one.
func (c *checker) chosenKeeper(k *records.Contest) recordkey.Key {
	kept := filter(k.Owners, func(prk recordkey.Key) bool { return slices.Contains(c.o.Keep, prk) })
	if len(kept) != 1 {
		return recordkey.Key{}
	}
	return kept[0]
}

// choicesText explains what each choice does.
func choicesText(owners []recordkey.Key, keeper recordkey.Key) string {
	names := records.Map(owners, func(prk recordkey.Key) string { return records.Printable(prk.String()) })
	all := strings.Join(names, " and ") + " have this value"
	if keeper.IsValid() {
		return all + "; " + records.Printable(keeper.String()) + " keeps it, and the facets of the others move to their field ~lost:…"
	}
	return all + "; keeping one of them leaves only that one findable by this value, " +
		"and moves the facets of the others to their field ~lost:…"
}
