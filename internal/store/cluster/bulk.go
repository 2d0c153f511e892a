package cluster

import (
	"cmp"
	"context"
	"errors"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

// concurrent is how many changes are made at once: each is several rounds to several nodes.
const concurrent = 64

// Bulk implements [store.Engine]: every change is kept at once.
func (e *Engine) Bulk(ctx context.Context) (context.Context, func(context.Context) error) {
	return ctx, func(context.Context) error { return nil }
}

// ApplyAll implements [store.Engine]: many changes at a time.
func (e *Engine) ApplyAll(ctx context.Context, cs []store.Change) ([]string, []error) {
	revs, errs := make([]string, len(cs)), make([]error, len(cs))
	store.Each(cs, concurrent, func(i int) { revs[i], errs[i] = e.Apply(ctx, cs[i]) })
	return revs, errs
}

// readLooks is how often an entry is read that changes all the time.
const readLooks = 8

// Read implements [store.Engine]: entries and their records in one round, and once more those whose
// entry was another by then.
func (e *Engine) Read(ctx context.Context, reads []store.EntryRead) ([]store.Entry, error) {
	entries := make([]store.Entry, len(reads))
	todo := make([]int, len(reads))
	for i := range todo {
		todo[i] = i
	}
	for range readLooks {
		if len(todo) == 0 {
			break
		}
		changed, err := e.readEntries(ctx, reads, entries, todo)
		if err != nil {
			return nil, err
		}
		todo = changed
	}
	for _, i := range todo {
		entries[i] = store.Entry{Found: store.Found{Err: store.ErrConflict}}
	}
	return entries, nil
}

// readEntries reads some of the entries, and says which of them were others by the time their records were read.
func (e *Engine) readEntries(ctx context.Context, reads []store.EntryRead, entries []store.Entry, todo []int) (changed []int, err error) {
	looks := make([]*entryLook, len(todo))
	err = e.judged(ctx, len(todo), func(p redis.Pipeliner, j int) {
		looks[j] = queueEntry(ctx, p, reads[todo[j]])
	})
	if err != nil {
		return nil, err
	}
	again := make([]*redis.StringCmd, len(todo))
	err = e.judged(ctx, len(todo), func(p redis.Pipeliner, j int) {
		again[j] = p.HGet(ctx, reads[todo[j]].PRK.String(), store.FieldRev)
	})
	if err != nil {
		return nil, err
	}
	for j, i := range todo {
		if entries[i], err = looks[j].entryOf(reads[i]); err != nil {
			return nil, err
		}
		fill := entries[i].Record.Fields[store.FieldFill]
		if fill != "" {
			if err := e.complete(ctx, reads[i].PRK, fill); err != nil {
				return nil, err
			}
		}
		if fill != "" || entries[i].Err == nil && again[j].Val() != entries[i].Record.Fields[store.FieldRev] {
			changed = append(changed, i)
		}
	}
	return changed, nil
}

// judged sends reads whose answers are judged one by one.
func (e *Engine) judged(ctx context.Context, n int, queue func(p redis.Pipeliner, i int)) error {
	_, err := e.again(ctx, func() (any, error) {
		pipe := e.client.Pipeline()
		for i := range n {
			queue(pipe, i)
		}
		if _, err := pipe.Exec(ctx); err != nil && (!redisx.IsAnswer(err) || redisx.Passing(err)) {
			return nil, err
		}
		return nil, nil
	})
	return redisx.Harmless(err)
}

// An entryLook is the answers about one entry.
type entryLook struct {
	entry *redis.MapStringStringCmd
	kinds []*redis.StatusCmd
	parts []func() ([]string, error)
}

func queueEntry(ctx context.Context, p redis.Pipeliner, r store.EntryRead) *entryLook {
	l := &entryLook{entry: p.HGetAll(ctx, r.PRK.String())}
	for i, k := range r.Keys {
		l.kinds = append(l.kinds, p.Type(ctx, k.String()))
		l.parts = append(l.parts, queuePart(ctx, p, k.String(), r.Kind[i]))
	}
	return l
}

func queuePart(ctx context.Context, p redis.Pipeliner, key, kind string) func() ([]string, error) {
	switch kind {
	case "list":
		return p.LRange(ctx, key, 0, -1).Result
	case "zset":
		cmd := p.ZRangeWithScores(ctx, key, 0, -1)
		return func() ([]string, error) { return scored(cmd.Val()), cmd.Err() }
	case "hash":
		cmd := p.HGetAll(ctx, key)
		return func() ([]string, error) { return flatten(cmd.Val()), cmd.Err() }
	case "string":
		cmd := p.Get(ctx, key)
		return func() ([]string, error) { return []string{cmd.Val()}, cmd.Err() }
	}
	return p.SMembers(ctx, key).Result
}

func (l *entryLook) entryOf(r store.EntryRead) (store.Entry, error) {
	w := store.Entry{Found: redisx.FoundAt(r.PRK, l.entry.Val(), l.entry.Err())}
	if w.Err != nil && !store.IsEntryError(w.Err) {
		return w, w.Err
	}
	for i, kind := range l.kinds {
		values, err := l.parts[i]()
		if redisx.WrongType(err) || errors.Is(err, redis.Nil) {
			err = nil
		}
		if err = cmp.Or(kind.Err(), err); err != nil {
			return w, redisx.Fail(err)
		}
		part := store.Part{Kind: kind.Val()}
		if part.Kind == r.Kind[i] {
			part.Values = values
		}
		w.Parts = append(w.Parts, part)
	}
	return w, nil
}

func scored(zs []redis.Z) []string {
	all := make([]string, 0, 2*len(zs))
	for _, z := range zs {
		member, _ := z.Member.(string)
		all = append(all, strconv.FormatFloat(z.Score, 'g', 17, 64), member)
	}
	return all
}

func flatten(fields map[string]string) []string {
	all := make([]string, 0, 2*len(fields))
	for name, value := range fields {
		all = append(all, name, value)
	}
	return all
}
