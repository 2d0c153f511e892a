package check

import (
	"context"
	"slices"
	"sync"

	"github.com/coffeenode/userdb/recordkey"
)

// An item is one thing that is looked at: a record, or one member of a set.
type item struct {
	raw    string        // the key as Redis has it
	key    recordkey.Key // the same, parsed; the zero Key where it is none. Of elements that were laid ready: where they belong
	member string        // the member of that set; of elements that were laid ready, the token of their change
}

func itemOf(k recordkey.Key) item { return item{raw: k.String(), key: k} }

// A look reads what some items are to be judged by, and judges them.
type look func(ctx context.Context, items []item) (findings, error)

// A doubt is what looks found to be wrong with some items.
type doubt struct {
	look  look
	items []item
	found findings
}

// looks is how often something that others are changing is looked at again.
const looks = 4

// certain looks at items, and once more at those that something seems to be wrong with, until two looks
// in a row find the same. A problem that both found, with every entry at the same revision, was there
// in between: where every change is one step, no writer can cause a false alarm. Of what changes all the
// time only that much is reported.
func certain(ctx context.Context, look look, items []item) (doubt, error) {
	d := doubt{look: look, items: items}
	found, err := look(ctx, items)
	for range looks {
		if err != nil || len(found) == 0 {
			return doubt{}, err
		}
		before := found
		d.items = suspects(d.items, before)
		if found, err = look(ctx, d.items); err != nil {
			return doubt{}, err
		}
		if d.found = common(before, found); len(d.found) == len(found) {
			break
		}
	}
	return d, nil
}

// again keeps what one more look finds, just as it was. An entry that was changed meanwhile has another revision.
func (d *doubt) again(ctx context.Context) error {
	d.items = suspects(d.items, d.found)
	now, err := d.look(ctx, d.items)
	d.found = common(d.found, now)
	return err
}

// suspects are the items that something was found about.
func suspects(items []item, found findings) []item {
	at := make([]int, len(found))
	for i, f := range found {
		at[i] = f.at
	}
	slices.Sort(at)
	var some []item
	for _, i := range slices.Compact(at) {
		some = append(some, items[i])
	}
	return some
}

// common are the findings of now that were there before.
func common(before, now findings) (both findings) {
	type identity struct{ code, key, seen string }
	known := make(map[identity]bool, len(before))
	for _, f := range before {
		known[identity{f.Code, f.Key, f.seen}] = true
	}
	for _, f := range now {
		if known[identity{f.Code, f.Key, f.seen}] {
			both = append(both, f)
		}
	}
	return both
}

// doubts are those of one round in which a writer may be in the middle of a change. They are resolved together,
// so that the round waits once for all of them.
type doubts struct {
	mu  sync.Mutex
	all []doubt
	n   int // of findings
}

const (
	pageItems  = 250    // how many records are looked at together
	mostDoubts = 50_000 // how many findings are kept
)

// confirmAll confirms what is wrong with items, page by page.
func (c *checker) confirmAll(ctx context.Context, look look, items []item) error {
	for some := range slices.Chunk(items, pageItems) {
		if err := c.confirm(ctx, look, some); err != nil {
			return err
		}
	}
	return nil
}

// confirm looks at items until it is sure what is wrong with them, and resolves that: at once or, where a change is made
// in several steps, when no writer can be in the middle of it.
func (c *checker) confirm(ctx context.Context, look look, items []item) error {
	d, err := certain(ctx, look, items)
	if err != nil || len(d.found) == 0 {
		return err
	}
	if c.doubts == nil || c.fix.believes(d.found) {
		return c.resolve(ctx, d)
	}
	c.doubts.mu.Lock()
	c.doubts.all = append(c.doubts.all, d)
	c.doubts.n += len(d.found)
	full := c.doubts.n >= mostDoubts
	c.doubts.mu.Unlock()
	if full {
		return c.resolveDoubts(ctx)
	}
	return nil
}

// resolveDoubts looks at all of them until no writer can be in the middle of what is left.
func (c *checker) resolveDoubts(ctx context.Context) error {
	c.doubts.mu.Lock()
	all := c.doubts.all
	c.doubts.all, c.doubts.n = nil, 0
	c.doubts.mu.Unlock()
	for n := 0; len(all) > 0; n++ {
		more, err := c.Engine.Linger(ctx, n)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		for i := range all {
			if err := all[i].again(ctx); err != nil {
				return err
			}
		}
		all = slices.DeleteFunc(all, func(d doubt) bool { return len(d.found) == 0 })
	}
	for _, d := range all {
		if err := c.resolve(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// resolve tells what was found or, in a repair, first ends what can be ended in this round.
func (c *checker) resolve(ctx context.Context, d doubt) error {
	if c.fix == nil {
		return c.tell(ctx, d.found)
	}
	c.fix.note(d.found)
	tried, err := c.repair(ctx, d)
	if err != nil {
		return err
	}
	var left findings
	if len(tried) > 0 {
		if left, err = d.look(ctx, tried); err != nil {
			return err
		}
	}
	return c.tell(ctx, c.fix.results(d.found, left))
}
