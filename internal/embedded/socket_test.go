//go:build unix

package embedded

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestServed checks that another process can use the store through the process that has its file,
// and that changes are in the file once they are answered.
func TestServed(t *testing.T) {
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "x.jsonl")
	d := newFaultyDisk()
	s := openDisk(t, path, &d.testDisk)
	stop, err := s.Serve()
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path + ".sock"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: got %v, %v; want mode 0600", info, err)
	}
	other, err := Open(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Client().Set(ctx, "a", "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if records := onDisk(t, path); len(records) != 1 {
		t.Errorf("in the file: got %v; want one record", records)
	}
	if got := s.Client().Get(ctx, "a").Val(); got != "1" {
		t.Errorf("the store that serves has %q, want 1", got)
	}
	cmds, err := other.Client().Pipelined(ctx, func(p redis.Pipeliner) error {
		for range 1000 {
			p.Incr(ctx, "n")
		}
		return nil
	})
	if err != nil || cmds[999].(*redis.IntCmd).Val() != 1000 {
		t.Errorf("a pipeline of 1000 increments: error %v, or the last result is not 1000", err)
	}
	if got, err := other.Client().Eval(ctx, "return redis.call('GET', KEYS[1])", []string{"n"}).Text(); err != nil || got != "1000" {
		t.Errorf("a script: got %q, %v; want 1000", got, err)
	}
	d.set("write")
	if err := other.Client().Set(ctx, "c", "1", 0).Err(); !errors.Is(err, ErrFull) || !errors.Is(err, ErrUnsaved) {
		t.Errorf("on a full disk: got %v, want ErrFull and ErrUnsaved", err)
	}
	d.set("")
	if err := other.Client().Set(ctx, "c", "1", 0).Err(); err != nil {
		t.Errorf("on a disk with room again: %v", err)
	}
	if result, err := other.Compact(ctx); err != nil || result.After == 0 || result.After >= result.Before {
		t.Errorf("Compact: got %+v, %v; want a smaller file", result, err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := other.Client().Set(ctx, "d", "1", 0).Err(); err == nil {
		t.Error("a command was answered although nobody serves")
	}
	if err := errors.Join(other.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	again, err := Open(ctx, path) // the socket is gone, and the lock is free
	if err != nil || again.Client().Exists(ctx, "a", "n", "c").Val() != 3 {
		t.Errorf("opened again: %v, or a record is missing; want a, n and c", err)
	}
	again.Close()
}

// TestStaleSocket checks that a store can be opened and served even if a killed process left its
// socket behind.
func TestStaleSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.jsonl")
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.listen()
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // leaves the socket behind
	s.Close()
	s, err = Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	stop, err := s.Serve()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(stop(), s.Close()); err != nil {
		t.Error(err)
	}
}

// TestServedOnce checks that a store that is a client of another process cannot serve.
func TestServedOnce(t *testing.T) {
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "x.jsonl")
	s := open(t, path)
	stop, err := s.Serve()
	if err != nil {
		t.Fatal(err)
	}
	second := open(t, path)
	if _, err := second.Serve(); !errors.Is(err, ErrServed) {
		t.Fatalf("got %v, want ErrServed", err)
	}
	third := open(t, path)
	do(t, third.Client(), "SET k v")
	if got := s.Client().Get(ctx, "k").Val(); got != "v" {
		t.Errorf("the store that serves has %q, want v", got)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestServedToTheEnd checks that an accepted command is answered even if stop is called meanwhile.
func TestServedToTheEnd(t *testing.T) {
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "x.jsonl")
	s, begun, end := openSlow(t, path)
	stop, err := s.Serve()
	if err != nil {
		t.Fatal(err)
	}
	other := open(t, path)
	done, stopped := make(chan error, 1), make(chan error, 1)
	go func() { done <- other.Client().Set(ctx, "k", "v", 0).Err() }()
	<-begun
	go func() { stopped <- stop() }()
	for _, err := os.Stat(path + ".sock"); err == nil; _, err = os.Stat(path + ".sock") {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(20 * time.Millisecond) // long enough for stop to cut off a connection
	close(end)
	if err := <-done; err != nil {
		t.Errorf("an accepted command failed: %v", err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
