package onekey

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

var membersScript = redisx.NewScript(redisx.IsList, source("members"))

// ScanIndex returns the next batch of members of an index.
func (ks *OneSlot) ScanIndex(ctx context.Context, s store.Scan) ([]string, string, error) {
	const reason = "an index that is not a set (WRONGTYPE)"
	if ks.options.Sorted {
		prks, next, err := ScanSorted(ctx, ks.client, "scanmembers", s.Index.String(), s.Cursor, s.Count)
		return prks, next, readError(s.Index, err, reason)
	}
	at, err := redisx.ParseCursor(s.Cursor)
	if err != nil {
		return nil, "", err
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

// ScanSorted takes one step of a scan of the embedded store. command is SCANKEYS, whose subject is
// a pattern, or SCANMEMBERS, whose subject is the key of a set. A cursor names what was read last.
func ScanSorted(ctx context.Context, c *redisx.Client, command, subject, cursor string, count int) (found []string, next string, err error) {
	after, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil {
		return nil, "", store.ErrCursor
	}
	texts, err := c.Do(ctx, command, subject, string(after), count).StringSlice()
	if err != nil {
		return nil, "", err
	}
	if len(texts) == 0 {
		return nil, "", redisx.Fail(redisx.IsTexts.Check(nil))
	}
	return texts[1:], base64.RawURLEncoding.EncodeToString([]byte(texts[0])), nil
}

// Cardinalities implements [store.Engine].
func (ks *OneSlot) Cardinalities(ctx context.Context, indexes []recordkey.Key) ([]int64, error) {
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

// HasMembers implements [store.Engine]. With atOnce it uses a transaction if all keys are on one
// server.
func (ks *OneSlot) HasMembers(ctx context.Context, members []store.Member, atOnce bool) ([]bool, error) {
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
func (ks *OneSlot) Order(ctx context.Context, o store.Order) ([]string, error) {
	command, from, to := "zrangebylex", o.Min.Lex("-"), o.Max.Lex("+")
	if o.Reverse {
		command, from, to = "zrevrangebylex", to, from
	}
	args := []any{command, o.Key.String(), from, to, "limit", 0, o.Count}
	if o.Skip > 0 { // by rank, which takes no longer if more members are skipped
		args = []any{"zrange", o.Key.String(), o.Skip, o.Skip + int64(o.Count) - 1}
		if o.Reverse {
			args = append(args, "rev")
		}
	}
	members, err := ks.client.Do(ctx, args...).StringSlice()
	return members, readError(o.Key, err, NotSortedSet)
}

// CountOrder implements [store.Engine].
func (ks *OneSlot) CountOrder(ctx context.Context, o store.Order) (int64, error) {
	n, err := ks.client.Do(ctx, "zlexcount", o.Key.String(), o.Min.Lex("-"), o.Max.Lex("+")).Int64()
	return n, readError(o.Key, err, NotSortedSet)
}

// NotSortedSet describes the damage of an ordered index that has another Redis type.
const NotSortedSet = "an ordered index that is not a sorted set (WRONGTYPE)"
