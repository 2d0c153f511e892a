package testdb

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

// EachEngine runs a test on the stores of EachStore, and on the cluster engine with one server as
// its whole cluster.
func EachEngine(t *testing.T, test func(t *testing.T, s *Site)) {
	t.Helper()
	EachStore(t, test)
	t.Run("cluster", func(t *testing.T) { test(t, AsCluster(t, DefaultSchema())) })
}

// AsCluster opens the store of a real server with the cluster engine. The server is the whole
// cluster.
func AsCluster(t *testing.T, sch schema.Schema) *Site {
	t.Helper()
	s := Open(t, ServerClient(t), recordkey.Namespace{}, sch)
	s.Edit(t, func(c *view.Config) { c.Engine = FakeClockEngine(s.client) })
	return s
}

// Edit replaces the site's DB with one whose configuration f has changed.
func (s *Site) Edit(t *testing.T, f func(*view.Config)) {
	t.Helper()
	var err error
	if s.DB, err = view.Reconfigure(s.DB, f); err != nil {
		t.Fatal(err)
	}
}

// Under returns a site for the same store with another schema.
func (s *Site) Under(t *testing.T, sch schema.Schema) *Site {
	t.Helper()
	if _, ok := view.Of(s.DB).Engine.(*cluster.Engine); ok {
		return AsCluster(t, sch)
	}
	return Open(t, s.Raw, s.NS, sch)
}

// skipped is the time.Duration by which the clocks of cluster engines are ahead. Tests skip time
// because a cluster engine trusts a schema for some seconds after reading it.
var skipped atomic.Int64

// AdvanceClock advances by d the clocks of all cluster engines that FakeClockEngine returns.
func AdvanceClock(d time.Duration) { skipped.Add(int64(d)) }

// FakeClockEngine returns a cluster engine that advances its clock in place of long sleeps, such as
// those in which it waits for writers in other processes.
func FakeClockEngine(client redis.UniversalClient) *cluster.Engine {
	return cluster.New(client, cluster.Options{
		Now: func() time.Time { return time.Now().Add(time.Duration(skipped.Load())) },
		Sleep: func(ctx context.Context, d time.Duration) error {
			if d > time.Second {
				AdvanceClock(d)
			}
			time.Sleep(min(d, 5*time.Millisecond))
			return ctx.Err()
		},
	})
}

// TwoEngines runs a test on one server with each of the two engines, single and cluster. It is for
// tests that stop an engine at any command.
func TwoEngines(t *testing.T, test func(t *testing.T, s *Site)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) { test(t, Open(t, ServerClient(t), Space(t, "acme/[*]"), DefaultSchema())) })
	t.Run("cluster", func(t *testing.T) { test(t, AsCluster(t, DefaultSchema())) })
}
