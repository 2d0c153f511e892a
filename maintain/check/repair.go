package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
)

// A repair goes over the records up to three times. The first round mends what can be said of one
// record by itself: what nobody holds goes, index sets are brought in line. It notes the secondary values
// of entries that something is wrong with. Whether two entries have one of those is found out by a
// pass over all entries: then it is decided by Keep, or left. The second round mends entries; no value that
// two have is claimed for either. The third mends what depended on that.
type repair struct {
	round int
	keep  map[recordkey.Key]bool

	mu       sync.Mutex
	again    bool                        // something is left for the next round
	believed map[uint64]bool             // problems that no writer is in the middle of, as an earlier round found out
	suspects []uint64                    // digests of values that two entries may have, eight bytes each
	shared   map[uint64]bool             // those of them that an entry has seen at another
	contests map[uint64]*records.Contest // values that two entries have, and nobody decided about
}

const (
	roundRecords = iota + 1
	roundEntries
	roundRest
)

// A class says what a repair does about a code.
type class int

const (
	classStays  class = iota // a person must decide, or it is but a warning
	classRecord              // one record is mended or removed
	classEntry               // an entry and its SRKs are mended together
)

var classes = map[string]class{
	codeFillOrphan: classRecord, codeFillWaiting: classRecord,
	codeIndexKind: classRecord, codeIndexMissing: classRecord, codeIndexOrphan: classRecord, codeIndexStale: classRecord,
	codeKeyUnparsable: classRecord, codeTertiaryOrphan: classRecord,
	codeSRKKind: classRecord, codeSRKOrphan: classRecord, codeSRKStale: classRecord, codeSRVType: classRecord, codeSRVUnparsable: classRecord,
	codeIsaMissing: classEntry, codePRKWrong: classEntry, codePrimaryWrong: classEntry, codeTypeMismatch: classEntry,
	codeSKVWrong: classEntry, codeSRKMissing: classEntry, codeSRKWrong: classEntry, codeValueShared: classEntry,
}

// repair looks, mends and looks again.
func (c *checker) repair(ctx context.Context, o Options) error {
	c.fix = &repair{keep: map[recordkey.Key]bool{}, shared: map[uint64]bool{}, believed: map[uint64]bool{}}
	for _, k := range o.Keep {
		t, err := c.Type(k.Type())
		if err != nil || k.Kind() != recordkey.KindPRK || k.Field() != t.Schema.Primary || k.Namespace() != (recordkey.Namespace{}) {
			return fmt.Errorf("%w: %s", ErrKeep, records.Quoted(k.String()))
		}
		c.fix.keep[k] = true
	}
	for round := roundRecords; round <= roundRest; round++ {
		c.fix.round, c.fix.again = round, false
		if err := c.look(ctx, o); err != nil || !c.fix.again {
			return err
		}
		if round == roundRecords {
			if err := c.decide(ctx, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// settle looks at items until it is sure, and yields what it found or, in a repair, mends it: at once, or
// when it is known that no writer is in the middle of it.
func settle[T any](ctx context.Context, c *checker, items []T, look func(context.Context, []T) (findings, error), mend func(context.Context, T, findings) error) error {
	found, items, err := certain(ctx, items, look)
	if err != nil || len(found) == 0 {
		return err
	}
	d := &doubt[T]{items: items, found: found, look: look, mend: mend}
	if !c.steps || c.fix.sure(found) {
		return d.resolve(ctx, c)
	}
	return c.doubts.add(ctx, c, d, len(found))
}

// resolve yields what was found or, in a repair, mends it.
func (d *doubt[T]) resolve(ctx context.Context, c *checker) error {
	if c.fix == nil || len(d.found) == 0 {
		return c.emit(problems(d.found), nil)
	}
	c.fix.believe(d.found)
	if c.fix.round == roundRecords {
		if err := c.note(ctx, d.found); err != nil {
			return err
		}
	}
	due := make([]findings, len(d.items))
	for _, f := range d.found {
		if c.fix.due(f.Code) {
			due[f.at] = append(due[f.at], f)
		}
	}
	var tried []T
	for i, fs := range due {
		if len(fs) == 0 || d.mend == nil {
			continue
		}
		if err := d.mend(ctx, d.items[i], fs); err != nil && !passing(err) {
			return err
		}
		tried = append(tried, d.items[i])
	}
	var left findings
	if len(tried) > 0 {
		var err error
		if left, err = d.look(ctx, tried); err != nil {
			return err
		}
	}
	return c.emit(c.fix.results(d.found, left), nil)
}

// passing is what a step may meet that leaves the problem as it is.
func passing(err error) bool {
	return errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrDuplicate) ||
		errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrCorrupt)
}

// due says whether this round mends problems of a code.
func (r *repair) due(code string) bool {
	return classes[code] == classRecord || classes[code] == classEntry && r.round == roundEntries
}

// results are the problems to yield in this round: each is yielded once, when it is known what became
// of it.
func (r *repair) results(found, left findings) []Problem {
	type identity struct{ code, key string }
	still := map[identity]bool{}
	for _, f := range left {
		still[identity{f.Code, f.Key}] = true
	}
	var ps []Problem
	for _, f := range found {
		f.Repaired = r.due(f.Code) && !still[identity{f.Code, f.Key}]
		switch when := r.when(f); {
		case when == r.round && !r.told(f):
			ps = append(ps, f.Problem)
		case when > r.round:
			r.leave()
		}
	}
	return ps
}

// when is the round in which a finding is told.
func (r *repair) when(f finding) int {
	switch classes[f.Code] {
	case classEntry:
		return roundEntries
	case classRecord:
		if !f.Repaired {
			return roundRest
		}
		return r.round
	}
	return roundRecords
}

// told says whether a finding is a contest, of which decide has told.
func (r *repair) told(f finding) bool {
	srk, err := recordkey.Parse(f.Key)
	return f.Code == codeValueShared && err == nil && r.contests[records.Digest(srk.Type(), srk.Value())] != nil
}

// sure reports whether all that was found was believed before.
func (r *repair) sure(found findings) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return !slices.ContainsFunc(found, func(f finding) bool { return !r.believed[records.Digest(f.Code, f.Key)] })
}

func (r *repair) believe(found findings) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range found {
		r.believed[records.Digest(f.Code, f.Key)] = true
	}
}

func (r *repair) leave() {
	r.mu.Lock()
	r.again = true
	r.mu.Unlock()
}

// note remembers the values that other entries may have, too.
func (c *checker) note(ctx context.Context, found findings) error {
	for _, f := range found {
		switch f.Code {
		case codeSRKMissing, codeSRKWrong, codeValueShared:
			srk, err := recordkey.Parse(f.Key)
			if err != nil {
				return err
			}
			c.fix.suspect(records.Digest(srk.Type(), srk.Value()), f.Code == codeValueShared)
		case codeIsaMissing, codeTypeMismatch:
			if err := c.noteAll(ctx, f.Key); err != nil {
				return err
			}
		}
	}
	return nil
}

// noteAll remembers all values of an entry that may come to life.
func (c *checker) noteAll(ctx context.Context, prk string) error {
	key, err := recordkey.Parse(prk)
	if err != nil {
		return err
	}
	t, err := c.Type(key.Type())
	if err != nil {
		return err
	}
	hashes, err := store.Hashes(ctx, c.Engine, []string{key.In(c.NS).String()})
	if err != nil {
		return err
	}
	for _, value := range t.Values(hashes[0].Fields) {
		c.fix.suspect(records.Digest(t.Name, value), true)
	}
	return nil
}

func (r *repair) suspect(d uint64, shared bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if shared {
		r.shared[d] = true
	} else {
		r.suspects = append(r.suspects, d)
	}
}
