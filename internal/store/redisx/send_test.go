package redisx_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store/redisx"
)

// The slot of foo is 12182, and that of a is 15495.
const firstKey, secondKey = "foo", "a"

// newTwoNodeClient returns a client of a cluster in which firstKey is on the first node and
// secondKey on the second.
func newTwoNodeClient(t *testing.T, h *batchRecorder) *redisx.Client {
	first, second := miniredis.RunT(t).Addr(), miniredis.RunT(t).Addr()
	cc := redis.NewClusterClient(&redis.ClusterOptions{
		ContextTimeoutEnabled: true,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{
				{Start: 0, End: 12182, Nodes: []redis.ClusterNode{{Addr: first}}},
				{Start: 12183, End: 16383, Nodes: []redis.ClusterNode{{Addr: second}}},
			}, nil
		},
	})
	t.Cleanup(func() { cc.Close() })
	cc.OnNewNode(func(node *redis.Client) { node.AddHook(h) })
	return redisx.NewClient(cc, redisx.Retry{}, false)
}

// TestSlowNodeDelaysNoOther checks that a node that does not answer delays no callers of another
// node, even when so many callers wait for it that no further batch can be sent to it.
func TestSlowNodeDelaysNoOther(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	asked, release := make(chan struct{}), make(chan struct{})
	c := newTwoNodeClient(t, &batchRecorder{before: func(cmd redis.Cmder) {
		if slices.Contains(cmd.Args(), any(secondKey)) {
			select {
			case asked <- struct{}{}:
			case <-release:
			}
			<-release
		}
	}})
	var all sync.WaitGroup
	// Start the callers of the slow node one after the other, so that no two share a flush.
	for range redisx.BatchThreshold + redisx.MaxFlushes {
		all.Go(func() {
			if err := c.Process(ctx, redis.NewCmd(ctx, "incr", secondKey)); err != nil {
				t.Error(err)
			}
		})
		<-asked
	}
	for i := range 100 {
		if err := c.Process(ctx, redis.NewCmd(ctx, "set", firstKey, i)); err != nil {
			t.Error(err)
			break
		}
	}
	close(release)
	all.Wait()
}

// TestCallersOfNodeShareRoundTrips checks that many concurrent callers of one cluster node share
// round trips, and that each gets the reply to its own command.
func TestCallersOfNodeShareRoundTrips(t *testing.T) {
	// Each command takes a millisecond, so that others arrive meanwhile.
	h, ctx := &batchRecorder{before: func(redis.Cmder) { time.Sleep(time.Millisecond) }}, t.Context()
	c := newTwoNodeClient(t, h)
	var all sync.WaitGroup
	for i := range 500 {
		all.Go(func() {
			key := fmt.Sprintf("{%s}%d", []string{firstKey, secondKey}[i%2], i)
			if err := c.Process(ctx, redis.NewCmd(ctx, "set", key, i)); err != nil {
				t.Error(err)
			}
			cmd := redis.NewStringCmd(ctx, "get", key)
			if err := c.Process(ctx, cmd); err != nil || cmd.Val() != fmt.Sprint(i) {
				t.Errorf("get %s: got %q, %v, want %d", key, cmd.Val(), err, i)
			}
		})
	}
	all.Wait()
	if h.largest < 2 {
		t.Error("each command had a round trip of its own, want some to share one")
	}
}

// batchRecorder records the largest number of commands in one round trip.
type batchRecorder struct {
	before func(redis.Cmder) // called with the first command before each round trip

	sync.Mutex
	largest int
}

func (h *batchRecorder) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *batchRecorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.before(cmd)
		return next(ctx, cmd)
	}
}

func (h *batchRecorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.before(cmds[0])
		h.Lock()
		h.largest = max(h.largest, len(cmds))
		h.Unlock()
		return next(ctx, cmds)
	}
}
