package embedded

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestSurplus checks that if strangers create too many counters, only the oldest ones are deleted.
func TestSurplus(t *testing.T) {
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "x.jsonl")
	s, err := Open(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	kept := []string{"~/session/{user/uid:a}", "~acme/~/token/{~acme/user/uid:a}", "~/throttle/user/uid/a", "user/uid:gone"}
	dropped := []string{"~/throttle/user/nobody/x", "~acme/~/visits/user/identifier/x", "~~userdb/~/token/{~~userdb/once/name:x}"}
	const more = maxExpiring + 10
	if _, err := s.Client().Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, key := range append(slices.Clone(kept), dropped...) {
			p.Set(ctx, key, "1", time.Hour+time.Duration(i)*time.Second)
		}
		for i := range more - len(kept) - len(dropped) + 1 {
			// One more, because the entry is not the store's own.
			p.Set(ctx, fmt.Sprint("~/throttle/user/nobody/", i), "1", 2*time.Hour+time.Duration(i)*time.Millisecond)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	records, err := readFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, r := range records {
		keys = append(keys, r.Key)
	}
	if n := len(keys); n != maxExpiring+1 {
		t.Errorf("%d records, want %d", n, maxExpiring+1)
	}
	for _, key := range kept {
		if !slices.Contains(keys, key) {
			t.Errorf("deleted: %s", key)
		}
	}
	for _, key := range dropped {
		if slices.Contains(keys, key) || s.Client().Exists(ctx, key).Val() != 0 {
			t.Errorf("still there: %s", key)
		}
	}
	last := fmt.Sprint("~/throttle/user/nobody/", more-len(kept)-len(dropped))
	if !slices.Contains(keys, last) || slices.Contains(keys, "~/throttle/user/nobody/0") || slices.Contains(keys, "~/throttle/user/nobody/6") ||
		!slices.ContainsFunc(keys, func(k string) bool { return strings.HasSuffix(k, "/7") }) {
		t.Error("surplus did not delete the oldest records")
	}
}
