package single

import (
	"context"

	"github.com/coffeenode/userdb/internal/store"
)

// Compact implements [store.Peeker].
func (e *Engine) Compact(ctx context.Context) (store.CompactLimits, error) {
	return store.AskCompact(ctx, e.client)
}
