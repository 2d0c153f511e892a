package single

import (
	"context"

	"github.com/coffeenode/userdb/internal/store"
)

// Discard implements [store.Engine]: one script, harmless when sent again.
func (e *Engine) Discard(ctx context.Context, l store.Leftover) (bool, error) {
	keys := []string{l.Key}
	if l.Owner != "" {
		keys = append(keys, l.Owner)
	}
	reply, _, err := e.write(ctx, discardScript, keys, []string{l.Seen, l.Member, l.Field, l.Value})
	if err != nil {
		return false, err
	}
	return text(items(reply), 0) == "ok", nil
}
