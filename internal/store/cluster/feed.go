package cluster

import (
	"context"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/onekey"
	"github.com/coffeenode/userdb/recordkey"
)

// The history of an entry is written in the commit itself; its part of the feed lies in another slot, and comes right after. With
// a line go those before it that are missing there: so they stand in the order of the history, and what a process
// that died has left out comes with the next change.

// mostFeeders are under way at once; more callers wait for them.
const mostFeeders = 64

// feedLater puts into the feed what it lacks of the history of an entry, where something was noted. The caller does not wait for
// it; Close does.
func (e *Engine) feedLater(ctx context.Context, prk recordkey.Key, n store.Note) {
	e.feedSoon(ctx, prk, n, "")
}

// feedSoon is feedLater. first is the history, where that is known.
func (e *Engine) feedSoon(ctx context.Context, prk recordkey.Key, n store.Note, first string) {
	if len(n.Lines) == 0 {
		return
	}
	e.feeding <- struct{}{}
	e.background(ctx, finishTime, func(ctx context.Context) {
		defer func() { <-e.feeding }()
		_ = e.feed(ctx, prk, n, first)
	})
}

// awaitFeeders returns when those that are under way have ended.
func (e *Engine) awaitFeeders() {
	for range mostFeeders {
		e.feeding <- struct{}{}
	}
	for range mostFeeders {
		<-e.feeding
	}
}

// feed is what feedSoon does.
func (e *Engine) feed(ctx context.Context, prk recordkey.Key, n store.Note, first string) (err error) {
	lines := []string{first}
	if first == "" {
		if lines, err = e.Lines(ctx, prk); err != nil || len(lines) == 0 {
			return err
		}
	}
	part := store.FeedPart(prk)
	fed, err := store.FedKey(prk, store.FeedChanges, part)
	if err != nil {
		return err
	}
	stream, err := store.FeedKey(prk.Namespace(), store.FeedChanges, part)
	if err != nil {
		return err
	}
	args := e.NoteArgs(onekey.NotesFeed, store.FeedChanges, prk, store.Note{Lines: lines, Now: n.Now})
	e.TrimNowAndThen(ctx, store.FeedChanges, stream.String())
	_, _, err = e.run(ctx, onekey.FeedScript, []string{fed.String(), stream.String()}, args...)
	return err
}

func closeOf(close func() error) error {
	if close == nil {
		return nil
	}
	return close()
}
