package cluster

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
)

// TestScanAllWhileSlotsMove moves the slot of a key, during a scan, from a master that was not yet
// scanned to one that was. The scan must yield the key, and end.
func TestScanAllWhileSlotsMove(t *testing.T) {
	c := redistest.StartCluster(t)
	e, ctx := New(c.Client(), Options{Sleep: func(context.Context, time.Duration) error { return nil }}), t.Context()
	first := c.Master("0") // scans begin there
	var keys []string
	for n := 0; len(keys) < 40; n++ {
		key := "key:" + strconv.Itoa(n)
		if err := e.client.Set(ctx, key, "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
		if c.Master(key) != first {
			keys = append(keys, key)
		}
	}
	for i, tt := range []struct {
		name  string
		begin func(key string) (move func()) // begin is called before the scan, and move during it
	}{
		{"no slot moves", func(string) func() { return func() {} }},
		{"a slot moves", func(key string) func() { return func() { c.OpenSlot(key).Finish() } }},
		{"a slot is left open", func(key string) func() { return func() { c.OpenSlot(key) } }},
		{"a slot whose keys have moved is left open", func(key string) func() { return func() { c.OpenSlot(key).MoveKeys() } }},
		{"keys of an open slot move", func(key string) func() { return c.OpenSlot(key).MoveKeys }},
	} {
		move, seen := tt.begin(keys[i]), map[string]bool{}
		for found, err := range e.ScanAll(ctx, store.Scan{Pattern: "key:*", Count: 100_000}) {
			if err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			if len(seen) == 0 {
				move()
			}
			for _, key := range found {
				seen[key] = true
			}
		}
		for _, key := range keys {
			if !seen[key] {
				t.Errorf("%s: the scan missed %s", tt.name, key)
			}
		}
	}
}

// TestScanAllWithoutSlot scans a cluster in which no node has a certain slot. The nodes still
// answer scans, but ScanAll must fail, since entries may be missing.
func TestScanAllWithoutSlot(t *testing.T) {
	c := redistest.StartCluster(t)
	e, ctx := New(c.Client(), Options{Sleep: func(context.Context, time.Duration) error { return nil }}), t.Context()
	for _, node := range c.Nodes {
		// The first node is the owner. An error of another one means that it has already forgotten
		// the slot.
		if err := node.Client().Do(ctx, "cluster", "delslots", 7).Err(); err != nil && node == c.Nodes[0] {
			t.Fatal(err)
		}
	}
	for _, err := range e.ScanAll(ctx, store.Scan{Pattern: "key:*", Count: 1000}) {
		if err == nil || !strings.Contains(err.Error(), "CLUSTERDOWN") {
			t.Fatalf("got the error %v, want CLUSTERDOWN", err)
		}
		return
	}
	t.Fatal("the scan ended without an error")
}

func TestAddPlacements(t *testing.T) {
	const (
		nodeA = "aaa 127.0.0.1:1@2 myself,master - 0 0 1 connected 0-2 5 [5->-bbb] [7-<-ccc]\nbbb :3@4 master - 0 0 2 connected 7-9\n"
		nodeB = "aaa 127.0.0.1:1@2,host master - 0 0 1 connected 0-2\nbbb :3@4 myself,master - 0 0 2 connected 5 16383\n"
		nodeC = "ccc :5@6 myself,slave aaa 0 0 1 connected\n"
	)
	all := make([]placement, slotCount)
	for _, nodes := range []string{nodeA, nodeB, nodeC} {
		if err := addPlacements(all, nodes); err != nil {
			t.Fatal(err)
		}
	}
	for slot, want := range map[int]placement{
		0: {"aaa", 1, ""}, 2: {"aaa", 1, ""}, 3: {}, 5: {"bbb", 2, "[5->-bbb]"}, 7: {}, 16383: {"bbb", 1, ""},
	} {
		if all[slot] != want {
			t.Errorf("slot %d: got %v, want %v", slot, all[slot], want)
		}
	}
	for _, slots := range []string{"x", "3-", "16384", "-1", "5-16384", "[x->-b]"} {
		if err := addPlacements(all, "aaa :1@2 myself,master - 0 0 1 connected "+slots); !errors.Is(err, store.ErrReply) {
			t.Errorf("%q: got the error %v, want ErrReply", slots, err)
		}
	}
}

// TestScanAllDuringReshard moves a slot during the first pass of a scan, and another one before
// each further pass. The scan must end after the second pass, although slots still move: the first
// pass has seen the keys of those that moved only later.
func TestScanAllDuringReshard(t *testing.T) {
	c, ctx, passes := redistest.StartCluster(t), t.Context(), 1
	const reshards = 10
	moveNext := func() { c.OpenSlot("key:" + strconv.Itoa(passes)).Finish() }
	e := New(c.Client(), Options{Sleep: func(context.Context, time.Duration) error {
		if passes++; passes < reshards {
			moveNext()
		}
		return nil
	}})
	for n := range reshards {
		if err := e.client.Set(ctx, "key:"+strconv.Itoa(n), "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	for found, err := range e.ScanAll(ctx, store.Scan{Pattern: "key:*", Count: 100_000}) {
		if err != nil {
			t.Fatal(err)
		}
		if len(seen) == 0 {
			moveNext()
		}
		for _, key := range found {
			seen[key] = true
		}
	}
	if passes != 2 || len(seen) != reshards {
		t.Errorf("%d passes have seen %d keys, want 2 passes and %d keys", passes, len(seen), reshards)
	}
}

// TestSlotOf compares the slots of keys with those that a server computes.
func TestSlotOf(t *testing.T) {
	c := redistest.StartCluster(t)
	for _, key := range []string{"~/absent/0", "~/absent/77", "", "{", "{}x", "a{b}c{d}", "a{}{b}", "{{a}}", "}a{b", "ü{ö}", "123456789"} {
		want, err := c.Nodes[0].Client().ClusterKeySlot(t.Context(), key).Result()
		if got := int64(slotOf(key)); got != want || err != nil {
			t.Errorf("%q: got the slot %d, want %d (error %v)", key, got, want, err)
		}
	}
}

// TestUnsettled checks after which pass of a scan the keys of a slot have all been seen.
func TestUnsettled(t *testing.T) {
	on := func(master, open string) placement { return placement{master: master, masters: 1, open: open} }
	a, toB, b, toC := on("a", ""), on("a", "[0->-b]"), on("b", ""), on("b", "[0->-c]")
	for _, tt := range []struct {
		name   string
		places []placement // before the first pass and after each one
		want   int         // number of passes
	}{
		{"a slot stays", []placement{a, a}, 1},
		{"a slot moves", []placement{a, b, b}, 2},
		{"a slot is left open", []placement{toB, toB, toB}, 2},
		{"a slot opens", []placement{a, toB, toB}, 2},
		{"a slot opens and then moves", []placement{a, toB, b, b}, 3},
		{"a slot is closed again", []placement{toB, a, a}, 2},
		// A key that came to b during the first pass may leave it during the second.
		{"a slot moves and opens again", []placement{a, toC, toC, toC}, 3},
		{"no node has a slot for a moment", []placement{{}, toC, toC, toC}, 3},
	} {
		var again map[int]bool
		passes := 0
		for passes < len(tt.places)-1 && (again == nil || len(again) > 0) {
			again = unsettled(again, tt.places[passes:passes+1], tt.places[passes+1:passes+2])
			passes++
		}
		if passes != tt.want || len(again) > 0 {
			t.Errorf("%s: got %d passes and left %v, want %d passes", tt.name, passes, again, tt.want)
		}
	}
}

// TestScanStates checks that a scan does not request the ranges of slots for each of its steps: the
// client keeps every reply for a minute.
func TestScanStates(t *testing.T) {
	server, requests := redistest.Start(t), 0
	slots := func(context.Context) ([]redis.ClusterSlot, error) {
		requests++
		return []redis.ClusterSlot{{Start: 0, End: slotCount - 1, Nodes: []redis.ClusterNode{{Addr: server.Addr()}}}}, nil
	}
	cc := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: slots, ClusterStateReloadInterval: time.Hour})
	t.Cleanup(func() { cc.Close() })
	now := time.Now()
	e, ctx := New(cc, Options{Now: func() time.Time { return now }}), t.Context()
	for n := range 1000 {
		if err := e.client.Set(ctx, "key:"+strconv.Itoa(n), "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	before, steps := requests, 0
	for _, err := range store.ScanSteps(ctx, e, store.Scan{Pattern: "key:*", Count: 10}) {
		if err != nil {
			t.Fatal(err)
		}
		steps++
	}
	if steps < 10 || requests-before != 1 {
		t.Errorf("a scan of %d steps requested the slots %d times, want once", steps, requests-before)
	}
	now = now.Add(knownMastersAge)
	if _, _, err := e.Scan(ctx, store.Scan{Pattern: "key:*", Cursor: "0-x-0"}); err != nil || requests-before != 2 {
		t.Errorf("a later step: %v, the slots were requested %d times, want twice", err, requests-before)
	}
}
