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

// feed puts into the feed what it lacks of the history of an entry.
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
