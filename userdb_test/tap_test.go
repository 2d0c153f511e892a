package userdb_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/recordkey"
)

// A tap stands between a store and its clients, and lets a test look at what passes: the commands of
// one round trip, which send sends on. It passes on all where none is set.
type tap struct {
	pass atomic.Pointer[passage]
}

type passage func(ctx context.Context, cmds []redis.Cmder, send func() error) error

var _ redis.Hook = (*tap)(nil)

// set makes p see every further round trip; nil: nobody.
func (t *tap) set(p passage) {
	if p == nil {
		t.pass.Store(nil)
		return
	}
	t.pass.Store(&p)
}

// DialHook implements redis.Hook.
func (t *tap) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook implements redis.Hook.
func (t *tap) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return t.through(ctx, []redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook implements redis.Hook.
func (t *tap) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return t.through(ctx, cmds, func() error { return next(ctx, cmds) })
	}
}

func (t *tap) through(ctx context.Context, cmds []redis.Cmder, send func() error) error {
	pass := t.pass.Load()
	if pass == nil || handshake(cmds) {
		return send()
	}
	return (*pass)(ctx, cmds, send)
}

// handshake knows what a client sends when it connects.
func handshake(cmds []redis.Cmder) bool {
	name := strings.ToLower(cmds[0].Name())
	return name == "hello" || name == "client" || name == "auth" || name == "select"
}

// count counts the round trips of do.
func (t *tap) count(do func()) (roundTrips int64) {
	var n atomic.Int64
	t.set(func(_ context.Context, _ []redis.Cmder, send func() error) error {
		n.Add(1)
		return send()
	})
	defer t.set(nil)
	do()
	return n.Load()
}

// isWrite reports whether a command is a script on an entry, which is how the store changes one.
func isWrite(cmds []redis.Cmder) bool {
	name, args := strings.ToLower(cmds[0].Name()), cmds[0].Args()
	if name != "evalsha" && name != "eval" || len(args) < 4 {
		return false
	}
	key, err := recordkey.Parse(argument(args[3]))
	return err == nil && key.Kind() == recordkey.KindPRK
}

// argument is the text of a command's argument.
func argument(arg any) string {
	switch arg := arg.(type) {
	case string:
		return arg
	case *string:
		return *arg
	}
	return ""
}

// lose makes the next n answers to writes get lost with err, after the server carried it out if done, before it else.
// It calls at, if that is not nil, at every loss.
func (t *tap) lose(n int, done bool, err error, at func(loss int)) {
	var lost atomic.Int64
	t.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		if !isWrite(cmds) || lost.Load() >= int64(n) {
			return send()
		}
		if done {
			if answer := send(); redis.HasErrorPrefix(answer, "NOSCRIPT") {
				return answer
			}
		}
		loss := lost.Add(1)
		if at != nil {
			at(int(loss))
		}
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
		return err
	})
}
