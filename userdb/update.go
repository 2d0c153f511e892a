package userdb

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
)

// updateAttempts bounds how often Update begins again after a conflict.
const updateAttempts = 100

// Update reads an entry, lets f change its copy, and writes the difference if nobody changed the
// entry meanwhile; else it begins again, so f may run more than once and should do nothing else. An
// error of f ends Update and is returned. Where f changes nothing, nothing is written. A facet that cannot be
// read is absent to f; if f neither sets nor drops it, Update fails with ErrCorrupt.
func (t *Type) Update(ctx context.Context, h hints.Hint, f func(*Entry) error) (Entry, error) {
	for attempt := range updateAttempts {
		r, err := t.record(ctx, h)
		if err != nil {
			return Entry{}, err
		}
		e := t.bare(r)
		if err := f(&e); err != nil {
			return Entry{}, err
		}
		if err := e.readable(); err != nil {
			return Entry{}, err
		}
		e, _, err = t.write(ctx, r, e)
		if !errors.Is(err, ErrConflict) {
			return e, err
		}
		if err := retryAfter(ctx, attempt); err != nil {
			return Entry{}, err
		}
	}
	return Entry{}, ErrConflict
}

// Save writes an entry that was read before and changed since with Put and Drop: one round trip.
// ErrConflict says that it is not at that revision any more (I6); ErrNotFound that it is gone.
func (t *Type) Save(ctx context.Context, e Entry) (Entry, error) {
	if !e.key.IsValid() || e.Type() != t.Name() {
		return Entry{}, change.Invalid(store.FieldType, "type", "not an entry of type "+t.Name())
	}
	r := store.Record{Key: e.key.In(t.db.view.NS), Fields: e.was}
	saved, changed, err := t.write(ctx, r, e)
	if err != nil || changed {
		return saved, err
	}
	now, err := t.db.view.Read(ctx, store.Lookup{PRK: r.Key})
	if err == nil && now.Version().Rev != r.Version().Rev { // to be fenced is no change
		err = ErrConflict
	}
	return e, err
}

// write brings a record to what an entry says, and says whether there was anything to write. The
// password hash, which no Entry holds, stays.
func (t *Type) write(ctx context.Context, r store.Record, e Entry) (Entry, bool, error) {
	if len(e.edits) == 0 {
		return e, false, nil
	}
	wires := change.Bare(r)
	for field, ed := range e.edits {
		if ed.gone && field == store.FieldPassword {
			return Entry{}, false, change.Invalid(field, "name", "a password is set by its own verb")
		}
		if ed.gone {
			delete(wires, field)
		} else if err := t.t.EncodeFacet(wires, field, ed.v, r.Fields); err != nil {
			return Entry{}, false, err
		}
	}
	c, changed, err := t.t.Update(r, wires, nil)
	if err != nil || !changed {
		return e, false, err
	}
	v, err := t.db.view.Apply(ctx, t.t, c)
	if !made(err) {
		return Entry{}, true, named(err)
	}
	e, err = t.made(change.After(c, v, r.Fields), err)
	return e, true, err
}

// Delete ends an entry, with its SRKs, index members and tertiary records, in one change. An entry
// that changes meanwhile is deleted as it is then.
func (t *Type) Delete(ctx context.Context, h hints.Hint) error {
	for attempt := range updateAttempts {
		r, err := t.record(ctx, h)
		if err != nil {
			return err
		}
		_, err = t.db.view.Apply(ctx, t.t, t.t.Delete(r))
		if !errors.Is(err, ErrConflict) {
			return err
		}
		if err := retryAfter(ctx, attempt); err != nil {
			return err
		}
	}
	return ErrConflict
}

// retryAfter waits a little, longer with every attempt, so that writers of one entry part.
func retryAfter(ctx context.Context, attempt int) error {
	most := min(time.Millisecond<<min(attempt, 6), 50*time.Millisecond)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(rand.N(most)):
		return nil
	}
}
