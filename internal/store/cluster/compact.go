package cluster

import (
	"context"

	"github.com/coffeenode/userdb/internal/store"
)

// Compact implements [store.Peeker]: an entry may come to lie on any master, so the least limits hold.
func (e *Engine) Compact(ctx context.Context) (store.CompactLimits, error) {
	masters, err := e.masters(ctx)
	if err != nil {
		return store.UsualLimits, err
	}
	each := make([]store.CompactLimits, len(masters))
	err = together(len(masters), func(i int) (err error) {
		each[i], err = store.AskCompact(ctx, masters[i].client)
		return err
	})
	all := each[0]
	for _, limits := range each[1:] {
		all = all.Least(limits)
	}
	return all, err
}
