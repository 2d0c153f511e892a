package cluster

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/onekey"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
)

var (
	//go:embed scripts/claim.lua
	claimLua string
	//go:embed scripts/swap.lua
	swapLua string
	//go:embed scripts/commit.lua
	commitLua string
)

var (
	claimScript  = redisx.NewScript(claimLua, redisx.IsNumber|redisx.IsText)
	swapScript   = redisx.NewScript(swapLua, redisx.IsNumber)
	commitScript = redisx.NewScript(onekey.TokensLua+commitLua, redisx.IsVerdict)
)

// An attempt is one try to make a change, with a token of its own.
type attempt struct {
	e      *Engine
	c      store.Change
	prk    string // relative, as SRVs have it
	token  string
	own    string // the SRV of this attempt
	going  []seenSRK
	gone   []goneMembers   // of indexed sets that are replaced
	queues bool            // an attempt before this one met another
	queued []recordkey.Key // SRKs that were only claimed to queue
	sent   bool            // the commit was sent
	began  time.Time       // when
	until  int64           // the commit may be made, by the server's clock in milliseconds
}

// A seenSRK is an SRK with exactly what was read there.
type seenSRK struct {
	key recordkey.Key
	srv string
}

// How long a verb goes on with what is left to do.
const (
	giveBackTime = 2 * time.Second
	finishTime   = 10 * time.Second
)

// errAgain: the attempt met something that is over by now; begin again with a new token.
var errAgain = errors.New("begin again")

// errLate: the commit came later than what is known of the schema in force.
var errLate = fmt.Errorf("%w: it may be another schema by now", errAgain)

// Apply implements [store.Engine]. A create without contention is three rounds: claims, looks, commit.
func (e *Engine) Apply(ctx context.Context, c store.Change) (string, error) {
	rev, err := e.apply(ctx, c)
	if err == nil {
		err = e.confirmed(ctx, c, rev)
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
			e.lookAgain(c.Schema)
			if late++; late == mostLate {
				err = fmt.Errorf("%w: the clocks of the cluster's nodes are further apart than %v", store.ErrUnavailable, apart)
			}
		}
		switch {
		case err == nil:
			return a.token, nil
		case !errors.Is(err, errAgain):
			return "", a.name(err)
		}
		if err := e.pause(ctx, e.latency.several(1, 4)); err != nil {
			return "", a.name(redisx.Fail(err))
		}
		if c.Seen, err = e.prepare(ctx, c); err != nil {
			return "", a.name(err)
		}
	}
}

// concurrent is how many changes are made at once: each is several rounds to several nodes.
const concurrent = 64

// ApplyAll implements [store.Engine]: many changes at a time.
func (e *Engine) ApplyAll(ctx context.Context, cs []store.Change) ([]string, []error) {
	revs, errs := make([]string, len(cs)), make([]error, len(cs))
	store.Each(cs, concurrent, func(i int) { revs[i], errs[i] = e.Apply(ctx, cs[i]) })
	return revs, errs
}

// mostLate is how often a commit comes too late, each time with a new look at the schema, before the clocks are to blame.
const mostLate = 3

func newAttempt(e *Engine, c store.Change) *attempt {
	prk := c.Key.In(recordkey.Namespace{}).String()
	token := e.token()
	return &attempt{e: e, c: c, prk: prk, token: token, own: prk + " " + token}
}

// name says which entry an error was about, where that is no secret.
func (a *attempt) name(err error) error {
	if redisx.WrongType(err) {
		return &store.CorruptError{Key: a.c.Key.String(), Reason: "it, an SRK or an index of it is of another Redis type (WRONGTYPE)"}
	}
	if errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrOutcomeUnknown) {
		return fmt.Errorf("changing %s: %w", a.c.Key, err)
	}
	return err
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
		a.finish(ctx)
	}
	return err
}

// entryFirst returns, for a change whose values are taken, what is wrong with its own entry, if anything is:
// that the UID is taken, or that the entry has changed or is gone. One server says that first, too.
func (a *attempt) entryFirst(ctx context.Context, err error) error {
	if !errors.Is(err, store.ErrDuplicate) {
		return err
	}
	r, e := a.e.run(ctx, on(prepareScript, a.c.Key.String(), tombstoneLife))
	if e != nil {
		return err
	}
	head, _ := r.value.([]any)
	live, rev := redisx.Text(head, 0) != "", store.Rev(redisx.Text(head, 1))
	switch {
	case a.c.Create && live:
		return &store.DuplicateError{Field: a.c.Key.Field(), Primary: true}
	case !a.c.Create && !live:
		return store.ErrNotFound
	case !a.c.Create && rev != a.c.Seen.Rev:
		return store.ErrConflict
	}
	return err
}

// beforeCommit is steps 5, 1, 2 and 3, in this order: all claims, then all looks. Members of tertiary sets
// are laid ready with the looks.
func (a *attempt) beforeCommit(ctx context.Context) error {
	if _, err := a.e.guard(ctx, a.c.Schema); err != nil {
		return err
	}
	if err := a.readGoing(ctx); err != nil {
		return err
	}
	if err := a.readReplaced(ctx); err != nil {
		return err
	}
	if a.queues {
		if err := a.queue(ctx); err != nil {
			return err
		}
	}
	err := parallel(len(a.c.Claim), func(i int) error { return a.claim(ctx, a.c.Claim[i]) })
	if err != nil {
		return err
	}
	n := len(a.c.Elsewhere)
	err = parallel(n+len(a.c.Add), func(i int) error {
		if i < n {
			return a.lookElsewhere(ctx, a.c.Elsewhere[i])
		}
		return a.layReady(ctx, a.c.Add[i-n])
	})
	if err != nil {
		return err
	}
	a.until, err = a.e.guard(ctx, a.c.Schema) // the steps before may have taken long
	return err
}

// readGoing is step 5: the SRKs that will go, as they are before the commit.
func (a *attempt) readGoing(ctx context.Context) error {
	seen := make([]string, len(a.c.Release))
	err := parallel(len(seen), func(i int) (err error) {
		seen[i], err = a.e.get(ctx, a.c.Release[i].String())
		return err
	})
	for i, srv := range seen {
		if store.Owner(srv) == a.prk {
			a.going = append(a.going, seenSRK{a.c.Release[i], srv})
		}
	}
	return err
}

// claim is steps 1 and 2.
func (a *attempt) claim(ctx context.Context, srk recordkey.Key) error {
	for {
		r, err := a.e.run(ctx, on(claimScript, srk.String(), a.own))
		if err != nil {
			return err
		}
		seen, occupied := r.value.(string)
		if !occupied || store.Owner(seen) == a.prk && slices.Contains(a.queued, srk) {
			return nil // where it only queues, the entry itself may have it, or have had it
		}
		if taken, err := a.take(ctx, srk, seen, a.own); err != nil || taken {
			return err
		}
	}
}

// lookElsewhere is step 3. Nearly always there is nothing, which the client learns from an EXISTS in half the time:
// to it, a GET that finds nothing is an error that it looks into.
func (a *attempt) lookElsewhere(ctx context.Context, srk recordkey.Key) error {
	for {
		is, err := a.e.exists(ctx, srk.String())
		if err != nil || !is {
			return err
		}
		seen, is, err := a.e.there(ctx, srk.String())
		if err != nil || !is || store.Owner(seen) == a.prk {
			return err
		}
		if taken, err := a.take(ctx, srk, seen, ""); err != nil || taken {
			return err
		}
	}
}

// take is step 2: what to do about an SRK that is occupied. It becomes want ("": it goes) if nobody
// holds the value, and then the answer is true; false says that it changed meanwhile.
func (a *attempt) take(ctx context.Context, srk recordkey.Key, seen, want string) (bool, error) {
	if owner, can := a.ownerOf(srk, seen); can {
		if held, err := a.e.fence(ctx, owner, srk, true); err != nil || held {
			return false, a.held(srk, seen, err)
		}
		if !a.queues {
			return false, errAgain
		}
		if stays, err := a.stays(ctx, srk, seen); err != nil || !stays {
			return false, err
		}
		if held, err := a.e.fence(ctx, owner, srk, false); err != nil || held {
			return false, a.held(srk, seen, err)
		}
	}
	r, err := a.e.run(ctx, on(swapScript, srk.String(), seen, want))
	return r.yes(), err
}

// held is the error for a value that an entry holds: this one (it was changed meanwhile) or another.
func (a *attempt) held(srk recordkey.Key, seen string, err error) error {
	switch {
	case err != nil:
		return err
	case store.Owner(seen) == a.prk && !a.c.Create:
		return store.ErrConflict
	case store.Owner(seen) == a.prk:
		return &store.DuplicateError{Field: a.c.Key.Field(), Primary: true}
	}
	return store.Duplicate(a.c, srk)
}

// ownerOf is the key of the entry that an SRV names; false where no entry of the type can be there,
// so that nothing can have been prepared on it.
func (a *attempt) ownerOf(srk recordkey.Key, srv string) (recordkey.Key, bool) {
	key, err := recordkey.Parse(store.Owner(srv))
	ok := err == nil && key.Kind() == recordkey.KindPRK && key.Namespace() == recordkey.Namespace{} &&
		key.Type() == srk.Type() && key.Field() == a.c.Key.Field()
	return key.In(srk.Namespace()), ok
}

// commit is step 4.
func (a *attempt) commit(ctx context.Context) error {
	a.sent, a.began = true, a.e.now()
	r, err := a.e.run(ctx, a.commitStep())
	if err != nil {
		return err
	}
	reply, _ := r.value.([]any)
	what, past := redisx.Text(reply, 0), redisx.Text(reply, 1)
	switch {
	case what == "ok":
		return nil
	case what == "tokens" && !a.c.Tokens.Known: // issued since the entry was read
		a.c.Tokens.Known = true
		return a.commit(ctx)
	}
	if r.unsure && !store.Accounts(past, a.c.Seen.Rev) {
		return store.ErrOutcomeUnknown
	}
	switch {
	case what == "late":
		return errLate
	case what == "exists":
		return &store.DuplicateError{Field: a.c.Key.Field(), Primary: true}
	case what == "absent", what == "token":
		return store.ErrNotFound
	case what == "damaged":
		return &store.CorruptError{Key: a.c.Key.String(), Reason: "a hash without ~isa"}
	case what == "conflict" && !a.c.Create && store.Rev(past) != a.c.Seen.Rev:
		return store.ErrConflict
	case what == "conflict", what == "dying", what == "filling":
		return errAgain // it was only fenced, or is not ready yet
	}
	return &redisx.UnknownError{Cause: redisx.Unknown(what)}
}

// commitStep declares the record of the entry's tokens only where there is one: in a slot that is being migrated,
// two keys are served by nobody while one of them is absent.
func (a *attempt) commitStep() step {
	s := on(commitScript, a.c.Key.String(), a.commitArgs()...)
	if a.c.Tokens.Known {
		tokens, _ := store.TokenKey(a.c.Key) // every PRK has one
		s.keys = append(s.keys, tokens.String())
	}
	return s
}

func (a *attempt) commitArgs() []string {
	verb, dying := "update", ""
	switch {
	case a.c.Create:
		verb = "create"
	case a.c.Mend:
		verb = "mend"
	case a.c.Delete:
		verb = "delete"
		if len(a.c.Drop)+len(a.c.Unindex)+len(a.c.Unrank) > 0 {
			dying = a.token
		}
	}
	args := []string{a.token, verb, a.c.Seen.Rev, a.c.Seen.Fence, tombstoneLife, dying, strconv.FormatInt(a.until, 10)}
	args = append(append(args, onekey.EndingArgs(a.c.Tokens)...), strconv.Itoa(len(a.c.Unset)))
	args = append(args, a.c.Unset...)
	for _, f := range a.c.Set {
		args = append(args, f.Field, f.Wire)
	}
	if len(a.c.Add) > 0 {
		args = append(args, store.FieldFill, a.fill())
	}
	return args
}

// giveBack is step 7: the own claims go, each only after fencing the own entry, which says "held" if
// the claim is in use after all. It does what it can in the time there is: what stays is garbage.
func (a *attempt) giveBack(ctx context.Context) {
	afterwards(ctx, giveBackTime, func(ctx context.Context) {
		_ = parallel(len(a.c.Claim), func(i int) error {
			srk := a.c.Claim[i]
			if a.sent {
				if held, err := a.e.fence(ctx, a.c.Key, srk, false); held || err != nil {
					return err
				}
			}
			_, err := a.e.run(ctx, on(swapScript, srk.String(), a.own, ""))
			return err
		})
		_ = a.leaveQueue(ctx)
		for _, m := range a.c.Add {
			_ = a.e.write(ctx, "unlink", store.StageKey(m.Key, a.token))
		}
	})
}

// finish does what is due after the commit. If it does not come to the end, a check finds the rest.
func (a *attempt) finish(ctx context.Context) {
	afterwards(ctx, finishTime, func(ctx context.Context) {
		ng := len(a.going)
		err := parallel(ng+2, func(i int) error {
			switch i {
			case ng:
				return a.align(ctx)
			case ng + 1:
				return a.leaveQueue(ctx)
			}
			_, err := a.e.run(ctx, on(swapScript, a.going[i].key.String(), a.going[i].srv, ""))
			return err
		})
		if err == nil && a.c.Delete {
			_, _ = a.e.markDying(ctx, a.c.Key, a.token, "end", "")
		}
	})
}

// align brings indexes and tertiary records in line with what was committed.
func (a *attempt) align(ctx context.Context) error {
	if a.c.Delete {
		limited, cancel, dying := a.stillDying(ctx)
		defer cancel()
		if !dying {
			return store.ErrConflict
		}
		ctx = limited
	}
	err := parallel(3, func(i int) error {
		switch i {
		case 0:
			return a.e.alignFacets(ctx, a.c.Key, membershipsOf(a.c))
		case 1:
			return parallel(len(a.c.Drop), func(i int) error { return a.drop(ctx, a.c.Drop[i]) })
		}
		return a.e.dropNamed(ctx, a.c)
	})
	if err == nil && len(a.c.Add) > 0 {
		err = a.e.complete(ctx, a.c.Key, a.fill())
	}
	if err != nil {
		return err
	}
	return parallel(len(a.gone), func(i int) error {
		_, err := a.e.alignMembers(ctx, a.gone[i].set, a.gone[i].members, false)
		return err
	})
}
