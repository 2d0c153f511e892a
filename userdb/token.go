package userdb

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/session"
	"github.com/coffeenode/userdb/internal/store/token"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/schema"
)

// purposeInvite is the prefix of the purpose of an invitation; the field follows.
const purposeInvite = "invite:"

// sentMark is the last of a stored token's fields if the token was sent to an address of its entry,
// as by IssueFor. The first field then names that address. A token becomes invalid when one of its
// fields changes; no entry has a field named sentMark.
const sentMark = "~sent"

// A Token lets the holder of its secret do one thing once, such as prove that they own an address,
// set a new password, or log in with a link. The application chooses the purposes. Those that begin
// with PurposeChange or PurposeAdd have a fixed meaning.
//
// The tokens of an entry end with a new password, with Disable and with Delete. When one is
// redeemed, all tokens of the same purpose end. An entry has at most 16 tokens; issuing another
// ends the oldest of the most frequent kind. A kind is a purpose with the facets that a token is
// bound to, so that strangers who keep asking for tokens of one kind end no others.
type Token struct {
	// Purpose is required and has at most 256 bytes.
	Purpose string

	// Value is any text that Redeem returns, such as an address, of at most 4 KiB.
	Value string

	// Field names a facet; when it changes, the token becomes invalid. If the field may have
	// several values, the token becomes invalid when the entry loses the value that it was issued
	// for. If "", the token is bound to no facet, or, with PurposeChange, only to the facet that it
	// changes.
	Field string

	// Lifetime is how long the token is valid, from a millisecond to 30 days. If zero, it is one
	// hour.
	Lifetime time.Duration
}

// PurposeChange is the prefix of the purpose of a token that changes a secondary facet when it is
// redeemed: "change:email" sets the facet email to the token's Value, without white space around
// it. The value is claimed only then, so that nobody can take an address without receiving its
// mail. If the facet is changed in another way, the token becomes invalid. In an hour at most three
// such tokens are issued for one value, whatever the entry, twelve for one entry, and thirty for
// one origin of WithActor, because each of them sends a mail to somebody who may not want it.
const PurposeChange = "change:"

// PurposeAdd is the prefix of the purpose of a token that adds a value to a secondary field with
// several values when it is redeemed: "add:email" adds the token's Value, without white space
// around it, after the other values, and marks it as verified. If the entry has the value already,
// it is only marked. As with PurposeChange, the value is claimed only then. Send the secret only to
// the new address: a visitor who could add an address without reading its mail would receive the
// secrets of its owner. These tokens also count towards the limit of PurposeChange.
const PurposeAdd = "add:"

const (
	defaultLife = time.Hour
	maxLife     = 30 * 24 * time.Hour
	maxPurpose  = 256
	maxValue    = 4 << 10
)

// errDisabled is the ErrNotFound of a disabled entry, for callers that issue tokens.
var errDisabled = fmt.Errorf("%w: the entry is disabled and cannot have tokens", ErrNotFound)

// Issue creates a single-use token for an entry and returns its secret. The secret holds 160 random
// bits and the UID. It consists of letters, digits, hyphens and underscores, and does not begin
// with a hyphen. The revision of the entry does not change.
//
// The error is ErrNotFound if there is no such entry or it is disabled, ErrInvalid if the token is
// invalid or the UID has over 200 bytes, ErrUnproven for a PurposeAdd of an entry whose own address
// is not verified yet (NewEntry.SelfRegistered), and ErrTooManyAttempts as described at
// [PurposeChange].
func (t *Type) Issue(ctx context.Context, h hints.Hint, tk Token) (secret string, err error) {
	ctx, v := t.db.begin(ctx, "Issue", &err)
	defer v.end(&err)
	secret, _, err = t.issue(ctx, h, tk, false)
	return secret, err
}

// IssueFor issues a token that is sent to an address of the entry, and returns its secret and the
// address. The address is the one stored in the field, never the one that a visitor entered: the
// two may be equal only in their canonical form and lead to different mailboxes. When the address
// changes, the token becomes invalid; when the token is redeemed, the address is verified.
//
// If a further value of a field became the facet without being verified, it may be the address of
// another person. The secret is then for the first verified value instead. To verify the facet
// itself, mail it a token of PurposeAdd or PurposeChange with its value.
//
// The errors are those of Issue. The error is also ErrInvalid if the entry has no such facet, if no
// value of the field may receive a secret, or if the purpose is a PurposeAdd, whose secret goes to
// the new value.
func (t *Type) IssueFor(ctx context.Context, h hints.Hint, field string, tk Token) (secret, address string, err error) {
	ctx, v := t.db.begin(ctx, "IssueFor", &err)
	defer v.end(&err)
	if err := tk.bindTo(field); err != nil {
		return "", "", err
	}
	return t.issue(ctx, h, tk, true)
}

// bindTo sets Field to the field that the token is sent to. It returns an error if Field already
// names another, if field is "", or if the purpose is a PurposeAdd.
func (tk *Token) bindTo(field string) error {
	switch {
	case tk.Field != "" && tk.Field != field:
		return invalid("field", "field", "differs from the field that the token is sent to")
	case field == "":
		return invalid("field", "field", "no field is given")
	case strings.HasPrefix(tk.Purpose, PurposeAdd):
		return invalid("purpose", "add", "the secret goes to the value that the token adds; use Issue")
	}
	tk.Field = field
	return nil
}

// issue stores a token and returns its secret. If sent is true, the secret is sent to the address
// of the entry that issue also returns. If the entry changes before the token is stored, issue
// reads it again and starts over.
func (t *Type) issue(ctx context.Context, h hints.Hint, tk Token, sent bool) (secret, address string, err error) {
	t = t.current()
	if err := t.checkToken(&tk); err != nil {
		return "", "", err
	}
	counted := !changesEntry(tk.Purpose)
	var r store.Record
	err = retryOnConflict(ctx, func() (conflict bool, err error) {
		if r, err = t.record(ctx, h); err == nil {
			err = t.checkIssuable(r, tk)
		}
		if err == nil && !counted {
			counted, err = true, t.admitChange(ctx, r.Key, tk.Value)
		}
		if err == nil {
			secret, err = newSecret(r.Key.Value())
		}
		if err != nil {
			return false, err
		}
		address = r.Fields[tk.Field]
		if sent {
			address = t.addressFor(r, tk.Field, "")
		}
		if sent && address == "" {
			return false, invalid(tk.Field, "unverified", "no secret is sent to this address before it is verified")
		}
		bound := t.bonds(tk, address, r.Fields[strings.TrimPrefix(tk.Purpose, PurposeChange)])
		if !sent {
			bound = bound[:len(bound)-1]
		}
		err = t.storeToken(ctx, r, tk, tk.stored(secret, bound))
		return errors.Is(err, ErrConflict), err
	})
	if err != nil {
		return "", "", err
	}
	t.db.emit(ctx, Event{Kind: EventIssue, Key: r.Key, Purpose: tk.Purpose})
	return secret, address, nil
}

// stored returns the token as it is stored, bound to the results of bonds.
func (tk Token) stored(secret string, bonds []string) token.Token {
	return token.Token{Hash: hashSecret(secret), Purpose: tk.Purpose, Fields: bonds, Value: tk.Value}
}

// storeToken stores a token of an entry, unless the entry has changed since it was read.
func (t *Type) storeToken(ctx context.Context, r store.Record, tk Token, stored token.Token) error {
	return t.view.Engine.Issue(ctx, token.Issue{
		Token: stored, PRK: r.Key, Rev: r.Version().Rev, Life: tk.Lifetime, Now: t.view.StoreTime(),
		Note: t.view.Note(ctx, EventIssue, tk.Purpose, tk.boundFields()...),
	})
}

// bonds returns the names of the values to which a token is bound, followed by sentMark. bound is
// the entry's value in tk.Field, and changed the one that a token of PurposeChange replaces. Such a
// token becomes invalid when another value becomes the facet, even if the entry keeps the earlier
// one.
func (t *Type) bonds(tk Token, bound, changed string) (all []string) {
	if tk.Field != "" {
		all = append(all, t.bond(tk.Field, bound))
	}
	if field, changes := strings.CutPrefix(tk.Purpose, PurposeChange); changes {
		all = append(all, t.bond(field, changed), field)
	}
	for i := len(all) - 1; i > 0; i-- {
		if slices.Contains(all[:i], all[i]) {
			all = slices.Delete(all, i, i+1)
		}
	}
	return append(all, sentMark)
}

// changesEntry reports whether a token of a purpose changes facets or further values.
func changesEntry(purpose string) bool {
	return strings.HasPrefix(purpose, PurposeChange) || strings.HasPrefix(purpose, PurposeAdd)
}

// checkIssuable returns an error if the entry cannot have the token.
func (t *Type) checkIssuable(r store.Record, tk Token) error {
	if r.Fields[store.FieldDisabled] != "" {
		return errDisabled
	}
	e := Entry{t: t.declared, fields: r.Fields}
	if field, adds := strings.CutPrefix(tk.Purpose, PurposeAdd); adds && e.Unproven() && e.indexOf(e.Texts(field), tk.Value) < 0 {
		return &FieldError{Err: ErrUnproven, Field: field, Rule: "unproven", Reason: "no further value can be added until the address is verified"}
	}
	if tk.Field != "" && e.Text(tk.Field) == "" {
		return invalid(tk.Field, "absent", "the entry has no such facet")
	}
	return nil
}

// checkToken checks a token, sets its default life, and removes white space around a new value.
func (t *Type) checkToken(tk *Token) error {
	if tk.Lifetime == 0 {
		tk.Lifetime = defaultLife
	}
	switch {
	case tk.Purpose == "" || len(tk.Purpose) > maxPurpose:
		return invalid("purpose", "size", "empty or over 256 bytes")
	case strings.HasPrefix(tk.Purpose, purposeInvite):
		return invalid("purpose", "name", "this prefix is reserved for invitations")
	case len(tk.Value) > maxValue:
		return invalid("value", "size", "over 4 KiB")
	case tk.Lifetime < time.Millisecond || tk.Lifetime > maxLife:
		return invalid("life", "range", "not between a millisecond and 30 days")
	case tk.Field == store.FieldPassword || store.OwnField(tk.Field) || len(tk.Field) > maxValue:
		return invalid("field", "name", "not the name of a facet")
	}
	field, changes := strings.CutPrefix(tk.Purpose, PurposeChange)
	added, adds := strings.CutPrefix(tk.Purpose, PurposeAdd)
	switch {
	case adds && t.declared.Schema.Fields[added].MaxValues() < 2:
		return invalid("purpose", "add", "the schema has no field of that name that may have several values")
	case adds:
		field = added
	case !changes:
		return nil
	case !slices.Contains(t.declared.Secondary, field):
		return invalid("purpose", "change", "the schema has no secondary field of that name")
	}
	tk.Value = strings.TrimSpace(tk.Value)
	return publicError(t.declared.EncodeFacet(map[string]string{}, field, schema.Text(tk.Value), nil))
}

// boundFields returns the facets that the token is bound to.
func (tk Token) boundFields() []string {
	var fields []string
	if tk.Field != "" {
		fields = append(fields, tk.Field)
	}
	if field, changes := strings.CutPrefix(tk.Purpose, PurposeChange); changes && field != tk.Field {
		fields = append(fields, field)
	}
	return fields
}

// Peek returns the entry and the token that Redeem would return, without redeeming the token, for
// the page that asks for a new password. It emits no event.
func (t *Type) Peek(ctx context.Context, purpose, secret string) (e Entry, tk Token, err error) {
	ctx, v := t.db.begin(ctx, "Peek", &err)
	defer v.end(&err)
	t = t.current()
	r, stored, err := t.findToken(ctx, purpose, secret)
	if err != nil {
		return Entry{}, Token{}, err
	}
	e, err = t.entry(r, nil)
	return e, publicToken(stored), err
}

// Redeem redeems a token and returns its entry and the token: of any number of callers, only one
// gets them. This changes the entry, which gets a new revision. With a purpose of PurposeChange or
// PurposeAdd, the same change sets the facet or adds the value. To set a password, use
// ResetPassword instead.
//
// The error is ErrNotFound if the secret was redeemed, has expired, was ended, is invalid or has
// another purpose, or if the entry is disabled or deleted; it does not say which. The error is
// ErrDuplicate if another entry has taken the value of a PurposeChange or PurposeAdd. If the entry
// has a second factor, Redeem returns the token and, in place of the entry, a *FactorError. After
// any error except ErrFactor, ErrOutcomeUnknown and ErrUnconfirmed, the token was not redeemed.
//
// If the entry was self-registered, the first token that proves that somebody receives mail at the
// entry's address also removes the password, ends all sessions and other tokens, and removes the
// values of other secondary fields, since another person may have registered the entry; see
// InSession. User names stay. A value of another required field stays, but no secrets are sent to
// it until it is verified.
func (t *Type) Redeem(ctx context.Context, purpose, secret string, options ...RedeemOption) (e Entry, tk Token, err error) {
	ctx, v := t.db.begin(ctx, "Redeem", &err)
	defer v.end(&err)
	var o redemption
	for _, set := range options {
		set(&o)
	}
	return t.redeem(ctx, purpose, secret, o)
}

// A RedeemOption changes what Redeem does.
type RedeemOption func(*redemption)

type redemption struct{ session string }

// InSession says that the visitor who redeems the token has a session with this secret. If the
// session belongs to the entry, the reader of the mail is the person who registered it, so a
// self-registered entry loses nothing. A session of another entry, or one that has ended, has no
// effect.
func InSession(secret string) RedeemOption { return func(o *redemption) { o.session = secret } }

func (t *Type) redeem(ctx context.Context, purpose, secret string, o redemption) (Entry, Token, error) {
	r, stored, err := t.current().findToken(ctx, purpose, secret)
	var visitor session.Session
	if err == nil {
		visitor, err = t.current().visitorSession(ctx, r, o.session)
	}
	before := r
	if err == nil {
		err = t.retryOnSchemaChange(ctx, func(t *Type) (err error) {
			before, r, err = t.spend(ctx, r, stored, func(current store.Record) (store.Change, bool, error) {
				return t.redemptionChange(current, stored, visitor)
			})
			return err
		})
	}
	second := r.Factors()
	e, err := t.current().finishRedeem(ctx, purpose, r, err)
	if !committed(err) {
		return Entry{}, Token{}, err
	}
	t.current().clearSessions(ctx, before, r)
	t.current().forgetFactors(ctx, r, before.Factors())
	if second.Any() {
		return Entry{}, publicToken(stored), t.current().requireFactorAfter(ctx, r, stepToken, view.ActorOf(ctx).Origin, err)
	}
	return e, publicToken(stored), err
}

// visitorSession returns the session of a secret if it belongs to the unproven entry r, and the
// zero Session otherwise.
func (t *Type) visitorSession(ctx context.Context, r store.Record, secret string) (session.Session, error) {
	if secret == "" || r.Fields[store.FieldUnproven] == "" {
		return session.Session{}, nil
	}
	owner, s, err := t.session(ctx, secret)
	if errors.Is(err, ErrNotFound) || err == nil && owner.Key != r.Key {
		return session.Session{}, nil
	}
	return s, err
}

// redemptionChange returns the change that redeeming a token makes to its entry. visitor is the
// session of the visitor, or zero.
func (t *Type) redemptionChange(current store.Record, stored token.Token, visitor session.Session) (c store.Change, due bool, err error) {
	facets, own := change.Facets(current), map[string]string{}
	proved, err := t.applyToken(current, stored, facets, own)
	if err != nil {
		return c, false, err
	}
	if proved.Field != "" {
		keep := visitor.ID != "" && visitor.ValidFor(current.ForSessions())
		t.declared.EndUnproven(current, facets, own, proved, t.view.Now(), keep)
	}
	if c, due, err = t.declared.Update(current, facets, own); err == nil {
		t.declared.Hold(&c, current, t.view.Now())
	}
	return c, due, err
}

// applyToken applies the redemption of a token to facets and own. It marks the value to which the
// token was sent as verified: the new value, or a value of the entry that this change does not
// replace. It returns the verified value.
func (t *Type) applyToken(current store.Record, stored token.Token, facets, own map[string]string) (verified change.Proved, err error) {
	field, changes := strings.CutPrefix(stored.Purpose, PurposeChange)
	added, adds := strings.CutPrefix(stored.Purpose, PurposeAdd)
	switch {
	case changes:
		if err := t.declared.EncodeFacet(facets, field, schema.Text(stored.Value), current.Fields); err != nil {
			return verified, err
		}
	case adds:
		e := t.entryUnchecked(store.Record{Key: current.Key, Fields: maps.Clone(current.Fields)})
		texts := e.Texts(added)
		if i := e.indexOf(texts, stored.Value); i < 0 {
			texts = append(texts, stored.Value)
		} else {
			texts[i] = stored.Value // the spelling whose mailbox the owner reads
		}
		if err := t.declared.SetTexts(current, facets, own, added, texts, t.view.Now()); err != nil {
			return verified, err
		}
		field = added
	}
	if (changes || adds) && provedBond(stored) == "" {
		t.declared.VerifyValue(current.Fields, facets, own, field, stored.Value, t.view.Now())
		return change.Proved{Field: field, Written: stored.Value}, nil
	}
	return t.verifyProved(current, stored, facets, own), nil
}

// verifyProved marks the value to which a token was sent as verified in own, if the entry has the
// value after the change. It returns that value.
func (t *Type) verifyProved(current store.Record, stored token.Token, facets, own map[string]string) (verified change.Proved) {
	proved := provedBond(stored)
	if proved == "" {
		return verified
	}
	field, _ := store.ParseBond(proved)
	changed, changes := strings.CutPrefix(stored.Purpose, PurposeChange)
	if written, has := current.BoundValue(proved); has && !(changes && changed == field && written == current.Fields[field]) {
		t.declared.VerifyValue(current.Fields, facets, own, field, written, t.view.Now())
		return change.Proved{Field: field, Written: written}
	}
	return verified
}

// ResetPassword redeems a token and sets the password of its entry in one change: of two calls at
// the same time, one succeeds. If the policy refuses the password (*password.PolicyError), the
// token remains valid. Otherwise ResetPassword does what SetPassword does, and its errors are those
// of Redeem. If the entry has a second factor, which stays, ResetPassword sets the password and
// returns a *FactorError without a ticket: the owner must log in with the password and the factor.
func (t *Type) ResetPassword(ctx context.Context, purpose, secret, pw string) (e Entry, err error) {
	ctx, v := t.db.begin(ctx, "ResetPassword", &err)
	defer v.end(&err)
	if changesEntry(purpose) {
		return Entry{}, invalid("purpose", "change", "a token with this purpose changes a facet, not a password")
	}
	r, stored, err := t.current().findToken(ctx, purpose, secret)
	if err != nil {
		return t.current().finishRedeem(ctx, purpose, r, err)
	}
	before := r
	var refused error
	err = t.retryOnSchemaChange(ctx, func(t *Type) (err error) {
		var hash string
		if hash, refused = t.db.hashers.hash(ctx, provedCaller(ctx, r.Key), t.declared, pw, t.declared.Identifiers(r.Fields)); refused != nil {
			return refused
		}
		before, r, err = t.spend(ctx, r, stored, func(current store.Record) (store.Change, bool, error) {
			facets, own := change.Facets(current), map[string]string{}
			if proved := t.verifyProved(current, stored, facets, own); proved.Field != "" {
				t.declared.EndUnproven(current, facets, own, proved, t.view.Now(), false)
			}
			c, due, err := t.newPasswordChange(current, hash, facets, own)
			if err == nil {
				t.declared.Hold(&c, current, t.view.Now())
			}
			return c, due, err
		})
		return err
	})
	if refused != nil {
		return Entry{}, refused
	}
	second := r.Factors()
	e, err = t.current().finishRedeem(ctx, purpose, r, err)
	if committed(err) {
		t.afterPasswordSet(ctx, r, "")
		t.current().clearSessions(ctx, before, r)
		t.current().forgetFactors(ctx, r, before.Factors())
		if second.Any() {
			return Entry{}, doneWithoutLogin(newFactorError(r), err)
		}
	}
	return e, err
}

// RedeemSession redeems a token and then starts a session, for logins with a link. sessionSecret is
// the secret of the session. Of any number of callers with one token, only one starts a session.
//
// The errors are those of Redeem. If the token was redeemed but its session may not have started,
// the error is ErrOutcomeUnknown, or ErrNotFound if the entry was disabled or deleted, or all its
// sessions ended, in between. If the entry has a second factor, no session starts.
func (t *Type) RedeemSession(
	ctx context.Context, purpose, secret string, o SessionOptions,
) (e Entry, s Session, sessionSecret string, err error) {
	ctx, v := t.db.begin(ctx, "RedeemSession", &err)
	defer v.end(&err)
	ctx = view.WithActor(ctx, view.Actor{Origin: o.Origin})
	if err := o.Check(); err != nil {
		return Entry{}, Session{}, "", err
	}
	// Redeem first: an entry has a limited number of sessions, and callers that try to redeem one
	// token at the same time must not displace its other sessions.
	if e, _, err = t.redeem(ctx, purpose, secret, redemption{}); !committed(err) || errors.Is(err, ErrFactor) {
		return Entry{}, Session{}, "", err
	}
	s, sessionSecret, startErr := t.startSession(ctx, e, o)
	switch {
	case startErr == nil:
		return e, s, sessionSecret, err
	case errors.Is(startErr, ErrConflict), errors.Is(startErr, ErrNotFound):
		return Entry{}, Session{}, "", ErrNotFound
	}
	return Entry{}, Session{}, "", fmt.Errorf("%w: the token was redeemed: %w", ErrOutcomeUnknown, startErr)
}

// provedBond returns the name of the facet or value that the token was sent to: the holder of the
// token receives what is sent there. It returns "" if the token was not sent to a value of its
// entry. A token of PurposeChange or PurposeAdd was then sent to its Value.
func provedBond(stored token.Token) string {
	if n := len(stored.Fields); n > 1 && stored.Fields[n-1] == sentMark {
		return stored.Fields[0]
	}
	return ""
}

// publicToken converts a stored token to what the caller may see.
func publicToken(stored token.Token) Token {
	tk := Token{Purpose: stored.Purpose, Value: stored.Value}
	if len(stored.Fields) > 0 {
		tk.Field, _ = store.ParseBond(stored.Fields[0])
	}
	return tk
}

// findToken returns the token of a secret and the record of its entry. The error is ErrNotFound
// unless the secret is that of a valid token.
func (t *Type) findToken(ctx context.Context, purpose, secret string) (store.Record, token.Token, error) {
	uid, _ := token.SecretUID(secret)
	prk, err := t.declared.PRK(uid)
	if err != nil || len(purpose) > maxPurpose {
		return store.Record{}, token.Token{}, ErrNotFound
	}
	stored, err := t.view.Engine.PeekIssued(ctx, prk, hashSecret(secret), t.view.StoreTime())
	if err == nil && stored.Purpose != purpose {
		err = ErrNotFound
	}
	var r store.Record
	if err == nil {
		r, err = t.view.FindOne(ctx, store.Lookup{PRK: prk})
	}
	if err == nil {
		err = t.checkRedeemable(r, stored)
	}
	if err != nil {
		return store.Record{}, token.Token{}, err
	}
	return r, stored, nil
}

// checkRedeemable returns an error if the token cannot be redeemed because its entry is disabled,
// has ended the token, cannot be read, or lacks a value to which the token is bound. Changes of an
// entry end such tokens, but repairs and other programs do not.
func (t *Type) checkRedeemable(r store.Record, stored token.Token) error {
	if !r.Tokens().Allows(stored.Hash) || r.Fields[store.FieldDisabled] != "" {
		return ErrNotFound
	}
	for _, bond := range stored.Fields {
		_, digest := store.ParseBond(bond)
		if _, has := r.BoundValue(bond); digest != "" && !has {
			return ErrNotFound
		}
	}
	return t.declared.CheckReadable(r)
}

// spend applies a change that spends a token, if the token and its entry are valid at that moment.
// It returns the record before and after the change.
func (t *Type) spend(
	ctx context.Context, r store.Record, stored token.Token, build buildFunc,
) (before, after store.Record, err error) {
	before = r
	after, err = t.rewriteRead(ctx, r, func(current store.Record) (store.Change, bool, error) {
		before = current
		if err := t.checkRedeemable(current, stored); err != nil {
			return store.Change{}, false, err
		}
		c, _, err := build(current)
		c.Tokens.Spend, c.Tokens.Purpose = stored.Hash, stored.Purpose
		return c, true, err
	})
	return before, after, err
}

// finishRedeem emits the event for a redeemed or refused token and returns the entry.
func (t *Type) finishRedeem(ctx context.Context, purpose string, r store.Record, err error) (Entry, error) {
	switch {
	case committed(err):
		t.db.emit(ctx, Event{Kind: EventRedeem, Key: r.Key, Purpose: purpose})
	case !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrOutcomeUnknown):
		t.db.emit(ctx, Event{Kind: EventRefuse, Key: r.Key, Purpose: purpose})
	}
	return t.entry(r, err)
}

// newSecret returns a new secret of the entry with a UID, unless the UID is too long.
func newSecret(uid string) (string, error) {
	if len(uid) > token.MaxUID {
		return "", invalid("uid", "size", "over 200 bytes: the entry cannot have tokens")
	}
	return token.NewSecret(uid), nil
}

// hashSecret returns the hash of a secret that the store keeps in its place.
func hashSecret(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
