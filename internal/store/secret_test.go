package store_test

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/cluster"
	"github.com/coffeenode/userdb/internal/store/single"
	"github.com/coffeenode/userdb/recordkey"
)

// A rival is a client hook that acts as another process. If rounds is above 0 when a command sets a
// key, it stores a text under the key just before the command, removes the text just after, and
// decrements rounds.
type rival struct {
	raw    *redis.Client
	rounds int
}

func (*rival) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *rival) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.HasPrefix(cmd.Name(), "set") || r.rounds == 0 {
			return next(ctx, cmd)
		}
		r.rounds--
		key := cmd.Args()[1].(string)
		r.raw.Set(ctx, key, "other", 0)
		defer r.raw.Del(ctx, key)
		return next(ctx, cmd)
	}
}

func (*rival) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestSecretIsRemoved checks that Secret tries again if the text of another process is removed
// before it can be read.
func TestSecretIsRemoved(t *testing.T) {
	srv := redistest.Shared(t)
	h := &rival{raw: srv.Client()}
	c := srv.Client()
	c.AddHook(h)
	for name, e := range map[string]store.Engine{
		"one server": single.New(c, single.Options{}), "a cluster": cluster.New(c, cluster.Options{}),
	} {
		t.Run(name, func(t *testing.T) {
			h.rounds = 2
			key, _ := recordkey.Own("secret", name) // a valid key
			if got, err := e.Secret(t.Context(), key, "mine"); got != "mine" || err != nil || h.rounds != 0 {
				t.Errorf("got %q, %v after %d removals; want mine after 2", got, err, 2-h.rounds)
			}
		})
	}
}
