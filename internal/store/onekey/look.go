package onekey

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

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
	for i, take := range takers {
		if err := take(&raws[i]); err != nil {
			return nil, redisx.Fail(err)
		}
	}
	return raws, ks.lookInside(ctx, at, raws)
}

// lookInside reads the elements of records whose types are known. Why one could not be read stands in it.
func (ks *Keys) lookInside(ctx context.Context, at []store.LookAt, raws []store.Raw) error {
	pipe, takers := ks.client.Pipeline(), map[int]taker{}
	for i, a := range at {
		if a.As == store.LookAll {
			takers[i] = queueElements(ctx, pipe, a.Key, raws[i].Type, int64(a.Count))
		}
	}
	if err := redisx.Exec(ctx, pipe); err != nil {
		return err
	}
	for i, take := range takers {
		if err := take(&raws[i]); err != nil {
			raws[i].Problem = err.Error()
		}
	}
	return nil
}

// A taker puts into a record what its command was answered.
type taker func(*store.Raw) error

// into is the taker of a result that needs no judging.
func into[T any](result func() (T, error), put func(*store.Raw, T)) taker {
	return func(r *store.Raw) error {
		value, err := result()
		if err == nil {
			put(r, value)
		}
		return err
	}
}

func putType(r *store.Raw, kind string)     { r.Type = kind }
func putText(r *store.Raw, text string)     { r.Text = store.Text{Wire: text, Is: true} }
func putItems(r *store.Raw, items []string) { r.Items = items }
func putPairs(r *store.Raw, flat []string)  { r.Pairs = pairs(flat) }

// both is the taker of two commands.
func both(first, second taker) taker {
	return func(r *store.Raw) error { return cmp.Or(first(r), second(r)) }
}

// orOther has a record of another Redis type be an answer.
func orOther(take taker) taker {
	return func(r *store.Raw) error {
		err := take(r)
		if r.Other = redisx.WrongType(err); r.Other {
			return nil
		}
		return err
	}
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
		cmd := pipe.Do(ctx, redisx.AppendWords([]any{"mget"}, keys)...)
		texts := sync.OnceValues(func() ([]any, error) { return redisx.List(cmd, len(keys)) })
		for j, i := range some {
			takers[i] = func(r *store.Raw) error {
				list, err := texts()
				if err != nil {
					return err
				}
				r.Wire, r.Is = list[j].(string)
				return (redisx.IsText | redisx.IsNil).Check(list[j])
			}
		}
	}
}

// queueLook queues the first commands of a look.
func queueLook(ctx context.Context, pipe redis.Pipeliner, at store.LookAt) taker {
	switch at.As {
	case store.LookText:
		return takeText(pipe.Get(ctx, at.Key))
	case store.LookField:
		return takeText(pipe.HGet(ctx, at.Key, at.Field))
	case store.LookHash:
		cmd := pipe.HGetAll(ctx, at.Key)
		return orOther(func(r *store.Raw) (err error) {
			if r.Fields, err = cmd.Result(); err == nil && r.Fields == nil {
				return redisx.IsList.Check(nil)
			}
			return err
		})
	case store.LookSet:
		cmd := pipe.SScan(ctx, at.Key, 0, "", int64(at.Count))
		return orOther(func(r *store.Raw) error {
			members, next, err := cmd.Result()
			r.Items, r.Next = members, redisx.Cursor{At: next}.String()
			return err
		})
	}
	kind := into(pipe.Type(ctx, at.Key).Result, putType)
	if at.As != store.LookAll {
		return kind
	}
	return both(kind, into(pipe.Do(ctx, "pttl", at.Key).Int64, func(r *store.Raw, life int64) { r.TTL = life }))
}

func takeText(cmd *redis.StringCmd) taker {
	return func(r *store.Raw) (err error) {
		r.Wire, err = cmd.Result()
		if r.Is = err == nil; errors.Is(err, redis.Nil) || redisx.WrongType(err) {
			return nil
		}
		return err
	}
}

// stringBytes is how much of a string stands for one element of a limit.
const stringBytes = 64

// queueElements queues what reads a record of one type; limit 0: all of it.
func queueElements(ctx context.Context, pipe redis.Pipeliner, key, kind string, limit int64) taker {
	var take taker
	var size *redis.IntCmd
	switch kind {
	case "string":
		size = pipe.StrLen(ctx, key)
		take = into(pipe.GetRange(ctx, key, 0, limit*stringBytes-1).Result, putText)
	case "hash":
		size = pipe.HLen(ctx, key)
		if limit == 0 {
			take = into(pipe.Do(ctx, "hgetall", key).StringSlice, putPairs)
		} else {
			take = into(page(pipe.HScan(ctx, key, 0, "", limit)), putPairs)
		}
	case "set":
		size = pipe.SCard(ctx, key)
		if limit == 0 {
			take = into(pipe.SMembers(ctx, key).Result, putItems)
		} else {
			take = into(page(pipe.SScan(ctx, key, 0, "", limit)), putItems)
		}
	case "list":
		size = pipe.LLen(ctx, key)
		take = into(pipe.LRange(ctx, key, 0, limit-1).Result, putItems)
	case "zset":
		size = pipe.ZCard(ctx, key)
		take = into(pipe.ZRangeWithScores(ctx, key, 0, limit-1).Result, putScored)
	case "stream":
		size = pipe.XLen(ctx, key)
		take = queueMessages(ctx, pipe, key, limit)
	default:
		return func(*store.Raw) error { return nil }
	}
	return both(into(size.Result, func(r *store.Raw, n int64) { r.Size = n }), take)
}

// page is the result of one step of a SCAN.
func page(cmd *redis.ScanCmd) func() ([]string, error) {
	return func() ([]string, error) {
		items, _, err := cmd.Result()
		return items, err
	}
}

func putScored(r *store.Raw, zs []redis.Z) {
	for _, z := range zs {
		member, _ := z.Member.(string)
		r.Items, r.Scores = append(r.Items, member), append(r.Scores, z.Score)
	}
}

func pairs(flat []string) []store.Facet {
	ps := make([]store.Facet, 0, len(flat)/2)
	for i := 0; i+1 < len(flat); i += 2 {
		ps = append(ps, store.Facet{Field: flat[i], Wire: flat[i+1]})
	}
	return ps
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
