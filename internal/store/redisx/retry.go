package redisx

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/coffeenode/userdb/internal/store"
)

// firstWait is the wait before something is sent for the second time. Each further wait is twice as long.
const firstWait = 10 * time.Millisecond

// A Retry sends something again until a server answers, as long as that makes sense.
type Retry struct {
	Attempts int
	Passing  func(error) bool                           // another attempt may succeed
	Sent     func(error) bool                           // the server may have carried it out
	Pause    func(context.Context, time.Duration) error // waits, with jitter
	Before   func(context.Context, error)               // is called before each further attempt; nil: nothing
}

// Do sends something that may arrive twice. unsure reports whether an earlier attempt may have been carried out:
// then an answer may be about the second time.
func (r *Retry) Do(ctx context.Context, send func(unsure bool) (any, error)) (value any, unsure bool, err error) {
	for attempt := range r.Attempts {
		if value, err = send(unsure); err == nil {
			return value, unsure, nil
		}
		unsure = unsure || r.Sent(err)
		if !r.Passing(err) || ctx.Err() != nil {
			break
		}
		if r.Before != nil {
			r.Before(ctx, err)
		}
		if r.Pause(ctx, firstWait<<attempt) != nil {
			break
		}
	}
	if unsure {
		return nil, true, &UnknownError{err}
	}
	return nil, false, Fail(err)
}

// An UnknownError is about something that may have been done.
type UnknownError struct{ Cause error }

func (u *UnknownError) Error() string {
	return store.ErrOutcomeUnknown.Error() + ": " + u.Cause.Error()
}

// Unwrap makes the error an ErrOutcomeUnknown besides what its cause is.
func (u *UnknownError) Unwrap() []error { return []error{store.ErrOutcomeUnknown, u.Cause} }

// Harmless is the error of something that may be done any number of times: whether it was does not matter.
func Harmless(err error) error {
	var u *UnknownError
	if errors.As(err, &u) {
		return Fail(u.Cause)
	}
	return err
}

// Pause waits for d, give or take half of it.
func Pause(ctx context.Context, d time.Duration) error { return Sleep(ctx, d/2+rand.N(d)) }

// Sleep waits for d, or until the context ends.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
