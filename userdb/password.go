package userdb

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/password"
)

// SetPassword sets the password of an entry, new or not, ends all its single-use tokens and
// forgets its failed logins. *password.PolicyError says what speaks against a password, such as being
// over 72 bytes (1024 with a pepper). The bytes are hashed as they are: nothing is trimmed, folded or
// normalised.
func (t *Type) SetPassword(ctx context.Context, h hints.Hint, pw string) error {
	r, err := t.record(ctx, h)
	if err != nil {
		return err
	}
	return t.setPassword(ctx, r, pw, nil, "")
}

// ChangePassword is SetPassword for somebody who proves with the old password to be the owner. A
// wrong one is ErrLogin, and counts as an attempt to log in; so does an entry that is disabled, or was disabled or
// deleted meanwhile. ErrConflict says that the password, or its hash, was changed in the same moment. The hint
// is the application's, of somebody whom it knows: other than Login, it tells ErrNotFound.
func (t *Type) ChangePassword(ctx context.Context, h hints.Hint, old, pw string, a Attempt) error {
	r, err := t.record(ctx, h)
	if err != nil {
		return err
	}
	g := guess{t: t, r: r, origin: a.Origin}
	if _, err := g.stand(ctx, old); err != nil {
		return err
	}
	proved := g.hash()
	err = t.setPassword(ctx, g.r, pw, &proved, a.Origin)
	if errors.Is(err, ErrNotFound) {
		err = ErrLogin // it was there when the old password was right
	}
	if errors.Is(err, ErrLogin) {
		t.db.emit(ctx, g.event(EventFailure))
	}
	return err
}

// setPassword replaces a hash: any, or only the one against which the owner proved himself.
func (t *Type) setPassword(ctx context.Context, r store.Record, pw string, proved *string, origin string) error {
	hash, err := t.hash(ctx, pw, t.identifiers(r))
	if err != nil {
		return err
	}
	_, err = t.rewrite(ctx, r, func(now store.Record) (facets, own map[string]string, err error) {
		switch {
		case proved == nil: // an operator's
		case now.Fields[store.FieldDisabled] != "":
			return nil, nil, ErrLogin
		case now.Fields[store.FieldPassword] != *proved:
			return nil, nil, errProved
		}
		facets, own = change.Bare(now), map[string]string{}
		change.SetPassword(now, t.db.view.Now(), hash, facets, own)
		return facets, own, nil
	})
	if errors.Is(err, errProved) {
		return ErrConflict
	}
	if made(err) {
		t.passwordSet(ctx, r, origin)
	}
	return err
}

// passwordSet does what belongs behind a new password.
func (t *Type) passwordSet(ctx context.Context, r store.Record, origin string) {
	t.forgetFailures(ctx, r)
	t.db.emit(ctx, Event{Kind: EventPassword, PRK: r.Key, Origin: origin})
}

// made says whether a change was made, be it that nobody knows about replicas.
func made(err error) bool { return err == nil || errors.Is(err, ErrUnconfirmed) }

// errProved: the hash is not the one any more against which the old password was right.
var errProved = errors.New("another password by now")

// forgetFailures lets the owner in who set a new password, whatever strangers did. Guesses at the old one
// tell nothing about the new one.
func (t *Type) forgetFailures(ctx context.Context, r store.Record) {
	counters, err := t.counters(r)
	if err == nil {
		err = t.db.view.Engine.Reset(ctx, store.Attempt{Account: counters, Now: t.db.view.StoreTime()})
	}
	if err != nil {
		t.warn(ctx, "failed logins are not forgotten", r, err)
	}
}

// Disable keeps an entry from logging in, and ends its tokens: none is issued or redeemed until Enable. It
// stays readable.
func (t *Type) Disable(ctx context.Context, h hints.Hint) error {
	return t.setDisabled(ctx, h, EventDisable, func(r store.Record) map[string]string {
		own := map[string]string{}
		change.Disable(r, t.db.view.Now(), own)
		return own
	})
}

// Enable lets an entry log in again.
func (t *Type) Enable(ctx context.Context, h hints.Hint) error {
	return t.setDisabled(ctx, h, EventEnable, func(store.Record) map[string]string {
		return map[string]string{store.FieldDisabled: ""}
	})
}

func (t *Type) setDisabled(ctx context.Context, h hints.Hint, kind EventKind, own func(store.Record) map[string]string) error {
	r, err := t.record(ctx, h)
	if err != nil {
		return err
	}
	_, err = t.rewrite(ctx, r, func(now store.Record) (_, _ map[string]string, err error) {
		return change.Bare(now), own(now), nil
	})
	if made(err) {
		t.db.emit(ctx, Event{Kind: kind, PRK: r.Key})
	}
	return err
}

// A rewriting says what facets and what own fields of the store's a record shall have.
type rewriting func(now store.Record) (facets, own map[string]string, err error)

// rewrite changes a record, again after a conflict from what it is then, and returns it; also where the
// change is not confirmed.
func (t *Type) rewrite(ctx context.Context, r store.Record, change rewriting) (store.Record, error) {
	return t.rewriteBy(ctx, r, store.Token{}, change)
}

// rewriteBy is rewrite for a change that spends a token, if that is not the zero one.
func (t *Type) rewriteBy(ctx context.Context, r store.Record, spent store.Token, how rewriting) (store.Record, error) {
	for attempt := range updateAttempts {
		facets, own, err := how(r)
		if err != nil {
			return r, err
		}
		c, changed, err := t.t.Update(r, facets, own)
		if err != nil || !changed && spent.Hash == "" {
			return r, err
		}
		c.Tokens.Spend, c.Tokens.Purpose = spent.Hash, spent.Purpose
		v, err := t.db.view.Apply(ctx, t.t, c)
		if made(err) {
			return change.After(c, v, r.Fields), err
		}
		if !errors.Is(err, ErrConflict) {
			return r, named(err)
		}
		if err = retryAfter(ctx, attempt); err != nil {
			return r, err
		}
		if r, err = t.db.view.Read(ctx, store.Lookup{PRK: r.Key}); err != nil {
			return r, err
		}
	}
	return r, ErrConflict
}

// hash holds a new password to the type's policy, and hashes it. own are its owner's identifiers.
func (t *Type) hash(ctx context.Context, pw string, own []string) (string, error) {
	if err := t.judge(ctx, pw, own); err != nil {
		return "", err
	}
	return t.newHash(ctx, pw)
}

// judge holds a new password to the policy of the type.
func (t *Type) judge(ctx context.Context, pw string, own []string) error {
	if pw == "" {
		return errEmpty
	}
	p := t.t.Schema.Policy()
	policy := password.Policy{Min: p.Min, Blocklist: p.Blocklist}
	if err := policy.Check(pw, own...); err != nil {
		return err
	}
	if policy.Strength = p.Strength; policy.Strength == 0 {
		return nil
	}
	// This takes a second or two, of a text made for it.
	var weak error
	err := t.onPool(ctx, func() { weak = policy.Check(pw, own...) })
	return cmp.Or(err, weak)
}

// errEmpty: whatever the policy, an entry that anybody can log in to has no password.
var errEmpty = &password.PolicyError{Rule: "min", Reason: "it is empty"}

// identifiers are the primary and the secondary values of an entry, as written.
func (t *Type) identifiers(r store.Record) []string {
	var ids []string
	for field, wire := range r.Fields {
		if field == t.t.Schema.Primary || slices.Contains(t.t.Secondary, field) {
			ids = append(ids, wire)
		}
	}
	return ids
}
