package testdb

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// A Cut is a hook that lets the next Left commands or pipelines through and makes all later ones
// fail with ErrCut.
type Cut struct{ Left atomic.Int64 }

// ErrCut is the error of the commands that a Cut does not let through.
var ErrCut = errors.New("cut")

func (c *Cut) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *Cut) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if c.Left.Add(-1) < 0 {
			cmd.SetErr(ErrCut)
			return ErrCut
		}
		return next(ctx, cmd)
	}
}

func (c *Cut) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if c.Left.Add(-1) < 0 {
			for _, cmd := range cmds {
				cmd.SetErr(ErrCut)
			}
			return ErrCut
		}
		return next(ctx, cmds)
	}
}
