package userdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/hashcost"
	"github.com/coffeenode/userdb/internal/hashpool"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/session"
	"github.com/coffeenode/userdb/internal/store/throttle"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// SetPassword sets the password of an entry, ends its single-use tokens and sessions, and clears
// its failed logins. It returns the entry, with which the caller can start a new session.
//
// The error is ErrNotFound if there is no such entry, and a *password.PolicyError if the policy
// refuses the password, for example because it has over 72 bytes (1,024 with a pepper). The
// password is hashed as given: it is not trimmed, folded or normalized. Login also accepts the
// password in its other Unicode form, composed or decomposed.
func (t *Type) SetPassword(ctx context.Context, h hints.Hint, pw string) (e Entry, err error) {
	ctx, v := t.db.begin(ctx, "SetPassword", &err)
	defer v.end(&err)
	r, err := t.record(ctx, h)
	if err != nil {
		return Entry{}, err
	}
	return t.setPassword(ctx, r, pw, provedCaller(ctx, r.Key), "", func(store.Record) error { return nil })
}

// ChangePassword sets the password of an entry as SetPassword does, after checking the old one.
//
// If the entry has a second factor, a.Session must be the secret of one of its sessions that was
// verified on level 2 within ten minutes. That session ends like all others; with the returned
// entry, StartSession starts a new one of level 2.
//
// The error is ErrLogin if the old password is wrong, which counts as a failed login, or if the
// entry is disabled or has just been disabled or deleted. It is ErrConflict if, at the same moment,
// the password or its hash was changed, a second factor was added or removed, or all sessions of an
// entry with a second factor ended. Unlike Login, ChangePassword returns ErrNotFound if there is no
// such entry, since the hint comes from the application, which knows the user. If the entry has a
// second factor, the error is a *FactorError if a.Session is "", ErrNotFound if that session has
// ended or belongs to another entry, and ErrNotVerified if it was verified too long ago. In these
// cases nothing changes.
func (t *Type) ChangePassword(ctx context.Context, h hints.Hint, old, pw string, a Attempt) (e Entry, err error) {
	ctx, v := t.db.begin(ctx, "ChangePassword", &err)
	defer v.end(&err)
	r, err := t.record(ctx, h)
	if err != nil {
		return Entry{}, err
	}
	p := proof{t: t, r: r, origin: a.Origin}
	if _, err := p.prove(ctx, old); err != nil {
		return Entry{}, err
	}
	var s session.Session
	second := p.r.Factors().Any()
	if second {
		if a.Session == "" {
			return Entry{}, t.requireFactor(ctx, p.r, stepPassword, a.Origin)
		}
		var owner store.Record
		owner, s, _, _, err = t.current().verifiedSession(ctx, a.Session, nil)
		if err == nil && owner.Key != p.r.Key {
			err = ErrNotFound
		}
		if err != nil {
			return Entry{}, err
		}
	}
	proved, factors := p.hash(), p.r.Factors()
	e, err = t.setPassword(ctx, p.r, pw, p.caller(ctx), a.Origin, func(current store.Record) error {
		switch {
		case current.Fields[store.FieldDisabled] != "":
			return ErrLogin
		// One of these has changed since the old password and the session were checked.
		case current.Factors() != factors, current.PasswordHash() != proved, second && !s.ValidFor(current.ForSessions()):
			return ErrConflict
		}
		return nil
	})
	if second && committed(err) {
		e.proved, e.verifiedLevel2 = true, s.VerifiedLevel2
	}
	if errors.Is(err, ErrNotFound) {
		err = ErrLogin // the entry was deleted after the old password was checked
	}
	if errors.Is(err, ErrLogin) {
		t.db.emit(ctx, p.event(EventFailure))
	}
	return e, err
}

// setPassword replaces the hash of a record. c is the caller of the pool that hashes pw. It calls
// allow with each version of the record that it tries to change, and stops if allow returns an
// error.
func (t *Type) setPassword(
	ctx context.Context, r store.Record, pw string, c hashpool.Caller, origin string, allow func(current store.Record) error,
) (Entry, error) {
	before, after := r, r
	ctx = view.WithActor(ctx, view.Actor{Origin: origin})
	err := t.retryOnSchemaChange(ctx, func(t *Type) error {
		hash, err := t.db.hashers.hash(ctx, c, t.declared, pw, t.declared.Identifiers(before.Fields))
		if err != nil {
			return err
		}
		after, err = t.rewriteRead(ctx, before, func(current store.Record) (c store.Change, due bool, err error) {
			before = current
			if err := allow(current); err != nil {
				return c, false, err
			}
			return t.newPasswordChange(current, hash, change.Facets(current), map[string]string{})
		})
		return err
	})
	if committed(err) {
		t.afterPasswordSet(ctx, after, origin)
		t.current().clearSessions(ctx, before, after)
	}
	return t.current().entry(after, err)
}

// newPasswordChange returns the change that gives a record another password hash.
func (t *Type) newPasswordChange(current store.Record, hash string, facets, own map[string]string) (c store.Change, due bool, err error) {
	change.SetPassword(current, t.view.Now(), hash, facets, own)
	return t.declared.Update(current, facets, own)
}

// afterPasswordSet clears the failed logins of an entry and emits the event after a new password
// was set. Guesses at the old password say nothing about the new one.
func (t *Type) afterPasswordSet(ctx context.Context, r store.Record, origin string) {
	if err := t.clearFailures(ctx, r); err != nil {
		t.warn(ctx, "cannot clear failed logins", r, err)
	}
	t.db.emit(ctx, Event{Kind: EventPassword, Key: r.Key, Origin: origin})
}

// clearFailures clears the failed logins of an entry.
func (t *Type) clearFailures(ctx context.Context, r store.Record) error {
	counters, err := throttle.Key(r.Key)
	if err != nil {
		return err
	}
	return t.view.Engine.Reset(ctx, throttle.Counters{Account: counters, Now: t.view.StoreTime()})
}

// ResetThrottle clears the failed logins of an entry, so that nobody has to wait before the next
// attempt. The familiar origins of the entry stay. The error is ErrNotFound if there is no such
// entry.
func (t *Type) ResetThrottle(ctx context.Context, h hints.Hint) (err error) {
	ctx, v := t.db.begin(ctx, "ResetThrottle", &err)
	defer v.end(&err)
	t = t.current()
	r, err := t.record(ctx, h)
	if err != nil {
		return publicError(err)
	}
	if err = t.clearFailures(ctx, r); err == nil && (t.view.Config.History || view.ActorOf(ctx).IsOperator()) {
		if err = t.view.NoteAct(ctx, EventThrottleReset, r.Key, ""); err != nil {
			t.view.WarnMissing(ctx, EventThrottleReset, err)
		}
	}
	return err
}

// Disable prevents an entry from logging in and ends its tokens and sessions. Until Enable, no
// token is issued or redeemed and no session starts. The entry can still be read. The error is
// ErrNotFound if there is no such entry.
func (t *Type) Disable(ctx context.Context, h hints.Hint) (err error) {
	ctx, v := t.db.begin(ctx, "Disable", &err)
	defer v.end(&err)
	return t.setDisabled(ctx, h, EventDisable)
}

// Enable allows an entry to log in again. The error is ErrNotFound if there is no such entry.
func (t *Type) Enable(ctx context.Context, h hints.Hint) (err error) {
	ctx, v := t.db.begin(ctx, "Enable", &err)
	defer v.end(&err)
	return t.setDisabled(ctx, h, EventEnable)
}

func (t *Type) setDisabled(ctx context.Context, h hints.Hint, kind EventKind) error {
	r, err := t.record(ctx, h)
	if err != nil {
		return publicError(err)
	}
	// After a conflict, use the same entry even if the hint now leads to another one.
	before, r, err := t.rewriteInForce(ctx, r, func(t *Type, current store.Record) (store.Change, bool, error) {
		own := map[string]string{}
		if kind == EventDisable {
			change.Disable(current, t.view.Now(), own)
		} else {
			change.Enable(current, own)
		}
		return t.declared.Update(current, change.Facets(current), own)
	})
	if committed(err) {
		t.current().clearSessions(ctx, before, r)
		t.db.emit(ctx, Event{Kind: kind, Key: r.Key})
	}
	return err
}

// hashers hash and check passwords, with one Hasher for each cost in the schema and one pool of
// workers. They implement view.Hashing. The peppers are only in the closure newHasher, so that
// printing a DB does not print them.
type hashers struct {
	db        *DB
	pool      *hashpool.Pool
	newHasher func(cost int) (*password.Hasher, error)
	mu        sync.RWMutex
	byCost    map[int]*password.Hasher
}

func newHashers(o Options) *hashers {
	return &hashers{pool: hashpool.New(o.HashWorkers), newHasher: func(cost int) (*password.Hasher, error) {
		return password.New(password.Options{Cost: cost, Peppers: o.Peppers})
	}}
}

// add creates the hashers that the types of a schema need.
func (hs *hashers) add(s schema.Schema) error {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.byCost == nil {
		hs.byCost = map[int]*password.Hasher{}
	}
	for name, t := range s.Types {
		cost := t.Policy().Cost
		if hs.byCost[cost] != nil {
			continue
		}
		h, err := hs.newHasher(cost)
		if err != nil {
			return fmt.Errorf("type %s: %w", name, err)
		}
		hs.byCost[cost] = h
	}
	return nil
}

// lowerCost replaces the hashers with ones whose hashes take almost no time, for tests and for the
// tour of the command.
func (hs *hashers) lowerCost(s schema.Schema) error {
	newHasher := hs.newHasher
	hs.newHasher = func(cost int) (*password.Hasher, error) {
		h, err := newHasher(cost)
		if err == nil {
			hashcost.Lower(h)
		}
		return h, err
	}
	hs.byCost = nil
	return hs.add(s)
}

func (hs *hashers) HasherFor(t *change.Type) *password.Hasher {
	hs.mu.RLock()
	defer hs.mu.RUnlock()
	return hs.byCost[t.Schema.Policy().Cost]
}

// callerIn returns the caller of a job in a lane, or in the lane of operators if the actor of ctx
// is an operator. If origin is "", the actor's origin is used. account is "" if there is no
// account.
func callerIn(ctx context.Context, lane hashpool.Lane, origin, account string) hashpool.Caller {
	actor := view.ActorOf(ctx)
	if actor.IsOperator() {
		lane = hashpool.Operators
	}
	return hashpool.Caller{Lane: lane, Actor: actor.Name, Origin: normalOrigin(cmp.Or(origin, actor.Origin)), Account: account}
}

// provedCaller returns the caller of a job for somebody who has already proved the right to act for
// the account at prk, such as the holder of a token.
func provedCaller(ctx context.Context, prk recordkey.Key) hashpool.Caller {
	return callerIn(ctx, hashpool.Proved, "", prk.String())
}

// importCaller returns the caller of a job for an import. Imports have no origin, because they
// would otherwise use up the share of the visitors from that origin.
func importCaller(ctx context.Context) hashpool.Caller {
	return hashpool.Caller{Lane: hashpool.Imports, Actor: view.ActorOf(ctx).Name}
}

// onPool runs a CPU-bound job on the pool, which limits how many run at the same time. A call that
// uses the pool gives up its place among the calls being served, since the pool itself limits how
// many wait. Operators have a lane of their own, so that they can sign in during a flood of other
// logins.
func (hs *hashers) onPool(ctx context.Context, c hashpool.Caller, job func() error) error {
	if view.IsReserved(hs.db.view().NS) {
		c.Lane = hashpool.Operators
	}
	view.ReleaseSlot(ctx)
	if len(hs.db.options.Observers) > 0 {
		return hs.runObserved(ctx, c, job)
	}
	return hs.run(ctx, c, job)
}

func (hs *hashers) run(ctx context.Context, c hashpool.Caller, job func() error) error {
	var failed error
	err := hs.pool.Do(ctx, c, func() { failed = job() })
	if busy, ok := errors.AsType[*hashpool.BusyError](err); ok {
		return fmt.Errorf("hashing passwords: %w: %w", &BusyError{Wait: busy.Wait}, err)
	}
	if errors.Is(err, hashpool.ErrClosed) {
		return fmt.Errorf("%w: hashing passwords: %w", ErrUnavailable, err)
	}
	return cmp.Or(err, failed)
}

// hashUnchecked hashes a password without checking it against the policy.
func (hs *hashers) hashUnchecked(ctx context.Context, c hashpool.Caller, t *change.Type, pw string) (hash string, err error) {
	err = hs.onPool(ctx, c, func() (err error) {
		hash, err = hs.HasherFor(t).Hash(pw)
		return err
	})
	return hash, err
}

func (hs *hashers) Hash(ctx context.Context, t *change.Type, pw string, own []string) (string, error) {
	return hs.hash(ctx, importCaller(ctx), t, pw, own)
}

func (hs *hashers) Check(ctx context.Context, t *change.Type, pw string, own []string) error {
	return hs.check(ctx, importCaller(ctx), t, pw, own)
}

func (hs *hashers) Matches(ctx context.Context, t *change.Type, hash string, imported bool, pw string) (same bool, err error) {
	hasher := hs.HasherFor(t)
	verify := hasher.Verify
	if imported {
		verify = hasher.VerifyImported
	}
	err = hs.onPool(ctx, importCaller(ctx), func() error {
		result, err := verify(hash, pw)
		same = err == nil && result.OK
		return nil
	})
	return same, err
}

// hash checks a password against the policy and hashes it.
func (hs *hashers) hash(ctx context.Context, c hashpool.Caller, t *change.Type, pw string, own []string) (string, error) {
	if err := hs.check(ctx, c, t, pw, own); err != nil {
		return "", err
	}
	return hs.hashUnchecked(ctx, c, t, pw)
}

// check checks a password against the policy.
func (hs *hashers) check(ctx context.Context, c hashpool.Caller, t *change.Type, pw string, own []string) error {
	if pw == "" { // refused whatever the policy, since anybody could log in
		return &password.PolicyError{Rule: "min", Reason: "it is empty", Min: max(t.Schema.Policy().Min, 1)}
	}
	p := t.Schema.Policy()
	policy := password.Policy{Min: p.Min, Blocklist: p.Blocklist}
	if err := policy.Check(pw, own...); err != nil {
		return err
	}
	if policy.Strength = p.Strength; policy.Strength > 0 {
		// Estimating the strength of some passwords takes a second or two.
		if err := hs.onPool(ctx, c, func() error { return policy.Check(pw, own...) }); err != nil {
			return err
		}
	}
	return hs.HasherFor(t).Hashable(pw)
}

func (hs *hashers) PasswordSet(ctx context.Context, t *change.Type, r store.Record) {
	(&Type{hs.db, hs.db.view(), t}).afterPasswordSet(ctx, r, "")
}

func (hs *hashers) Disabled(ctx context.Context, r store.Record) {
	hs.db.emit(ctx, Event{Kind: EventDisable, Key: r.Key})
}
