package embedded

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"
)

// TestUndoEveryChange makes random changes, some of which cannot be saved, and checks that these
// leave nothing behind, in memory or in the file.
func TestUndoEveryChange(t *testing.T) {
	dir, n := t.TempDir(), 0
	defer func(before int) { maxSmall = before }(maxSmall)
	rapid.Check(t, func(t *rapid.T) {
		n++
		maxSmall = rapid.SampledFrom([]int{1, 64}).Draw(t, "maxSmall")
		var failing atomic.Bool
		s, err := openOn(t.Context(), &testDisk{before: func(step string) error {
			if step == "sync" && failing.Load() {
				return syscall.EIO
			}
			return nil
		}}, filepath.Join(dir, fmt.Sprint(n)))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for range rapid.IntRange(1, 10).Draw(t, "commands") {
			_ = s.Client().Do(t.Context(), drawCommand(t, shapes)...).Err() // some are wrong
			before, size := dump(s.engine.data.root), s.engine.data.size
			failing.Store(true)
			for range rapid.IntRange(1, 3).Draw(t, "refused") {
				_ = s.Client().Do(t.Context(), drawCommand(t, shapes)...).Err()
			}
			failing.Store(false)
			if got := dump(s.engine.data.root); !reflect.DeepEqual(got, before) || s.engine.data.size != size {
				t.Fatalf("after changes that were refused: %v, %d bytes; want %v, %d bytes", got, s.engine.data.size, before, size)
			}
		}
		want := dump(s.engine.data.root)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		compareFile(t, s.path, want)
	})
}

// TestPipelineUndone checks that a pipeline fails as a whole if the write of its first command
// fails before its second command runs.
func TestPipelineUndone(t *testing.T) {
	s, d := openFaulty(t)
	d.set("sync")
	c := &call{}
	if _, err := s.engine.do(c, []string{"SET", "a", "v"}); err != nil {
		t.Fatal(err)
	}
	if err := s.engine.flush(t.Context(), new(span)); !errors.Is(err, ErrUnsaved) {
		t.Fatalf("got %v, want ErrUnsaved", err)
	}
	d.set("")
	if _, err := s.engine.do(c, []string{"SET", "b", "v"}); !errors.Is(err, ErrUnsaved) {
		t.Errorf("the second command: got %v, want ErrUnsaved", err)
	}
	if err := s.engine.wait(t.Context(), c); !errors.Is(err, ErrUnsaved) {
		t.Errorf("the pipeline: got %v, want ErrUnsaved", err)
	}
	if got := s.Client().Keys(t.Context(), "*").Val(); !slices.Equal(got, []string{"old"}) {
		t.Errorf("the keys are %q, want only old", got)
	}
}

// TestScans checks that the steps of a scan return each key or member that matches and stays,
// whatever is added and removed meanwhile.
func TestScans(t *testing.T) {
	s := open(t, "")
	ctx, c := t.Context(), s.Client()
	if _, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range 300 {
			p.Set(ctx, fmt.Sprintf("k/%03d", i), "v", 0)
			p.Set(ctx, fmt.Sprintf("a/%03d", i), "v", 0)
			p.SAdd(ctx, "set", fmt.Sprintf("%03d", i))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for command, subject := range map[string]string{"SCANKEYS": "k/*", "SCANMEMBERS": "set"} {
		seen, steps := map[string]int{}, 0
		for after, more := "", true; more; more = after != "" {
			page, err := c.Do(ctx, command, subject, after, 20).StringSlice()
			if err != nil || len(page) > 21 {
				t.Fatalf("%s: got %d texts, %v; want at most 21 and no error", command, len(page), err)
			}
			for _, text := range page[1:] {
				seen[text]++
			}
			after = page[0]
			do(t, c, fmt.Sprintf("DEL k/%03d", steps), fmt.Sprintf("SREM set %03d", steps), fmt.Sprintf("SET k/%03dx v", steps))
			steps++
		}
		for i := 20; i < 300; i++ {
			text := fmt.Sprintf("%03d", i)
			if command == "SCANKEYS" {
				text = "k/" + text
			}
			if seen[text] != 1 {
				t.Errorf("%s returned %s %d times, want once", command, text, seen[text])
			}
		}
		if steps > 20 {
			t.Errorf("%s took %d steps, want at most 20", command, steps)
		}
	}
}

// TestCopiesAreApart checks that a change of a record does not change its copy, and the other way
// round.
func TestCopiesAreApart(t *testing.T) {
	s := open(t, "")
	do(t, s.Client(), "SADD set a", "HSET hash f v", "ZADD zset 0 a", "RPUSH list a", "XADD stream 1-1 f v")
	for key, change := range map[string]string{"set": "SADD %s b", "hash": "HSET %s f w", "zset": "ZADD %s 1 a", "list": "RPUSH %s b", "stream": "XADD %s 2-1 f v"} {
		do(t, s.Client(), fmt.Sprintf("COPY %s %s2", key, key), fmt.Sprintf("COPY %s %s3", key, key))
		before := dump(s.engine.data.root)[key]
		do(t, s.Client(), fmt.Sprintf(change, key+"2"))
		do(t, s.Client(), fmt.Sprintf(change, key))
		got := dump(s.engine.data.root)
		if got[key+"3"] != before || got[key] == before || got[key+"2"] != got[key] {
			t.Errorf("%s: %s, its copies %s and %s; want the last one to be %s", key, got[key], got[key+"2"], got[key+"3"], before)
		}
	}
}

// TestPipelinePartlySaved checks that a pipeline is not reported as undone if one of its commands
// is in the file already when the write of the next one fails. The pipeline ends there or goes on
// with another command, and the first command is lazy or not.
func TestPipelinePartlySaved(t *testing.T) {
	for _, commands := range [][]string{{"b"}, {"b", "c"}} {
		for _, lazy := range []bool{false, true} {
			s, d := openFaulty(t)
			c := &call{lazy: lazy}
			if _, err := s.engine.do(c, []string{"SET", "a", "v"}); err != nil {
				t.Fatal(err)
			}
			if err := s.engine.flush(t.Context(), new(span)); err != nil {
				t.Fatal(err)
			}
			d.set("sync")
			c.lazy = false
			for _, key := range commands {
				if _, err := s.engine.do(c, []string{"SET", key, "v"}); key == "b" && err != nil {
					t.Fatal(err)
				}
				_ = s.engine.flush(t.Context(), new(span)) // fails
			}
			if err := s.engine.wait(t.Context(), c); !errors.Is(err, ErrPartlySaved) || errors.Is(err, ErrUnsaved) {
				t.Errorf("%q, the first command lazy %v: got %v, want only ErrPartlySaved", commands, lazy, err)
			}
			d.set("")
			if got := s.Client().Keys(t.Context(), "*").Val(); !slices.Equal(got, []string{"a", "old"}) {
				t.Errorf("the keys are %q, want a and old", got)
			}
		}
	}
}
