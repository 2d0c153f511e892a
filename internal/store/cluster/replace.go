package cluster

import (
	"context"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// A change of a live entry may put other tertiary records in place of those it has. They are laid ready
// like those that are born with an entry; what was there goes when they take its place, in one step.

// goneMembers are those of an indexed set before others took its place.
type goneMembers struct {
	set     recordkey.Key
	members []string
}

// replaced says whether the change puts another record in the place of one that it drops.
func (a *attempt) replaced(d store.Container) bool {
	for _, m := range a.c.Add {
		if m.Key == d.Key {
			return true
		}
	}
	return false
}

// readReplaced reads what will be replaced, as it is before the commit, once whatever was laid ready for
// the entry before is in its place.
func (a *attempt) readReplaced(ctx context.Context) error {
	if a.c.Create || len(a.c.Add) == 0 {
		return nil
	}
	if _, err := a.e.mustLive(ctx, a.c.Key); err != nil {
		return err
	}
	a.gone = nil
	for _, d := range a.c.Drop {
		if !d.Indexed || !a.replaced(d) {
			continue
		}
		members, err := a.e.members(ctx, d.Key.String())
		if err != nil {
			return err
		}
		a.gone = append(a.gone, goneMembers{d.Key, members})
	}
	return nil
}

// drop removes a tertiary record, unless another takes its place.
func (a *attempt) drop(ctx context.Context, d store.Container) error {
	if a.replaced(d) {
		return nil
	}
	return a.e.drop(ctx, d)
}
