package single

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// Order implements [store.Engine].
func (e *Engine) Order(ctx context.Context, o store.Order) ([]string, error) {
	command, from, to := "zrangebylex", o.Min.Lex("-"), o.Max.Lex("+")
	if o.Reverse {
		command, from, to = "zrevrangebylex", to, from
	}
	members, err := e.client.Do(ctx, command, o.Key.String(), from, to, "limit", 0, o.Count).StringSlice()
	if redisx.WrongType(err) {
		return nil, notOrdered(o.Key)
	}
	return members, redisx.Fail(err)
}

func notOrdered(key recordkey.Key) error {
	return &store.CorruptError{Key: key.String(), Reason: "an ordered index that is not a sorted set (WRONGTYPE)"}
}

// Placed implements [store.Engine].
func (e *Engine) Placed(ctx context.Context, places []store.Ranked) ([]bool, error) {
	pipe := e.client.Pipeline()
	cmds := make([]*redis.FloatCmd, len(places))
	for i, p := range places {
		cmds[i] = pipe.ZScore(ctx, p.Key.String(), p.Member)
	}
	if err := run(ctx, pipe); err != nil {
		return nil, err
	}
	placed := make([]bool, len(cmds))
	for i, cmd := range cmds {
		if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) && !redisx.WrongType(err) {
			return nil, redisx.Fail(err)
		}
		placed[i] = cmd.Err() == nil
	}
	return placed, nil
}
