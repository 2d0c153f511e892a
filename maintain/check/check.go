package check

import (
	"context"
	"errors"
	"iter"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

// ErrKeep is in Options.Keep what is no PRK of a declared type.
var ErrKeep = errors.New("not the record key of an entry")

// Options say what Run looks at. The zero Options are for all records.
type Options struct {
	// Only is one entry, or what is left of one: the entry, the SRKs of its values, and all SRKs,
	// index members and tertiary records that name it. Finding those takes a SCAN, too. That another
	// entry has one of its values is reported if that one has an SRK for it; else it is a problem of
	// the other. Where a hint may mean several entries, it is all of them. Zero: all records.
	Only hints.Hint
	// Repair ends what needs no human decision, each problem by one step that is made whole or not
	// at all, and only if the problem is still there. It may be stopped at any moment and run again.
	// Warnings stay. No facet is ever deleted. Zero: report only.
	Repair bool
	// Keep decides where entries have one value: each is the PRK, as in Problem.Choices, of the entry
	// that keeps all it shares with others; of those, the facet moves to ~lost:FIELD, a field of the
	// store's own. Only with Repair.
	Keep []recordkey.Key
	// Restate stores the view's schema again where what is stored of it at ~/schema/TYPE is lost or cannot be
	// read, and nothing is left that tells which one it was. Then it must be the one that the entries were
	// written by: that all records fit it, which is looked at first, does not prove it (two folds that no value
	// tells apart, say). Only with Repair. False: only where the stored fingerprint is that of the view's schema.
	Restate bool
	// Progress is told, now and then, how many records have been gone through, and of how many
	// about: both count the whole database. A repair that finds something begins again, up to five
	// times. Nil: nobody is told.
	Progress func(done, about int64)
}

// Run yields what is wrong with the records of the view's namespace. If it yields nothing, I1 to I5
// hold. An error ends it: the store's own, userdb.ErrSchemaMismatch where the schema in the database lays
// records out in another way, ErrKeep, or a hint that means nothing (hints.ErrHint).
//
// Without Repair it writes nothing. It may run while the system does. A problem is yielded only if it is still
// there when it is looked at again, with every entry that it is about at the same revision, so writers cause no
// false alarm, but what they change meanwhile may be missed. On a cluster, where a change is made in several
// steps, it must stay so for as long as a writer may take for them: a check that finds something takes
// 17 seconds more there. It reads all records by SCAN, in batches, so that memory stays flat; a problem
// may be yielded twice if the server's tables grow or shrink meanwhile, and they come in no order. Where two
// entries have a value and neither an SRK, srk_missing of both stands for value_shared.
func Run(ctx context.Context, db *userdb.DB, o Options) iter.Seq2[Problem, error] {
	return start(ctx, view.Of(db), o, (*checker).run)
}

// Own yields what is wrong with those of the store's own records that all verbs go by: ~/types, ~/schema/TYPE
// and ~/secret. Run does that first, and ends there where the first two stay broken. Own is for a caller that
// cannot read the stored schema, and so has none to check the records by. Of o only Repair and Restate count.
func Own(ctx context.Context, db *userdb.DB, o Options) iter.Seq2[Problem, error] {
	return start(ctx, view.Of(db), o, func(c *checker, ctx context.Context) error {
		_, err := c.own(ctx)
		return err
	})
}

// A checker looks at the records of one view.
type checker struct {
	*view.View
	o      Options
	types  map[string]*change.Type
	entire bool // all records are looked at: what two entries show is reported at one of them
	out    chan<- news
	fix    *repair // nil: report only
	doubts *doubts // nil: every change is one step, so no writer is in the middle of one
}

// News is what the goroutines of a check tell the one that yields.
type news struct {
	found       findings
	done, about int64 // about 0: nothing about progress
}

// start runs a check in goroutines of its own, and yields in the caller's.
func start(ctx context.Context, v *view.View, o Options, do func(*checker, context.Context) error) iter.Seq2[Problem, error] {
	return func(yield func(Problem, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		out := make(chan news)
		c := &checker{View: v, o: o, types: map[string]*change.Type{}, entire: o.Only.IsZero(), out: out}
		for _, name := range c.Schema.Names() {
			c.types[name], _ = c.Type(name) // a declared one is there
		}
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

func (c *checker) send(ctx context.Context, n news) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case c.out <- n:
		return nil
	}
}

// tell hands problems over to the caller.
func (c *checker) tell(ctx context.Context, fs findings) error {
	if len(fs) == 0 {
		return nil
	}
	return c.send(ctx, news{found: fs})
}

func (c *checker) run(ctx context.Context) error {
	if readable, err := c.own(ctx); err != nil || !readable {
		return err
	}
	if err := c.inForce(ctx); err != nil {
		return err
	}
	if c.o.Repair {
		return c.repairAll(ctx)
	}
	return c.round(ctx)
}

// round goes once over what is to be checked.
func (c *checker) round(ctx context.Context) error {
	survey, err := c.Engine.Survey(ctx)
	if err != nil {
		return err
	}
	if survey.Steps {
		c.doubts = &doubts{}
	}
	look := c.all
	if !c.entire {
		look = c.one
	}
	if err := look(ctx); err != nil || c.doubts == nil {
		return err
	}
	return c.resolveDoubts(ctx)
}
