package cluster

import (
	"context"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

// Find implements [store.Engine]: one round of SRKs in parallel, one of entries.
func (e *Engine) Find(ctx context.Context, lookups []store.Lookup) ([]store.Found, error) {
	var found []store.Found
	_, err := e.again(ctx, func() (_ any, err error) {
		found, err = e.FindPlain(ctx, lookups)
		return nil, err
	})
	if err != nil {
		return nil, redisx.Harmless(err)
	}
	for _, f := range found {
		e.read(ctx, f.Record.Key, f.Record.Fields)
	}
	return found, nil
}

// Look implements [store.Engine]: strings of one command would have to lie in one slot.
func (e *Engine) Look(ctx context.Context, at []store.LookAt) (raws []store.Raw, err error) {
	_, err = e.again(ctx, func() (_ any, err error) {
		raws, err = e.Keys.Look(ctx, at)
		return nil, err
	})
	return raws, redisx.Harmless(err)
}
