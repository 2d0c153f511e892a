package cluster

import (
	"context"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/onekey"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// A commit writes the entry's history. The entry's part of the feed lies in another slot, and is
// written right after the commit. Each write also adds all earlier lines that the feed lacks,
// however old they are, so the feed has the lines of an entry in the order of its history. If a
// process dies before it writes to the feed, its lines are added with the next change, or by a
// repair that reads the entry.

// feed adds the lines of an entry's history that the feed lacks. history is the whole history, or
// "" if feed must read it.
func (e *Engine) feed(ctx context.Context, prk recordkey.Key, n store.Note, history string) (err error) {
	lines := []string{history}
	if history == "" {
		if lines, err = e.HistoryLines(ctx, prk); err != nil || len(lines) == 0 {
			return err
		}
	}
	part := store.FeedPart(prk)
	progress, err := store.FeedProgressKey(prk, store.FeedChanges, part)
	if err != nil {
		return err
	}
	stream, err := store.FeedKey(prk.Namespace(), store.FeedChanges, part)
	if err != nil {
		return err
	}
	args := e.NoteArgs(onekey.NotesFeed, store.FeedChanges, prk, store.Note{Lines: lines, Now: n.Now})
	e.TrimOccasionally(ctx, store.FeedChanges, stream.String())
	_, _, err = e.run(ctx, onekey.FeedScript, []string{progress.String(), stream.String()}, args...)
	return err
}

// publish moves the lines that wait in an entry to its history, and adds what the feed lacks.
func (e *Engine) publish(ctx context.Context, entry recordkey.Key) error {
	live, note, err := e.readField(ctx, entry, store.FieldNote)
	if err == nil && live && !store.MayStayInEntry(note.Wire) {
		err = e.AppendHistory(ctx, entry, store.Note{})
	}
	if err != nil && !redisx.WrongType(err) {
		return err
	}
	return e.feed(ctx, entry, store.Note{}, "")
}

func closeIfSet(close func() error) error {
	if close == nil {
		return nil
	}
	return close()
}
