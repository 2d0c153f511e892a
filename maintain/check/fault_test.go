package check_test

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/inspect"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/recordkey"
)

// A fault breaks the connection at one round trip and at all later ones.
type fault struct {
	remaining atomic.Int64 // round trips that still succeed
	failed    atomic.Bool
}

var errLost = errors.New("connection lost")

func (f *fault) set(n int) {
	f.remaining.Store(int64(n))
	f.failed.Store(false)
}

func (f *fault) fail() bool {
	failed := f.remaining.Add(-1) < 0
	if failed {
		f.failed.Store(true)
	}
	return failed
}

func (f *fault) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *fault) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if f.fail() {
			cmd.SetErr(errLost)
			return errLost
		}
		return next(ctx, cmd)
	}
}

func (f *fault) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if f.fail() {
			return errLost
		}
		return next(ctx, cmds)
	}
}

// TestFaults breaks the connection at one round trip after another. Each operation must return the
// error and must never report success. Short tests and tests for races leave out some round trips.
func TestFaults(t *testing.T) {
	s := newSite(testdb.Open(t, testdb.EmbeddedClient(t), recordkey.Namespace{}, testdb.DefaultSchema()))
	s.Clean(t)
	for n, d := range damageCases {
		s.User(t, n+1)
		s.damage(t, d, n+1)
	}
	for i := range 2000 {
		s.Do(t, "SADD", "user/uid:u0/tags", string(rune('à'+i)))
	}
	f := &fault{}
	s.Raw.AddHook(f)
	step := 1
	switch {
	case testdb.RaceEnabled:
		step = 7
	case testing.Short():
		step = 3
	}
	problems := func(o check.Options) func() error {
		return func() (last error) {
			for _, err := range check.Run(s.Ctx, s.DB, o) {
				if last != nil {
					t.Error("the check continued after an error")
				}
				last = err
			}
			return last
		}
	}
	for name, operation := range map[string]func() error{
		"check":         problems(check.Options{}),
		"check by UID":  problems(check.Options{Only: hints.UID("u4").Of("user")}),
		"check by any":  problems(check.Options{Only: hints.Any("name of u30").Of("user")}),
		"dump":          func() error { return inspect.Dump(s.Ctx, s.DB, &bytes.Buffer{}, inspect.Options{}) },
		"stored schema": func() error { _, err := migrate.StoredSchema(s.Ctx, s.DB); return err },
		"password hash": func() error { _, err := transfer.PasswordHash(s.Ctx, s.DB, "user", hints.UID("u0")); return err },
	} {
		for n := 0; ; n += step {
			f.set(n)
			err := operation()
			if !f.failed.Load() {
				if err != nil {
					t.Errorf("%s without a fault: got %v, want no error", name, err)
				}
				break
			}
			if !errors.Is(err, errLost) {
				t.Errorf("%s, connection lost at round trip %d: got %v, want errLost", name, n, err)
			}
		}
		f.set(1 << 30)
	}
}
