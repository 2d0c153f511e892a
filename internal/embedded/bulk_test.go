package embedded

import (
	"errors"
	"fmt"
	"testing"
)

func TestBulk(t *testing.T) {
	path := file(t)
	s := open(t, path)
	d := &countingDisk{}
	s.disk = d
	ctx, end := s.Bulk(t.Context())
	for i := range 100 {
		if err := s.Client().Set(ctx, fmt.Sprint(i), "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if got := d.renames.Load(); got != 0 {
		t.Errorf("%d writes during the bulk, want 0", got)
	}
	if err := end(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, records := d.renames.Load(), len(onDisk(t, path)); got != 1 || records != 100 {
		t.Errorf("%d writes, %d records; want 1, 100", got, records)
	}
	// A bulk that has ended has no effect.
	if err := s.Client().Set(ctx, "late", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if got := d.renames.Load(); got != 2 {
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

func TestLimit(t *testing.T) {
	s := open(t, file(t))
	if s.limit != 50_000 {
		t.Errorf("the limit is %d, want 50000", s.limit)
	}
	s.limit = 10
	do(t, s.Client(), "MSET 1 v 2 v 3 v 4 v 5 v 6 v 7 v 8 v")
	err := s.Client().MSet(t.Context(), "a", 1, "b", 2, "c", 3).Err()
	want := "embedded: change not saved: " + s.path + ": embedded: store is full: 11 records are over the limit of 10; use a Redis server instead (redis://HOST:PORT)"
	if !errors.Is(err, ErrFull) || !errors.Is(err, ErrUnsaved) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if got := s.Client().DBSize(t.Context()).Val(); got != 8 {
		t.Errorf("%d records after the refusal, want 8", got)
	}
	do(t, s.Client(), "DEL 1")
}

// TestOverfullShrinks checks that a file over the limit, written by other means, may shrink.
func TestOverfullShrinks(t *testing.T) {
	s := open(t, file(t))
	do(t, s.Client(), "MSET 1 v 2 v 3 v 4 v 5 v")
	s.limit = 3
	if err := s.Client().Set(t.Context(), "6", "v", 0).Err(); !errors.Is(err, ErrFull) {
		t.Errorf("grown: %v, want ErrFull", err)
	}
	do(t, s.Client(), "DEL 1")
	if got := len(onDisk(t, s.path)); got != 4 {
		t.Errorf("%d records, want 4", got)
	}
}
