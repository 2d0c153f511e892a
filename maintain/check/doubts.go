package check

import (
	"context"
	"sync"
)

// A doubt is what two looks found to be wrong, and what a writer may be in the middle of.
type doubt[T any] struct {
	items []T
	found findings
	look  func(context.Context, []T) (findings, error)
	mend  func(context.Context, T, findings) error
}

// again keeps what one more look finds, just as it was, and reports whether that is anything. An entry that was
// changed meanwhile has another revision: whoever looks later looks at something else.
func (d *doubt[T]) again(ctx context.Context) (bool, error) {
	d.items = suspects(d.items, d.found)
	now, err := d.look(ctx, d.items)
	if err != nil {
		return false, err
	}
	d.found = common(d.found, now)
	return len(d.found) > 0, nil
}

// A doubtful thing is a doubt about items of any kind.
type doubtful interface {
	again(ctx context.Context) (bool, error)
	resolve(ctx context.Context, c *checker) error
}

// doubts are those of one round. They are resolved together, so that it waits once for all of them.
type doubts struct {
	mu  sync.Mutex
	all []doubtful
	n   int // of findings
}

// mostDoubts is how many findings are kept.
const mostDoubts = 50_000

func (ds *doubts) add(ctx context.Context, c *checker, d doubtful, n int) error {
	ds.mu.Lock()
	ds.all = append(ds.all, d)
	ds.n += n
	full := ds.n >= mostDoubts
	ds.mu.Unlock()
	if full {
		return ds.resolve(ctx, c)
	}
	return nil
}

// resolve looks at all of them until no writer can be in the middle of what is left.
func (ds *doubts) resolve(ctx context.Context, c *checker) error {
	ds.mu.Lock()
	all := ds.all
	ds.all, ds.n = nil, 0
	ds.mu.Unlock()
	for n := 0; len(all) > 0; n++ {
		more, err := c.Engine.Linger(ctx, n)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		left := all[:0]
		for _, d := range all {
			still, err := d.again(ctx)
			if err != nil {
				return err
			}
			if still {
				left = append(left, d)
			}
		}
		all = left
	}
	for _, d := range all {
		if err := d.resolve(ctx, c); err != nil {
			return err
		}
	}
	return nil
}
