package single

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

//go:embed scripts/order.lua
var orderLua string

var orderScript = redisx.NewScript(orderLua, redisx.IsVerdict)

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

// Occupy implements [store.Engine]: one script, which may arrive twice.
func (e *Engine) Occupy(ctx context.Context, entry recordkey.Key, p store.Ranked) error {
	return e.order(ctx, "settle", entry, p)
}

// Vacate implements [store.Engine].
func (e *Engine) Vacate(ctx context.Context, entry recordkey.Key, p store.Ranked) error {
	return e.order(ctx, "vacate", entry, p)
}

func (e *Engine) order(ctx context.Context, how string, entry recordkey.Key, p store.Ranked) error {
	keys := []string{p.Key.String()}
	if entry.IsValid() {
		keys = append(keys, entry.String())
	}
	_, _, err := e.write(ctx, orderScript, keys, []string{p.Member, p.Facet.Field, p.Facet.Wire, how})
	if redisx.WrongType(err) {
		return notOrdered(p.Key)
	}
	if err != nil {
		return fmt.Errorf("settling a place in %s: %w", p.Key, err)
	}
	return nil
}
