package redisx_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

// TestTally checks, with and without scripts, that a scan with a Tally counts the entries of one
// type, but neither their other records nor entries of other types, and that it returns the keys
// of tombstones.
func TestTally(t *testing.T) {
	srv := redistest.Start(t, redistest.Config("user app on nopass ~* +@all -eval"))
	c, ctx := srv.Client(), t.Context()
	for n := range 9000 {
		c.HSet(ctx, fmt.Sprint("a/user/uid:", n), "~isa", "user")
	}
	for _, key := range []string{"a/user/uid:1/tags", "a/user/name:x/~prk", "a/b/user/uid:1", "user/uid:1"} {
		c.Set(ctx, key, "x", 0)
	}
	tombstones := []string{"a/user/uid:gone", "a/user/uid:gone too"}
	for _, key := range tombstones {
		c.HSet(ctx, key, "~isa", "")
		c.Expire(ctx, key, time.Hour)
	}
	forbidden := redis.NewClient(&redis.Options{Addr: srv.Addr(), Username: "app", Password: "any"})
	defer forbidden.Close()
	for _, client := range []*redis.Client{c, forbidden} {
		for _, batch := range []int{100, 20000} {
			scan := store.Scan{Pattern: "a/user/uid:*", Tally: "a/user/uid:", Count: batch}
			var listed []string
			total, at := 0, redisx.Cursor{}
			for more := true; more; more = at.At != 0 {
				keys, next, err := redisx.Scan(ctx, client, at, scan)
				if err != nil {
					t.Fatal(err)
				}
				var n int
				fmt.Sscan(keys[0], &n)
				total, listed, at = total+n, append(listed, keys[1:]...), next
			}
			slices.Sort(listed)
			if total != 9000 || !slices.Equal(slices.Compact(listed), tombstones) {
				t.Errorf("in batches of %d: got %d entries, and the keys %q; want 9000, and %q", batch, total, listed, tombstones)
			}
		}
	}
}
