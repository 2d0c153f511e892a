package single

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/store"
)

// A sought is a lookup that travels with those of other callers, as plain commands: many of them together
// cost the server less than a script each.
type sought struct {
	way   plainLookup
	found store.Found
	sure  bool // the answer is one that the script could have given
}

// findTogether answers lookups of many callers in two round trips.
func (e *Engine) findTogether(ctx context.Context, all []*sought) {
	var first, second []redis.Cmder
	for _, s := range all {
		first = s.way.readFirst(ctx, first)
	}
	_ = e.sender.All(ctx, first) // errors stand in the commands
	for _, s := range all {
		second = s.way.readEntries(ctx, second)
	}
	_ = e.sender.All(ctx, second)
	for _, s := range all {
		s.found = s.way.found()
		s.sure = s.found.Err == nil || s.way.absent()
	}
}

// absent says whether there is certainly no entry: at one moment there was nothing at the one key that
// could name it. Two keys are read at two moments, between which a value may move.
func (w *plainLookup) absent() bool {
	return len(w.srvs) == 1 && w.srvs[0].Err() == redis.Nil
}

// findInCrowd answers a lookup together with those of others; false where it must be looked up by itself.
// An error is one of the context.
func (e *Engine) findInCrowd(ctx context.Context, l store.Lookup) (store.Found, bool, error) {
	s := &sought{way: plainLookup{Lookup: l}}
	if err := e.finds.Do(ctx, s); err != nil {
		return store.Found{}, false, err
	}
	return s.found, s.sure, nil
}
