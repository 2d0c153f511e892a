package single

import (
	"context"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// Scan implements [store.Engine].
func (e *Engine) Scan(ctx context.Context, pattern, cursor string, count int) ([]string, string, error) {
	at, err := redisx.ParseCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	if e.options.Match {
		keys, next, err := e.client.Scan(ctx, at.At, "", int64(count)).Result()
		keys = slices.DeleteFunc(keys, func(k string) bool { return !match(pattern, k) })
		return keys, redisx.Cursor{At: next}.String(), redisx.Fail(err)
	}
	keys, at, err := redisx.Scan(ctx, e.client, at, func(pipe redis.Pipeliner, at uint64) *redis.ScanCmd {
		return pipe.Scan(ctx, at, pattern, int64(count))
	})
	return keys, at.String(), redisx.Fail(err)
}

// ScanIndex implements [store.Engine]. The embedded server's cursors count members: one that leaves
// the set would make another be missed, so a set is read there at once.
func (e *Engine) ScanIndex(ctx context.Context, index recordkey.Key, cursor string, count int) ([]string, string, error) {
	at, err := redisx.ParseCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	if e.options.Match {
		prks, err := e.client.SMembers(ctx, index.String()).Result()
		return prks, "", indexError(index, err)
	}
	prks, at, err := e.members(ctx, index, at, count)
	return prks, at.String(), indexError(index, err)
}

// members takes one step over an index.
func (e *Engine) members(ctx context.Context, index recordkey.Key, at redisx.Cursor, count int) ([]string, redisx.Cursor, error) {
	value, err := membersScript.Read(ctx, e.sender.Process, []string{index.String()}, []string{strconv.FormatUint(at.At, 10), at.Process, strconv.Itoa(count)})
	if err != nil {
		return nil, at, err
	}
	reply := items(value)
	if err := redisx.AsMany(len(reply), 3); err != nil {
		return nil, at, err
	}
	next, err := redisx.ParseCursor(text(reply, 1) + "_" + text(reply, 0))
	if err != nil {
		return nil, at, redisx.IsText.Check(nil)
	}
	members := items(reply[2])
	prks := make([]string, len(members))
	for i := range members {
		prks[i] = text(members, i)
	}
	return prks, next, nil
}

func indexError(index recordkey.Key, err error) error {
	if redisx.WrongType(err) {
		return &store.CorruptError{Key: index.String(), Reason: "an index that is not a set (WRONGTYPE)"}
	}
	return redisx.Fail(err)
}

// Sizes implements [store.Engine].
func (e *Engine) Sizes(ctx context.Context, indexes []recordkey.Key) ([]int64, error) {
	pipe := e.client.Pipeline()
	cmds := make([]*redis.IntCmd, len(indexes))
	for i, k := range indexes {
		cmds[i] = pipe.SCard(ctx, k.String())
	}
	if err := run(ctx, pipe); err != nil {
		return nil, err
	}
	sizes := make([]int64, len(cmds))
	for i, cmd := range cmds {
		if cmd.Err() != nil {
			if !redisx.WrongType(cmd.Err()) {
				return nil, redisx.Fail(cmd.Err())
			}
			return nil, &store.CorruptError{Key: indexes[i].String(), Reason: cmd.Err().Error()}
		}
		sizes[i] = cmd.Val()
	}
	return sizes, nil
}

// Holds implements [store.Engine].
func (e *Engine) Holds(ctx context.Context, members []store.Member) ([]bool, error) {
	return holds(ctx, e.client.Pipeline(), members)
}

// HoldsAtOnce implements [store.Engine] by a transaction.
func (e *Engine) HoldsAtOnce(ctx context.Context, members []store.Member) ([]bool, error) {
	return holds(ctx, e.client.TxPipeline(), members)
}

func holds(ctx context.Context, pipe redis.Pipeliner, members []store.Member) ([]bool, error) {
	cmds := make([]*redis.BoolCmd, len(members))
	for i, m := range members {
		cmds[i] = pipe.SIsMember(ctx, m.Set.String(), m.Value)
	}
	if err := run(ctx, pipe); err != nil {
		return nil, err
	}
	has := make([]bool, len(cmds))
	for i, cmd := range cmds {
		if err := cmd.Err(); err != nil && !redisx.WrongType(err) {
			return nil, redisx.Fail(err)
		}
		has[i] = cmd.Val() // false for a record of another type
	}
	return has, nil
}

// run sends a pipeline whose commands are judged one by one.
func run(ctx context.Context, pipe redis.Pipeliner) error {
	if pipe.Len() == 0 {
		return nil
	}
	cmds, err := pipe.Exec(ctx)
	return answered(cmds, err)
}

// answered is the error of commands that were not all answered; what one of them was answered stands there.
func answered(cmds []redis.Cmder, err error) error {
	if err != nil && !redisx.IsAnswer(err) {
		return redisx.Fail(err)
	}
	for _, cmd := range cmds {
		if redisx.Refused(cmd.Err()) {
			return redisx.Fail(cmd.Err())
		}
	}
	return nil
}
