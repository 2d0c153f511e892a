package cluster

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
)

// TestReloadDeadline stops the one node that all slots belong to, by what the client knows, and has the next one asked for
// the state answer nothing either: that has a deadline, another is asked, and the command goes where it belongs by then.
func TestReloadDeadline(t *testing.T) {
	first, second := redistest.Start(t), redistest.Start(t)
	var failed, stuck, endless atomic.Int32
	slots := func(ctx context.Context) ([]redis.ClusterSlot, error) {
		addr := first.Addr()
		if failed.Load() > 0 {
			if addr = second.Addr(); stuck.Add(1) == 1 {
				if _, ends := ctx.Deadline(); !ends {
					endless.Add(1)
					return nil, errors.New("no deadline")
				}
				<-ctx.Done()
				return nil, ctx.Err()
			}
		}
		return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
	}
	cc := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: slots, MaxRedirects: -1, DialerRetries: 1})
	t.Cleanup(func() { cc.Close() })
	e, ctx := New(cc, Options{}), t.Context()
	if is, err := e.exists(ctx, "x"); is || err != nil {
		t.Fatal(is, err)
	}
	if err := second.Client().Set(ctx, "x", "y", 0).Err(); err != nil {
		t.Fatal(err)
	}
	failed.Add(1)
	first.Kill()
	if is, err := e.exists(ctx, "x"); !is || err != nil || endless.Load() > 0 {
		t.Errorf("got %v, %v, %d times without a deadline; want the record at the node that took over", is, err, endless.Load())
	}
	if n := stuck.Load(); n < 2 {
		t.Errorf("asked %d times for the state, want a second time behind the deadline", n)
	}
}
