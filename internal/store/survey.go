package store

import (
	"context"
	"time"
)

// A Surveyor looks at what it was opened over. The warnings are about what breaks the promise later; the error,
// ErrUnsuitable, is about what can never work. Servers that forbid the looking are passed over.
type Surveyor interface {
	Survey(ctx context.Context) (warnings []string, err error)
}

// A Confirmer waits until a change that was made is on replicas, too.
type Confirmer interface {
	// Confirm waits for n replicas of each server that has records of the change; ErrUnconfirmed if
	// they do not have them in time.
	Confirm(ctx context.Context, c Change, v Version, n int, most time.Duration) error
}
