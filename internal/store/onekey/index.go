package onekey

import (
	"cmp"
	"context"
	"errors"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

var membersScript = redisx.NewScript(redisx.IsList, source("members"))

// ScanIndex returns the next batch of members of an index.
func (ks *Keys) ScanIndex(ctx context.Context, s store.Scan) ([]string, string, error) {
	at, err := redisx.ParseCursor(s.Cursor)
	if err != nil {
		return nil, "", err
	}
	const reason = "an index that is not a set (WRONGTYPE)"
	if ks.options.ReadWholeSets {
		prks, err := ks.client.SMembers(ctx, s.Index.String()).Result()
		return prks, "", readError(s.Index, err, reason)
	}
	args := []string{strconv.FormatUint(at.At, 10), at.Process, strconv.Itoa(s.Count)}
	value, err := membersScript.Read(ctx, ks.client.Process, []string{s.Index.String()}, args)
	reply := redisx.Items(value)
	if err = cmp.Or(err, redisx.CheckLength(len(reply), 3)); err != nil {
		return nil, "", readError(s.Index, err, reason)
	}
	next, err := redisx.ParseCursor(redisx.Text(reply, 1) + "_" + redisx.Text(reply, 0))
	if err != nil {
		return nil, "", redisx.Fail(redisx.IsText.Check(nil))
	}
	return redisx.Texts(reply[2]), next.String(), nil
}

// Cardinalities implements [store.Engine].
func (ks *Keys) Cardinalities(ctx context.Context, indexes []recordkey.Key) ([]int64, error) {
	pipe := ks.client.Pipeline()
	cmds := make([]*redis.IntCmd, len(indexes))
	for i, k := range indexes {
		switch {
		case k.Kind() == recordkey.KindOwn:
			cmds[i] = pipe.ZCard(ctx, k.String())
		case k.IsValid():
			cmds[i] = pipe.SCard(ctx, k.String())
		default:
			// On a cluster this asks all masters, which no pipeline does.
			cmds[i] = ks.client.DBSize(ctx)
		}
	}
	if err := redisx.Exec(ctx, pipe); err != nil {
		return nil, err
	}
	sizes := make([]int64, len(cmds))
	for i, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			return nil, readError(indexes[i], err, err.Error())
		}
		sizes[i] = cmd.Val()
	}
	return sizes, nil
}

// HasMembers implements [store.Engine]. With atOnce it uses a transaction if the sets are in one
// slot.
func (ks *Keys) HasMembers(ctx context.Context, members []store.Member, atOnce bool) ([]bool, error) {
	pipe := ks.client.Pipeline()
	if atOnce && ks.options.OneSlot {
		pipe = ks.client.TxPipeline()
	}
	answers := make([]func() (bool, error), len(members))
	for i, m := range members {
		if m.Ordered {
			score := pipe.ZScore(ctx, m.Set.String(), m.Value)
			answers[i] = func() (bool, error) { return score.Err() == nil, score.Err() }
		} else {
			answers[i] = pipe.SIsMember(ctx, m.Set.String(), m.Value).Result
		}
	}
	if err := redisx.Exec(ctx, pipe); err != nil {
		return nil, err
	}
	has := make([]bool, len(members))
	for i := range answers {
		is, err := answers[i]()
		if err != nil && !errors.Is(err, redis.Nil) && !redisx.WrongType(err) {
			return nil, redisx.Fail(err)
		}
		has[i] = is // false for a record of another type
	}
	return has, nil
}

// Order implements [store.Engine].
func (ks *Keys) Order(ctx context.Context, o store.Order) ([]string, error) {
	command, from, to := "zrangebylex", o.Min.Lex("-"), o.Max.Lex("+")
	if o.Reverse {
		command, from, to = "zrevrangebylex", to, from
	}
	args := []any{command, o.Key.String(), from, to, "limit", 0, o.Count}
	if o.Skip > 0 { // by rank, which takes as long for any number of members
		args = []any{"zrange", o.Key.String(), o.Skip, o.Skip + int64(o.Count) - 1}
		if o.Reverse {
			args = append(args, "rev")
		}
	}
	members, err := ks.client.Do(ctx, args...).StringSlice()
	return members, readError(o.Key, err, NotSortedSet)
}

// NotSortedSet describes the damage of an ordered index that has another Redis type.
const NotSortedSet = "an ordered index that is not a sorted set (WRONGTYPE)"
