package single

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
)

// mgetKeys is how many strings one command reads: every other client waits for it.
const mgetKeys = 1000

// Size implements [store.Peeker].
func (e *Engine) Size(ctx context.Context) (int64, error) {
	n, err := e.client.DBSize(ctx).Result()
	return n, store.Fail(err)
}

// Kinds implements [store.Peeker].
func (e *Engine) Kinds(ctx context.Context, keys []string) ([]string, error) {
	pipe := e.client.Pipeline()
	cmds := make([]*redis.StatusCmd, len(keys))
	for i, k := range keys {
		cmds[i] = pipe.Type(ctx, k)
	}
	if err := run(ctx, pipe); err != nil {
		return nil, err
	}
	kinds := make([]string, len(keys))
	for i, cmd := range cmds {
		if cmd.Err() != nil {
			return nil, store.Fail(cmd.Err())
		}
		kinds[i] = cmd.Val()
	}
	return kinds, nil
}

// Texts implements [store.Peeker].
func (e *Engine) Texts(ctx context.Context, keys []string) ([]store.Text, error) {
	pipe := e.client.Pipeline()
	chunks := slices.Collect(slices.Chunk(keys, mgetKeys))
	cmds := make([]*redis.Cmd, len(chunks))
	for i, some := range chunks {
		cmds[i] = store.MGet(ctx, pipe, some)
	}
	if err := run(ctx, pipe); err != nil {
		return nil, err
	}
	texts := make([]store.Text, 0, len(keys))
	for i, cmd := range cmds {
		list, err := store.List(cmd, len(chunks[i]))
		if err != nil {
			return nil, store.Fail(err)
		}
		for _, item := range list {
			if err := (store.IsText | store.IsNil).Check(item); err != nil {
				return nil, store.Fail(err)
			}
			wire, is := item.(string)
			texts = append(texts, store.Text{Wire: wire, Is: is})
		}
	}
	return texts, nil
}

// Facets implements [store.Peeker].
func (e *Engine) Facets(ctx context.Context, reads []store.FacetRead) ([]store.Text, error) {
	pipe := e.client.Pipeline()
	cmds := make([]*redis.StringCmd, len(reads))
	for i, r := range reads {
		cmds[i] = pipe.HGet(ctx, r.Key, r.Field)
	}
	if err := run(ctx, pipe); err != nil {
		return nil, err
	}
	texts := make([]store.Text, len(reads))
	for i, cmd := range cmds {
		wire, err := cmd.Result()
		if err != nil && err != redis.Nil && !store.WrongType(err) {
			return nil, store.Fail(err)
		}
		texts[i] = store.Text{Wire: wire, Is: err == nil}
	}
	return texts, nil
}

// Hashes implements [store.Peeker].
func (e *Engine) Hashes(ctx context.Context, keys []string) ([]store.Hash, error) {
	pipe := e.client.Pipeline()
	cmds := make([]*redis.MapStringStringCmd, len(keys))
	for i, k := range keys {
		cmds[i] = pipe.HGetAll(ctx, k)
	}
	if err := run(ctx, pipe); err != nil {
		return nil, err
	}
	hashes := make([]store.Hash, len(keys))
	for i, cmd := range cmds {
		fields, err := cmd.Result()
		if err == nil && fields == nil {
			err = store.IsList.Check(nil)
		}
		if err != nil && !store.WrongType(err) {
			return nil, store.Fail(err)
		}
		hashes[i] = store.Hash{Fields: fields, Other: err != nil}
	}
	return hashes, nil
}

// Sets implements [store.Peeker].
func (e *Engine) Sets(ctx context.Context, keys []string, count int) ([]store.SetPage, error) {
	pipe := e.client.Pipeline()
	cmds := make([]*redis.ScanCmd, len(keys))
	for i, k := range keys {
		cmds[i] = pipe.SScan(ctx, k, 0, "", int64(count))
	}
	if err := run(ctx, pipe); err != nil {
		return nil, err
	}
	pages := make([]store.SetPage, len(keys))
	for i, cmd := range cmds {
		members, next, err := cmd.Result()
		if err != nil && !store.WrongType(err) {
			return nil, store.Fail(err)
		}
		pages[i] = store.SetPage{Members: members, Next: store.Place{At: next}.String(), Other: err != nil}
	}
	return pages, nil
}

// InSteps implements [store.Peeker]: every change is one script.
func (e *Engine) InSteps() bool { return false }

// Linger implements [store.Peeker].
func (e *Engine) Linger(context.Context, int) (bool, error) { return false, nil }

// Messages implements [store.Peeker].
func (e *Engine) Messages(ctx context.Context, key string, limit int) ([]store.Message, error) {
	items, err := e.client.Do(ctx, "xrange", key, "-", "+", "count", limit).Slice()
	if err != nil {
		return nil, store.Fail(err)
	}
	messages := make([]store.Message, 0, len(items))
	for _, item := range items {
		parts, _ := item.([]any)
		if store.IsVerdict.Check(item) != nil || len(parts) != 2 || (store.IsTexts|store.IsNil).Check(parts[1]) != nil {
			return nil, store.Fail(store.IsTexts.Check(item))
		}
		m := store.Message{ID: text(parts, 0)}
		flat, _ := parts[1].([]any)
		for i := 0; i+1 < len(flat); i += 2 {
			m.Pairs = append(m.Pairs, store.Facet{Field: text(flat, i), Wire: text(flat, i+1)})
		}
		messages = append(messages, m)
	}
	return messages, nil
}
