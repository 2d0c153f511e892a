package embedded

import (
	"fmt"
	"testing"
)

func TestBulk(t *testing.T) {
	path := file(t)
	s, syncs := openCounting(t, path)
	do(t, s.Client(), "SET first v")
	before := syncs.Load()
	ctx, end := s.Bulk(t.Context())
	for i := range 100 {
		if err := s.Client().Set(ctx, fmt.Sprint(i), "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if got := syncs.Load() - before; got != 0 {
		t.Errorf("%d writes during the bulk, want 0", got)
	}
	if err := end(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, records := syncs.Load()-before, len(onDisk(t, path)); got != 1 || records != 101 {
		t.Errorf("%d writes, %d records; want 1, 101", got, records)
	}
	// A bulk that has ended has no effect.
	if err := s.Client().Set(ctx, "late", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if got := syncs.Load() - before; got != 2 {
		t.Errorf("%d writes after the end, want 2", got)
	}
}

// TestCloseWritesBulk checks that Close writes a bulk that was never ended, for example because of
// Ctrl-C.
func TestCloseWritesBulk(t *testing.T) {
	path := file(t)
	s := open(t, path)
	ctx, _ := s.Bulk(t.Context())
	if err := s.Client().Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	if got := len(onDisk(t, path)); got != 1 {
		t.Errorf("%d records on disk, want 1", got)
	}
}
