package check

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/coffeenode/userdb/maintain/internal/records"
)

const (
	judges = 3 // how many batches are judged at once, so that the server never waits for us
)

// An event is what one of the goroutines of a check tells the one that yields.
type event struct {
	problems []Problem
	done     int64
	about    int64 // 0: nothing about progress
}

// stream scans in one goroutine, judges batches of keys in others, and yields in the caller's.
func (c *checker) stream(ctx context.Context, pattern string, progress func(done, about int64), batch func(*checker, context.Context, []string) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	batches, events := make(chan []string), make(chan event)
	judge := *c
	judge.emit = func(ps []Problem, err error) error { return send(ctx, events, event{problems: ps}, err) }
	group.Go(func() error {
		defer close(batches)
		return c.scan(ctx, pattern, batches, events)
	})
	for range judges {
		group.Go(func() error {
			for keys := range batches {
				if err := batch(&judge, ctx, keys); err != nil {
					return err
				}
			}
			return nil
		})
	}
	ended := make(chan error, 1)
	go func() {
		ended <- group.Wait()
		close(events)
	}()
	return c.pass(events, ended, cancel, progress)
}

// pass passes events on until all goroutines have ended.
func (c *checker) pass(events <-chan event, ended <-chan error, cancel func(), progress func(done, about int64)) error {
	var stopped error
	for e := range events {
		if stopped != nil {
			continue
		}
		if e.about > 0 && progress != nil {
			progress(e.done, e.about)
		}
		if stopped = c.emit(e.problems, nil); stopped != nil {
			cancel()
		}
	}
	if err := <-ended; stopped == nil {
		return err
	}
	return stopped
}

// send hands an event over; err, where there is one, goes before.
func send(ctx context.Context, events chan<- event, e event, err error) error {
	if err != nil || len(e.problems) == 0 && e.about == 0 {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case events <- e:
		return nil
	}
}

// scan gives the keys of the view to those who judge them.
func (c *checker) scan(ctx context.Context, pattern string, batches chan<- []string, events chan<- event) error {
	about, err := c.Engine.Size(ctx)
	if err != nil {
		return err
	}
	for done, cursor := int64(0), ""; ; {
		keys, next, err := c.Engine.Scan(ctx, pattern, cursor, records.ScanBatch)
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case batches <- keys:
		}
		if done = min(done+records.ScanBatch, about); next == "" {
			done = about
		}
		if err := send(ctx, events, event{done: done, about: about}, nil); err != nil {
			return err
		}
		if cursor = next; cursor == "" {
			return nil
		}
	}
}
