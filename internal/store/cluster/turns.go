package cluster

import (
	"cmp"
	"context"
	"slices"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// An attempt claims all that it needs at the same time, and gives up as soon as it meets somebody. Two of those that want
// the same values under other fields would go on meeting for ever. So whoever has met somebody queues: before anything
// else he claims, value by value in the order of the values, the SRK of each under the first field of all that it is
// claimed or looked for under. That order is everybody's: whoever has the first has nobody before him who
// waits for what he has. Others wait for it, and hold nothing that he needs.

// turns are the SRKs to queue at.
func turns(c store.Change) []recordkey.Key {
	all := slices.Concat(c.Claim, c.Aside)
	slices.SortFunc(all, func(a, b recordkey.Key) int {
		return cmp.Or(cmp.Compare(a.Value(), b.Value()), cmp.Compare(a.Field(), b.Field()))
	})
	return slices.CompactFunc(all, func(a, b recordkey.Key) bool { return a.Value() == b.Value() })
}

// queue claims the SRKs to queue at, one after the other. What is not the change's own to claim goes again, whatever
// comes of the attempt: nobody is found by it, for the entry does not hold the value there.
func (a *attempt) queue(ctx context.Context) error {
	for _, srk := range turns(a.c) {
		if !slices.Contains(a.c.Claim, srk) {
			a.turns = append(a.turns, srk)
		}
		if err := a.claim(ctx, srk); err != nil {
			return err
		}
	}
	return nil
}

// leave gives back what was only claimed to queue.
func (a *attempt) leave(ctx context.Context) error {
	return together(len(a.turns), func(i int) error {
		_, err := a.e.run(ctx, on(swapScript, a.turns[i].String(), a.own, ""))
		return err
	})
}

// stays waits whether an SRK stays what was seen there, as the claim of somebody who has died does.
func (a *attempt) stays(ctx context.Context, srk recordkey.Key, seen string) (bool, error) {
	if err := a.e.pause(ctx, a.e.trips.several(waitLeast, waitMost)); err != nil {
		return false, redisx.Fail(err)
	}
	now, err := a.e.get(ctx, srk.String())
	if err != nil || now == seen {
		return err == nil, err
	}
	return false, a.lost(ctx)
}

// lost is the error for a value that somebody has by now, be it under another field: then all who queue know it at
// once, and need not have their turn first.
func (a *attempt) lost(ctx context.Context) error {
	all := slices.Concat(a.c.Claim, a.c.Aside)
	return together(len(all), func(i int) error {
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
