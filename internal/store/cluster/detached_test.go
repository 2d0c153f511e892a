package cluster

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
)

// A hangingNetwork hangs for a second when the first command that contains a word arrives. That
// command, and then all later ones, are carried out after that second, even if their callers have
// given up.
type hangingNetwork struct {
	network
	word  string
	until time.Time // when it goes on; zero before it hangs
}

func (n *hangingNetwork) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		args, takes := argsOf(cmd), roundTrip
		n.mu.Lock()
		if n.until.IsZero() && slices.Contains(args, n.word) {
			n.until, takes = time.Now().Add(time.Second), 0
		}
		takes += max(0, time.Until(n.until))
		n.mu.Unlock()
		answered := make(chan func() error, 1)
		go func() {
			time.Sleep(takes)
			n.mu.Lock()
			defer n.mu.Unlock()
			answer := n.world.do(args)
			answered <- func() error { return setAnswer(cmd, answer) }
		}()
		select {
		case set := <-answered:
			return set()
		case <-ctx.Done():
			return errGaveUp
		}
	}
}

func (n *hangingNetwork) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	one := n.ProcessHook(nil)
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return parallel(len(cmds), func(i int) error { return one(ctx, cmds[i]) })
	}
}

// newBubbleClient returns a client that dials nobody and starts no goroutines.
func newBubbleClient() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// TestCloseWaits closes the engine right after a caller has given up because a server hung. What is
// due after the caller's change must be done when Close returns.
func TestCloseWaits(t *testing.T) {
	index := parsed(t, "user/job:cook/~prks").String()
	for _, tt := range []struct {
		name, word string
		want       error
	}{
		{"the change is made, and its index is not", index, nil},
		{"the outcome of the change is unknown", commitScript.SHA, store.ErrOutcomeUnknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(unchanged)
				w.reset(map[string]*cell{})
				client := newBubbleClient()
				n := &hangingNetwork{network: network{world: w}, word: tt.word}
				client.AddHook(n)
				defer client.Close()
				e := New(client, Options{})
				g := people.Guard
				e.schemaChecks.Store(g.Key, schemaCheck{g.Fingerprint, time.Now().Add(time.Hour), math.MaxInt64})
				c, err := people.Create(change.Draft{UID: "A", Facets: pairs("name=n job=cook")})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
				if _, err := e.Apply(ctx, c); !errors.Is(err, tt.want) {
					t.Errorf("got error %v, want %v", err, tt.want)
				}
				if err := e.Close(); err != nil {
					t.Error(err)
				}
				n.mu.Lock()
				if in := w.at(index); in == nil || !slices.Contains(in.names(), "user/uid:A") {
					t.Error("the entry is not in its index when Close has returned")
				}
				n.mu.Unlock()
				time.Sleep(finishTime) // a bubble must not end before its goroutines
			})
		})
	}
}

// TestCloseGivesUp checks that Close waits for at most finishTime.
func TestCloseGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newBubbleClient()
		defer client.Close()
		e := New(client, Options{})
		e.goDetached(t.Context(), feedTimeout, func(ctx context.Context) { <-ctx.Done() })
		begin := time.Now()
		if err := e.Close(); err != nil || time.Since(begin) != finishTime {
			t.Errorf("Close took %v and returned %v, want %v and no error", time.Since(begin), err, finishTime)
		}
		time.Sleep(feedTimeout) // until the work ends
	})
}
