package testdb

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
)

// A Losing is a hook that makes a server without an append-only file lose writes. It makes a
// snapshot before the first command that Keep selects. Before the next command that Lose selects,
// it kills and restarts the server. Lost is then true.
type Losing struct {
	T          testing.TB
	Server     *redistest.Server
	Keep, Lose func(cmd redis.Cmder) bool
	Lost       atomic.Bool

	kept atomic.Bool
	busy sync.RWMutex // held for reading by commands under way
}

// before makes the server save its data before the first command that Keep selects, and restart
// before the next one that Lose selects.
func (l *Losing) before(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		switch {
		case !l.kept.Load() && l.Keep(cmd) && l.kept.CompareAndSwap(false, true):
			c := l.Server.Client()
			if err := c.Save(context.Background()).Err(); err != nil {
				l.T.Error(err)
			}
			c.Close()
		case l.kept.Load() && !l.Lost.Load() && l.Lose(cmd):
			l.busy.Lock()
			if l.Lost.CompareAndSwap(false, true) {
				l.Server.Kill()
				l.Server.Restart()
			}
			l.busy.Unlock()
		}
	}
}

// enter calls before, and then keeps the server running until done is called. The commands that
// open a connection for a command belong to it.
func (l *Losing) enter(ctx context.Context, cmds ...redis.Cmder) (inside context.Context, done func()) {
	if ctx.Value(l) != nil {
		return ctx, func() {}
	}
	l.before(cmds...)
	l.busy.RLock()
	return context.WithValue(ctx, l, true), l.busy.RUnlock
}

func (l *Losing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *Losing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		ctx, done := l.enter(ctx, cmd)
		defer done()
		return next(ctx, cmd)
	}
}

func (l *Losing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		ctx, done := l.enter(ctx, cmds...)
		defer done()
		return next(ctx, cmds)
	}
}
