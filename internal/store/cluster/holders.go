package cluster

import (
	"cmp"
	"context"
	_ "embed"
	"slices"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

var (
	//go:embed scripts/fence.lua
	fenceLua string
	//go:embed scripts/prepare.lua
	prepareLua string
)

var (
	fenceScript   = redisx.NewScript(fenceLua, redisx.IsNumber)
	prepareScript = redisx.NewScript(prepareLua, redisx.IsTexts)
)

// fence reports whether an entry holds a value. If it does not, changes that were prepared on it can no longer be
// committed; look only asks.
func (e *Engine) fence(ctx context.Context, entry, srk recordkey.Key, look bool) (bool, error) {
	mode := "fence"
	if look {
		mode = "look"
	}
	r, err := e.run(ctx, on(fenceScript, entry.String(), srk.Type(), srk.Field(), srk.Value(), mode, tombstoneLife))
	return r.yes(), redisx.Harmless(err)
}

// prepare reads an entry anew after an attempt that came to nothing. A create needs a dead one of which nothing is left to
// remove. Any other change needs one that is as it was, but for its fence.
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
		case c.Create && isAbandoned(redisx.Text(head, 5)):
			err = e.finishDelete(ctx, c, dying)
		case c.Create:
			err = e.pause(ctx, min(e.latency.several(4, 12)<<min(looks, 10), longestPause))
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

// mustLive is ErrNotFound for an entry that is not live. It completes a live one, and reports whether it had to.
func (e *Engine) mustLive(ctx context.Context, prk recordkey.Key) (filled bool, err error) {
	var head []any
	err = e.read(ctx, func() (err error) {
		head, err = redisx.List(e.client.Do(ctx, "hmget", prk.String(), store.FieldType, store.FieldFill), 2)
		return err
	})
	switch {
	case err != nil:
		return false, err
	case redisx.Text(head, 0) == "":
		return false, store.ErrNotFound
	case redisx.Text(head, 1) == "":
		return false, nil
	}
	return true, e.complete(ctx, prk, redisx.Text(head, 1))
}

// An attempt claims all that it needs at the same time, and gives up as soon as it meets another. Two attempts that want
// the same values under different fields could go on meeting for ever. So an attempt that follows such a meeting queues:
// before anything else it claims, one value after the other in the order of the values, the SRK of each under the first of
// the fields that it is claimed or looked for under. The order is the same for all. So the attempt that has the first SRK
// waits for none of the others: they wait for it, and hold nothing that it needs.

// How many round trips to wait before a claim is taken over: more than an attempt that queues needs from its first claim
// to its commit. Callers that want free values, one to three of them, under fields in any order, succeed after 3 to
// 12 rounds, and are told that they are too late after 8 to 16 (TestContention). To take over the claim of a dead
// process takes some milliseconds more.
const waitLeast, waitMost = 12, 30

// queueFor are the SRKs to queue at.
func queueFor(c store.Change) []recordkey.Key {
	all := slices.Concat(c.Claim, c.Elsewhere)
	slices.SortFunc(all, func(a, b recordkey.Key) int {
		return cmp.Or(cmp.Compare(a.Value(), b.Value()), cmp.Compare(a.Field(), b.Field()))
	})
	return slices.CompactFunc(all, func(a, b recordkey.Key) bool { return a.Value() == b.Value() })
}

// queue claims the SRKs to queue at, one after the other. Those that the change does not claim itself go again, whatever
// comes of the attempt. No reader finds the entry by them, for it does not hold the value there.
func (a *attempt) queue(ctx context.Context) error {
	for _, srk := range queueFor(a.c) {
		if !slices.Contains(a.c.Claim, srk) {
			a.queued = append(a.queued, srk)
		}
		if err := a.claim(ctx, srk); err != nil {
			return err
		}
	}
	return nil
}

// leaveQueue gives back what was only claimed to queue.
func (a *attempt) leaveQueue(ctx context.Context) error {
	return parallel(len(a.queued), func(i int) error {
		_, err := a.e.run(ctx, on(swapScript, a.queued[i].String(), a.own, ""))
		return err
	})
}

// stays waits, and reports whether an SRK is still what was seen there, as the claim of a dead process is.
func (a *attempt) stays(ctx context.Context, srk recordkey.Key, seen string) (bool, error) {
	if err := a.e.pause(ctx, a.e.latency.several(waitLeast, waitMost)); err != nil {
		return false, redisx.Fail(err)
	}
	now, err := a.e.get(ctx, srk.String())
	if err != nil || now == seen {
		return err == nil, err
	}
	return false, a.lost(ctx)
}

// lost is the error for a value that another entry holds by now, be it under another field: then all attempts that queue
// know it at once, and need not wait until they are first.
func (a *attempt) lost(ctx context.Context) error {
	all := slices.Concat(a.c.Claim, a.c.Elsewhere)
	return parallel(len(all), func(i int) error {
		seen, err := a.e.get(ctx, all[i].String())
		owner, can := a.ownerOf(all[i], seen)
		if err != nil || !can || store.Owner(seen) == a.prk {
			return err
		}
		held, err := a.e.fence(ctx, owner, all[i], true)
		if err != nil || held {
			return a.held(all[i], seen, err)
		}
		return nil
	})
}
