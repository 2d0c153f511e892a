package single

import (
	"context"

	"github.com/coffeenode/userdb/internal/store/redisx"
)

const (
	resent   = "again"
	attempts = 6
)

// write runs a script until its outcome is known. The token in its arguments makes it safe to send
// again (I7). unsure says that an earlier attempt may have been carried out: then only {"ok"} is
// certain, and the caller decides what another answer proves.
func (e *Engine) write(ctx context.Context, s redisx.Script, keys, args []string) (reply any, unsure bool, err error) {
	return e.writeMarked(ctx, s, keys, args, -1)
}

// writeMarked is write for a script that must know when it may have run before: then the argument at
// mark becomes resent.
func (e *Engine) writeMarked(ctx context.Context, s redisx.Script, keys, args []string, mark int) (reply any, unsure bool, err error) {
	return e.client.Retry.Do(ctx, func(unsure bool) (any, error) {
		if unsure && mark >= 0 {
			args[mark] = resent
		}
		return s.Write(ctx, e.client.Process, keys, args)
	})
}
