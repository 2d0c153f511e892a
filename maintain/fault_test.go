package maintain_test

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/maintain"
	"github.com/coffeenode/userdb/recordkey"
)

// A fault loses the connection at one round trip, and at all that follow.
type fault struct {
	left atomic.Int64 // round trips until then
	met  atomic.Bool
}

var errLost = errors.New("connection lost")

func (f *fault) set(n int) {
	f.left.Store(int64(n))
	f.met.Store(false)
}

func (f *fault) lose() bool {
	lost := f.left.Add(-1) < 0
	if lost {
		f.met.Store(true)
	}
	return lost
}

func (f *fault) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *fault) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if f.lose() {
			cmd.SetErr(errLost)
			return errLost
		}
		return next(ctx, cmd)
	}
}

func (f *fault) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if f.lose() {
			return errLost
		}
		return next(ctx, cmds)
	}
}

// TestFaults loses the connection at every round trip in turn: each verb must say so, and never end
// as if all were well.
func TestFaults(t *testing.T) {
	s := open(t, embeddedClient(t), recordkey.Namespace{}, house())
	s.clean(t)
	for n, d := range damages {
		s.user(t, n+1)
		s.damage(t, d, n+1)
	}
	for i := range 2000 {
		s.do(t, "SADD", "user/uid:u0/tags", string(rune('à'+i)))
	}
	f := &fault{}
	s.raw.AddHook(f)
	step := 1
	if raced {
		step = 7
	}
	check := func(o maintain.CheckOptions) func() error {
		return func() (last error) {
			for _, err := range maintain.Check(s.ctx, s.db, o) {
				if last != nil {
					t.Error("Check goes on behind an error")
				}
				last = err
			}
			return last
		}
	}
	for name, verb := range map[string]func() error{
		"check":         check(maintain.CheckOptions{}),
		"check by UID":  check(maintain.CheckOptions{Only: hints.UID("u4").Of("user")}),
		"check by any":  check(maintain.CheckOptions{Only: hints.Any("name of u30").Of("user")}),
		"dump":          func() error { return maintain.Dump(s.ctx, s.db, &bytes.Buffer{}, maintain.DumpOptions{}) },
		"stored schema": func() error { _, err := maintain.StoredSchema(s.ctx, s.db); return err },
		"password hash": func() error { _, err := maintain.PasswordHash(s.ctx, s.db, "user", hints.UID("u0")); return err },
	} {
		for n := 0; ; n += step {
			f.set(n)
			err := verb()
			if !f.met.Load() {
				if err != nil {
					t.Errorf("%s, undisturbed: %v", name, err)
				}
				break
			}
			if !errors.Is(err, errLost) {
				t.Errorf("%s, lost at round trip %d: %v", name, n, err)
			}
		}
		f.set(1 << 30)
	}
}
