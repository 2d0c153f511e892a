package cluster

import (
	"context"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// remove takes an SRK away as in step 2: after its entry is fenced, and only if it is still exactly what was seen.
func (e *Engine) remove(ctx context.Context, l store.Remove) (bool, error) {
	if l.Owner == "" && (l.Kind != "" || l.Seen.Is) {
		return e.Keys.Mend(ctx, l) // one script on one key
	}
	owner, err := recordkey.Parse(l.Owner)
	owned := err == nil && owner.Kind() == recordkey.KindPRK
	switch {
	case owned && l.Field != "":
		held, err := e.holds(ctx, owner, l)
		if err != nil || held {
			return false, err
		}
		return e.discard(ctx, l)
	case owned:
		gone := false
		_, err := e.ifDead(ctx, owner, "", func(ctx context.Context) (err error) {
			gone, err = e.discard(ctx, l)
			return err
		})
		return gone, err
	}
	return e.discard(ctx, l)
}

func (e *Engine) discard(ctx context.Context, l store.Remove) (bool, error) {
	if l.Seen.Is {
		r, err := e.run(ctx, on(swapScript, l.Key, l.Seen.Wire, ""))
		return r.yes(), redisx.Harmless(err)
	}
	command := []string{"unlink", l.Key}
	if l.Member != "" {
		command = []string{"srem", l.Key, l.Member}
	}
	n, err := e.plain(ctx, redisx.IsNumber, command...)
	return n != int64(0) && err == nil, redisx.Harmless(err)
}

// holds fences an entry unless it holds the value of what is to be removed.
func (e *Engine) holds(ctx context.Context, owner recordkey.Key, l store.Remove) (bool, error) {
	srk, err := recordkey.SRK(owner.Type(), l.Field, l.Value)
	if err != nil {
		return false, nil
	}
	return e.fence(ctx, owner, srk, false)
}
