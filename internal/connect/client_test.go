package connect

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/cluster"
	"github.com/coffeenode/userdb/internal/store/single"
)

func TestUse(t *testing.T) {
	addrs := []string{"127.0.0.1:1"}
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": addrs[0]}})
	t.Cleanup(func() { ring.Close() })
	for _, tt := range []struct {
		name   string
		client redis.UniversalClient
		want   string // part of the error
	}{
		{"one server", redis.NewClient(&redis.Options{Addr: addrs[0]}), ""},
		{"a cluster", redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs}), ""},
		{"nil", nil, "nil"},
		{"reads from replicas", redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ReadOnly: true}), "leave ReadOnly, RouteByLatency and RouteRandomly off"},
		{"routes by latency", redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, RouteByLatency: true}), "leave ReadOnly, RouteByLatency and RouteRandomly off"},
		{"routes randomly", redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, RouteRandomly: true}), "leave ReadOnly, RouteByLatency and RouteRandomly off"},
		{"answers from a cache", redis.NewClient(&redis.Options{Addr: addrs[0], ClientSideCacheConfig: &redis.ClientSideCacheConfig{}}), "answers from a cache"},
		{"answers from a cache of its own", redis.NewClient(&redis.Options{Addr: addrs[0], ClientSideCache: redis.NewLocalCache(redis.CacheConfig{})}), "answers from a cache"},
		{"a ring", ring, "want *redis.Client or *redis.ClusterClient"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			engine, err := Use(tt.client, store.Cache{})
			if tt.want != "" {
				if !errors.Is(err, store.ErrUnsuitable) || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %v, want ErrUnsuitable with %q", err, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			_, clustered := engine.(*cluster.Engine)
			_, isSingle := engine.(*single.Engine)
			if _, is := tt.client.(*redis.ClusterClient); clustered != is || isSingle == is {
				t.Errorf("got engine %T, want a single.Engine for a redis.Client and a cluster.Engine for a ClusterClient", engine)
			}
			tt.client.Close()
		})
	}
}

func TestOpenRefusesReplicas(t *testing.T) {
	for _, url := range []string{
		"redis+cluster://127.0.0.1:1?read_only=true",
		"redis+cluster://127.0.0.1:1?route_by_latency=true",
		"redis+sentinel://127.0.0.1:1?master_name=m&route_randomly=true",
	} {
		if _, err := Open(context.Background(), url, store.Cache{}); err == nil || !strings.Contains(err.Error(), "replicas, which may be behind") {
			t.Errorf("%s: got %v, want a refusal", url, err)
		}
	}
}
