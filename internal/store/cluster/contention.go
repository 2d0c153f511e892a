package cluster

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// Modes of fence.lua, which reports whether an entry has or holds a value. If it does neither,
// modeFence fences the entry, so that changes already prepared on it can no longer commit. modeLook
// changes nothing.
const modeFence, modeLook = "fence", "look"

// Relations of an entry to a value, as fence.lua reports them.
const (
	lacksValue int64 = iota
	hasValue         // the entry is live and has the value
	holdsValue       // the entry gave up the value, and nobody else may take it yet
)

// stateOf returns the relation of an entry to the value of srk.
func (e *Engine) stateOf(ctx context.Context, entry, srk recordkey.Key, mode string) (int64, error) {
	reply, _, err := e.run(ctx, fenceScript, []string{entry.String()}, srk.Type(), srk.Field(), srk.Value(), mode, tombstoneLife)
	state, _ := reply.(int64)
	return state, redisx.IgnoreUnknownOutcome(err)
}

// A head describes an entry before a change is prepared on it.
type head struct {
	live        bool
	seen        store.Version
	dying, fill string
	abandoned   bool // the process that began the last removal must have died
	retired     bool // no entry may have the UID
}

func (e *Engine) head(ctx context.Context, entry recordkey.Key) (head, error) {
	reply, _, err := e.run(ctx, prepareScript, []string{entry.String()}, tombstoneLife)
	words := redisx.Items(reply)
	age, ageErr := strconv.ParseInt(redisx.Text(words, 5), 10, 64)
	// A removal that began long after now was marked when the clock was wrong.
	recent := ageErr == nil && max(age, -age) <= int64(dyingTime/time.Second)
	return head{
		live: redisx.Text(words, 0) != "", seen: store.Version{Rev: store.Rev(redisx.Text(words, 1)), Fence: redisx.Text(words, 2)},
		dying: redisx.Text(words, 3), fill: redisx.Text(words, 4), abandoned: !recent,
		retired: redisx.Text(words, 6) != "",
	}, redisx.IgnoreUnknownOutcome(err)
}

// check returns the reason why a change cannot be made to the entry, or nil. A create requires that
// the entry is not live and that its UID is not retired. Any other change requires that the entry
// still has the expected rev and, unless the change is a repair, is live. The fence may differ.
func (h head) check(c store.Change) error {
	switch {
	case c.Create && h.live:
		return store.DuplicateField(c.Key.Field())
	case c.Create && h.retired:
		return store.RetiredUID(c.Key.Field())
	case c.Create:
		return nil
	case !h.live && !c.Repair:
		return store.ErrNotFound
	case h.seen.Rev != c.Expected.Rev:
		return store.ErrConflict
	}
	return nil
}

// prepare reads an entry again after a failed attempt. Before a create, it waits until all records
// of an earlier entry are removed, or removes them itself. Before a delete or a change of tertiary
// records, it puts in place the records that an earlier change staged.
func (e *Engine) prepare(ctx context.Context, c store.Change) (store.Version, error) {
	for looks := 0; ; looks++ {
		h, err := e.head(ctx, c.Key)
		if err == nil {
			err = h.check(c)
		}
		if err != nil {
			return store.Version{}, err
		}
		ready := true
		if c.Create {
			ready, err = e.clearKey(ctx, c, h, looks)
		} else if h.fill != "" && (c.Delete || len(c.Add)+len(c.Drop) > 0) {
			ready, err = false, redisx.Fail(e.complete(ctx, c.Key, h.fill))
		}
		if err != nil || ready {
			return h.seen, err
		}
	}
}

// clearKey removes what an earlier entry has left at the key of a create, or waits while another
// call deletes that entry. It reports whether there was nothing left.
func (e *Engine) clearKey(ctx context.Context, c store.Change, h head, looks int) (clear bool, err error) {
	switch {
	case h.dying != "" && h.abandoned:
		return false, redisx.Fail(e.finishDelete(ctx, c, h.dying))
	case h.dying != "":
		return false, redisx.Fail(e.pause(ctx, min(e.latency.roundTrips(4, 12)<<min(looks, 10), longestPause)))
	}
	left, err := e.hasLeftovers(ctx, c)
	if !left || err != nil {
		return err == nil, err
	}
	if err := e.checkDamage(ctx, c.Key); err != nil {
		return false, err
	}
	return false, redisx.Fail(e.finishDelete(ctx, c, ""))
}

// minWaitRounds and maxWaitRounds limit the round trips to wait before taking over a claim. The
// wait is longer than a queued attempt needs from its first claim to its commit. In TestContention,
// several callers want the same one to three free values: one of them succeeds after 3 to 12
// rounds, and the others learn after 8 to 16 that they are too late.
const minWaitRounds, maxWaitRounds = 12, 30

// valuesPerWait is the number of values for which one such wait is long enough. A queue takes a
// round trip for each value, so an attempt waits once more for every valuesPerWait values that it
// claims. Otherwise two attempts that both claim many values would go on fencing each other.
const valuesPerWait = 4

// wait pauses before the attempt takes over a claim.
func (a *attempt) wait(ctx context.Context) error {
	n := 1 + len(a.c.Claim)/valuesPerWait
	return redisx.Fail(a.e.pause(ctx, a.e.latency.roundTrips(n*minWaitRounds, n*maxWaitRounds)))
}

// queue claims the change's values one by one, ahead of the other steps, if an earlier attempt ran
// into a competing change. Without a queue, two attempts that want the same values under different
// fields, and claim them all at once, could collide forever. Each attempt claims its values in
// ascending order, each under the first of its fields. The attempt that has the first SRK waits for
// no other: the others wait for it and hold no claim that it needs.
func (a *attempt) queue(ctx context.Context) error {
	if !a.contended {
		return nil
	}
	srks := slices.Concat(a.c.Claim, a.c.Elsewhere)
	slices.SortFunc(srks, func(a, b recordkey.Key) int {
		return cmp.Or(cmp.Compare(a.Value(), b.Value()), cmp.Compare(a.Field(), b.Field()))
	})
	for _, srk := range slices.CompactFunc(srks, func(a, b recordkey.Key) bool { return a.Value() == b.Value() }) {
		if !slices.Contains(a.c.Claim, srk) {
			a.queueClaims = append(a.queueClaims, srk)
		}
		if err := a.claim(ctx, srk); err != nil {
			return err
		}
	}
	return nil
}

// leaveQueue removes the claims that were made only to queue, whatever the outcome of the attempt.
// No reader has found the entry by them, because the entry does not have the value in that field.
func (a *attempt) leaveQueue(ctx context.Context) error {
	return parallel(len(a.queueClaims), func(i int) error {
		_, err := a.e.runBool(ctx, swapScript, a.queueClaims[i].String(), a.srv, "")
		return err
	})
}

// unchangedAfterWait waits and then reports whether an SRK still has the value seen. If it has, the
// process that claimed it has probably died. If the SRK has changed, unchangedAfterWait also
// returns the error of checkStillFree.
func (a *attempt) unchangedAfterWait(ctx context.Context, srk recordkey.Key, seen string) (bool, error) {
	if err := a.wait(ctx); err != nil {
		return false, err
	}
	now, _, err := a.e.get(ctx, srk)
	if err != nil || now == seen {
		return err == nil, err
	}
	return false, a.checkStillFree(ctx)
}

// checkStillFree returns an error if another entry now has or holds one of the change's values,
// under any field. As soon as one attempt for a value succeeds, this makes the queued ones fail
// before their turn.
func (a *attempt) checkStillFree(ctx context.Context) error {
	all := slices.Concat(a.c.Claim, a.c.Elsewhere)
	return parallel(len(all), func(i int) error {
		seen, _, err := a.e.get(ctx, all[i])
		owner, can := a.parseOwner(all[i], seen)
		if err != nil || !can || owner == a.c.Key {
			return err
		}
		return a.checkFree(ctx, owner, all[i], modeLook)
	})
}
