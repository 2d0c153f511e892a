package cluster

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// TestFullFeedQueue has one part of the feed stand still: changes of its entries end with their contexts when the queue
// is full, those of other parts go on, and an entry that waits takes no more room.
func TestFullFeedQueue(t *testing.T) {
	e := New(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), Options{})
	var waiting []func()
	e.background = func(ctx context.Context, _ time.Duration, do func(context.Context)) {
		waiting = append(waiting, func() {
			ended, cancel := context.WithCancel(ctx)
			cancel()
			do(ended)
		})
	}
	note := store.Note{Lines: []string{"update / / / /"}}
	prks := map[int][]recordkey.Key{}
	for i := 0; len(prks[0]) <= mostUnfed || len(prks[1]) == 0; i++ {
		prk, err := people.PRK(fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		part := store.FeedPart(prk)
		prks[part] = append(prks[part], prk)
	}
	for _, prk := range slices.Concat(prks[0][:mostUnfed], prks[0][:mostUnfed], prks[1][:1]) {
		e.feedSoon(t.Context(), prk, note, "") // no deadline: it would wait for room
	}
	if len(waiting) != mostUnfed+1 {
		t.Fatalf("%d entries wait to be fed, want %d", len(waiting), mostUnfed+1)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e.feedSoon(ctx, prks[0][mostUnfed], note, "")
	if len(waiting) != mostUnfed+1 {
		t.Error("a full queue took one more entry")
	}
	for _, end := range waiting {
		end()
	}
	if err := e.Close(); err != nil { // which waits for all of them
		t.Error(err)
	}
}
