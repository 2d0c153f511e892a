package single

import (
	"context"

	"github.com/coffeenode/userdb/internal/store"
)

// Survey implements [store.Surveyor]. The embedded store is known.
func (e *Engine) Survey(ctx context.Context) ([]string, error) {
	if e.options.Match {
		return nil, nil
	}
	if err := store.OneSlot(ctx, e.client); err != nil {
		return nil, err
	}
	if err := store.Faithful(ctx, e.client); err != nil {
		return nil, err
	}
	return store.Evicts(ctx, e.client, "the server"), nil
}
