package single

import (
	"context"

	"github.com/coffeenode/userdb/internal/store/redisx"
)

// Survey implements [store.Surveyor]. The embedded store is known.
func (e *Engine) Survey(ctx context.Context) ([]string, error) {
	if e.options.Match {
		return nil, nil
	}
	if err := redisx.OneSlot(ctx, e.client); err != nil {
		return nil, err
	}
	if err := redisx.Faithful(ctx, e.client); err != nil {
		return nil, err
	}
	return redisx.Evicts(ctx, e.client, "the server"), nil
}

// InSteps implements [store.Engine]: every change is one script.
func (e *Engine) InSteps() bool { return false }

// Linger implements [store.Engine].
func (e *Engine) Linger(context.Context, int) (bool, error) { return false, nil }

// Settle implements [store.Engine]: every change compares.
func (e *Engine) Settle(context.Context) error { return nil }
