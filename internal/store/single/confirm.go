package single

import (
	"context"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

// Confirm implements [store.Confirmer]: a change is one script, so its entry stands for all of it.
func (e *Engine) Confirm(ctx context.Context, c store.Change, v store.Version, n int, most time.Duration) error {
	return redisx.ConfirmEntry(ctx, e.client, c.Key.String(), v, n, most)
}
