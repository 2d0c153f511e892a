package cluster

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// rank looks at the entry after it has changed the place, until both agree.
func (e *Engine) rank(ctx context.Context, r store.Rank) error {
	if r.Free {
		return e.free(ctx, r.Entry, r.At)
	}
	at := place{key: r.At.Key.String(), member: r.At.Member, ranked: true, facet: r.At.Facet}
	return misplaced(r.At, e.alignFacets(ctx, r.Entry, []place{at}))
}

// misplaced is the error of a place in what is no ordered index.
func misplaced(p store.Ranked, err error) error {
	if redisx.WrongType(err) {
		return &store.CorruptError{Key: p.Key.String(), Reason: "not a sorted set (WRONGTYPE)"}
	}
	return err
}

// free frees a place. If the entry's value changes meanwhile, it takes the place again: then it may be the entry's own.
func (e *Engine) free(ctx context.Context, entry recordkey.Key, p store.Ranked) error {
	at := place{key: p.Key.String(), member: p.Member, ranked: true}
	other, err := e.hasOther(ctx, entry, p.Facet)
	if err != nil || other {
		return err
	}
	return misplaced(p, e.align(ctx, []place{at}, func() (func(place) bool, error) {
		other, err := e.hasOther(ctx, entry, p.Facet)
		return func(place) bool { return other }, err
	}))
}

// hasOther says whether an entry is live and has another value than this one.
func (e *Engine) hasOther(ctx context.Context, entry recordkey.Key, f store.Facet) (bool, error) {
	if !entry.IsValid() {
		return false, nil
	}
	var other bool
	_, err := e.again(ctx, func() (any, error) {
		head, err := redisx.List(redisx.HMGet(ctx, e.client, entry.String(), store.FieldType, f.Field), 2)
		if redisx.WrongType(err) || errors.Is(err, redis.Nil) {
			return nil, nil
		}
		wire, has := "", false
		if err == nil && redisx.Text(head, 0) != "" {
			wire, has = head[1].(string)
		}
		other = has && wire != f.Wire
		return nil, err
	})
	return other, redisx.Harmless(err)
}
