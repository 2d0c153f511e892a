package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
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
//  2. takeOver: If the SRK names another entry, and that entry is live and has the value, or still
//     holds it after giving it up, the value is a duplicate. Otherwise the attempt starts over, and
//     from then on queues for its values one by one (contention.go). A queued attempt waits several
//     round trips. If the SRK is still unchanged, the attempt fences the other entry, so that
//     nothing prepared on that entry can commit anymore, and replaces the SRK by compare-and-set.
//     To fence an entry is to increment its ~fence; an absent entry becomes a tombstone.
//  3. checkElsewhere: The same value under the other secondary fields is treated as in step 2. All
//     claims come before all of these checks.
//  4. commit: One script writes the entry if its ~rev and ~fence are still as they were read.
//  5. readReleased, finish: SRKs of removed values are read before the commit, and removed after it
//     if they are still exactly as they were read. The SRK of a value that is held stays, and gets
//     a time to live.
//  6. A delete leaves a tombstone that is ~dying until everything that belonged to the entry is
//     gone. If the deleting process dies, a create finishes its work (dead.go).
//  7. removeClaims: A failed attempt removes its claims, except for values that the entry itself
//     has or holds. If it sent a commit, it fences the entry first. If the outcome of the commit
//     is unknown, its claims stay, and alignIfCommitted does what does not depend on the outcome.

// An attempt is one try at making a change, under its own rev.
type attempt struct {
	e           *Engine
	c           store.Change
	prk         string          // relative to the namespace, as in SRVs
	rev         string          // the entry's rev if the attempt commits
	srv         string          // the SRV that this attempt's claims write
	released    []string        // the SRVs of givenUp; "" if the SRK does not name this entry
	contended   bool            // an earlier attempt ran into a competing change
	queueClaims []recordkey.Key // SRKs that are claimed only to queue
	stages      []stage         // tertiary records to stage
	began       time.Time       // when the commit was sent; zero if it was not
	noteInEntry bool            // the entry keeps the history lines
	tokens      separateTokens  // the tokens, if they were read separately
	history     string          // the new line, if it is the whole history; "" if unknown
	until       int64           // when the commit expires, by the server's clock in milliseconds
	claimErrs   []error         // the result of each claim
}

// separateTokens holds the entry's tokens if readTokens read them before the commit. mark is the
// value of ~tokens at that time, or "" if the tokens were not read separately. members has a line
// "HASH MEMBER" for each token in the record.
type separateTokens struct{ mark, members string }

const (
	removeClaimsTime = 2 * time.Second  // how long an attempt goes on removing its claims
	finishTime       = 10 * time.Second // how long it goes on finishing after its commit
	maxConcurrent    = 64               // changes that ApplyAll makes at once
	maxFinishers     = 256              // changes that finishLater finishes at once
	maxExpired       = 3                // expired commits after which Apply reports unequal clocks
)

// errRetry means that another attempt, under a new rev, may succeed.
var errRetry = errors.New("try again")

// errExpired means that a commit arrived after its check of the schema had expired.
var errExpired = fmt.Errorf("%w: the schema may have changed", errRetry)

// Apply implements [store.Engine]. A create without contention takes three rounds: claims, checks
// and commit.
func (e *Engine) Apply(ctx context.Context, c store.Change) (string, error) {
	if err := c.CheckFields(); err != nil {
		return "", fmt.Errorf("changing %s: %w", c.Key, err)
	}
	rev, err := e.apply(ctx, c)
	switch {
	case err == nil:
		err = e.confirmAll(ctx, c, rev)
	case redisx.WrongType(err):
		err = &store.CorruptError{Key: c.Key.String(), Reason: "the entry, an SRK or an index of it has another Redis type (WRONGTYPE)"}
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrOutcomeUnknown):
		err = fmt.Errorf("changing %s: %w", c.Key, err)
	}
	return rev, err
}

func (e *Engine) apply(ctx context.Context, c store.Change) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, maxApplyTime)
	defer cancel()
	for expired, contended := 0, false; ; contended = true {
		a := newAttempt(e, c)
		a.contended = contended
		err := a.run(ctx)
		if errors.Is(err, errExpired) {
			// The check has expired, whatever the local clock says.
			e.schemaChecks.Store(c.Schema.Key, schemaCheck{fingerprint: c.Schema.Fingerprint})
			if expired++; expired == maxExpired {
				err = fmt.Errorf("%w: the clocks of the cluster's nodes are further apart than %v", store.ErrUnavailable, maxClockSkew)
			}
		}
		switch {
		case err == nil, errors.Is(err, store.ErrUnconfirmed):
			return a.rev, err
		case !errors.Is(err, errRetry):
			return "", err
		}
		if err := e.pause(ctx, e.latency.roundTrips(1, 4)); err != nil {
			return "", redisx.Fail(err)
		}
		if c.Expected, err = e.prepare(ctx, c); err != nil {
			return "", err
		}
	}
}

// ApplyAll implements [store.Engine]. It makes many changes at a time, until one gets no answer.
func (e *Engine) ApplyAll(ctx context.Context, cs []store.Change) []error {
	errs := make([]error, len(cs))
	var outage redisx.Outage
	store.ApplyEach(cs, maxConcurrent, func(i int) {
		errs[i] = outage.Do(false, func() error {
			_, err := e.Apply(ctx, cs[i])
			return err
		})
	})
	return errs
}

func newAttempt(e *Engine, c store.Change) *attempt {
	if c.Delete {
		c.Tokens.Known = true // without tokens, the record may hold an invitation
		if len(c.Note.Lines) > 0 {
			c.Drop = withoutHistory(c)
		}
	}
	prk, rev := c.Key.In(recordkey.Namespace{}).String(), e.newRev()
	return &attempt{e: e, c: c, prk: prk, rev: rev, srv: prk + " " + rev, stages: stagesOf(c)}
}

// run runs the protocol. If it fails before the commit, it leaves at most garbage, which no reader
// sees.
func (a *attempt) run(ctx context.Context) error {
	err := a.claimAndCheck(ctx)
	if err != nil {
		err = a.preferEntryError(ctx, redisx.IgnoreUnknownOutcome(err))
	} else {
		err = a.commit(ctx)
	}
	switch {
	case errors.Is(err, store.ErrOutcomeUnknown): // step 7
		a.alignIfCommitted(ctx, err)
	case err != nil:
		a.removeClaims(ctx)
	default:
		err = a.finish(ctx)
		a.e.queueFeed(ctx, a.c.Key, a.c.Note, a.history)
	}
	return err
}

// preferEntryError replaces a duplicate error with the error about the change's own entry, if there
// is one: its UID is taken, or it has changed or is gone. A single server also reports that first.
func (a *attempt) preferEntryError(ctx context.Context, err error) error {
	if !errors.Is(err, store.ErrDuplicate) {
		return err
	}
	now, failed := a.e.head(ctx, a.c.Key)
	if failed != nil {
		return err
	}
	return cmp.Or(now.check(a.c), err)
}

// claimAndCheck begins step 5 and then runs steps 1 to 3. It checks the schema first, and again at
// the end because the steps between may take long.
func (a *attempt) claimAndCheck(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		a.checkSchema, a.readReleased, a.queue, a.claimAll, a.checkAndStage, a.checkSchema,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (a *attempt) checkSchema(ctx context.Context) (err error) {
	a.until, err = a.e.checkSchema(ctx, a.c.Schema)
	return err
}

// readReleased begins step 5: it reads the SRKs of removed values before the commit.
func (a *attempt) readReleased(ctx context.Context) error {
	a.released = make([]string, len(a.c.Release)+len(a.c.Hold))
	return parallel(len(a.released), func(i int) error {
		srv, _, err := a.e.get(ctx, a.givenUp(i))
		if store.Owner(srv) == a.prk {
			a.released[i] = srv
		}
		return err
	})
}

// givenUp returns SRK number i of c.Release followed by c.Hold.
func (a *attempt) givenUp(i int) recordkey.Key {
	if i < len(a.c.Release) {
		return a.c.Release[i]
	}
	return a.c.Hold[i-len(a.c.Release)].Key
}

// claimAll runs steps 1 and 2 for all SRKs.
func (a *attempt) claimAll(ctx context.Context) error {
	a.claimErrs = make([]error, len(a.c.Claim))
	return parallel(len(a.c.Claim), func(i int) error {
		a.claimErrs[i] = a.claim(ctx, a.c.Claim[i])
		return a.claimErrs[i]
	})
}

// claim runs steps 1 and 2 for one SRK.
func (a *attempt) claim(ctx context.Context, srk recordkey.Key) error {
	run := a.e.runBatched
	if a.contended { // do not share a round trip, because others wait for this claim
		run = a.e.run
	}
	for {
		reply, _, err := run(ctx, claimScript, []string{srk.String()}, a.srv)
		if err != nil {
			return err
		}
		seen, occupied := reply.(string)
		if !occupied || store.Owner(seen) == a.prk && slices.Contains(a.queueClaims, srk) {
			return nil // an SRK that is claimed only to queue may already name this entry
		}
		if taken, err := a.takeOver(ctx, srk, seen, a.srv); err != nil || taken {
			return err
		}
	}
}

// checkAndStage runs step 3 for all SRKs. At the same time it stages tertiary records, and looks
// for records that an earlier entry with the same key left behind: its tombstone may have expired.
// Later attempts need not look for those, because prepare has done so.
func (a *attempt) checkAndStage(ctx context.Context) error {
	n, m := len(a.c.Elsewhere), len(a.stages)
	var leftovers []store.Container
	if a.c.Create && !a.c.Fresh && !a.contended {
		leftovers = a.c.Leftovers()
	}
	return parallel(n+m+len(leftovers), func(i int) error {
		switch {
		case i < n:
			return a.checkElsewhere(ctx, a.c.Elsewhere[i])
		case i < n+m:
			return a.stageRecord(ctx, a.stages[i-n])
		}
		found, err := a.e.query(ctx, redisx.IsNumber, "exists", leftovers[i-n-m].Key.String())
		if err == nil && found == int64(1) {
			return errRetry // prepare removes the record before the next attempt
		}
		return err
	})
}

// checkElsewhere runs step 3 for one SRK. The SRK is nearly always absent. EXISTS finds that out in
// half the time of GET, because go-redis treats an empty reply to GET as an error, and inspects it.
func (a *attempt) checkElsewhere(ctx context.Context, srk recordkey.Key) error {
	for {
		n, err := a.e.query(ctx, redisx.IsNumber, "exists", srk.String())
		if err != nil || n == int64(0) {
			return err
		}
		seen, is, err := a.e.get(ctx, srk)
		if err != nil || !is || store.Owner(seen) == a.prk {
			return err
		}
		if taken, err := a.takeOver(ctx, srk, seen, ""); err != nil || taken {
			return err
		}
	}
}

// takeOver runs step 2 for an SRK that has the value seen. If another entry has or holds the SRK's
// value, takeOver returns an error. Otherwise it sets the SRK to want, or removes it if want is "",
// and reports true. It reports false if the SRK has changed meanwhile. An attempt that is not
// contended does not replace a claim of another entry: takeOver then returns errRetry.
func (a *attempt) takeOver(ctx context.Context, srk recordkey.Key, seen, want string) (bool, error) {
	if owner, can := a.parseOwner(srk, seen); can {
		if err := a.checkFree(ctx, owner, srk, modeLook); err != nil {
			return false, err
		}
		if !a.contended {
			return false, errRetry
		}
		if unchanged, err := a.unchangedAfterWait(ctx, srk, seen); err != nil || !unchanged {
			return false, err
		}
		if err := a.checkFree(ctx, owner, srk, modeFence); err != nil {
			return false, err
		}
	}
	return a.e.runBool(ctx, swapScript, srk.String(), seen, want)
}

// checkFree returns an error if owner has the value of srk, or if owner is another entry that has
// given the value up and still holds it. The change's own entry may take back a value that it
// holds; if it has the value, it has changed meanwhile. If owner neither has nor holds the value
// and mode is modeFence, checkFree fences it.
func (a *attempt) checkFree(ctx context.Context, owner, srk recordkey.Key, mode string) error {
	state, err := a.e.stateOf(ctx, owner, srk, mode)
	switch {
	case err != nil || state == lacksValue, state == holdsValue && owner == a.c.Key:
		return err
	case owner != a.c.Key && state == holdsValue:
		return store.HeldOf(a.c, srk)
	case owner != a.c.Key:
		return store.DuplicateOf(a.c, srk)
	case a.c.Create:
		return store.DuplicateField(a.c.Key.Field())
	}
	return store.ErrConflict
}

// parseOwner returns the key of the entry that an SRV names. It reports false if no entry of this
// type can have that key, so that nothing can have been prepared on it.
func (a *attempt) parseOwner(srk recordkey.Key, srv string) (recordkey.Key, bool) {
	key, err := recordkey.Parse(store.Owner(srv))
	ok := err == nil && key.Kind() == recordkey.KindPRK && key.Namespace() == recordkey.Namespace{} &&
		key.Type() == srk.Type() && key.Field() == a.c.Key.Field()
	return key.In(srk.Namespace()), ok
}

// removeClaims runs step 7. It removes the attempt's claims, except those that turn out to be in
// use. A claim is in use if a commit arrived late, or if another process found the entry's value
// claimed and relied on that (change.Type.Reshape). removeClaims waits for claims that are still
// under way. Claims that it cannot remove within removeClaimsTime remain as garbage.
func (a *attempt) removeClaims(ctx context.Context) {
	mode := modeLook
	if !a.began.IsZero() {
		mode = modeFence
	}
	a.e.detached.run(ctx, removeClaimsTime, func(ctx context.Context) {
		_ = parallel(len(a.c.Claim), func(i int) error { return a.removeClaim(ctx, i, mode) })
		_ = a.leaveQueue(ctx)
		for _, s := range a.stages {
			_, _ = a.e.do(ctx, redisx.IsNumber, "unlink", store.PreparedKey(s.Set, a.rev))
		}
	})
}

// removeClaim removes the claim of a.c.Claim[i], unless it is in use or may still arrive. mode says
// how to look at the entry.
func (a *attempt) removeClaim(ctx context.Context, i int, mode string) error {
	srk := a.c.Claim[i]
	// A claim that may still arrive cannot be removed.
	if i < len(a.claimErrs) && redisx.WaitAbandoned(ctx, a.claimErrs[i]) != nil {
		return nil
	}
	if mode == modeFence || !a.c.Create || a.c.Expected != (store.Version{}) {
		if state, err := a.e.stateOf(ctx, a.c.Key, srk, mode); state != lacksValue || err != nil {
			return err
		}
	}
	_, err := a.e.runBool(ctx, swapScript, srk.String(), a.srv, "")
	return err
}

// finish does the work that is due after the commit. A check finds any work left undone. finish
// returns an error only if a server refuses some of the work permanently.
func (a *attempt) finish(ctx context.Context) error {
	if !a.leavesWork() {
		return nil
	}
	failed := make(chan error, 1)
	a.e.detached.run(ctx, finishTime, func(ctx context.Context) {
		n := len(a.released)
		err := parallel(n+2, func(i int) error {
			switch {
			case i == n:
				return a.align(ctx)
			case i == n+1:
				return a.leaveQueue(ctx)
			case a.released[i] == "":
				return nil
			case i >= len(a.c.Release):
				h := a.c.Hold[i-len(a.c.Release)]
				_, err := a.e.runBool(ctx, holdScript, h.Key.String(), a.released[i], strconv.FormatInt(h.End, 10))
				return err
			}
			_, err := a.e.runBool(ctx, swapScript, a.c.Release[i].String(), a.released[i], "")
			return err
		})
		if err == nil && a.c.Delete {
			_, _ = a.e.markDying(ctx, a.c.Key, a.rev, "end", "")
		}
		failed <- err
	})
	select {
	case err := <-failed:
		return unconfirmedError(a.c.Key, err)
	default: // ctx ended first
		return nil
	}
}

// leavesWork reports whether anything is due after the commit.
func (a *attempt) leavesWork() bool {
	c := &a.c
	return c.Delete || len(a.released)+len(a.queueClaims)+len(a.stages) > 0 ||
		len(c.Index)+len(c.Unindex)+len(c.Rank)+len(c.Unrank) > 0
}

// unconfirmedError returns the error to report if a server refuses work after the commit
// permanently, for example because a permission is missing. It returns nil for any other error, and
// also if a record has another Redis type: that record was damaged before the change, and a check
// reports it.
func unconfirmedError(entry recordkey.Key, err error) error {
	if !redisx.IsServerReply(err) || redisx.Retryable(err) || redisx.Moved(err) || redisx.WrongType(err) {
		return nil
	}
	return fmt.Errorf("changing %s: %w: a server refused work that follows it, such as updating indexes: %v", entry, store.ErrUnconfirmed, err)
}

// align brings indexes and tertiary records in line with the commit. A delete must do so within
// finishTime after it sent its commit (dead.go). If the commit took too much of that time, align
// marks the removal again, which starts a new period.
func (a *attempt) align(ctx context.Context) error {
	took := a.e.now().Sub(a.began)
	switch {
	case !a.c.Delete:
		return a.alignAll(ctx)
	case took > finishTime/4:
		_, err := a.e.runWhileDead(ctx, a.c.Key, a.rev, a.alignAll)
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, finishTime-took)
	defer cancel()
	return a.alignAll(ctx)
}

// alignIfCommitted does in the background what is due if a commit whose outcome is unknown was
// carried out: it updates the indexes, the tertiary records and the feed. That is for a process
// whose caller gave up before the answer, which unknown then says. alignIfCommitted reads the entry
// before it writes anything, because the commit may not have been carried out.
func (a *attempt) alignIfCommitted(ctx context.Context, unknown error) {
	feeds := len(a.c.Note.Lines) > 0 && a.c.Note.InChanges()
	if !a.leavesWork() && !feeds {
		return
	}
	a.e.finishLater(ctx, func(ctx context.Context) {
		if redisx.WaitAbandoned(ctx, unknown) != nil || a.alignToEntry(ctx) != nil {
			return
		}
		if feeds {
			a.e.feedLater(ctx, a.c.Key, a.c.Note)
		}
	})
}

// finishLater calls finish in the background. If maxFinishers calls are under way already, as in an
// outage with many callers, it leaves the work undone, as if the process had died.
func (e *Engine) finishLater(ctx context.Context, finish func(context.Context)) {
	select {
	case e.finishers <- struct{}{}:
	default:
		return
	}
	e.goDetached(ctx, finishTime, func(ctx context.Context) {
		defer release(e.finishers)
		finish(ctx)
	})
}

// alignToEntry brings indexes and tertiary records in line with the entry as it is stored, whether
// or not it has this attempt's commit.
func (a *attempt) alignToEntry(ctx context.Context) error {
	if a.c.Delete {
		now, err := a.e.head(ctx, a.c.Key)
		if err == nil && !now.live && strings.Contains(now.dying, a.rev) {
			_, err = a.e.runWhileDead(ctx, a.c.Key, a.rev, a.alignAll)
		}
		return err
	}
	err := a.e.alignAfterLook(ctx, membershipsOf(a.c), a.e.lookAtFacets(ctx, a.c.Key))
	if err != nil || len(a.stages) == 0 {
		return err
	}
	_, err = a.e.requireLive(ctx, a.c.Key) // puts the entry's staged records in place
	return err
}

func (a *attempt) alignAll(ctx context.Context) error {
	err := parallel(2, func(i int) error {
		if i == 0 {
			return a.e.alignFacets(ctx, a.c.Key, membershipsOf(a.c))
		}
		if !a.c.Delete {
			return nil
		}
		err := a.e.dropAll(ctx, a.c)
		if err == nil && a.noteInEntry {
			err = a.e.expireHistory(ctx, a.c.Key)
		}
		return err
	})
	if err == nil && len(a.stages) > 0 {
		err = a.e.complete(ctx, a.c.Key, a.fillField())
	}
	return err
}
