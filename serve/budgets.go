package serve

import (
	"context"
	"time"

	"github.com/coffeenode/userdb/serve/console"
	"github.com/coffeenode/userdb/userdb"
)

// Limits on concurrent requests, by what is known about their senders. Tests lower them.
var (
	maxRequests = 1000 // with a valid key or the session of an operator
	maxImports  = 16   // with a valid key and a body that streams for any length of time
	maxLookups  = 64   // lookups of keys and sessions in the store
	maxVisitors = 16   // signing in to the console and setting it up
)

// placeTimeout is how long a request without credentials waits for a place. Places go to waiting
// requests in the order in which they arrived.
const placeTimeout = 5 * time.Second

// A budget limits how many requests of one kind run at the same time.
type budget struct {
	places  chan struct{}
	maxWait time.Duration // how long a request waits for a place; 0 means not at all
}

// budgets holds a budget for each kind of request. Requests without credentials have budgets of
// their own, so that however many there are, they take no capacity from requests with credentials.
type budgets struct{ requests, imports, lookups, visitors budget }

func newBudgets() *budgets {
	return &budgets{
		requests: budget{places: make(chan struct{}, maxRequests)},
		imports:  budget{places: make(chan struct{}, maxImports)},
		lookups:  budget{make(chan struct{}, maxLookups), placeTimeout},
		visitors: budget{make(chan struct{}, maxVisitors), placeTimeout},
	}
}

// take takes a place, which leave gives back. Calling leave again does nothing. If no place is free
// in time, take returns a problem with [userdb.CodeUnavailable].
func (b *budget) take(ctx context.Context) (leave func(), err error) {
	select {
	case b.places <- struct{}{}:
		return b.leave(), nil
	default:
	}
	if b.maxWait > 0 {
		timer := time.NewTimer(b.maxWait)
		defer timer.Stop()
		select {
		case b.places <- struct{}{}:
			return b.leave(), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timer.C:
		}
	}
	return nil, problem(userdb.CodeUnavailable, "too many requests at once").withRetryAfter(1)
}

// leave returns a function that gives a place back the first time it is called.
func (b *budget) leave() func() {
	left := false
	return func() {
		if !left {
			left = true
			<-b.places
		}
	}
}

// admit takes a place for a request to the console, from the budget for its kind of work.
func (b *budgets) admit(ctx context.Context, w console.Work) (leave func(), err error) {
	switch w {
	case console.WorkSignIn:
		return b.visitors.take(ctx)
	case console.WorkSession:
		return b.lookups.take(ctx)
	case console.WorkUpload:
		return b.imports.take(ctx)
	}
	return b.requests.take(ctx)
}
