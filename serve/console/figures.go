package console

import (
	"context"
	"errors"
	"time"

	"github.com/coffeenode/userdb/serve/internal/figures"
)

// figureAge is the age after which a figure that needs a scan of all records is computed again.
// figureWait is how long a page waits for figures that are being computed.
const (
	figureAge  = 5 * time.Minute
	figureWait = 100 * time.Millisecond
)

// gatherFigure returns the figure with this name and the time when it was computed, which is zero
// if it is not known yet. If the figure is older than age, gatherFigure computes it again and waits
// for the result until ctx ends. See withFigureTimeout.
func gatherFigure[T any](ctx context.Context, f *figures.Cache, name string, age time.Duration, gather func(context.Context) (T, error)) (value T, at time.Time) {
	// If this fails, the page is shown without the figure.
	one, _ := figures.Gather(ctx, f, name, age, gather)
	return one.Value, one.EndedAt
}

// withFigureTimeout returns a context that limits how long a page waits for all its figures.
func withFigureTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, figureWait)
}

// isAny reports whether err matches any of the targets.
func isAny(err error, targets ...error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
