package userdb_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/recordkey"
)

// A tap is a hook of a store's clients that lets a test see, and change, each round trip. It does
// nothing unless a function is set.
type tap struct {
	pass atomic.Pointer[passage]
}

// A passage handles one round trip. It calls send to send the commands.
type passage func(ctx context.Context, cmds []redis.Cmder, send func() error) error

var _ redis.Hook = (*tap)(nil)

// set makes p handle every further round trip. If p is nil, the tap only forwards them.
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

// handshake reports whether a client sends the commands when it connects.
func handshake(cmds []redis.Cmder) bool {
	name := strings.ToLower(cmds[0].Name())
	return name == "hello" || name == "client" || name == "auth" || name == "select"
}

// count returns the number of round trips that do makes.
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

// isWrite reports whether a command runs a script whose first key is an entry. The scripts that
// change one entry are of this kind, and so is read.lua. creates.lua, which creates several
// entries, is not.
func isWrite(cmds []redis.Cmder) bool {
	name, args := strings.ToLower(cmds[0].Name()), cmds[0].Args()
	if name != "evalsha" && name != "eval" || len(args) < 4 {
		return false
	}
	key, err := recordkey.Parse(argument(args[3]))
	return err == nil && key.Kind() == recordkey.KindPRK
}

// argument returns the text of a command's argument.
func argument(arg any) string {
	switch arg := arg.(type) {
	case string:
		return arg
	case *string:
		return *arg
	}
	return ""
}

// lose makes the next n writes fail with err. If done is set, the server carries them out and only
// their replies are lost. If at is not nil, lose calls it at every loss.
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
