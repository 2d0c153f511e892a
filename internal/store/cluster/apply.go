package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

// The protocol, by the numbers that comments here cite. Uniqueness (I2) is steps 1 to 3.
//
//  1. claim: each attempt to commit has a rev of its own, which the entry has if it commits. A claim on an SRK is its PRK,
//     a space and that rev, set if the SRK is absent. A PRK without a rev, as one server writes it, may be found and
//     replaced, but is never written.
//  2. take: an SRK that another entry has is a duplicate if that entry is live and holds the value. Else begin again, and
//     queue for the values one after the other (contention.go). An attempt that queues waits some round trips, and if the
//     same is there still, fences the other entry, so that nothing prepared on it can commit any more (counts its ~fence
//     up, of an absent one in a tombstone), and compares-and-sets the SRK from exactly what was seen.
//  3. lookElsewhere: the same value under the other secondary fields is judged as in 2. All claims come before all looks.
//  4. commit: one script writes the entry, if its ~rev and ~fence are as they were read.
//  5. readGoing, finish: SRKs that go are read before the commit, and removed after it if they are exactly what was read.
//  6. A delete leaves a tombstone, ~dying until what belonged to the entry is gone. If the deleter dies, a create
//     finishes that for it (dead.go).
//  7. giveBack: what was claimed for nothing is given back, but for what the own entry holds. It is fenced before where a
//     commit was sent. Where the commit's outcome is unknown, nothing is touched.

// An attempt is one try to make a change, with a rev of its own.
type attempt struct {
	e       *Engine
	c       store.Change
	prk     string          // relative, as SRVs have it
	rev     string          // what the entry has if it commits
	own     string          // the SRV of this attempt
	going   []string        // SRVs that are to go, beside c.Release; "" where it is another's
	queues  bool            // an attempt before this one met another
	queued  []recordkey.Key // SRKs that were only claimed to queue
	stages  []stage         // what is laid ready
	began   time.Time       // when the commit was sent; zero: it was not
	unnoted bool            // what is to be noted stays in the entry
	tokens  apartTokens     // the tokens, if their record was read apart
	first   string          // what was noted, where it is all the history there is; "": it is not known
	until   int64           // the commit may be made, by the server's clock in milliseconds
	claims  []error         // what became of the claims
}

// Tokens that were read apart: what ~tokens said before, "" if they were not, and the record's
// lines "NAME MEMBER".
type apartTokens struct{ mark, members string }

const (
	giveBackTime = 2 * time.Second  // how long a verb goes on giving back what it has claimed
	finishTime   = 10 * time.Second // and with what is due after its commit
	concurrent   = 64               // changes that ApplyAll makes at once: each is several rounds to several nodes
	mostLate     = 3                // commits that come too late, each after a new look at the schema: the clocks are to blame
)

// errAgain: the attempt met something that is over by now; begin again with a new rev.
var errAgain = errors.New("begin again")

// errLate: the commit came later than what is known of the schema in force.
var errLate = fmt.Errorf("%w: it may be another schema by now", errAgain)

// Apply implements [store.Engine]. A create without contention is three rounds: claims, looks, commit.
func (e *Engine) Apply(ctx context.Context, c store.Change) (string, error) {
	rev, err := e.apply(ctx, c)
	switch {
	case err == nil:
		err = e.confirmed(ctx, c, rev)
	case redisx.WrongType(err):
		err = &store.CorruptError{Key: c.Key.String(), Reason: "it, an SRK or an index of it is of another Redis type (WRONGTYPE)"}
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrOutcomeUnknown):
		err = fmt.Errorf("changing %s: %w", c.Key, err)
	}
	return rev, err
}

func (e *Engine) apply(ctx context.Context, c store.Change) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, longestVerb)
	defer cancel()
	for late, queues := 0, false; ; queues = true {
		a := newAttempt(e, c)
		a.queues = queues
		err := a.run(ctx)
		if errors.Is(err, errLate) {
			e.checked.Store(c.Schema.Key, checkedSchema{fingerprint: c.Schema.Fingerprint}) // old, whatever the own clock says
			if late++; late == mostLate {
				err = fmt.Errorf("%w: the clocks of the cluster's nodes are further apart than %v", store.ErrUnavailable, apart)
			}
		}
		switch {
		case err == nil, errors.Is(err, store.ErrUnconfirmed):
			return a.rev, err
		case !errors.Is(err, errAgain):
			return "", err
		}
		if err := e.pause(ctx, e.latency.several(1, 4)); err != nil {
			return "", redisx.Fail(err)
		}
		if c.Seen, err = e.prepare(ctx, c); err != nil {
			return "", err
		}
	}
}

// ApplyAll implements [store.Engine]: many changes at a time.
func (e *Engine) ApplyAll(ctx context.Context, cs []store.Change) []error {
	errs := make([]error, len(cs))
	store.Each(cs, concurrent, func(i int) { _, errs[i] = e.Apply(ctx, cs[i]) })
	return errs
}

func newAttempt(e *Engine, c store.Change) *attempt {
	prk, rev := c.Key.In(recordkey.Namespace{}).String(), e.newRev()
	return &attempt{e: e, c: c, prk: prk, rev: rev, own: prk + " " + rev, stages: stagesOf(c)}
}

// run is the protocol. If it ends before the commit, it leaves only garbage.
func (a *attempt) run(ctx context.Context) error {
	err := a.beforeCommit(ctx)
	if err != nil {
		err = a.entryFirst(ctx, redisx.Harmless(err))
	} else {
		err = a.commit(ctx)
	}
	switch {
	case errors.Is(err, store.ErrOutcomeUnknown): // step 7: leave everything as it is
	case err != nil:
		a.giveBack(ctx)
	default:
		err = a.finish(ctx)
		a.e.feedSoon(ctx, a.c.Key, a.c.Note, a.first)
	}
	return err
}

// entryFirst returns, for a change whose values are taken, what is wrong with its own entry, if anything is:
// that the UID is taken, or that the entry has changed or is gone. One server says that first, too.
func (a *attempt) entryFirst(ctx context.Context, err error) error {
	if !errors.Is(err, store.ErrDuplicate) {
		return err
	}
	now, failed := a.e.head(ctx, a.c.Key)
	if failed != nil {
		return err
	}
	return cmp.Or(now.against(a.c), err)
}

// beforeCommit is steps 5, 1, 2 and 3, in this order: all claims, then all looks. The schema is looked at once more at the
// end, for the steps before may have taken long.
func (a *attempt) beforeCommit(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		a.checkSchema, a.readGoing, a.queue, a.claimAll, a.lookAll, a.checkSchema,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (a *attempt) checkSchema(ctx context.Context) (err error) {
	a.until, err = a.e.guard(ctx, a.c.Schema)
	return err
}

// readGoing is step 5: the SRKs that will go, as they are before the commit.
func (a *attempt) readGoing(ctx context.Context) error {
	a.going = make([]string, len(a.c.Release))
	return parallel(len(a.going), func(i int) error {
		srv, _, err := a.e.get(ctx, a.c.Release[i])
		if store.Owner(srv) == a.prk {
			a.going[i] = srv
		}
		return err
	})
}

// claimAll is steps 1 and 2 for all SRKs.
func (a *attempt) claimAll(ctx context.Context) error {
	a.claims = make([]error, len(a.c.Claim))
	return parallel(len(a.c.Claim), func(i int) error {
		a.claims[i] = a.claim(ctx, a.c.Claim[i])
		return a.claims[i]
	})
}

// claim is steps 1 and 2.
func (a *attempt) claim(ctx context.Context, srk recordkey.Key) error {
	run := a.e.runWithOthers
	if a.queues { // others wait for it
		run = a.e.run
	}
	for {
		reply, _, err := run(ctx, claimScript, []string{srk.String()}, a.own)
		if err != nil {
			return err
		}
		seen, occupied := reply.(string)
		if !occupied || store.Owner(seen) == a.prk && slices.Contains(a.queued, srk) {
			return nil // where it only queues, the entry itself may have it, or have had it
		}
		if taken, err := a.take(ctx, srk, seen, a.own); err != nil || taken {
			return err
		}
	}
}

// lookAll is step 3 for all SRKs. At the same time tertiary records are laid ready, and those of
// an earlier life of the entry are looked for, whose tombstone may have gone by now: a later
// attempt has done that before (prepare).
func (a *attempt) lookAll(ctx context.Context) error {
	n, m := len(a.c.Elsewhere), len(a.stages)
	var before []store.Container
	if a.c.Create && !a.c.Fresh && !a.queues {
		before = a.c.Before()
	}
	return parallel(n+m+len(before), func(i int) error {
		switch {
		case i < n:
			return a.lookElsewhere(ctx, a.c.Elsewhere[i])
		case i < n+m:
			return a.layReady(ctx, a.stages[i-n])
		}
		found, err := a.e.ask(ctx, redisx.IsNumber, "exists", before[i-n-m].Key.String())
		if err == nil && found == int64(1) {
			return errAgain // which drops it first
		}
		return err
	})
}

// lookElsewhere is step 3. Nearly always there is nothing, which the client learns from an EXISTS in half the time:
// to it, a GET that finds nothing is an error that it looks into.
func (a *attempt) lookElsewhere(ctx context.Context, srk recordkey.Key) error {
	for {
		n, err := a.e.ask(ctx, redisx.IsNumber, "exists", srk.String())
		if err != nil || n == int64(0) {
			return err
		}
		seen, is, err := a.e.get(ctx, srk)
		if err != nil || !is || store.Owner(seen) == a.prk {
			return err
		}
		if taken, err := a.take(ctx, srk, seen, ""); err != nil || taken {
			return err
		}
	}
}

// take is step 2: what to do about an SRK that is occupied. It becomes want ("": it goes) if no entry
// holds the value, and then the answer is true; false says that it changed meanwhile.
func (a *attempt) take(ctx context.Context, srk recordkey.Key, seen, want string) (bool, error) {
	if owner, can := a.ownerOf(srk, seen); can {
		if err := a.refuseHeld(ctx, owner, srk, onlyLook); err != nil {
			return false, err
		}
		if !a.queues {
			return false, errAgain
		}
		if stays, err := a.stays(ctx, srk, seen); err != nil || !stays {
			return false, err
		}
		if err := a.refuseHeld(ctx, owner, srk, orFence); err != nil {
			return false, err
		}
	}
	return a.e.yes(ctx, swapScript, srk.String(), seen, want)
}

// refuseHeld looks at an owner, or fences it, and is the error for a value that it holds: this entry (changed meanwhile) or
// another.
func (a *attempt) refuseHeld(ctx context.Context, owner, srk recordkey.Key, how string) error {
	held, err := a.e.holds(ctx, owner, srk, how)
	switch {
	case err != nil || !held:
		return err
	case owner != a.c.Key:
		return store.Duplicate(a.c, srk)
	case a.c.Create:
		return store.Taken(a.c.Key.Field())
	}
	return store.ErrConflict
}

// ownerOf is the key of the entry that an SRV names; false where no entry of the type can be there,
// so that nothing can have been prepared on it.
func (a *attempt) ownerOf(srk recordkey.Key, srv string) (recordkey.Key, bool) {
	key, err := recordkey.Parse(store.Owner(srv))
	ok := err == nil && key.Kind() == recordkey.KindPRK && key.Namespace() == recordkey.Namespace{} &&
		key.Type() == srk.Type() && key.Field() == a.c.Key.Field()
	return key.In(srk.Namespace()), ok
}

// giveBack is step 7: the own claims go, but for those that are in use after all: by a commit that came late, or because
// somebody found the entry's value to be claimed (Reshape). A claim that is under way still is waited for. It does what it can in
// the time there is: what stays is garbage.
func (a *attempt) giveBack(ctx context.Context) {
	how := onlyLook
	if !a.began.IsZero() {
		how = orFence
	}
	afterwards(ctx, giveBackTime, func(ctx context.Context) {
		_ = parallel(len(a.c.Claim), func(i int) error {
			srk := a.c.Claim[i]
			if i < len(a.claims) && redisx.Over(ctx, a.claims[i]) != nil { // it may come yet
				return nil
			}
			if how == orFence || !a.c.Create {
				if held, err := a.e.holds(ctx, a.c.Key, srk, how); held || err != nil {
					return err
				}
			}
			_, err := a.e.yes(ctx, swapScript, srk.String(), a.own, "")
			return err
		})
		_ = a.leaveQueue(ctx)
		for _, s := range a.stages {
			_, _ = a.e.command(ctx, redisx.IsNumber, "unlink", store.StageKey(s.Set, a.rev))
		}
	})
}

// finish does what is due after the commit. If it does not come to the end, a check finds the rest; the error is that a
// server refuses some of it, and will go on refusing.
func (a *attempt) finish(ctx context.Context) error {
	failed := make(chan error, 1)
	afterwards(ctx, finishTime, func(ctx context.Context) {
		n := len(a.going)
		err := parallel(n+2, func(i int) error {
			switch {
			case i == n:
				return a.align(ctx)
			case i == n+1:
				return a.leaveQueue(ctx)
			case a.going[i] == "":
				return nil
			}
			_, err := a.e.yes(ctx, swapScript, a.c.Release[i].String(), a.going[i], "")
			return err
		})
		if err == nil && a.c.Delete {
			_, _ = a.e.markDying(ctx, a.c.Key, a.rev, "end", "")
		}
		failed <- err
	})
	select {
	case err := <-failed:
		return unfinished(a.c.Key, err)
	default: // the caller's time is over
		return nil
	}
}

// unfinished is the error for what a server refused after the commit of a change, such as for want of a right. A record of
// another Redis type is damage that was there before: a check tells.
func unfinished(entry recordkey.Key, err error) error {
	if !redisx.IsAnswer(err) || redisx.Passing(err) || redisx.Moved(err) || redisx.WrongType(err) {
		return nil
	}
	return fmt.Errorf("changing %s: %w: what is due after it, such as its index members, was refused: %v", entry, store.ErrUnconfirmed, err)
}

// align brings indexes and tertiary records in line with what was committed. A delete has time for that since it sent its
// commit (dead.go); where the commit took long, the removal begins anew.
func (a *attempt) align(ctx context.Context) error {
	took := a.e.now().Sub(a.began)
	switch {
	case !a.c.Delete:
		return a.alignAll(ctx)
	case took > finishTime/4:
		_, err := a.e.ifDead(ctx, a.c.Key, a.rev, a.alignAll)
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, finishTime-took)
	defer cancel()
	return a.alignAll(ctx)
}

func (a *attempt) alignAll(ctx context.Context) error {
	err := parallel(2, func(i int) error {
		if i == 0 {
			return a.e.alignFacets(ctx, a.c.Key, membershipsOf(a.c))
		}
		if a.c.Delete {
			return a.e.dropAll(ctx, a.c)
		}
		return nil
	})
	if err == nil && len(a.stages) > 0 {
		err = a.e.complete(ctx, a.c.Key, a.fill())
	}
	return err
}
