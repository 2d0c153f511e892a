package view

import "context"

type placeKey struct{}

// WithPlace returns a context for calls that hold one of the places for requests that are served at
// the same time. A call that needs a hash worker calls leave, perhaps more than once, to give the
// place back.
func WithPlace(ctx context.Context, leave func()) context.Context {
	return context.WithValue(ctx, placeKey{}, leave)
}

// LeavePlace gives back the place of a call, if its context has one.
func LeavePlace(ctx context.Context) {
	if leave, has := ctx.Value(placeKey{}).(func()); has {
		leave()
	}
}
