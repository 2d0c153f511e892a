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

// ReadRaw implements [store.Engine] in one round trip, or in two for store.RawAll: the first one
// reads the types, the second one the contents.
func (ks *OneSlot) ReadRaw(ctx context.Context, at []store.RawRead) ([]store.Raw, error) {
	raws, decoders, pipe := make([]store.Raw, len(at)), make([]decoder, len(at)), ks.client.Pipeline()
	if ks.options.OneSlot {
		queueTexts(ctx, pipe, at, decoders)
	}
	for i, a := range at {
		raws[i].Key = a.Key
		if decoders[i] == nil {
			decoders[i] = queueRead(ctx, pipe, a)
		}
	}
	if err := redisx.Exec(ctx, pipe); err != nil {
		return nil, err
	}
	contents := map[int]decoder{}
	for i, a := range at {
		err := decoders[i](&raws[i])
		if raws[i].WrongType = redisx.WrongType(err); err != nil && !raws[i].WrongType {
			return nil, redisx.Fail(err)
		}
		if size, read := contentCommands(raws[i].Type, a.Count); a.As == store.RawAll && size != "" {
			contents[i] = decodeContents(pipe.Do(ctx, size, a.Key), pipe.Do(ctx, slices.Insert(read, 1, any(a.Key))...))
		}
	}
	if err := redisx.Exec(ctx, pipe); err != nil {
		return nil, err
	}
	for i, decode := range contents { // a failure concerns only its record, and goes into Problem
		if err := decode(&raws[i]); err != nil {
			raws[i].Problem = err.Error()
		}
	}
	return raws, nil
}

// A decoder stores the replies to its commands in a record.
type decoder func(*store.Raw) error

// maxMGetKeys is the maximum number of strings that one command reads. All other clients wait while
// the server carries it out.
const maxMGetKeys = 1000

// queueTexts queues commands that read strings, many strings with each command.
func queueTexts(ctx context.Context, pipe redis.Pipeliner, at []store.RawRead, decoders []decoder) {
	var indexes []int
	for i, a := range at {
		if a.As == store.RawText {
			indexes = append(indexes, i)
		}
	}
	if len(indexes) == 1 { // an application may have no right to MGET
		return
	}
	for some := range slices.Chunk(indexes, maxMGetKeys) {
		keys := make([]string, len(some))
		for j, i := range some {
			keys[j] = at[i].Key
		}
		cmd := pipe.Do(ctx, redisx.AppendWords([]any{"mget"}, keys)...)
		texts := sync.OnceValues(func() ([]any, error) { return redisx.List(cmd, len(keys)) })
		for j, i := range some {
			decoders[i] = func(r *store.Raw) error {
				list, err := texts()
				if err != nil {
					return err
				}
				r.Wire, r.Exists = list[j].(string)
				return (redisx.IsText | redisx.IsNil).Check(list[j])
			}
		}
	}
}

// queueRead queues the first commands that read a record.
func queueRead(ctx context.Context, pipe redis.Pipeliner, at store.RawRead) decoder {
	switch at.As {
	case store.RawText:
		return decodeText(pipe.Get(ctx, at.Key))
	case store.RawField:
		return decodeText(pipe.HGet(ctx, at.Key, at.Field))
	case store.RawHash:
		cmd := pipe.HGetAll(ctx, at.Key)
		return func(r *store.Raw) (err error) {
			if r.Fields, err = cmd.Result(); err == nil && r.Fields == nil {
				return redisx.IsList.Check(nil)
			}
			return err
		}
	case store.RawSet:
		cmd := pipe.SScan(ctx, at.Key, 0, "", int64(at.Count))
		return func(r *store.Raw) error {
			members, next, err := cmd.Result()
			r.Items, r.Next = members, redisx.Cursor{At: next}.String()
			return err
		}
	case store.RawAll:
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

func decodeText(cmd *redis.StringCmd) decoder {
	return func(r *store.Raw) (err error) {
		r.Wire, err = cmd.Result()
		if r.Exists = err == nil; errors.Is(err, redis.Nil) {
			return nil
		}
		return err
	}
}

// bytesPerElement is the number of bytes of a string that count as one element.
const bytesPerElement = 64

// contentCommands returns two commands for a record of a Redis type, without the key: size reads
// the number of its elements, and read reads up to limit elements, or all if limit is 0.
func contentCommands(kind string, limit int) (size string, read []any) {
	switch last := limit - 1; {
	case kind == "string":
		return "strlen", []any{"getrange", 0, limit*bytesPerElement - 1}
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

func decodeContents(size, read *redis.Cmd) decoder {
	return func(r *store.Raw) error {
		n, err := size.Int64()
		if err = cmp.Or(err, read.Err()); err != nil {
			return err
		}
		r.Size = n
		switch reply := read.Val(); {
		case r.Type == "string":
			r.Wire, r.Exists = reply.(string)
			return redisx.IsText.Check(reply)
		case r.Type == "stream":
			return decodeMessages(r, reply)
		case strings.HasSuffix(read.Name(), "scan"): // a cursor and elements
			page := redisx.Items(reply)
			if err := redisx.CheckLength(len(page), 2); err != nil {
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

func decodeMessages(r *store.Raw, reply any) error {
	for _, item := range redisx.Items(reply) {
		parts := redisx.Items(item)
		if err := cmp.Or(redisx.IsVerdict.Check(item), redisx.CheckLength(len(parts), 2)); err != nil {
			return err
		}
		if err := (redisx.IsTexts | redisx.IsNil).Check(parts[1]); err != nil {
			return err
		}
		r.Messages = append(r.Messages, store.Message{ID: redisx.Text(parts, 0), Pairs: pairs(redisx.Texts(parts[1]))})
	}
	return redisx.IsList.Check(reply)
}
