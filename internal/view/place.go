package view

import "context"

type placeKey struct{}

// WithPlace returns a context for a call that counts against the number of requests that are served
// at the same time. Before the call waits for a hash worker, it calls leave, so that it no longer
// counts. If leave is called again, it must have no effect.
func WithPlace(ctx context.Context, leave func()) context.Context {
	return context.WithValue(ctx, placeKey{}, leave)
}

// LeavePlace calls the function that was passed to WithPlace, if there is one.
func LeavePlace(ctx context.Context) {
	if leave, has := ctx.Value(placeKey{}).(func()); has {
		leave()
	}
}
