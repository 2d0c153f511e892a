package cluster

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/recordkey"
)

// TestFullFeedQueue stops all feeders, and fills the queue of one part of the feed. A change of one
// more entry of that part must then stop waiting when its context ends. Changes of entries of other
// parts, and of entries that are already queued, must not wait.
func TestFullFeedQueue(t *testing.T) {
	e := New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), Options{})
	var waiting []func()
	e.goDetached = func(ctx context.Context, _ time.Duration, do func(context.Context)) {
		waiting = append(waiting, func() {
			ended, cancel := context.WithCancel(ctx)
			cancel()
			do(ended)
		})
	}
	note := history.Note{Lines: []string{"update / / / /"}}
	prks := map[int][]recordkey.Key{}
	for i := 0; len(prks[0]) <= maxQueued || len(prks[1]) == 0; i++ {
		prk, err := people.PRK(fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		part := history.FeedPart(prk)
		prks[part] = append(prks[part], prk)
	}
	for _, prk := range slices.Concat(prks[0][:maxQueued], prks[0][:maxQueued], prks[1][:1]) {
		e.queueFeed(t.Context(), prk, note, "") // waits for room only in a full queue
	}
	if len(waiting) != maxQueued+1 {
		t.Fatalf("%d entries wait to be fed, want %d", len(waiting), maxQueued+1)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e.queueFeed(ctx, prks[0][maxQueued], note, "")
	if len(waiting) != maxQueued+1 {
		t.Error("a full queue took one more entry")
	}
	for _, end := range waiting {
		end()
	}
	if err := e.Close(); err != nil { // waits for all of them
		t.Error(err)
	}
}
