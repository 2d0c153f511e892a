package embedded

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
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
		t.Errorf("%d writes in all, want 2", got)
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

// A beforeHook calls its function between the hook of the store and each command.
type beforeHook struct{ before func() }

func (beforeHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h beforeHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.before()
		return next(ctx, cmd)
	}
}

func (beforeHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestBulkCommandUndone checks that a command of a bulk changes nothing if the bulk is undone just
// before it runs.
func TestBulkCommandUndone(t *testing.T) {
	s, d := openFaulty(t)
	ctx, end := s.Bulk(t.Context())
	if err := s.Client().Set(ctx, "a", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s.Client().AddHook(beforeHook{func() {
		d.set("sync")
		_ = s.engine.flush(t.Context(), new(span)) // fails, or has nothing to write
		d.set("")
	}})
	if err := s.Client().Set(ctx, "b", "v", 0).Err(); !errors.Is(err, ErrUnsaved) {
		t.Errorf("got %v, want ErrUnsaved", err)
	}
	if err := end(t.Context()); !errors.Is(err, ErrUnsaved) {
		t.Errorf("end: got %v, want ErrUnsaved", err)
	}
	if err := s.engine.flush(t.Context(), new(span)); err != nil {
		t.Fatal(err)
	}
	if got := onDisk(t, s.path); len(got) != 1 {
		t.Errorf("on disk: got %v, want only old", got)
	}
}

// TestBulkPartlySaved checks that the end of a bulk reports that part of the bulk is in the file.
func TestBulkPartlySaved(t *testing.T) {
	s, d := openFaulty(t)
	ctx, end := s.Bulk(t.Context())
	if err := s.Client().Set(ctx, "a", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	do(t, s.Client(), "SET other v")
	if err := s.Client().Set(ctx, "b", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	d.set("sync")
	if err := end(t.Context()); !errors.Is(err, ErrPartlySaved) || errors.Is(err, ErrUnsaved) {
		t.Errorf("got %v, want only ErrPartlySaved", err)
	}
	d.set("")
	if got := onDisk(t, s.path); len(got) != 3 || got["b"] != "" {
		t.Errorf("on disk: got %v, want all but b", got)
	}
}
