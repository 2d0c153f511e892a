package cluster

import (
	"context"

	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/store/onekey"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// A commit writes the entry's history. The entry's part of the feed lies in another slot, and is
// written right after the commit. Each write also adds all earlier lines that the feed lacks,
// however old they are, so the feed has the lines of an entry in the order of its history. If a
// process dies before it writes to the feed, its lines are added with the next change, or by a
// repair that reads the entry.

// feed adds the lines of an entry's history that the feed lacks. text is the whole history; if it
// is "", the method reads the history first.
func (e *Engine) feed(ctx context.Context, prk recordkey.Key, n history.Note, text string) (err error) {
	lines := []string{text}
	if text == "" {
		if lines, err = e.HistoryLines(ctx, prk); err != nil || len(lines) == 0 {
			return err
		}
	}
	part := history.FeedPart(prk)
	progress, err := history.FeedProgressKey(prk, history.FeedChanges, part)
	if err != nil {
		return err
	}
	stream, err := history.FeedKey(prk.Namespace(), history.FeedChanges, part)
	if err != nil {
		return err
	}
	args := history.Note{Lines: lines, Now: n.Now}.Args(history.InFeed, e.FeedEntries(history.FeedChanges), prk)
	e.TrimOccasionally(ctx, history.FeedChanges, stream.String())
	_, _, err = e.run(ctx, onekey.FeedScript, []string{progress.String(), stream.String()}, args...)
	return err
}

// publish moves the lines that wait in an entry to its history, unless they may stay there, and
// adds to the feed what it lacks.
func (e *Engine) publish(ctx context.Context, entry recordkey.Key) error {
	live, note, err := e.readField(ctx, entry, history.FieldNote)
	if err == nil && live && !history.MayStayInEntry(note.Wire) {
		err = e.AppendHistory(ctx, entry, history.Note{})
	}
	if err != nil && !redisx.WrongType(err) {
		return err
	}
	return e.feed(ctx, entry, history.Note{}, "")
}

func closeIfSet(close func() error) error {
	if close == nil {
		return nil
	}
	return close()
}
