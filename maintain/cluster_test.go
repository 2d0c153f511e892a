package maintain_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store/cluster"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// eachEngine is eachStore, and the engine of clusters over one server, which is a cluster of one.
func eachEngine(t *testing.T, test func(t *testing.T, s *site)) {
	t.Helper()
	eachStore(t, test)
	t.Run("cluster", func(t *testing.T) { test(t, asCluster(t, house())) })
}

func asCluster(t *testing.T, sch schema.Schema) *site {
	t.Helper()
	s := open(t, serverClient(t), recordkey.Namespace{}, sch)
	s.edit(t, func(c *view.Config) { c.Engine = hurried(s.raw) })
	return s
}

// edit makes the site's DB anew, of another configuration.
func (s *site) edit(t *testing.T, f func(*view.Config)) {
	t.Helper()
	var err error
	if s.db, err = view.With(s.db, f); err != nil {
		t.Fatal(err)
	}
}

// under is the same store with another schema.
func (s *site) under(t *testing.T, sch schema.Schema) *site {
	t.Helper()
	if _, is := view.Of(s.db).Engine.(*cluster.Engine); is {
		return asCluster(t, sch)
	}
	return open(t, s.raw, s.ns, sch)
}

// skipped is how far the clocks of cluster engines have been put on: they go on for some seconds by what
// they know of a schema.
var skipped atomic.Int64

func skip(d time.Duration) { skipped.Add(int64(d)) }

// hurried is an engine of clusters that waits for writers of other processes by putting its clock on.
func hurried(client redis.UniversalClient) *cluster.Engine {
	return cluster.New(client, cluster.Options{
		Now: func() time.Time { return time.Now().Add(time.Duration(skipped.Load())) },
		Sleep: func(ctx context.Context, d time.Duration) error {
			if d > time.Second {
				skip(d)
			}
			time.Sleep(min(d, 5*time.Millisecond))
			return ctx.Err()
		},
	})
}

// twoEngines is for tests that stop an engine at any command: one server, and as a cluster.
func twoEngines(t *testing.T, test func(t *testing.T, s *site)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) { test(t, open(t, serverClient(t), space(t, "acme/[*]"), house())) })
	t.Run("cluster", func(t *testing.T) { test(t, asCluster(t, house())) })
}
