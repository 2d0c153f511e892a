package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/coffeenode/userdb/internal/store"
)

// TestOddReplies has one command come back with a reply of another kind, as through a client that changes what it
// sends: no verb takes that for "not there", "taken" or "done".
func TestOddReplies(t *testing.T) {
	numbers := []any{nil, "1", []any{}, []any{"ok"}}
	verdicts := []any{nil, "ok", int64(1), []any{}, []any{int64(1)}, []any{"odd"}}
	for _, tt := range []struct {
		name, command, first string
		odd                  []any
	}{
		{"exists", "exists", "", numbers},
		{"sadd", "sadd", "user/uid:P/tags", numbers},
		{"claim", "evalsha", claimScript.SHA, []any{nil, []any{}}},
		{"ready", "evalsha", readyScript.SHA, numbers},
		{"fence", "evalsha", fenceScript.SHA, numbers},
		{"swap", "evalsha", swapScript.SHA, numbers},
		{"commit", "evalsha", commitScript.SHA, verdicts},
	} {
		for _, odd := range tt.odd {
			t.Run(fmt.Sprintf("%s %T %v", tt.name, odd, odd), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					oddReply(t, func(args []string) bool {
						return strings.EqualFold(args[0], tt.command) && (tt.first == "" || args[1] == tt.first)
					}, odd)
				})
			})
		}
	}
}

func oddReply(t *testing.T, is func(args []string) bool, odd any) {
	t.Helper()
	s := newStage(newWorld(unchanged), func(_ *actor, args []string) ([]string, any) {
		if is(args) {
			return nil, odd
		}
		return args, nil
	})
	s.patience = 1000
	s.reset(map[string]*cell{"user/email:x/~prk": text("user/uid:Q " + some)})
	s.play(then(create("P", "email=x name=n", "red"), tag("P", "blue")))
	synctest.Wait()
	defer s.close()
	a := s.actors[0]
	for len(a.waiting()) > 0 {
		s.step(a.waiting()[0], none)
	}
	var first error
	for _, err := range a.results {
		if err != nil {
			first = err
			break
		}
	}
	if !errors.Is(first, store.ErrReply) || !errors.Is(first, store.ErrUnavailable) && !errors.Is(first, store.ErrOutcomeUnknown) {
		t.Errorf("got %v, want the store unavailable for a reply of another kind", first)
	}
	if v := s.violated(); v != "" {
		t.Error(v)
	}
}
