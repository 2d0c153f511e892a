package check

import (
	"context"
	"iter"
	"slices"
	"sync"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/coded"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

// ErrKeep is returned if Options.Keep contains something other than the PRK of a declared type.
var ErrKeep = coded.New(userdb.CodeUsage, "not the record key of an entry")

// Options say what Run checks and whether it repairs. The zero Options check all records and repair
// nothing.
type Options struct {
	// Only limits the check to one entry, or to what is left of one: the entry itself, the SRKs of
	// its values, and all SRKs, index members and tertiary records that name it. Finding those
	// takes a SCAN of its own. If another entry has one of the same values, that is reported only
	// if the other entry has an SRK for the value; otherwise it is a problem of the other entry. A
	// hint that may mean several entries selects all of them. The zero Hint selects all records.
	Only hints.Hint
	// Repair fixes every problem that needs no human decision. Each is repaired in one step, which
	// is applied completely or not at all, and only if the problem still exists. A repair can be
	// stopped at any moment and run again. Warnings stay. No facet is ever deleted, except those of
	// an entry that was being deleted.
	Repair bool
	// Keep decides which entry keeps a value that several entries have. Each key is one of
	// Problem.Choices: the entry under it keeps every value that it shares with others, whose
	// facets move to ~lost:FIELD, a field of the store's own. Keep needs Repair.
	Keep []recordkey.Key
	// Restate stores the view's schema again if the one at ~/schema/TYPE is lost or unreadable and
	// nothing is left that identifies it. The view's schema must then be the one that the entries
	// were written with. Run first checks that all records fit it, but that is no proof: two folds
	// can agree on every stored value, for example. Restate needs Repair. Without it, the schema is
	// stored again only if the stored fingerprint is that of the view's schema.
	Restate bool
	// Progress, if not nil, is called from time to time with the number of records read and the
	// approximate total. Both count the whole database. In a repair that finds something, the
	// number starts again at zero, up to five times.
	Progress func(done, about int64)
}

// Run yields the problems of the records in the view's namespace. If it yields nothing, the
// invariants I1 to I5 hold. An error ends the sequence: an error of the store,
// userdb.ErrSchemaMismatch if the schema in the database lays records out differently, ErrKeep, or
// hints.ErrHint if a hint is invalid.
//
// Without Options.Repair, Run writes nothing. It can run while the system is in use. Run yields a
// problem only if a second check finds it again, with every entry involved at the same rev.
// Concurrent writers therefore cause no false alarm, but Run may miss changes made while it runs.
// On a cluster, where a change takes several steps, the problem must persist for as long as a
// writer may take for all of them; a check that finds something takes 17 seconds longer there.
//
// Run reads all records with SCAN, in batches, so its memory use stays flat. Problems come in no
// particular order, and one may be yielded twice if the server's tables grow or shrink during the
// scan. If two entries have a value and neither has an SRK, Run yields srk_missing for both instead
// of value_shared.
//
// A repair is recorded as an event when it starts, if the context names an actor (userdb.WithActor)
// or histories are kept.
func Run(ctx context.Context, db *userdb.DB, o Options) iter.Seq2[Problem, error] {
	return start(ctx, view.Of(db), o, (*checker).run)
}

// Own yields the problems of the store's own records on which all operations depend: ~/types,
// ~/schema/TYPE and ~/secret. Run checks them first, and stops if the first two remain broken. Own
// is for callers that cannot read the stored schema and therefore have none to check records with.
// Of o, it uses Repair and Restate, and the field Only for the event that a repair records.
func Own(ctx context.Context, db *userdb.DB, o Options) iter.Seq2[Problem, error] {
	return start(ctx, view.Of(db), o, func(c *checker, ctx context.Context) error {
		_, err := c.checkAndRepairOwn(ctx)
		return err
	})
}

// A checker checks the records of one view.
type checker struct {
	*view.View
	o Options
	// checksAll is set if all records are checked. A problem of two entries is then reported at
	// only one of them.
	checksAll bool
	out       chan<- update
	fix       *repair // nil: report only
	inSteps   bool    // a change takes several steps, so a writer may be in the middle of one

	mu sync.Mutex
	// candidates holds the findings of one round that a writer may still explain. They are resolved
	// together, so that the round waits for writers only once.
	candidates   []candidate
	findingCount int // number of findings in candidates
}

// An update carries findings or progress from the goroutines of a check to the one that yields.
type update struct {
	found       findings
	done, about int64 // about is 0 if the update has no progress
}

// start runs a check in its own goroutines and yields the results in the caller's.
func start(ctx context.Context, v *view.View, o Options, do func(*checker, context.Context) error) iter.Seq2[Problem, error] {
	return func(yield func(Problem, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if o.Repair {
			noteRepair(ctx, v, o)
		}
		out := make(chan update)
		c := &checker{View: v, o: o, checksAll: o.Only.IsZero(), out: out}
		var failed error
		go func() {
			defer close(out)
			failed = do(c, ctx)
		}()
		more := true
		for n := range out { // to the end, so that all goroutines have ended
			if more = more && n.yieldTo(yield); !more {
				cancel()
				continue
			}
			if n.about > 0 && o.Progress != nil {
				o.Progress(n.done, n.about)
			}
		}
		if more && failed != nil {
			yield(Problem{}, failed)
		}
	}
}

// yieldTo passes the problems of an update to yield, and reports whether the caller wants more.
func (n update) yieldTo(yield func(Problem, error) bool) bool {
	for _, f := range n.found {
		if !yield(f.Problem, nil) {
			return false
		}
	}
	return true
}

// noteRepair records the start of a repair. If the hint is a key or a UID, the event has the key of
// the entry.
func noteRepair(ctx context.Context, v *view.View, o Options) {
	var only recordkey.Key
	about := ""
	if !o.Only.IsZero() {
		about = o.Only.Type()
		if _, target, err := v.Target(o.Only, ""); err == nil && len(target.Keys) == 1 && target.Keys[0].Kind() == recordkey.KindPRK {
			only, about = target.Keys[0].In(v.NS), ""
		}
	}
	v.NoteWork(ctx, view.EventRepair, only, about)
}

// send passes an update to the yielding goroutine, unless the update is empty.
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

// reportProgress passes on the progress of the check. It ignores the error if ctx is done, since
// that also ends the walk.
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

// runRound checks everything once.
func (c *checker) runRound(ctx context.Context) error {
	survey, err := c.Engine.Survey(ctx, false)
	if err != nil {
		return err
	}
	c.inSteps = survey.MultiStep
	check := c.checkAll
	if !c.checksAll {
		check = c.checkOne
	}
	if err := check(ctx); err != nil {
		return err
	}
	return c.resolveCandidates(ctx)
}

// An item is one thing to check: a record, or one member of a set.
type item struct {
	raw string // the key as stored in Redis
	// key is raw parsed, or zero if raw does not parse. For staged elements it is the key of their
	// record.
	key    recordkey.Key
	member string // the member of the set at key; for staged elements, the rev of their change
}

func newItem(k recordkey.Key) item { return item{raw: k.String(), key: k} }

// A checkFunc checks some items, and adds the problems that it finds to the report.
type checkFunc func(ctx context.Context, r *report, items []item)

func (f checkFunc) run(ctx context.Context, items []item) (findings, error) {
	var r report
	if f(ctx, &r, items); r.err != nil {
		return nil, r.err
	}
	return r.found, nil
}

// A candidate holds findings that a concurrent writer may have caused, and the function that checks
// their items again.
type candidate struct {
	check checkFunc
	items []item
	found findings
}

// maxRechecks limits how often items that others are changing are checked again.
const maxRechecks = 4

// confirm checks items, and then rechecks those with findings until a recheck finds nothing new. If
// two checks in a row find a problem with every entry at the same rev, the problem also existed in
// between. So no writer can cause a false alarm if every change is a single step. If an item keeps
// changing, confirm returns only the findings that stay the same.
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

// recheck checks the items of d again, returns the findings, and keeps in d those that are
// unchanged. An entry that was changed meanwhile has another rev.
func (d *candidate) recheck(ctx context.Context) (after findings, err error) {
	d.items = itemsWithFindings(d.items, d.found)
	after, err = d.check.run(ctx, d.items)
	d.found = intersect(d.found, after)
	return after, err
}

// itemsWithFindings returns the items that have at least one finding.
func itemsWithFindings(items []item, found findings) []item {
	at := records.Map(found, func(f finding) int { return f.at })
	slices.Sort(at)
	return records.Map(slices.Compact(at), func(i int) item { return items[i] })
}

// intersect returns the later findings that are also among the earlier ones.
func intersect(earlier, later findings) findings {
	type identity struct{ code, key, seen string }
	known := make(map[identity]bool, len(earlier))
	for _, f := range earlier {
		known[identity{f.Code, f.Key, f.seen}] = true
	}
	return filter(later, func(f finding) bool { return known[identity{f.Code, f.Key, f.seen}] })
}

const (
	pageSize      = 600    // number of records or members checked together
	maxCandidates = 50_000 // number of findings kept for later
)

// examine checks items page by page, confirms what it finds, and resolves it.
func (c *checker) examine(ctx context.Context, check checkFunc, items []item) error {
	for batch := range slices.Chunk(items, pageSize) {
		d, err := confirm(ctx, check, batch)
		if err == nil && len(d.found) > 0 {
			err = c.resolveLater(ctx, d)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// resolveLater resolves a candidate at once if every change is a single step, or if an earlier
// round confirmed its findings. Otherwise it keeps the candidate until no writer can still be in
// the middle of a change.
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

// resolveCandidates rechecks all candidates until no writer can still be in the middle of a change,
// and resolves what is left.
func (c *checker) resolveCandidates(ctx context.Context) error {
	c.mu.Lock()
	all := c.candidates
	c.candidates, c.findingCount = nil, 0
	c.mu.Unlock()
	for n := 0; len(all) > 0; n++ {
		more, err := c.Engine.Settle(ctx, n)
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

// resolve reports the findings of a candidate. In a repair, it first fixes what this round can fix.
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
