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

// TestSurplusByClass checks which records are deleted if there are too many of some classes.
func TestSurplusByClass(t *testing.T) {
	classes := []string{"~/throttle/user/nobody/%d", "~/history/{user/uid:%d}", "~/token/{user/uid:none%d}", "~/visits/user/identifier/%d"}
	for _, tt := range []struct {
		name            string
		entries         int
		records, stay   [numClasses]int // by class
		withOwnSessions int
	}{
		{"few", 100, [numClasses]int{10, 10, 10, 10}, [numClasses]int{10, 10, 10, 10}, 10},
		{"a flood of invitations", 100, [numClasses]int{10, 9000, 47_000, 10}, [numClasses]int{10, 9000, maxOrphanTokens, 10}, 10},
		{"a flood of requests", 100, [numClasses]int{10, 9000, 10, 30_000}, [numClasses]int{10, 9000, 10, maxVisitorLimits}, 10},
		{"a flood of guesses", 100, [numClasses]int{30_000, 9000, 10, 10}, [numClasses]int{10_980, 9000, 10, 10}, 0},
		{"all floods", 100, [numClasses]int{30_000, 10_000, 47_000, 30_000}, [numClasses]int{0, 10_000, maxOrphanTokens, maxVisitorLimits}, 0},
		{"many entries", 45_000, [numClasses]int{1000, 3000, 2000, 1000}, [numClasses]int{0, 2000, 2000, 1000}, 0},
		{"no room for others", 50_000, [numClasses]int{1, 1, 1, 1}, [numClasses]int{}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var records []record
			for i := range tt.entries {
				records = append(records, record{Key: fmt.Sprint("user/uid:", i), Hash: map[string]string{"~isa": "user"}})
			}
			for i := range tt.withOwnSessions { // sessions and tokens of entries stay
				for _, kind := range []string{"session", "token"} {
					records = append(records, record{Key: fmt.Sprintf("~/%s/{user/uid:%d}", kind, i), Until: 1})
				}
			}
			for class, n := range tt.records {
				for i := range n {
					records = append(records, record{Key: fmt.Sprintf(classes[class], i), Until: int64(1 + i)})
				}
			}
			slices.SortFunc(records, func(a, b record) int { return strings.Compare(a.Key, b.Key) })
			deleted := surplus(records)
			for class, stay := range tt.stay {
				for i := range tt.records[class] {
					key := fmt.Sprintf(classes[class], i)
					if want := i < tt.records[class]-stay; deleted[key] != want {
						t.Fatalf("%s is deleted: %v, want %v", key, deleted[key], want)
					}
					delete(deleted, key)
				}
			}
			for key := range deleted {
				t.Errorf("deleted: %s", key)
			}
		})
	}
}

// TestSurplus checks that if strangers create too many counters, only the oldest ones are deleted.
func TestSurplus(t *testing.T) {
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "x.jsonl")
	s, err := Open(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	kept := []string{
		"~/session/{user/uid:a}", "~acme/~/token/{~acme/user/uid:a}", "~/throttle/user/uid/a", "user/uid:gone", "~/history/{user/uid:a}",
		"~acme/~/visits/user/identifier/x", "~/throttle/user/origin/x", "~~userdb/~/token/{~~userdb/once/name:x}",
	}
	dropped := []string{"~/throttle/user/nobody/x", "~acme/~/throttle/user/nobody/x", "~~userdb/~acme/~/throttle/operator/nobody/x"}
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
