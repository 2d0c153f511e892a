package serve

import (
	"context"
	"time"

	"github.com/coffeenode/userdb/serve/console"
	"github.com/coffeenode/userdb/userdb"
)

// Limits on the requests that are worked on at the same time, by what is known of their senders.
// Tests lower them.
var (
	mostAtOnce   = 1000 // with a good key, or the session of an operator
	mostImports  = 16   // with one, and a body that streams for as long as it takes
	mostLookups  = 64   // keys and sessions that are looked up in the store
	mostVisitors = 16   // sign-ins and set-ups at the console
)

// placeTime is how long a request without credentials waits for a place. Those that come first get
// the next one.
const placeTime = 5 * time.Second

// A budget limits how many requests of one kind are worked on at the same time.
type budget struct {
	places   chan struct{}
	patience time.Duration // for a place; 0: a request is refused at once
}

// budgets keep work without credentials apart from work that has them: however much there is of the
// first, it takes no place of the second.
type budgets struct{ requests, imports, lookups, visitors budget }

func newBudgets() *budgets {
	return &budgets{
		requests: budget{places: make(chan struct{}, mostAtOnce)},
		imports:  budget{places: make(chan struct{}, mostImports)},
		lookups:  budget{make(chan struct{}, mostLookups), placeTime},
		visitors: budget{make(chan struct{}, mostVisitors), placeTime},
	}
}

// take takes a place, which leave gives back. Calling leave again does nothing.
func (b *budget) take(ctx context.Context) (leave func(), err error) {
	select {
	case b.places <- struct{}{}:
		return b.leave(), nil
	default:
	}
	if b.patience > 0 {
		timer := time.NewTimer(b.patience)
		defer timer.Stop()
		select {
		case b.places <- struct{}{}:
			return b.leave(), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timer.C:
		}
	}
	return nil, problem(userdb.CodeUnavailable, "too many requests at once").retry(1)
}

func (b *budget) leave() func() {
	left := false
	return func() {
		if !left {
			left = true
			<-b.places
		}
	}
}

// admit takes a place for a request of the console.
func (b *budgets) admit(ctx context.Context, w console.Work) (leave func(), err error) {
	switch w {
	case console.Visiting:
		return b.visitors.take(ctx)
	case console.LookingUp:
		return b.lookups.take(ctx)
	case console.Uploading:
		return b.imports.take(ctx)
	}
	return b.requests.take(ctx)
}
