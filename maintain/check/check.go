package check

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

// ErrKeep is in Options.Keep what is no PRK of a declared type.
var ErrKeep = errors.New("not the record key of an entry")

// Options say what Run looks at. The zero Options are for all records.
type Options struct {
	// Only is one entry, or what is left of one: the entry, the SRKs of its values, and all SRKs, index members and
	// tertiary records that name it. Finding those takes a SCAN, too. That another entry has one of its values is
	// reported if that one has an SRK for it; else it is a problem of the other. Where a hint may mean several entries,
	// it is all of them. Zero: all records.
	Only hints.Hint
	// Repair ends what needs no human decision, each problem by one step that is made whole or not at all, and only if
	// the problem is still there. It may be stopped at any moment and run again. Warnings stay. No facet is ever
	// deleted, but those of an entry that was being deleted. Zero: report only.
	Repair bool
	// Keep decides where entries have one value: each is the PRK, as in Problem.Choices, of the entry that keeps all it
	// shares with others; of those, the facet moves to ~lost:FIELD, a field of the store's own. Only with Repair.
	Keep []recordkey.Key
	// Restate stores the view's schema again where what is stored of it at ~/schema/TYPE is lost or cannot be read, and
	// nothing is left that tells which one it was. Then it must be the one that the entries were written by: that all
	// records fit it, which is looked at first, does not prove it (two folds that no value tells apart, say). Only with
	// Repair. False: only where the stored fingerprint is that of the view's schema.
	Restate bool
	// Progress is told, now and then, how many records have been gone through, and of how many about: both count the
	// whole database. A repair that finds something begins again, up to five times. Nil: not told.
	Progress func(done, about int64)
}

// Run yields what is wrong with the records of the view's namespace. If it yields nothing, I1 to I5 hold. An error ends
// it: the store's own, userdb.ErrSchemaMismatch where the schema in the database lays records out in another way,
// ErrKeep, or a hint that means nothing (hints.ErrHint).
//
// Without Repair it writes nothing. It may run while the system does. A problem is yielded only if it is still there
// when it is looked at again, with every entry that it is about at the same rev, so writers cause no false alarm,
// but what they change meanwhile may be missed. On a cluster, where a change is made in several steps, it must stay so
// for as long as a writer may take for them: a check that finds something takes 17 seconds more there. It reads all
// records by SCAN, in batches, so that memory stays flat; a problem may be yielded twice if the server's tables grow or
// shrink meanwhile, and they come in no order. Where two entries have a value and neither an SRK, srk_missing of both
// stands for value_shared.
func Run(ctx context.Context, db *userdb.DB, o Options) iter.Seq2[Problem, error] {
	return start(ctx, view.Of(db), o, (*checker).run)
}

// Own yields what is wrong with those of the store's own records that all verbs go by: ~/types, ~/schema/TYPE and
// ~/secret. Run does that first, and ends there where the first two stay broken. Own is for a caller that cannot read
// the stored schema, and so has none to check the records by. Of o only Repair and Restate count.
func Own(ctx context.Context, db *userdb.DB, o Options) iter.Seq2[Problem, error] {
	return start(ctx, view.Of(db), o, func(c *checker, ctx context.Context) error {
		_, err := c.checkAndRepairOwn(ctx)
		return err
	})
}

// A checker looks at the records of one view.
type checker struct {
	*view.View
	o         Options
	checksAll bool // all records are looked at: what two entries show is reported at one of them
	out       chan<- update
	fix       *repair // nil: report only
	inSteps   bool    // a change is made in several steps, so a writer may be in the middle of one

	mu           sync.Mutex
	candidates   []candidate // of one round, resolved together: the round waits once for all of them
	findingCount int         // how many findings they have
}

// News is what the goroutines of a check tell the one that yields.
type update struct {
	found       findings
	done, about int64 // about 0: nothing about progress
}

// start runs a check in goroutines of its own, and yields in the caller's.
func start(ctx context.Context, v *view.View, o Options, do func(*checker, context.Context) error) iter.Seq2[Problem, error] {
	return func(yield func(Problem, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		out := make(chan update)
		c := &checker{View: v, o: o, checksAll: o.Only.IsZero(), out: out}
		var failed error
		go func() {
			defer close(out)
			failed = do(c, ctx)
		}()
		for n := range out {
			for _, f := range n.found {
				if !yield(f.Problem, nil) {
					cancel()
					for range out { // until the goroutines have ended
					}
					return
				}
			}
			if n.about > 0 && o.Progress != nil {
				o.Progress(n.done, n.about)
			}
		}
		if failed != nil {
			yield(Problem{}, failed)
		}
	}
}

// send hands news over to the caller, if there is any.
func (c *checker) send(ctx context.Context, n update) error {
	if len(n.found) == 0 && n.about == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case c.out <- n:
		return nil
	}
}

// tell hands over how far it is. An end of ctx ends the walk, too.
func (c *checker) reportProgress(ctx context.Context, done, about int64) {
	_ = c.send(ctx, update{done: done, about: about})
}

func (c *checker) run(ctx context.Context) error {
	if readable, err := c.checkAndRepairOwn(ctx); err != nil || !readable {
		return err
	}
	if err := c.requireStoredSchema(ctx); err != nil {
		return err
	}
	if c.o.Repair {
		return c.repairAll(ctx)
	}
	return c.runRound(ctx)
}

// round goes once over what is to be checked.
func (c *checker) runRound(ctx context.Context) error {
	survey, err := c.Engine.Survey(ctx, false)
	if err != nil {
		return err
	}
	c.inSteps = survey.Steps
	check := c.checkAll
	if !c.checksAll {
		check = c.checkOne
	}
	if err := check(ctx); err != nil {
		return err
	}
	return c.resolveCandidates(ctx)
}

// An item is one thing that is looked at: a record, or one member of a set.
type item struct {
	raw    string        // the key as Redis has it
	key    recordkey.Key // the same, parsed; the zero Key where it cannot be. Of elements that were laid ready: where they belong
	member string        // the member of that set; of elements that were laid ready, the rev of their change
}

func newItem(k recordkey.Key) item { return item{raw: k.String(), key: k} }

// A look reads what some items are to be judged by, and judges them.
type checkFunc func(ctx context.Context, r *report, items []item)

func (f checkFunc) run(ctx context.Context, items []item) (findings, error) {
	var r report
	if f(ctx, &r, items); r.err != nil {
		return nil, r.err
	}
	return r.found, nil
}

// A doubt is what looks found to be wrong with some items.
type candidate struct {
	check checkFunc
	items []item
	found findings
}

// looks is how often something that others are changing is looked at again.
const maxRechecks = 4

// certain looks at items, and once more at those that something seems to be wrong with, until two looks in a row find
// the same. A problem that both found, with every entry at the same rev, was there in between: where every change
// is one step, no writer can cause a false alarm. Of what changes all the time only that is reported.
func confirm(ctx context.Context, check checkFunc, items []item) (candidate, error) {
	d := candidate{check: check, items: items}
	found, err := check.run(ctx, items)
	for range maxRechecks {
		if d.found = found; err != nil || len(found) == 0 {
			break
		}
		if found, err = d.recheck(ctx); len(found) == len(d.found) {
			break
		}
	}
	return d, err
}

// again returns what one more look finds, and keeps of that what is just as it was. An entry that was changed meanwhile
// has another rev.
func (d *candidate) recheck(ctx context.Context) (after findings, err error) {
	d.items = itemsWithFindings(d.items, d.found)
	after, err = d.check.run(ctx, d.items)
	d.found = intersect(d.found, after)
	return after, err
}

// suspects are the items that something was found about.
func itemsWithFindings(items []item, found findings) []item {
	at := records.Map(found, func(f finding) int { return f.at })
	slices.Sort(at)
	return records.Map(slices.Compact(at), func(i int) item { return items[i] })
}

// common are the findings of now that were there before.
func intersect(before, now findings) findings {
	type identity struct{ code, key, seen string }
	known := make(map[identity]bool, len(before))
	for _, f := range before {
		known[identity{f.Code, f.Key, f.seen}] = true
	}
	return filter(now, func(f finding) bool { return known[identity{f.Code, f.Key, f.seen}] })
}

const (
	pageSize      = 600    // how many records or members are looked at together
	maxCandidates = 50_000 // how many findings are kept
)

// confirm looks at items, page by page, until it is sure what is wrong with them, and resolves that.
func (c *checker) examine(ctx context.Context, check checkFunc, items []item) error {
	for some := range slices.Chunk(items, pageSize) {
		d, err := confirm(ctx, check, some)
		if err == nil && len(d.found) > 0 {
			err = c.resolveLater(ctx, d)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// resolveLater resolves a doubt at once or, where a change is made in several steps, when no writer can be in the
// middle of it.
func (c *checker) resolveLater(ctx context.Context, d candidate) error {
	if !c.inSteps || c.fix.allNoted(d.found) {
		return c.resolve(ctx, d)
	}
	c.mu.Lock()
	c.candidates = append(c.candidates, d)
	c.findingCount += len(d.found)
	full := c.findingCount >= maxCandidates
	c.mu.Unlock()
	if full {
		return c.resolveCandidates(ctx)
	}
	return nil
}

// resolveDoubts looks at all of them until no writer can be in the middle of what is left.
func (c *checker) resolveCandidates(ctx context.Context) error {
	c.mu.Lock()
	all := c.candidates
	c.candidates, c.findingCount = nil, 0
	c.mu.Unlock()
	for n := 0; len(all) > 0; n++ {
		more, err := c.Engine.Linger(ctx, n)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		for i := range all {
			if _, err := all[i].recheck(ctx); err != nil {
				return err
			}
		}
		all = slices.DeleteFunc(all, func(d candidate) bool { return len(d.found) == 0 })
	}
	for _, d := range all {
		if err := c.resolve(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// resolve tells what was found or, in a repair, first ends what can be ended in this round.
func (c *checker) resolve(ctx context.Context, d candidate) error {
	if c.fix == nil {
		return c.send(ctx, update{found: d.found})
	}
	c.fix.noteFindings(d.found)
	left, err := c.repair(ctx, d)
	if err != nil {
		return err
	}
	return c.send(ctx, update{found: c.fix.reportable(d.found, left)})
}
