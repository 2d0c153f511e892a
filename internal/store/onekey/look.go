package onekey

import (
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

// A taker keeps what one record's command was answered.
type taker func(*store.Raw) error

// Look implements [store.Engine] in one round trip, or two for store.LookAll: what they are, then what they hold.
func (ks *Keys) Look(ctx context.Context, at []store.LookAt) ([]store.Raw, error) {
	raws, takers := make([]store.Raw, len(at)), make([]taker, len(at))
	pipe := ks.client.Pipeline()
	if ks.options.OneSlot {
		queueTexts(ctx, pipe, at, takers)
	}
	for i, a := range at {
		raws[i].Key = a.Key
		if takers[i] == nil {
			takers[i] = queueLook(ctx, pipe, a)
		}
	}
	if err := redisx.Exec(ctx, pipe); err != nil {
		return nil, err
	}
	all := false
	for i, take := range takers {
		if err := take(&raws[i]); err != nil {
			return nil, redisx.Fail(err)
		}
		all = all || at[i].As == store.LookAll
	}
	if !all {
		return raws, nil
	}
	return raws, lookInside(ctx, ks.client.Pipeline(), at, raws)
}

// mgetKeys is how many strings one command reads: every other client waits for it.
const mgetKeys = 1000

// queueTexts queues the strings, many to a command.
func queueTexts(ctx context.Context, pipe redis.Pipeliner, at []store.LookAt, takers []taker) {
	var of []int
	for i, a := range at {
		if a.As == store.LookText {
			of = append(of, i)
		}
	}
	for some := range slices.Chunk(of, mgetKeys) {
		keys := make([]string, len(some))
		for j, i := range some {
			keys[j] = at[i].Key
		}
		cmd := redisx.MGet(ctx, pipe, keys)
		for j, i := range some {
			takers[i] = func(r *store.Raw) error {
				list, err := redisx.List(cmd, len(keys))
				if err != nil {
					return err
				}
				r.Wire, r.Is = list[j].(string)
				return (redisx.IsText | redisx.IsNil).Check(list[j])
			}
		}
	}
}

// queueLook queues the first command of a look.
func queueLook(ctx context.Context, pipe redis.Pipeliner, at store.LookAt) taker {
	switch at.As {
	case store.LookText:
		return takeText(pipe.Get(ctx, at.Key))
	case store.LookField:
		return takeText(pipe.HGet(ctx, at.Key, at.Field))
	case store.LookHash:
		return takeHash(pipe.HGetAll(ctx, at.Key))
	case store.LookSet:
		return takeSet(pipe.SScan(ctx, at.Key, 0, "", int64(at.Count)))
	case store.LookAll:
		kind, life := takeType(pipe.Type(ctx, at.Key)), pipe.Do(ctx, "pttl", at.Key)
		return func(r *store.Raw) (err error) {
			if err = kind(r); err == nil {
				r.TTL, err = life.Int64()
			}
			return err
		}
	}
	return takeType(pipe.Type(ctx, at.Key))
}

func takeType(cmd *redis.StatusCmd) taker {
	return func(r *store.Raw) (err error) {
		r.Type, err = cmd.Result()
		return err
	}
}

func takeText(cmd *redis.StringCmd) taker {
	return func(r *store.Raw) error {
		text, err := cmd.Result()
		r.Wire, r.Is = text, err == nil
		if errors.Is(err, redis.Nil) || redisx.WrongType(err) {
			return nil
		}
		return err
	}
}

func takeHash(cmd *redis.MapStringStringCmd) taker {
	return func(r *store.Raw) error {
		fields, err := cmd.Result()
		if r.Fields, r.Other = fields, redisx.WrongType(err); r.Other {
			return nil
		}
		if err == nil && fields == nil {
			return redisx.IsList.Check(nil)
		}
		return err
	}
}

func takeSet(cmd *redis.ScanCmd) taker {
	return func(r *store.Raw) error {
		members, next, err := cmd.Result()
		r.Items, r.Next, r.Other = members, redisx.Cursor{At: next}.String(), redisx.WrongType(err)
		if r.Other {
			return nil
		}
		return err
	}
}

// lookInside reads the elements of records whose types are known. Why one could not be read stands in it.
func lookInside(ctx context.Context, pipe redis.Pipeliner, at []store.LookAt, raws []store.Raw) error {
	takers := make([]taker, len(at))
	for i, a := range at {
		if a.As == store.LookAll {
			takers[i] = queueElements(ctx, pipe, a.Key, raws[i].Type, int64(a.Count))
		}
	}
	if err := redisx.Exec(ctx, pipe); err != nil {
		return err
	}
	for i, take := range takers {
		if take == nil {
			continue
		}
		if err := take(&raws[i]); err != nil {
			raws[i].Problem = err.Error()
		}
	}
	return nil
}

// stringBytes is how much of a string stands for one element of a limit.
const stringBytes = 64

// queueElements queues what reads a record of one type; limit 0: all of it.
func queueElements(ctx context.Context, pipe redis.Pipeliner, key, kind string, limit int64) taker {
	switch kind {
	case "string":
		text := pipe.GetRange(ctx, key, 0, limit*stringBytes-1)
		return sized(pipe.StrLen(ctx, key), func(r *store.Raw) (err error) {
			r.Wire, err = text.Result()
			r.Is = err == nil
			return err
		})
	case "hash":
		return sized(pipe.HLen(ctx, key), queuePairs(ctx, pipe, key, limit))
	case "set":
		return sized(pipe.SCard(ctx, key), queueMembers(ctx, pipe, key, limit))
	case "list":
		some := pipe.LRange(ctx, key, 0, limit-1)
		return sized(pipe.LLen(ctx, key), func(r *store.Raw) (err error) {
			r.Items, err = some.Result()
			return err
		})
	case "zset":
		some := pipe.ZRangeWithScores(ctx, key, 0, limit-1)
		return sized(pipe.ZCard(ctx, key), func(r *store.Raw) error {
			for _, z := range some.Val() {
				member, _ := z.Member.(string)
				r.Items, r.Scores = append(r.Items, member), append(r.Scores, z.Score)
			}
			return some.Err()
		})
	case "stream":
		return sized(pipe.XLen(ctx, key), queueMessages(ctx, pipe, key, limit))
	}
	return nil
}

// sized is a taker that keeps how many elements there are, too.
func sized(size *redis.IntCmd, take taker) taker {
	return func(r *store.Raw) error {
		r.Size = size.Val()
		return take(r)
	}
}

func queuePairs(ctx context.Context, pipe redis.Pipeliner, key string, limit int64) taker {
	if limit == 0 {
		all := pipe.Do(ctx, "hgetall", key)
		return func(r *store.Raw) error {
			flat, err := all.StringSlice()
			r.Pairs = pairs(flat)
			return err
		}
	}
	some := pipe.HScan(ctx, key, 0, "", limit)
	return func(r *store.Raw) error {
		flat, _, err := some.Result()
		r.Pairs = pairs(flat)
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

func queueMembers(ctx context.Context, pipe redis.Pipeliner, key string, limit int64) taker {
	if limit == 0 {
		all := pipe.SMembers(ctx, key)
		return func(r *store.Raw) (err error) {
			r.Items, err = all.Result()
			return err
		}
	}
	some := pipe.SScan(ctx, key, 0, "", limit)
	return func(r *store.Raw) (err error) {
		r.Items, _, err = some.Result()
		return err
	}
}

func queueMessages(ctx context.Context, pipe redis.Pipeliner, key string, limit int64) taker {
	if limit == 0 {
		limit = 1 << 30
	}
	some := pipe.Do(ctx, "xrange", key, "-", "+", "count", limit)
	return func(r *store.Raw) error {
		items, err := some.Slice()
		if err != nil {
			return err
		}
		for _, item := range items {
			parts, _ := item.([]any)
			if redisx.IsVerdict.Check(item) != nil || len(parts) != 2 || (redisx.IsTexts|redisx.IsNil).Check(parts[1]) != nil {
				return redisx.IsTexts.Check(item)
			}
			r.Messages = append(r.Messages, store.Message{ID: redisx.Text(parts, 0), Pairs: pairs(redisx.Texts(parts[1]))})
		}
		return nil
	}
}
