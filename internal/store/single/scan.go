package single

import (
	"context"
	"iter"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/onekey"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

// Scan implements [store.Engine].
func (e *Engine) Scan(ctx context.Context, s store.Scan) ([]string, string, error) {
	if s.Index.IsValid() {
		return e.ScanIndex(ctx, s)
	}
	if e.options.Embedded {
		return e.scanEmbedded(ctx, s)
	}
	at, err := redisx.ParseCursor(s.Cursor)
	if err != nil {
		return nil, "", err
	}
	keys, at, err := redisx.Scan(ctx, e.client, at, s)
	return keys, at.String(), redisx.Fail(err)
}

// ScanAll implements [store.Engine].
func (e *Engine) ScanAll(ctx context.Context, s store.Scan) iter.Seq2[[]string, error] {
	return store.ScanSteps(ctx, e, s)
}

// scanEmbedded takes one step of a scan of the embedded store, whose keys are sorted.
func (e *Engine) scanEmbedded(ctx context.Context, s store.Scan) ([]string, string, error) {
	keys, next, err := onekey.ScanSorted(ctx, e.client, "scankeys", s.Pattern, s.Cursor, s.Count)
	if s.Tally != "" && err == nil {
		keys, err = redisx.Tally(ctx, e.client, keys, s.Tally)
	}
	return keys, next, redisx.Fail(err)
}
