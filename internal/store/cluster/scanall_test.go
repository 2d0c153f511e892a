package cluster

import (
	"context"
	"strconv"
	"testing"
	"time"

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

// TestSlotOf compares the slots of keys with those that a server computes.
func TestSlotOf(t *testing.T) {
	c := redistest.StartCluster(t)
	for _, key := range append(absentKeys()[:50], "", "{", "{}x", "a{b}c{d}", "a{}{b}", "{{a}}", "}a{b", "ü{ö}", "123456789") {
		want, err := c.Nodes[0].Client().ClusterKeySlot(t.Context(), key).Result()
		if got := int64(slotOf(key)); got != want || err != nil {
			t.Errorf("%q: got the slot %d, want %d (error %v)", key, got, want, err)
		}
	}
}
