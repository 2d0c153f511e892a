package onekey

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

// FindByCommands answers lookups with two rounds of commands that need no script: SRKs, then the entries that they name.
// That is for servers on which the lookup script may not touch the entry, and for clusters.
func (ks *Keys) FindByCommands(ctx context.Context, lookups []store.Lookup) ([]store.Found, error) {
	found, err := ks.findByCommands(ctx, lookups)
	if err != nil {
		return nil, err
	}
	for i, l := range lookups {
		if len(l.SRKs) < 2 || l.All {
			continue
		}
		if found[i], err = ks.sure(ctx, l, found[i]); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// sure reads once more what two reads may have seen at two moments: a value that just moves between two fields is
// found nowhere, or at the one who gives it up and at the one who takes it.
func (ks *Keys) sure(ctx context.Context, l store.Lookup, f store.Found) (store.Found, error) {
	for range 2 {
		if !errors.Is(f.Err, store.ErrCorrupt) && !errors.Is(f.Err, store.ErrNotFound) {
			break
		}
		again, err := ks.findByCommands(ctx, []store.Lookup{l})
		if err != nil {
			return f, err
		}
		nowhere := errors.Is(f.Err, store.ErrNotFound)
		if f = again[0]; nowhere && errors.Is(f.Err, store.ErrNotFound) {
			break
		}
	}
	return f, nil
}

// A reading is a lookup under way: what its SRKs held, and the entries that they name.
type reading struct {
	store.Lookup
	entry   *redis.MapStringStringCmd
	srvs    []*redis.StringCmd
	entries []*redis.MapStringStringCmd
}

func (ks *Keys) findByCommands(ctx context.Context, lookups []store.Lookup) ([]store.Found, error) {
	ways := make([]reading, len(lookups))
	var first, second []redis.Cmder
	for i, l := range lookups {
		ways[i].Lookup = l
		first = ways[i].readFirst(ctx, first)
	}
	if err := redisx.Answered(first, ks.client.All(ctx, first)); err != nil {
		return nil, err
	}
	for i := range ways {
		second = ways[i].readEntries(ctx, second)
	}
	if err := redisx.Answered(second, ks.client.All(ctx, second)); err != nil {
		return nil, err
	}
	found := make([]store.Found, len(ways))
	for i := range ways {
		found[i] = ways[i].found()
		if err := store.NotOfEntry(found[i].Err); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// readFirst adds the commands of the first round.
func (w *reading) readFirst(ctx context.Context, cmds []redis.Cmder) []redis.Cmder {
	if w.PRK.IsValid() {
		w.entry = redis.NewMapStringStringCmd(ctx, "hgetall", w.PRK.String())
		return append(cmds, w.entry)
	}
	w.srvs = make([]*redis.StringCmd, len(w.SRKs))
	for i, k := range w.SRKs {
		w.srvs[i] = redis.NewStringCmd(ctx, "get", k.String())
		cmds = append(cmds, w.srvs[i])
	}
	return cmds
}

// readEntries adds those of the second.
func (w *reading) readEntries(ctx context.Context, cmds []redis.Cmder) []redis.Cmder {
	w.entries = make([]*redis.MapStringStringCmd, len(w.srvs))
	for i, cmd := range w.srvs {
		if owner := store.Owner(cmd.Val()); owner != "" {
			w.entries[i] = redis.NewMapStringStringCmd(ctx, "hgetall", w.SRKs[i].Namespace().String()+owner)
			cmds = append(cmds, w.entries[i])
		}
	}
	return cmds
}

func (w *reading) found() store.Found {
	if w.entry != nil {
		return redisx.FoundAt(w.PRK, w.entry.Val(), w.entry.Err())
	}
	var cs []store.Candidate
	for i, cmd := range w.srvs {
		c := store.Candidate{SRK: w.SRKs[i], Owner: store.Owner(cmd.Val())}
		switch {
		case cmd.Err() != nil && !errors.Is(cmd.Err(), redis.Nil):
			if !redisx.IsAnswer(cmd.Err()) {
				return store.Found{Err: redisx.Fail(cmd.Err())}
			}
			c.Owner, c.Problem = "", cmd.Err().Error()
		case w.entries[i] == nil:
			continue
		case w.entries[i].Err() != nil:
			c.Owner, c.Problem = "", w.entries[i].Err().Error()
		default:
			c.Fields = w.entries[i].Val()
		}
		cs = append(cs, c)
	}
	return store.Believe(w.Lookup, cs)
}

// A batchedFind is a lookup in a batch with those of other callers.
type batchedFind struct {
	way   reading
	found store.Found
	sure  bool
}

// FindBatched answers a lookup together with those of other callers, by commands: many of them cost the server
// less than a script each. sure is false where the answer may be of two moments, so that the lookup must be answered by
// itself. An error is one of the context.
func (ks *Keys) FindBatched(ctx context.Context, l store.Lookup) (found store.Found, sure bool, err error) {
	f := &batchedFind{way: reading{Lookup: l}}
	if err := ks.finds.Do(ctx, f); err != nil {
		return store.Found{}, false, err
	}
	return f.found, f.sure, nil
}

// findBatch answers lookups of many callers in two round trips.
func (ks *Keys) findBatch(ctx context.Context, all []*batchedFind) {
	var first, second []redis.Cmder
	for _, f := range all {
		first = f.way.readFirst(ctx, first)
	}
	_ = ks.client.All(ctx, first) // errors stand in the commands
	for _, f := range all {
		second = f.way.readEntries(ctx, second)
	}
	_ = ks.client.All(ctx, second)
	for _, f := range all {
		f.found = f.way.found()
		f.sure = f.found.Err == nil || f.way.absent()
	}
}

// absent reports whether there is certainly no entry: at one moment there was nothing at the one key that
// could name it. Two keys are read at two moments, between which a value may move.
func (w *reading) absent() bool {
	return len(w.srvs) == 1 && w.srvs[0].Err() == redis.Nil
}
