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

// The protocol, with the step numbers that comments in this package cite. Steps 1 to 3 make values
// unique (I2).
//
//  1. claim: Each attempt has its own rev, which the entry gets if the attempt commits. A claim
//     sets an absent SRK to the PRK, a space and that rev. A PRK without a rev, as a single server
//     writes it, may be found and replaced, but is never written.
//  2. take: If another entry owns the SRK, is live and holds the value, the value is a duplicate.
//     Otherwise the attempt starts over, and from then on queues for its values one by one
//     (contention.go). A queued attempt waits several round trips. If the SRK is still unchanged,
//     it fences the other entry, so that nothing prepared on it can commit anymore, and replaces
//     the SRK by compare-and-set. To fence an entry is to increment its ~fence; an absent entry
//     becomes a tombstone.
//  3. lookElsewhere: The same value under the other secondary fields is treated as in step 2. All
//     claims come before all of these checks.
//  4. commit: One script writes the entry if its ~rev and ~fence are still as they were read.
//  5. readGoing, finish: SRKs of removed values are read before the commit, and removed after it if
//     they are still exactly as they were read.
//  6. A delete leaves a tombstone that is ~dying until everything that belonged to the entry is
//     gone. If the deleting process dies, a create finishes its work (dead.go).
//  7. giveBack: A failed attempt removes its claims, except for values that the entry itself holds.
//     If it sent a commit, it fences the entry first. If the outcome of the commit is unknown, it
//     touches nothing.

// An attempt is one try at making a change, under its own rev.
type attempt struct {
	e       *Engine
	c       store.Change
	prk     string          // relative to the namespace, as in SRVs
	rev     string          // what the entry has if the attempt commits
	own     string          // the SRV that this attempt's claims write
	going   []string        // SRVs to remove, one for each c.Release; "" if another entry owns it
	queues  bool            // an earlier attempt met a competing change
	queued  []recordkey.Key // SRKs that are claimed only to queue
	stages  []stage         // tertiary records to stage
	began   time.Time       // when the commit was sent; zero if it was not
	unnoted bool            // the entry keeps the history lines
	tokens  apartTokens     // the tokens, if they were read separately
	first   string          // the new line, if it is the whole history; "" if unknown
	until   int64           // when the commit expires, by the server's clock in milliseconds
	claims  []error         // the result of each claim
}

// apartTokens holds tokens that were read separately: the earlier value of ~tokens, or "" if they
// were not read, and the record's lines "NAME MEMBER".
type apartTokens struct{ mark, members string }

const (
	giveBackTime = 2 * time.Second  // how long an attempt goes on removing its claims
	finishTime   = 10 * time.Second // how long it goes on finishing after its commit
	concurrent   = 64               // changes that ApplyAll makes at once, each on several nodes
	mostLate     = 3                // commits that expire before the clocks are blamed
)

// errAgain is returned if another attempt, under a new rev, may succeed.
var errAgain = errors.New("begin again")

// errLate is returned if a commit arrives after its check of the schema has expired.
var errLate = fmt.Errorf("%w: it may be another schema by now", errAgain)

// Apply implements [store.Engine]. A create without contention takes three rounds: claims, checks
// and commit.
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
			// Expired, whatever the local clock says.
			e.checked.Store(c.Schema.Key, checkedSchema{fingerprint: c.Schema.Fingerprint})
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

// ApplyAll implements [store.Engine]. It makes many changes at a time.
func (e *Engine) ApplyAll(ctx context.Context, cs []store.Change) []error {
	errs := make([]error, len(cs))
	store.Each(cs, concurrent, func(i int) { _, errs[i] = e.Apply(ctx, cs[i]) })
	return errs
}

func newAttempt(e *Engine, c store.Change) *attempt {
	prk, rev := c.Key.In(recordkey.Namespace{}).String(), e.newRev()
	return &attempt{e: e, c: c, prk: prk, rev: rev, own: prk + " " + rev, stages: stagesOf(c)}
}

// run runs the protocol. If it fails before the commit, it leaves only garbage.
func (a *attempt) run(ctx context.Context) error {
	err := a.beforeCommit(ctx)
	if err != nil {
		err = a.entryFirst(ctx, redisx.Harmless(err))
	} else {
		err = a.commit(ctx)
	}
	switch {
	case errors.Is(err, store.ErrOutcomeUnknown): // step 7: touch nothing
	case err != nil:
		a.giveBack(ctx)
	default:
		err = a.finish(ctx)
		a.e.feedSoon(ctx, a.c.Key, a.c.Note, a.first)
	}
	return err
}

// entryFirst replaces a duplicate error by the error about the change's own entry, if there is one:
// its UID is taken, or it has changed or is gone. A single server also reports that first.
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

// beforeCommit runs steps 5, 1, 2 and 3, in this order. It checks the schema first, and again at
// the end because the steps between may take long.
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

// readGoing begins step 5: it reads the SRKs of removed values before the commit.
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

// claimAll runs steps 1 and 2 for all SRKs.
func (a *attempt) claimAll(ctx context.Context) error {
	a.claims = make([]error, len(a.c.Claim))
	return parallel(len(a.c.Claim), func(i int) error {
		a.claims[i] = a.claim(ctx, a.c.Claim[i])
		return a.claims[i]
	})
}

// claim runs steps 1 and 2 for one SRK.
func (a *attempt) claim(ctx context.Context, srk recordkey.Key) error {
	run := a.e.runWithOthers
	if a.queues { // share no round trip: others wait for this claim
		run = a.e.run
	}
	for {
		reply, _, err := run(ctx, claimScript, []string{srk.String()}, a.own)
		if err != nil {
			return err
		}
		seen, occupied := reply.(string)
		if !occupied || store.Owner(seen) == a.prk && slices.Contains(a.queued, srk) {
			return nil // an SRK claimed only to queue may be the entry's own
		}
		if taken, err := a.take(ctx, srk, seen, a.own); err != nil || taken {
			return err
		}
	}
}

// lookAll runs step 3 for all SRKs. At the same time it stages tertiary records, and looks for
// records of an earlier entry at the same key, whose tombstone may have expired. Later attempts
// need not look for those, because prepare has done so.
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
			return errAgain // prepare removes it first
		}
		return err
	})
}

// lookElsewhere runs step 3 for one SRK. The SRK is nearly always absent, which EXISTS finds out in
// half the time: go-redis treats an empty reply to GET as an error, and inspects it.
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

// take runs step 2 for an SRK that has the value seen. If no entry holds the SRK's value, take sets
// the SRK to want, or removes it if want is "", and reports true. It reports false if the SRK has
// changed meanwhile.
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

// refuseHeld returns an error if owner holds the value of srk. Which error depends on whether owner
// is another entry or this change's own, which has changed meanwhile. If owner does not hold the
// value and how is orFence, it is fenced.
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

// ownerOf returns the key of the entry that an SRV names. It reports false if no entry of this type
// can have that key, so that nothing can have been prepared on it.
func (a *attempt) ownerOf(srk recordkey.Key, srv string) (recordkey.Key, bool) {
	key, err := recordkey.Parse(store.Owner(srv))
	ok := err == nil && key.Kind() == recordkey.KindPRK && key.Namespace() == recordkey.Namespace{} &&
		key.Type() == srk.Type() && key.Field() == a.c.Key.Field()
	return key.In(srk.Namespace()), ok
}

// giveBack runs step 7. It removes the attempt's claims, except those that turn out to be in use:
// because a commit arrived late, or because another process found the entry's value claimed and
// relied on that (change.Type.Reshape). It waits for claims that are still under way. What it
// cannot do within giveBackTime is left as garbage.
func (a *attempt) giveBack(ctx context.Context) {
	how := onlyLook
	if !a.began.IsZero() {
		how = orFence
	}
	afterwards(ctx, giveBackTime, func(ctx context.Context) {
		_ = parallel(len(a.c.Claim), func(i int) error {
			srk := a.c.Claim[i]
			// The claim may still arrive.
			if i < len(a.claims) && redisx.Over(ctx, a.claims[i]) != nil {
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

// finish does the work that is due after the commit. What it leaves undone is found by a check. It
// returns an error only if a server refuses some of the work and will go on refusing it.
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
	default: // ctx ended first
		return nil
	}
}

// unfinished returns the error to report if a server refuses work after the commit, for example
// because a permission is missing. It ignores a record of another Redis type, which was damaged
// before: a check reports it.
func unfinished(entry recordkey.Key, err error) error {
	if !redisx.IsAnswer(err) || redisx.Passing(err) || redisx.Moved(err) || redisx.WrongType(err) {
		return nil
	}
	return fmt.Errorf("changing %s: %w: what is due after it, such as its index members, was refused: %v", entry, store.ErrUnconfirmed, err)
}

// align brings indexes and tertiary records in line with the commit. A delete has had a limited
// time for that since it sent its commit (dead.go); if the commit took long, align marks the
// removal anew.
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
