package userdb

import (
	"context"
	"errors"
	"slices"

	"github.com/coffeenode/userdb/internal/hashpool"
)

// An Observer is notified of what a DB does, but not for which accounts. It receives names of
// methods, kinds of events and classes of outcomes, never an identifier, a value, a key, a secret
// or the text of an error. Packages metrics and trace implement it. An Observer that also
// implements redisdb.Observer is notified of Redis clients as well.
//
// The methods of an Observer are called on the goroutines of the DB's callers, many at the same
// time. The functions and contexts that they return must not be nil.
type Observer interface {
	// Call is called when a method of a DB, a Type or a tertiary record begins. name is the name of
	// the method, such as "Find" or "Set.Add". The method continues with the returned context and
	// calls ended once when it returns; a listing calls it when the caller's loop ends.
	Call(ctx context.Context, name string) (callCtx context.Context, ended func(Outcome))
	// Hash is called when a job for the workers of Options.HashWorkers, such as hashing a password,
	// enters the queue. began is called when the job gets a worker; it is not called if the job is
	// refused. ended is called once.
	Hash(ctx context.Context) (began func(), ended func(Outcome))
	// Event is called for each Event, with its kind.
	Event(ctx context.Context, kind string)
}

// An Outcome says in one word how a method ended. The words are:
//
//	ok               without an error
//	not_found        ErrNotFound
//	duplicate        ErrDuplicate
//	conflict         ErrConflict
//	invalid          ErrInvalid, ErrCursor, password.ErrPolicy or an undeclared name
//	hint             hints.ErrHint
//	login            ErrLogin
//	throttled        ErrTooManyAttempts
//	factor           ErrFactor
//	not_verified     ErrNotVerified
//	unproven         ErrUnproven
//	index_building   ErrIndexBuilding
//	schema_mismatch  ErrSchemaMismatch
//	corrupt          ErrCorrupt
//	unconfirmed      ErrUnconfirmed
//	outcome_unknown  ErrOutcomeUnknown
//	file_full        ErrFileFull
//	unavailable      ErrUnavailable
//	unsuitable       ErrUnsuitable
//	canceled         the caller's context was canceled
//	timeout          the deadline of the caller's context passed
//	panicked         the method did not return, because a function of the caller panicked
//	other            any other error, such as one returned by the function passed to Update
//
// If several words apply to an error, a word for a fault of the store is chosen over one for a
// mistake of the caller. Later versions may add words.
type Outcome string

// faults lists the outcomes that are faults of the store or the program.
var faults = []Outcome{
	"schema_mismatch", "corrupt", "unconfirmed", "outcome_unknown", "file_full", "unavailable", "unsuitable", "timeout", "panicked", "other",
}

// Failed reports whether the outcome is a fault of the store or the program. Results that a visitor
// or caller must expect, such as not_found or login, are not faults.
func (o Outcome) Failed() bool { return slices.Contains(faults, o) }

// errPanicked is the error that observers get if a method panics instead of returning.
var errPanicked = errors.New("did not return")

// An observation represents an observed method that has begun. The zero value represents a method
// of a DB without observers; it does nothing and costs nothing.
type observation struct{ ended func(Outcome) }

// begin notifies the observers that a method begins. The method must defer end with the same err,
// which points to its error result.
func (db *DB) begin(ctx context.Context, method string, err *error) (context.Context, observation) {
	if len(db.options.Observers) == 0 {
		return ctx, observation{}
	}
	*err = errPanicked
	return db.observe(ctx, method)
}

func (r observation) end(err *error) {
	if r.ended != nil {
		r.ended(outcomeOf(*err))
	}
}

// observe notifies all observers that a method begins. The first observer is notified first of the
// beginning and last of the end, so that its context encloses those of the others.
func (db *DB) observe(ctx context.Context, method string) (context.Context, observation) {
	all := make([]func(Outcome), len(db.options.Observers))
	for i, o := range db.options.Observers {
		ctx, all[i] = o.Call(ctx, method)
	}
	return ctx, observation{func(o Outcome) { endAll(all, o) }}
}

// endAll calls the functions that observers returned, the last first.
func endAll(ended []func(Outcome), o Outcome) {
	for _, end := range slices.Backward(ended) {
		end(o)
	}
}

// runObserved runs a job on the pool of hashers and notifies the observers.
func (hs *hashers) runObserved(ctx context.Context, c hashpool.Caller, job func() error) (err error) {
	observers := hs.db.options.Observers
	began, ended := make([]func(), len(observers)), make([]func(Outcome), len(observers))
	for i, o := range observers {
		began[i], ended[i] = o.Hash(ctx)
	}
	err = errPanicked
	defer func() { endAll(ended, outcomeOf(err)) }()
	err = hs.run(ctx, c, func() error {
		for _, begin := range began {
			begin()
		}
		return job()
	})
	return err
}
