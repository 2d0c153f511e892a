package cluster

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// How long a verb goes on with what is left to do.
const (
	giveBackTime = 2 * time.Second
	finishTime   = 10 * time.Second
)

// get reads a string, "" where there is none.
func (e *Engine) get(ctx context.Context, key string) (string, error) {
	text, _, err := e.there(ctx, key)
	return text, err
}

// exists reports whether there is a record.
func (e *Engine) exists(ctx context.Context, key string) (bool, error) {
	value, err := e.plain(ctx, redisx.IsNumber, "exists", key)
	return value == int64(1), redisx.Harmless(err)
}

// there reads a string that may be empty, and reports whether there is one.
func (e *Engine) there(ctx context.Context, key string) (string, bool, error) {
	value, err := e.plain(ctx, redisx.IsText|redisx.IsNil, "get", key)
	text, is := value.(string)
	return text, is, redisx.Harmless(err)
}

// write sends a command that may arrive twice.
func (e *Engine) write(ctx context.Context, args ...string) error {
	_, err := e.plain(ctx, redisx.IsNumber, args...)
	return redisx.Harmless(err)
}

// fence says whether an entry holds a value, and if not, keeps what was prepared on it from being
// committed; look only asks.
func (e *Engine) fence(ctx context.Context, entry, srk recordkey.Key, look bool) (bool, error) {
	mode := "fence"
	if look {
		mode = "look"
	}
	r, err := e.run(ctx, on(fenceScript, entry.String(), srk.Type(), srk.Field(), srk.Value(), mode, tombstoneLife))
	return r.yes(), redisx.Harmless(err)
}

// prepare reads an entry anew after an attempt that came to nothing: a create needs a dead one whose
// burial is over, any other change one that is as it was but for its fence.
func (e *Engine) prepare(ctx context.Context, c store.Change) (store.Seen, error) {
	for looks := 0; ; looks++ {
		r, err := e.run(ctx, on(prepareScript, c.Key.String(), tombstoneLife))
		if err != nil {
			return store.Seen{}, redisx.Harmless(err)
		}
		head, _ := r.value.([]any)
		live, rev, dying, fill := redisx.Text(head, 0) != "", store.Rev(redisx.Text(head, 1)), redisx.Text(head, 3), redisx.Text(head, 4)
		v := store.Seen{Rev: rev, Fence: redisx.Text(head, 2)}
		switch {
		case c.Create && live:
			return v, &store.DuplicateError{Field: c.Key.Field(), Primary: true}
		case c.Create && dying == "":
			return v, nil
		case c.Create && isOver(redisx.Text(head, 5)):
			err = e.takeOver(ctx, c, dying)
		case c.Create:
			err = e.pause(ctx, min(e.trips.several(4, 12)<<min(looks, 10), longestPause))
		case !live && !c.Mend:
			return v, store.ErrNotFound
		case rev != c.Seen.Rev:
			return v, store.ErrConflict
		case fill == "" || !c.Delete:
			return v, nil
		default:
			err = e.complete(ctx, c.Key, fill)
		}
		if err != nil {
			return store.Seen{}, redisx.Fail(err)
		}
	}
}

// mustLive decides whether tertiary commands may go on: the entry must be live, and what was
// laid ready for it must be in its place.
func (e *Engine) mustLive(ctx context.Context, prk recordkey.Key) (filled bool, err error) {
	var head []any
	_, err = e.again(ctx, func() (_ any, err error) {
		head, err = redisx.List(redisx.HMGet(ctx, e.client, prk.String(), store.FieldType, store.FieldFill), 2)
		if redisx.WrongType(err) {
			return nil, nil
		}
		return nil, err
	})
	switch {
	case err != nil:
		return false, redisx.Harmless(err)
	case redisx.Text(head, 0) == "":
		return false, store.ErrNotFound
	case redisx.Text(head, 1) == "":
		return false, nil
	}
	return true, e.complete(ctx, prk, redisx.Text(head, 1))
}

// pipeline sends commands that may arrive twice, all at once.
func (e *Engine) pipeline(ctx context.Context, n int, queue func(p redis.Pipeliner, i int)) error {
	const most = 1000
	for first := 0; first < n; first += most {
		_, err := e.again(ctx, func() (any, error) {
			pipe := e.client.Pipeline()
			for i := first; i < min(first+most, n); i++ {
				queue(pipe, i)
			}
			_, err := pipe.Exec(ctx)
			return nil, err
		})
		if err != nil {
			return redisx.Harmless(err)
		}
	}
	return nil
}
