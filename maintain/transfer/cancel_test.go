package transfer_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/userdb"
)

// A cancelingHashing calls cancel in the first comparison of a password, which it refuses with a
// *userdb.BusyError.
type cancelingHashing struct {
	view.Hashing
	cancel   func()
	compared atomic.Int32
}

func (h *cancelingHashing) Matches(ctx context.Context, t *change.Type, hash string, imported bool, pw string) (bool, error) {
	if h.compared.Add(1) == 1 {
		h.cancel()
		return false, &userdb.BusyError{Wait: time.Millisecond}
	}
	return h.Hashing.Matches(ctx, t, hash, imported, pw)
}

// TestImportComparesNoMore checks that a canceled import compares no more passwords.
func TestImportComparesNoMore(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		in := func(password string) string {
			return `{"facets":{"uid":"u1","email":"u1@example.com"},"clear_password":"` + password + `"}`
		}
		s.importText(t, in("correct horse"), transfer.ImportOptions{}, created(1))
		for _, dry := range []bool{false, true} {
			ctx, cancel := context.WithCancel(s.Ctx)
			c := &view.Of(s.DB).Config
			h, before := &cancelingHashing{Hashing: c.Hashing, cancel: cancel}, c.Hashing
			c.Hashing = h
			report, err := transfer.Import(ctx, s.DB, strings.NewReader(in("battery staple")), transfer.ImportOptions{OnDuplicate: transfer.DuplicateUpdate, DryRun: dry})
			c.Hashing = before
			if n := h.compared.Load(); !errors.Is(err, context.Canceled) || report.Read != 0 || n != 1 {
				t.Errorf("dry run %v: %d comparisons, report %+v, error %v; want one comparison and context.Canceled", dry, n, report, err)
			}
		}
	})
}

// An armed stallHook calls cancel when a script is sent, and delays the script until its context
// ends or release is called.
type stallHook struct {
	cancel           func()
	armed            atomic.Bool
	stalled, overdue atomic.Bool
	released         chan struct{}
	once             sync.Once
}

func (h *stallHook) release() { h.once.Do(func() { close(h.released) }) }

func (h *stallHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *stallHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := h.stall(ctx, cmd); err != nil {
			return err
		}
		return next(ctx, cmd)
	}
}

func (h *stallHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := h.stall(ctx, cmds...); err != nil {
			return err
		}
		return next(ctx, cmds)
	}
}

func (h *stallHook) stall(ctx context.Context, cmds ...redis.Cmder) error {
	if !strings.HasPrefix(cmds[0].Name(), "eval") || !h.armed.Load() {
		return nil
	}
	h.stalled.Store(true)
	h.cancel()
	defer h.release() // when one script stops waiting, so do the others
	select {
	case <-ctx.Done():
		for _, cmd := range cmds {
			cmd.SetErr(ctx.Err())
		}
		return ctx.Err()
	case <-time.After(30 * time.Second):
		h.overdue.Store(true)
	case <-h.released:
	}
	return nil
}

// TestImportEndsAlthoughStoreStalls checks that a canceled import waits only a limited time for the
// store to complete the writes that the import has started.
func TestImportEndsAlthoughStoreStalls(t *testing.T) {
	defer transfer.SetFinishTimeout(50 * time.Millisecond)()
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, fullSchema())
		ctx, cancel := context.WithCancel(s.Ctx)
		h := &stallHook{cancel: cancel, released: make(chan struct{})}
		defer h.release()
		s.AddHook(h)
		in := strings.Repeat(`{"facets":{"motto":"x"}}`+"\n", 5000)
		_, err := transfer.Import(ctx, s.DB, strings.NewReader(in), transfer.ImportOptions{Save: func(transfer.ImportState) error { h.armed.Store(true); return nil }})
		if !errors.Is(err, context.Canceled) || !h.stalled.Load() || h.overdue.Load() {
			t.Errorf("got %v, stalled %v, overdue %v; want the import to end while a script waits", err, h.stalled.Load(), h.overdue.Load())
		}
	})
}
