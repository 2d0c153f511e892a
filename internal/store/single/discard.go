package single

import (
	"context"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
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
	switch what := text(items(reply), 0); what {
	case "ok":
		return true, nil
	case "held", "changed":
		return false, nil
	default:
		return false, redisx.Fail(redisx.Unknown(what))
	}
}
