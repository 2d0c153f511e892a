package single

import (
	"cmp"
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
)

// Inspect implements [store.Engine] in two round trips: what the records are, then what they hold.
func (e *Engine) Inspect(ctx context.Context, keys []string, limit int) ([]store.Raw, error) {
	raws := make([]store.Raw, len(keys))
	types := make([]*redis.StatusCmd, len(keys))
	ttls := make([]*redis.Cmd, len(keys))
	pipe := e.client.Pipeline()
	for i, k := range keys {
		types[i] = pipe.Type(ctx, k)
		ttls[i] = pipe.Do(ctx, "pttl", k)
	}
	if err := run(ctx, pipe); err != nil {
		return nil, err
	}
	reads := make([]func(*store.Raw) error, len(keys))
	pipe = e.client.Pipeline()
	for i, k := range keys {
		raws[i] = store.Raw{Key: k, Type: types[i].Val()}
		var err error
		if raws[i].TTL, err = ttls[i].Int64(); cmp.Or(types[i].Err(), err) != nil {
			return nil, store.Fail(cmp.Or(types[i].Err(), err))
		}
		reads[i] = read(ctx, pipe, k, raws[i].Type, int64(limit))
	}
	if err := run(ctx, pipe); err != nil {
		return nil, err
	}
	for i, r := range reads {
		if r == nil {
			continue
		}
		if err := r(&raws[i]); err != nil {
			raws[i].Problem = err.Error()
		}
	}
	return raws, nil
}

// read queues what reads a record of one type, and returns what takes the answer.
func read(ctx context.Context, pipe redis.Pipeliner, key, kind string, limit int64) func(*store.Raw) error {
	switch kind {
	case "string":
		return readString(ctx, pipe, key, limit)
	case "hash":
		return readHash(ctx, pipe, key, limit)
	case "set":
		return readSet(ctx, pipe, key, limit)
	case "list":
		return readList(ctx, pipe, key, limit)
	case "zset":
		return readSortedSet(ctx, pipe, key, limit)
	case "stream":
		return readStream(ctx, pipe, key, limit)
	}
	return nil
}

// stringBytes is how much of a string stands for one element of a limit.
const stringBytes = 64

func readString(ctx context.Context, pipe redis.Pipeliner, key string, limit int64) func(*store.Raw) error {
	size, text := pipe.StrLen(ctx, key), pipe.GetRange(ctx, key, 0, limit*stringBytes-1)
	return func(r *store.Raw) error {
		r.Size, r.Text = size.Val(), text.Val()
		return text.Err()
	}
}

func readHash(ctx context.Context, pipe redis.Pipeliner, key string, limit int64) func(*store.Raw) error {
	size := pipe.HLen(ctx, key)
	if limit == 0 {
		all := pipe.Do(ctx, "hgetall", key)
		return func(r *store.Raw) error {
			flat, err := all.StringSlice()
			r.Size, r.Pairs = size.Val(), pairs(flat)
			return err
		}
	}
	some := pipe.HScan(ctx, key, 0, "", limit)
	return func(r *store.Raw) error {
		flat, _, err := some.Result()
		r.Size, r.Pairs = size.Val(), pairs(flat)
		return err
	}
}

func pairs(flat []string) []store.Facet {
	ps := make([]store.Facet, 0, len(flat)/2)
	for i := 0; i+1 < len(flat); i += 2 {
		ps = append(ps, store.Facet{Field: flat[i], Wire: flat[i+1]})
	}
	return ps
}

func readSet(ctx context.Context, pipe redis.Pipeliner, key string, limit int64) func(*store.Raw) error {
	size := pipe.SCard(ctx, key)
	if limit == 0 {
		all := pipe.SMembers(ctx, key)
		return func(r *store.Raw) error {
			r.Size, r.Items = size.Val(), all.Val()
			return all.Err()
		}
	}
	some := pipe.SScan(ctx, key, 0, "", limit)
	return func(r *store.Raw) error {
		items, _, err := some.Result()
		r.Size, r.Items = size.Val(), items
		return err
	}
}

func readList(ctx context.Context, pipe redis.Pipeliner, key string, limit int64) func(*store.Raw) error {
	size, some := pipe.LLen(ctx, key), pipe.LRange(ctx, key, 0, limit-1)
	return func(r *store.Raw) error {
		r.Size, r.Items = size.Val(), some.Val()
		return some.Err()
	}
}

func readSortedSet(ctx context.Context, pipe redis.Pipeliner, key string, limit int64) func(*store.Raw) error {
	size, some := pipe.ZCard(ctx, key), pipe.ZRangeWithScores(ctx, key, 0, limit-1)
	return func(r *store.Raw) error {
		r.Size = size.Val()
		for _, z := range some.Val() {
			member, _ := z.Member.(string)
			r.Items, r.Scores = append(r.Items, member), append(r.Scores, z.Score)
		}
		return some.Err()
	}
}

func readStream(ctx context.Context, pipe redis.Pipeliner, key string, limit int64) func(*store.Raw) error {
	if limit == 0 {
		limit = 1 << 30
	}
	size, some := pipe.XLen(ctx, key), pipe.Do(ctx, "xrange", key, "-", "+", "count", limit)
	return func(r *store.Raw) error {
		r.Size = size.Val()
		items, err := some.Slice()
		for _, item := range items {
			id, _ := item.([]any)
			r.Items = append(r.Items, text(id, 0))
		}
		return err
	}
}
