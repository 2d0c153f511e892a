package redisx_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

func TestEvicts(t *testing.T) {
	ctx := context.Background()
	for _, test := range []struct {
		name string
		opts []redistest.Option
		user bool // one that may not ask
		want string
	}{
		{name: "as it is by default"},
		{name: "evicting", opts: []redistest.Option{redistest.Config("maxmemory-policy allkeys-lru")}, want: "the server has maxmemory-policy allkeys-lru: "},
		{name: "evicting what expires", opts: []redistest.Option{redistest.Config("maxmemory-policy volatile-ttl")}, want: "set maxmemory-policy noeviction"},
		{name: "a replica", opts: []redistest.Option{redistest.Config("replicaof 127.0.0.1 1")}, want: "the server is a replica"},
		{
			name: "INFO is forbidden", user: true,
			opts: []redistest.Option{redistest.Config("maxmemory-policy allkeys-lru", "user app on nopass ~* +@all -info")},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			srv := redistest.Start(t, test.opts...)
			o := &redis.Options{Addr: srv.Addr()}
			if test.user {
				o.Username, o.Password = "app", "any"
			}
			c := redis.NewClient(o)
			defer c.Close()
			got := strings.Join(redisx.Evicts(ctx, c, "the server"), "; ")
			if !strings.Contains(got, test.want) || test.want == "" && got != "" {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestOneSlot(t *testing.T) {
	ctx := context.Background()
	server := redistest.Start(t)
	if err := redisx.OneSlot(ctx, server.Client()); err != nil {
		t.Errorf("one server: %v", err)
	}
	node := redistest.Start(t, redistest.Config("cluster-enabled yes"))
	err := redisx.OneSlot(ctx, node.Client())
	if !errors.Is(err, store.ErrUnsuitable) || !strings.Contains(err.Error(), "redis+cluster://HOST:PORT") {
		t.Errorf("a node of a cluster: got %v, want one that says what to change", err)
	}
}
