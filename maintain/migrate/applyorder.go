package migrate

import (
	"context"
	"slices"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
)

// rank puts an entry at its places in the ordered indexes that are new.
func (p *step) rank(ctx context.Context, c *view.View, t *change.Type, r store.Record) error {
	if len(p.ordered) == 0 {
		return nil
	}
	places, _ := t.Places(r) // those who have none are told of by the check
	for _, place := range places {
		if !slices.Contains(p.ordered, place.Facet.Field) {
			continue
		}
		if _, err := c.Engine.Mend(ctx, store.Rank{Entry: r.Key, At: place}); err != nil {
			return err
		}
	}
	return nil
}

// discardOrder removes the ordered index of a field.
func discardOrder(ctx context.Context, c *view.View, t *change.Type, field string) error {
	key, err := t.OrderKey(field)
	if err != nil {
		return err
	}
	_, err = c.Engine.Mend(ctx, store.Remove{Key: key.String()})
	return err
}
