package console

import (
	"context"
	"errors"
	"time"

	"github.com/coffeenode/userdb/serve/internal/figures"
)

// How long a page waits for a figure that is not known yet, and how old one gets that goes over all
// records.
const (
	figureAge  = 5 * time.Minute
	figureWait = 100 * time.Millisecond
)

// gathered returns a figure by its name, and when it was gathered; the zero time if it is not known
// yet. One that is older than age is gathered anew, for which it waits until ctx ends: see soon.
func gathered[T any](ctx context.Context, f *figures.Figures, name string, age time.Duration, gather func(context.Context) (T, error)) (value T, at time.Time) {
	one, _ := figures.Gather(ctx, f, name, age, gather) // a page goes on without it
	return one.Value, one.Ended
}

// soon is how long a page waits for all its figures.
func soon(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, figureWait)
}

// isAny reports whether an error is one of some.
func isAny(err error, some ...error) bool {
	for _, one := range some {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}
