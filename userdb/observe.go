package userdb

import (
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"
)

// An Observer is told what a DB does, and nothing about whom: names of verbs, kinds of events and classes of outcomes, never
// an identifier, a value, a key, a secret or the text of an error. Packages metrics and trace have one each. Its methods are
// called on the goroutines of verbs, many at a time. What they return is never nil.
type Observer interface {
	// Verb is told that a method of a DB, a Type or a tertiary record begins, such as "Find" or "Set.Add". The verb goes on
	// with the context returned. ended is called once, when it has ended; for a listing, when its caller has.
	Verb(ctx context.Context, name string) (verb context.Context, ended func(Outcome))
	// Hash is told that the hash of a password, or what else takes a worker of Options.HashWorkers, waits for its turn. began
	// is called when it has it, and never if it is refused; ended is called once.
	Hash(ctx context.Context) (began func(), ended func(Outcome))
	// Event is told the kind of an Event.
	Event(ctx context.Context, kind string)
	// Client is told of each client that a DB goes by, before Open or New sends anything through it. opened says that it is
	// the DB's own, and not one that New was given, perhaps more than once.
	Client(c redis.UniversalClient, opened bool)
}

// An Outcome is how a verb ended, as one of few words:
//
//	ok               without an error
//	not_found        ErrNotFound
//	duplicate        ErrDuplicate
//	conflict         ErrConflict
//	invalid          ErrInvalid, ErrCursor, a password that the policy refuses, a name that the schema does not have
//	hint             hints.ErrHint
//	login            ErrLogin
//	throttled        ErrTooManyAttempts
//	index_building   ErrIndexBuilding
//	schema_mismatch  ErrSchemaMismatch
//	corrupt          ErrCorrupt
//	unconfirmed      ErrUnconfirmed
//	outcome_unknown  ErrOutcomeUnknown
//	file_full        ErrFileFull
//	unavailable      ErrUnavailable
//	unsuitable       ErrUnsuitable
//	canceled         the caller's context was canceled
//	timeout          the caller's context has ended, and nothing is known of the store
//	panicked         the verb did not return: a function of the caller's panicked in it
//	other            any other error, such as one of the function that Update was given
//
// An error that is several of them has the word for the store's part. Later versions may have more words.
type Outcome string

// failures are the outcomes that are not for the caller to mend.
var failures = []Outcome{
	"schema_mismatch", "corrupt", "unconfirmed", "outcome_unknown", "file_full", "unavailable", "unsuitable", "timeout", "panicked", "other",
}

// Failed reports whether the outcome is a fault of the store or of the program. What a visitor or a caller has to hear, such as
// not_found or login, is no fault.
func (o Outcome) Failed() bool { return slices.Contains(failures, o) }

// errPanicked is the error of a verb until it returns another one.
var errPanicked = errors.New("did not return")

// A running verb, for those who observe it. The zero running is of a DB that nobody observes: it costs nothing.
type running struct{ ended func(Outcome) }

// begin tells that a verb begins. err is where it will have its error; end reads it there, and is deferred.
func (db *DB) begin(ctx context.Context, verb string, err *error) (context.Context, running) {
	if len(db.options.Observers) == 0 {
		return ctx, running{}
	}
	*err = errPanicked
	return db.observe(ctx, verb)
}

func (r running) end(err *error) {
	if r.ended != nil {
		r.ended(outcomeOf(*err))
	}
}

// observe tells all observers of a verb. The first is told first of its beginning, and last of its end: its context is
// around those of the others.
func (db *DB) observe(ctx context.Context, verb string) (context.Context, running) {
	all := make([]func(Outcome), len(db.options.Observers))
	for i, o := range db.options.Observers {
		ctx, all[i] = o.Verb(ctx, verb)
	}
	return ctx, running{func(o Outcome) { endAll(all, o) }}
}

// endAll tells all who were told of a beginning that it ended, the last first.
func endAll(ended []func(Outcome), o Outcome) {
	for _, end := range slices.Backward(ended) {
		end(o)
	}
}

// observed runs a job for the pool of hashers, with those told who observe.
func (hs *hashers) observed(ctx context.Context, job func() error) (err error) {
	observers := hs.db.options.Observers
	began, ended := make([]func(), len(observers)), make([]func(Outcome), len(observers))
	for i, o := range observers {
		began[i], ended[i] = o.Hash(ctx)
	}
	err = errPanicked
	defer func() { endAll(ended, outcomeOf(err)) }()
	err = hs.run(ctx, func() error {
		for _, begin := range began {
			begin()
		}
		return job()
	})
	return err
}
