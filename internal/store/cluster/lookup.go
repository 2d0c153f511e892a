package cluster

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
)

// Find implements [store.Engine]: one round of SRKs in parallel, one of entries.
func (e *Engine) Find(ctx context.Context, lookups []store.Lookup) ([]store.Found, error) {
	var found []store.Found
	_, err := e.again(ctx, func() (_ any, err error) {
		found, err = e.FindPlain(ctx, lookups)
		return nil, err
	})
	if err != nil {
		return nil, harmless(err)
	}
	for _, f := range found {
		e.read(ctx, f.Record.Key, f.Record.Fields)
	}
	return found, nil
}

// Texts implements [store.Peeker]: strings of one command would have to lie in one slot.
func (e *Engine) Texts(ctx context.Context, keys []string) ([]store.Text, error) {
	texts := make([]store.Text, len(keys))
	cmds := make([]*redis.StringCmd, len(keys))
	_, err := e.again(ctx, func() (any, error) {
		pipe := e.client.Pipeline()
		for i, k := range keys {
			cmds[i] = pipe.Get(ctx, k)
		}
		if pipe.Len() == 0 {
			return nil, nil
		}
		if _, err := pipe.Exec(ctx); err != nil && !store.IsAnswer(err) {
			return nil, err
		}
		for i, cmd := range cmds {
			wire, err := cmd.Result()
			if err != nil && err != redis.Nil && !store.WrongType(err) {
				return nil, err
			}
			texts[i] = store.Text{Wire: wire, Is: err == nil}
		}
		return nil, nil
	})
	return texts, harmless(err)
}
