package userdb

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/schema"
)

// purposeInvite is how the purpose of an invitation begins; the field follows.
const purposeInvite = "invite:"

// sent is what a token of IssueFor is bound to besides: it was sent to the facet that comes before. No change touches a field
// of that name.
const sent = "~sent"

// A Token lets the one who has its secret do one thing once: prove to own an address, set a new password, log in by a
// link. What the purposes are is up to the application, but for those that begin with PurposeChange.
//
// Tokens of an entry end with a new password, with Disable and with Delete, and those of one purpose when one of them
// is spent. An entry has 16 at most: beyond, the oldest goes.
type Token struct {
	Purpose string        // required, at most 256 bytes
	Value   string        // whatever it is bound to, such as an address; at most 4 KiB
	Field   string        // a facet: when it is changed, the token ends; "": none, or that of PurposeChange
	Life    time.Duration // zero: one hour; at most 30 days, at least a millisecond
}

// PurposeChange is how the purpose of a token begins that changes a secondary facet when it is redeemed: "change:email"
// sets the facet email to the token's Value. Only then the value is claimed, so that nobody can hold an address without
// reading it. When the facet is changed in another way, the token ends. At most three are issued for one value in an hour, whatever
// entries they are for: somebody gets a mail for each.
const PurposeChange = "change:"

const (
	defaultLife = time.Hour
	longestLife = 30 * 24 * time.Hour
	maxPurpose  = 256
	maxValue    = 4 << 10
)

// errDisabled is ErrNotFound for those who issue tokens: no entry that may have one.
var errDisabled = fmt.Errorf("%w: the entry is disabled, and has no tokens", ErrNotFound)

// Issue makes a single-use token for an entry and returns its secret: 160 random bits and the UID, as letters, digits,
// hyphens and underscores, and no hyphen at the beginning. The entry's Rev stays as it is. ErrNotFound: there is no
// such entry, or it is disabled. ErrInvalid: the token is not one that can be, or the UID has over 200 bytes. ErrTooManyAttempts: see
// [PurposeChange].
func (t *Type) Issue(ctx context.Context, h hints.Hint, tk Token) (secret string, err error) {
	ctx, v := t.db.begin(ctx, "Issue", &err)
	defer v.end(&err)
	secret, _, err = t.issue(ctx, h, tk, tk.bonds())
	return secret, err
}

// IssueFor is Issue for a token that is sent to an address of the entry, and returns that besides: what the entry
// has in the field, never what a visitor typed, which may be another address that means the same here.
// The token ends when the entry's address is changed; when it is spent, the address is verified. ErrInvalid: the entry has no
// such facet.
func (t *Type) IssueFor(ctx context.Context, h hints.Hint, field string, tk Token) (secret, address string, err error) {
	ctx, v := t.db.begin(ctx, "IssueFor", &err)
	defer v.end(&err)
	if err := tk.sentTo(field); err != nil {
		return "", "", err
	}
	secret, r, err := t.issue(ctx, h, tk, append(tk.bonds(), sent))
	if err != nil {
		return "", "", err
	}
	return secret, t.bare(r).Text(field), nil
}

// sentTo says of a token to which facet of its entry it is sent.
func (tk *Token) sentTo(field string) error {
	switch {
	case tk.Field != "" && tk.Field != field:
		return invalid("field", "field", "not the one that the token is sent to")
	case field == "":
		return invalid("field", "field", "none is given")
	}
	tk.Field = field
	return nil
}

// issue makes a token for the entry as it is when the token is kept.
func (t *Type) issue(ctx context.Context, h hints.Hint, tk Token, bonds []string) (secret string, r store.Record, err error) {
	t = t.now()
	if err := t.checkToken(&tk); err != nil {
		return "", r, err
	}
	if strings.HasPrefix(tk.Purpose, PurposeChange) {
		if err := t.admitChange(ctx, tk.Value); err != nil {
			return "", r, err
		}
	}
	err = retry(ctx, func() (conflict bool, err error) {
		if r, err = t.record(ctx, h); err == nil {
			err = t.mayHave(r, tk)
		}
		if err == nil {
			secret, err = newSecret(r.Key.Value())
		}
		if err != nil {
			return false, err
		}
		err = t.view.Engine.Issue(ctx, store.Issue{
			Token: store.Token{Hash: hashOf(secret), Purpose: tk.Purpose, Fields: bonds, Value: tk.Value},
			PRK:   r.Key, Rev: r.Seen().Rev, Life: tk.Life, Now: t.view.StoreTime(),
			Note: t.view.Note(ctx, EventIssue, tk.Purpose, boundTo(bonds)...),
		})
		return errors.Is(err, ErrConflict), err
	})
	if err != nil {
		return "", r, err
	}
	t.db.emit(ctx, Event{Kind: EventIssue, PRK: r.Key, Purpose: tk.Purpose})
	return secret, r, nil
}

// boundTo are the facets among the bonds of a token.
func boundTo(bonds []string) []string {
	return slices.DeleteFunc(slices.Clone(bonds), func(bond string) bool { return bond == sent })
}

// mayHave refuses a token for an entry that cannot have it.
func (t *Type) mayHave(r store.Record, tk Token) error {
	if r.Fields[store.FieldDisabled] != "" {
		return errDisabled
	}
	if e := (Entry{t: t.declared, was: r.Fields}); tk.Field != "" && e.Text(tk.Field) == "" {
		return invalid(tk.Field, "absent", "the entry has no such facet")
	}
	return nil
}

func (t *Type) checkToken(tk *Token) error {
	if tk.Life == 0 {
		tk.Life = defaultLife
	}
	switch {
	case tk.Purpose == "" || len(tk.Purpose) > maxPurpose:
		return invalid("purpose", "size", "empty or over 256 bytes")
	case strings.HasPrefix(tk.Purpose, purposeInvite):
		return invalid("purpose", "name", "what begins so is an invitation: see Invite")
	case len(tk.Value) > maxValue:
		return invalid("value", "size", "over 4 KiB")
	case tk.Life < time.Millisecond || tk.Life > longestLife:
		return invalid("life", "range", "not between a millisecond and 30 days")
	case tk.Field == store.FieldPassword || store.OwnField(tk.Field) || len(tk.Field) > maxValue:
		return invalid("field", "name", "not the name of a facet")
	}
	field, changes := strings.CutPrefix(tk.Purpose, PurposeChange)
	if !changes {
		return nil
	}
	if !slices.Contains(t.declared.Secondary, field) {
		return invalid("purpose", "change", "the schema has no secondary field of that name")
	}
	return public(t.declared.EncodeFacet(map[string]string{}, field, schema.Text(tk.Value), nil))
}

// bonds are the facets that a token is bound to.
func (tk Token) bonds() []string {
	var fields []string
	if tk.Field != "" {
		fields = append(fields, tk.Field)
	}
	if field, changes := strings.CutPrefix(tk.Purpose, PurposeChange); changes && field != tk.Field {
		fields = append(fields, field)
	}
	return fields
}

// Peek returns what Redeem would, and spends nothing: for the page that asks for a new password. No event is told.
func (t *Type) Peek(ctx context.Context, purpose, secret string) (e Entry, tk Token, err error) {
	ctx, v := t.db.begin(ctx, "Peek", &err)
	defer v.end(&err)
	return t.peek(ctx, purpose, secret)
}

func (t *Type) peek(ctx context.Context, purpose, secret string) (Entry, Token, error) {
	t = t.now()
	r, token, err := t.held(ctx, purpose, secret)
	if err != nil {
		return Entry{}, Token{}, err
	}
	e, err := t.entry(r, nil)
	return e, told(token), err
}

// Redeem spends a token: of any number of callers one gets the entry and what the token was bound
// to. It is a change of the entry, which has a new Rev then. ErrNotFound is the one answer to a secret that is
// spent, expired, ended, forged, of another purpose, or of an entry that is disabled or gone. With a purpose of
// PurposeChange the same change sets the facet; ErrDuplicate: another entry has the value by now. Whatever
// the error, but for ErrOutcomeUnknown, nothing was spent. Set a password with ResetPassword instead.
func (t *Type) Redeem(ctx context.Context, purpose, secret string) (e Entry, tk Token, err error) {
	ctx, v := t.db.begin(ctx, "Redeem", &err)
	defer v.end(&err)
	return t.redeem(ctx, purpose, secret)
}

func (t *Type) redeem(ctx context.Context, purpose, secret string) (Entry, Token, error) {
	field, changes := strings.CutPrefix(purpose, PurposeChange)
	r, token, err := t.now().held(ctx, purpose, secret)
	if err == nil {
		err = t.following(ctx, func(t *Type) (err error) {
			r, err = t.spend(ctx, r, token, func(now store.Record) (c store.Change, due bool, err error) {
				facets, own := change.Bare(now), map[string]string{}
				if changes {
					err = t.declared.EncodeFacet(facets, field, schema.Text(token.Value), now.Fields)
				}
				if err != nil {
					return c, false, err
				}
				if proved := provedBy(token); proved == "" && changes || proved != "" && proved != field {
					proved = cmp.Or(proved, field)
					change.Verify(proved, facets[proved], own)
				}
				return t.declared.Update(now, facets, own)
			})
			return err
		})
	}
	e, err := t.now().spent(ctx, purpose, r, err)
	if !done(err) {
		return Entry{}, Token{}, err
	}
	return e, told(token), err
}

// ResetPassword spends a token and sets the password of its entry, as one change: of two at once one
// succeeds, and a password that the policy refuses (*password.PolicyError) leaves the token good. It ends
// all other tokens and forgets failed logins, as SetPassword does. Errors are those of Redeem.
func (t *Type) ResetPassword(ctx context.Context, purpose, secret, pw string) (e Entry, err error) {
	ctx, v := t.db.begin(ctx, "ResetPassword", &err)
	defer v.end(&err)
	if strings.HasPrefix(purpose, PurposeChange) {
		return Entry{}, invalid("purpose", "change", "a token of that purpose changes something else")
	}
	r, token, err := t.now().held(ctx, purpose, secret)
	before := r
	if err == nil {
		var refused error
		err = t.following(ctx, func(t *Type) (err error) {
			var hash string
			if hash, refused = t.db.hashers.Hash(ctx, t.declared, pw, t.declared.Identifiers(r.Fields)); refused != nil {
				return refused
			}
			r, err = t.spend(ctx, r, token, func(now store.Record) (store.Change, bool, error) {
				before = now
				facets, own := change.Bare(now), map[string]string{}
				if proved := provedBy(token); proved != "" {
					change.Verify(proved, facets[proved], own)
				}
				return t.passwordChange(now, hash, facets, own)
			})
			return err
		})
		if refused != nil {
			return Entry{}, refused
		}
	}
	e, err = t.now().spent(ctx, purpose, r, err)
	if done(err) {
		t.passwordSet(ctx, r, "")
		t.now().clearSessions(ctx, before, r)
	}
	return e, err
}

// RedeemSession is Redeem for signing in by a link: it spends a token and begins a session, and returns the session's secret.
// A session of somebody whose token was not spent is not possible; a token that is spent without a session is where the error is
// ErrOutcomeUnknown.
func (t *Type) RedeemSession(
	ctx context.Context, purpose, secret string, o SessionOptions,
) (e Entry, s Session, key string, err error) {
	ctx, v := t.db.begin(ctx, "RedeemSession", &err)
	defer v.end(&err)
	ctx = view.WithActor(ctx, view.Actor{Origin: o.Origin})
	e, _, err = t.peek(ctx, purpose, secret)
	if err != nil {
		return Entry{}, Session{}, "", err
	}
	s, key, err = t.startSession(ctx, e, o)
	if errors.Is(err, ErrConflict) { // all sessions end, and the token with them
		err = ErrNotFound
	}
	if err != nil {
		return Entry{}, Session{}, "", err
	}
	if e, _, err = t.redeem(ctx, purpose, secret); !done(err) {
		return Entry{}, Session{}, "", errors.Join(err, t.abandon(ctx, key))
	}
	return e, s, key, err
}

// provedBy is the facet to which a token was sent: who has it reads what is sent there. "": who has it tells nothing, or one of
// PurposeChange was sent to the address that it brings.
func provedBy(token store.Token) string {
	if n := len(token.Fields); n > 1 && token.Fields[n-1] == sent {
		return token.Fields[0]
	}
	return ""
}

// told is what the caller hears of a token.
func told(token store.Token) Token {
	tk := Token{Purpose: token.Purpose, Value: token.Value}
	if len(token.Fields) > 0 {
		tk.Field = token.Fields[0]
	}
	return tk
}

// held reads what a secret is good for, and the entry. Nothing is said of an entry to a caller without a token of it.
func (t *Type) held(ctx context.Context, purpose, secret string) (store.Record, store.Token, error) {
	uid, _ := uidOf(secret)
	prk, err := t.declared.PRK(uid)
	if err != nil || len(purpose) > maxPurpose {
		return store.Record{}, store.Token{}, ErrNotFound
	}
	token, err := t.view.Engine.PeekIssued(ctx, prk, hashOf(secret), t.view.StoreTime())
	if err == nil && token.Purpose != purpose {
		err = ErrNotFound
	}
	var r store.Record
	if err == nil {
		r, err = t.view.FindOne(ctx, store.Lookup{PRK: prk})
	}
	if err == nil {
		err = t.admits(r, token)
	}
	if err != nil {
		return store.Record{}, store.Token{}, err
	}
	return r, token, nil
}

// admits refuses to spend a token of an entry that is disabled, has ended it, or cannot be read.
func (t *Type) admits(r store.Record, token store.Token) error {
	if !r.HasToken(token.Hash) || r.Fields[store.FieldDisabled] != "" {
		return ErrNotFound
	}
	return t.declared.Readable(r)
}

// spend applies a change that spends a token, if it and its entry are good at that moment.
func (t *Type) spend(
	ctx context.Context, r store.Record, token store.Token, build building,
) (store.Record, error) {
	return t.rewriteRead(ctx, r, func(now store.Record) (store.Change, bool, error) {
		if err := t.admits(now, token); err != nil {
			return store.Change{}, false, err
		}
		c, _, err := build(now)
		c.Tokens.Spend, c.Tokens.Purpose = token.Hash, token.Purpose
		return c, true, err
	})
}

// spent tells what became of a token, and returns its entry.
func (t *Type) spent(ctx context.Context, purpose string, r store.Record, err error) (Entry, error) {
	switch {
	case done(err):
		t.db.emit(ctx, Event{Kind: EventRedeem, PRK: r.Key, Purpose: purpose})
	case !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrOutcomeUnknown):
		t.db.emit(ctx, Event{Kind: EventRefuse, PRK: r.Key, Purpose: purpose})
	}
	return t.entry(r, err)
}

const (
	secretBytes = 20  // random ones
	maxTokenUID = 200 // bytes of a UID: links are not to be longer
)

// secretText is how secrets are written. Beyond the alphabet no bit is free: a secret has one text.
var secretText = base64.RawURLEncoding.Strict()

// newSecret makes the secret of a token: random bytes, and the UID that tells where the token lies. One that
// begins with a hyphen would be an option to a command line, and is drawn again.
func newSecret(uid string) (string, error) {
	if len(uid) > maxTokenUID {
		return "", invalid("uid", "size", "over 200 bytes: an entry with such a UID can have no token")
	}
	var random [secretBytes]byte
	for {
		rand.Read(random[:]) // never fails, says its documentation
		if secret := secretText.EncodeToString(append(random[:], uid...)); secret[0] != '-' {
			return secret, nil
		}
	}
}

// uidOf is the UID in a secret; false for any other text.
func uidOf(secret string) (string, bool) {
	if len(secret) > secretText.EncodedLen(secretBytes+maxTokenUID) {
		return "", false
	}
	b, err := secretText.DecodeString(secret)
	if err != nil || len(b) <= secretBytes || secretText.EncodeToString(b) != secret { // it passes over line ends
		return "", false
	}
	return string(b[secretBytes:]), true
}

// hashOf is what the store knows a secret by.
func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
