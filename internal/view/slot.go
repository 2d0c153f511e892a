package view

import "context"

type slotKey struct{}

// WithSlot returns a context for a call that counts against the number of requests that are served
// at the same time. Before the call waits for a hash worker, it calls leave, so that it no longer
// counts. If leave is called again, it must have no effect.
func WithSlot(ctx context.Context, leave func()) context.Context {
	return context.WithValue(ctx, slotKey{}, leave)
}

// ReleaseSlot calls the function that was passed to WithSlot, if there is one.
func ReleaseSlot(ctx context.Context) {
	if leave, has := ctx.Value(slotKey{}).(func()); has {
		leave()
	}
}
