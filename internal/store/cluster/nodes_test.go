package cluster

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

// TestLocate continues scans on masters that are the same as before, have been replaced, or have
// become fewer.
func TestLocate(t *testing.T) {
	a, b, c := master{addr: "10.0.0.2:7000"}, master{addr: "10.0.0.3:7000", mark: 1}, master{addr: "host-c:7000", mark: 4}
	of := func(m master, mark int) master { m.mark = mark; return m }
	first := master{addr: "10.0.0.1:7000"} // before all others in the order of addresses
	at := redisx.Cursor{At: 42, Process: "9f0c3a1e"}
	var begin redisx.Cursor
	for _, tt := range []struct {
		name    string
		masters []master
		cursor  string
		i       int
		at      redisx.Cursor
		err     error
	}{
		{"an empty cursor", []master{a, b}, "", 0, begin, nil},
		{"a master that is still there", []master{a, b, c}, b.cursor(at), 1, at, nil},
		{"a name with dashes", []master{a, b, c}, c.cursor(redisx.Cursor{At: 7}), 2, redisx.Cursor{At: 7}, nil},
		{"the beginning of a master", []master{a, b, c}, b.cursor(begin), 1, begin, nil},
		{"a master that was replaced: its shard begins again", []master{a, of(first, 1), c}, b.cursor(at), 1, begin, nil},
		{"an earlier master was replaced", []master{first, b, c}, b.cursor(at), 1, at, nil},
		{"a later master was replaced", []master{a, b, of(first, 4)}, b.cursor(at), 1, at, nil},
		{"all masters were replaced", []master{of(c, 0), of(a, 1), of(b, 4)}, of(first, 4).cursor(at), 2, begin, nil},
		{"a shard in the middle is gone", []master{a, c}, b.cursor(at), 1, begin, nil},
		{"all later shards are gone", []master{a}, c.cursor(at), 0, begin, nil},
		{"a text that is not a cursor", []master{a}, "x", 0, begin, store.ErrCursor},
		{"a mark that is not a number", []master{a}, "x-10_0_0_2:7000-1", 0, begin, store.ErrCursor},
		{"an invalid cursor of a master", []master{a}, "0-10_0_0_2:7000-x", 0, begin, store.ErrCursor},
		{"a cursor below zero", []master{a}, "0-10_0_0_2:7000--1", 0, begin, store.ErrCursor},
		{"a mark below zero", []master{a}, "-1-10_0_0_2:7000-1", 0, begin, store.ErrCursor},
	} {
		i, at, err := locate(tt.masters, tt.cursor)
		if i != tt.i || at != tt.at || !errors.Is(err, tt.err) {
			t.Errorf("%s: got master %d, cursor %v, error %v; want %d, %v, %v", tt.name, i, at, err, tt.i, tt.at, tt.err)
		}
	}
}

// TestShardOrder checks that scans visit the shards in the same order after replicas have replaced
// all masters.
func TestShardOrder(t *testing.T) {
	c := redistest.StartCluster(t)
	cc := c.Client()
	e := New(cc, Options{})
	before, err := e.masters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, replica := range c.Nodes[3:] {
		for i := 0; !isMaster(t, replica); i++ {
			// A replica gives up after five seconds, for example if the machine is busy. If it
			// became master just now, the error does not matter.
			if err := replica.Client().ClusterFailover(t.Context()).Err(); err != nil && i == 0 {
				t.Fatal(err)
			}
			for begin := time.Now(); !isMaster(t, replica) && time.Since(begin) < 6*time.Second; {
				time.Sleep(20 * time.Millisecond)
			}
		}
	}
	c.WaitReady()
	cc.ReloadState(t.Context())
	for {
		after, err := e.masters(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(after, func(m master) bool { return slices.Contains(addrs(before), m.addr) }) {
			time.Sleep(20 * time.Millisecond) // the client has not read the new state yet
			continue
		}
		for i, m := range before {
			if after[i].mark != m.mark || i > 0 && m.mark <= before[i-1].mark {
				t.Errorf("shard %d: got the mark %d after the failover, want %d as before, and greater than the mark of the shard before", i, after[i].mark, m.mark)
			}
			key := strconv.Itoa(m.mark)
			if got, want := after[i].addr, c.Master(key).Addr(); got != want {
				t.Errorf("shard %d: got the master %s, want %s, which serves the key %s", i, got, want, key)
			}
		}
		return
	}
}

func isMaster(t *testing.T, s *redistest.Server) bool {
	return strings.Contains(s.Client().Info(t.Context(), "replication").Val(), "role:master")
}

func addrs(ms []master) (all []string) {
	for _, m := range ms {
		all = append(all, m.addr)
	}
	return all
}

// TestReloadDeadline stops the only node that the client knows, and lets the first request for the
// cluster's state hang. That request must have a deadline, the client must ask for the state again,
// and the command must reach the right node.
func TestReloadDeadline(t *testing.T) {
	first, second := redistest.Start(t), redistest.Start(t)
	var failed, requests, endless atomic.Int32
	slots := func(ctx context.Context) ([]redis.ClusterSlot, error) {
		addr := first.Addr()
		if failed.Load() > 0 {
			if addr = second.Addr(); requests.Add(1) == 1 {
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
	if n, err := e.do(ctx, redisx.IsNumber, "exists", "x"); n != int64(0) || err != nil {
		t.Fatal(n, err)
	}
	if err := second.Client().Set(ctx, "x", "y", 0).Err(); err != nil {
		t.Fatal(err)
	}
	failed.Add(1)
	first.Kill()
	if n, err := e.do(ctx, redisx.IsNumber, "exists", "x"); n != int64(1) || err != nil || endless.Load() > 0 {
		t.Errorf("got %d, %v, %d times without a deadline; want the record at the node that took over", n, err, endless.Load())
	}
	if n := requests.Load(); n < 2 {
		t.Errorf("the client asked for the state %d times, want at least twice, since the first request hangs", n)
	}
}

// TestSettleWaits checks that all waits of Settle together are longer than a writer may take to
// finish a change, but not much longer.
func TestSettleWaits(t *testing.T) {
	var waited time.Duration
	e := &Engine{sleep: func(_ context.Context, d time.Duration) error { waited += d; return nil }}
	waits := 0
	for {
		more, err := e.Settle(t.Context(), waits)
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			break
		}
		waits++
	}
	if waited <= dyingTime || waited > dyingTime+5*time.Second || waits < 8 {
		t.Errorf("Settle waited %d times, %v in all; want at least 8 times, and %v to %v", waits, waited, dyingTime, dyingTime+5*time.Second)
	}
}

// TestMastersWithUnservedSlot checks that masters returns all masters, and no replica, if a slot
// has no master. For such a slot, the client returns any node.
func TestMastersWithUnservedSlot(t *testing.T) {
	c := redistest.StartCluster(t, redistest.Config("cluster-require-full-coverage no"))
	cc := c.Client()
	e := New(cc, Options{})
	want, err := e.masters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for key := range 8 {
		slot, err := cc.ClusterKeySlot(t.Context(), strconv.Itoa(key)).Result()
		if err != nil {
			t.Fatal(err)
		}
		owner := c.Master(strconv.Itoa(key))
		// The owner comes first, or it would announce the slot to the others again.
		for _, node := range append([]*redistest.Server{owner}, c.Nodes...) {
			// An error means that the node has already forgotten the slot.
			_ = node.Client().ClusterDelSlots(t.Context(), int(slot)).Err()
		}
	}
	for range 20 {
		cc.ReloadState(t.Context())
		time.Sleep(20 * time.Millisecond)
		got, err := e.masters(t.Context())
		if err != nil || !slices.Equal(slices.Sorted(slices.Values(addrs(got))), slices.Sorted(slices.Values(addrs(want)))) {
			t.Fatalf("got %v, %v, want %v", addrs(got), err, addrs(want))
		}
	}
}

// TestNodeBeforeScripts checks that an engine calls Options.OnNode for a new node before it sends
// scripts there. Sending scripts opens a connection, and OnNode may limit connections.
func TestNodeBeforeScripts(t *testing.T) {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{redistest.Start(t).Addr()}})
	t.Cleanup(func() { client.Close() })
	var dialed, called atomic.Int32
	client.OnNewNode(func(node *redis.Client) {
		node.AddHook(dials(func() {
			if called.Load() == 0 {
				dialed.Add(1)
			}
		}))
	})
	New(client, Options{OnNode: func(*redis.Client) {
		time.Sleep(50 * time.Millisecond) // time in which a connection would be made
		called.Add(1)
	}})
	client.Ping(t.Context())
	if called.Load() == 0 || dialed.Load() > 0 {
		t.Errorf("OnNode was called %d times, and %d connections were made before; want at least one call and none before", called.Load(), dialed.Load())
	}
}

// dials is a hook that is called for each new connection.
type dials func()

func (d dials) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		d()
		return next(ctx, network, addr)
	}
}
func (d dials) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (d dials) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
