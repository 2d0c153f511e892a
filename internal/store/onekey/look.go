package onekey

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

// Look implements [store.Engine] in one round trip, or in two for store.LookAll: the first one
// reads the types, the second one the contents.
func (ks *Keys) Look(ctx context.Context, at []store.LookAt) ([]store.Raw, error) {
	raws, takers, pipe := make([]store.Raw, len(at)), make([]taker, len(at)), ks.client.Pipeline()
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
	inside := map[int]taker{}
	for i, a := range at {
		err := takers[i](&raws[i])
		if raws[i].Other = redisx.WrongType(err); err != nil && !raws[i].Other {
			return nil, redisx.Fail(err)
		}
		if size, read := contents(raws[i].Type, a.Count); a.As == store.LookAll && size != "" {
			inside[i] = takeContents(pipe.Do(ctx, size, a.Key), pipe.Do(ctx, slices.Insert(read, 1, any(a.Key))...))
		}
	}
	if err := redisx.Exec(ctx, pipe); err != nil {
		return nil, err
	}
	for i, take := range inside { // the record itself says why it could not be read
		if err := take(&raws[i]); err != nil {
			raws[i].Problem = err.Error()
		}
	}
	return raws, nil
}

// A taker stores the replies to its commands in a record.
type taker func(*store.Raw) error

// mgetKeys is how many strings one command reads. Every other client waits for it.
const mgetKeys = 1000

// queueTexts queues reads of strings, many to a command.
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

// queueLook queues the first commands that read a record.
func queueLook(ctx context.Context, pipe redis.Pipeliner, at store.LookAt) taker {
	switch at.As {
	case store.LookText:
		return takeText(pipe.Get(ctx, at.Key))
	case store.LookField:
		return takeText(pipe.HGet(ctx, at.Key, at.Field))
	case store.LookHash:
		cmd := pipe.HGetAll(ctx, at.Key)
		return func(r *store.Raw) (err error) {
			if r.Fields, err = cmd.Result(); err == nil && r.Fields == nil {
				return redisx.IsList.Check(nil)
			}
			return err
		}
	case store.LookSet:
		cmd := pipe.SScan(ctx, at.Key, 0, "", int64(at.Count))
		return func(r *store.Raw) error {
			members, next, err := cmd.Result()
			r.Items, r.Next = members, redisx.Cursor{At: next}.String()
			return err
		}
	case store.LookAll:
		kind, life := pipe.Type(ctx, at.Key), pipe.Do(ctx, "pttl", at.Key)
		return func(r *store.Raw) (err error) {
			r.Type = kind.Val()
			r.TTL, err = life.Int64()
			return cmp.Or(kind.Err(), err)
		}
	}
	kind := pipe.Type(ctx, at.Key)
	return func(r *store.Raw) (err error) {
		r.Type, err = kind.Result()
		return err
	}
}

func takeText(cmd *redis.StringCmd) taker {
	return func(r *store.Raw) (err error) {
		r.Wire, err = cmd.Result()
		if r.Is = err == nil; errors.Is(err, redis.Nil) {
			return nil
		}
		return err
	}
}

// stringBytes is how many bytes of a string count as one element.
const stringBytes = 64

// contents returns two commands for a record of a Redis type, without the key. size returns the
// number of its elements. read returns as many of them as limit says; 0 means all.
func contents(kind string, limit int) (size string, read []any) {
	switch last := limit - 1; {
	case kind == "string":
		return "strlen", []any{"getrange", 0, limit*stringBytes - 1}
	case kind == "hash" && limit == 0:
		return "hlen", []any{"hgetall"}
	case kind == "hash":
		return "hlen", []any{"hscan", 0, "count", limit}
	case kind == "set" && limit == 0:
		return "scard", []any{"smembers"}
	case kind == "set":
		return "scard", []any{"sscan", 0, "count", limit}
	case kind == "list":
		return "llen", []any{"lrange", 0, last}
	case kind == "zset":
		return "zcard", []any{"zrange", 0, last, "withscores"}
	case kind == "stream":
		return "xlen", []any{"xrange", "-", "+", "count", cmp.Or(limit, 1<<30)}
	}
	return "", nil
}

func takeContents(size, read *redis.Cmd) taker {
	return func(r *store.Raw) error {
		n, err := size.Int64()
		if err = cmp.Or(err, read.Err()); err != nil {
			return err
		}
		r.Size = n
		switch reply := read.Val(); {
		case r.Type == "string":
			r.Wire, r.Is = reply.(string)
			return redisx.IsText.Check(reply)
		case r.Type == "stream":
			return putMessages(r, reply)
		case strings.HasSuffix(read.Name(), "scan"): // a cursor and elements
			page := redisx.Items(reply)
			if err := redisx.AsMany(len(page), 2); err != nil {
				return err
			}
			r.Items, err = redisx.Elements(page[1])
		default:
			r.Items, err = redisx.Elements(reply)
		}
		switch ps := pairs(r.Items); r.Type {
		case "hash":
			r.Items, r.Pairs = nil, ps
		case "zset":
			r.Items = nil
			for _, p := range ps {
				score, _ := strconv.ParseFloat(p.Wire, 64)
				r.Items, r.Scores = append(r.Items, p.Field), append(r.Scores, score)
			}
		}
		return err
	}
}

func pairs(flat []string) []store.Facet {
	ps := make([]store.Facet, 0, len(flat)/2)
	for pair := range slices.Chunk(flat, 2) {
		ps = append(ps, store.Facet{Field: pair[0], Wire: pair[len(pair)-1]})
	}
	return ps
}

func putMessages(r *store.Raw, reply any) error {
	for _, item := range redisx.Items(reply) {
		parts := redisx.Items(item)
		if redisx.IsVerdict.Check(item) != nil || len(parts) != 2 || (redisx.IsTexts|redisx.IsNil).Check(parts[1]) != nil {
			return redisx.IsTexts.Check(item)
		}
		r.Messages = append(r.Messages, store.Message{ID: redisx.Text(parts, 0), Pairs: pairs(redisx.Texts(parts[1]))})
	}
	return redisx.IsList.Check(reply)
}
