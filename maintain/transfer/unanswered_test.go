package transfer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/userdb"
)

// A silentStore is a hook. While it is silent, every command fails as if it had timed out.
type silentStore struct {
	silent atomic.Bool
	asked  atomic.Int64 // commands and pipelines while it was silent
}

func (s *silentStore) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *silentStore) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if s.silent.Load() {
			s.asked.Add(1)
			cmd.SetErr(os.ErrDeadlineExceeded)
			return os.ErrDeadlineExceeded
		}
		return next(ctx, cmd)
	}
}

func (s *silentStore) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if s.silent.Load() {
			s.asked.Add(1)
			for _, cmd := range cmds {
				cmd.SetErr(os.ErrDeadlineExceeded)
			}
			return os.ErrDeadlineExceeded
		}
		return next(ctx, cmds)
	}
}

// TestImportUnansweredStore checks that an import ends soon after the store has stopped answering.
// If it waited for the answer to each line under way, it would take an hour.
func TestImportUnansweredStore(t *testing.T) {
	var in strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&in, `{"facets":{"uid":"x%d","name":"Name %d"}}`+"\n", i, i)
	}
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		store := &silentStore{}
		s.AddHook(store)
		_, err := transfer.Import(s.Ctx, s.DB, strings.NewReader(in.String()), transfer.ImportOptions{Save: func(transfer.ImportState) error { store.silent.Store(true); return nil }})
		if !errors.Is(err, userdb.ErrUnavailable) && !errors.Is(err, userdb.ErrOutcomeUnknown) {
			t.Errorf("got %v, want ErrUnavailable or ErrOutcomeUnknown", err)
		}
		if n := store.asked.Load(); n == 0 || n > 3000 {
			t.Errorf("the store was asked %d times in vain, want 1 to 3000", n)
		}
		store.silent.Store(false)
	})
}
