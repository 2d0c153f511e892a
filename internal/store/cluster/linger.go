package cluster

import (
	"context"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

// lingers is how often, and firstLinger how long before the first time, something is looked at that may be a
// change that is under way. Each wait is half as long again as the one before; together they are over
// burialTime, by when a writer has ended what he began, or died.
const (
	lingers     = 11
	firstLinger = 100 * time.Millisecond
)

// Linger implements [store.Engine].
func (e *Engine) Linger(ctx context.Context, n int) (bool, error) {
	if n >= lingers || store.IsAlone(ctx) {
		return false, nil
	}
	wait := firstLinger
	for range n {
		wait += wait / 2
	}
	if err := e.sleep(ctx, wait); err != nil {
		return false, redisx.Fail(err)
	}
	return true, nil
}
