package userdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/schema"
)

// A Token lets whoever has its secret do one thing once: prove that an address is his, set a new
// password, log in by a link. What the purposes are is up to the application, but for those that
// begin with PurposeChange.
//
// Tokens of an entry end with a new password, with Disable and with Delete, and those of one purpose
// when one of them is spent. An entry has 16 at most: beyond, the oldest goes.
type Token struct {
	Purpose string        // required, at most 256 bytes
	Value   string        // whatever it is bound to, such as an address; at most 4 KiB
	Field   string        // a facet: when it is changed, the token ends; "": none, or that of PurposeChange
	Life    time.Duration // zero: one hour; at most 30 days, at least a millisecond
}

// PurposeChange is how the purpose of a token begins that changes a secondary facet when it is
// redeemed: "change:email" sets the facet email to the token's Value. Only then the value is
// claimed, so that nobody can hold an address that he does not read. When the facet is changed in another
// way, the token ends.
const PurposeChange = "change:"

const (
	defaultLife = time.Hour
	longestLife = 30 * 24 * time.Hour
	maxPurpose  = 256
	maxValue    = 4 << 10
)

// errDisabled is ErrNotFound for those who issue tokens: no entry that may have one.
var errDisabled = fmt.Errorf("%w: the entry is disabled, and has no tokens", ErrNotFound)

// Issue makes a single-use token for an entry and returns its secret: 160 random bits and the UID, as
// letters, digits, hyphens and underscores, and no hyphen at the beginning. The entry's revision stays
// as it is. ErrNotFound: there is no such entry, or it is disabled. ErrInvalid: the token is not one that can be, or
// the UID has over 200 bytes.
func (t *Type) Issue(ctx context.Context, h hints.Hint, tk Token) (string, error) {
	secret, _, err := t.issue(ctx, h, tk)
	return secret, err
}

// IssueFor is Issue for a token that is sent to an address of the entry, and returns that besides: what the entry
// has in the field, never what a visitor typed, which may be another address that means the same here.
// The token ends when the entry's address is changed. ErrInvalid: the entry has no such facet.
func (t *Type) IssueFor(ctx context.Context, h hints.Hint, field string, tk Token) (secret, address string, err error) {
	if tk.Field != "" && tk.Field != field {
		return "", "", change.Invalid("field", "field", "not the one that the token is sent to")
	}
	tk.Field = field
	if field == "" {
		return "", "", change.Invalid("field", "field", "none is given")
	}
	secret, r, err := t.issue(ctx, h, tk)
	if err != nil {
		return "", "", err
	}
	return secret, t.bare(r).Text(field), nil
}

// issue makes a token for the entry as it is when the token is kept.
func (t *Type) issue(ctx context.Context, h hints.Hint, tk Token) (string, store.Record, error) {
	if err := t.checkToken(&tk); err != nil {
		return "", store.Record{}, err
	}
	for attempt := range updateAttempts {
		r, err := t.record(ctx, h)
		if err == nil {
			err = t.mayHave(r, tk)
		}
		if err != nil {
			return "", r, err
		}
		secret, err := newSecret(r.Key.Value())
		if err != nil {
			return "", r, err
		}
		err = t.db.view.Engine.Issue(ctx, store.Issue{
			Token: store.Token{Hash: hashOf(secret), Purpose: tk.Purpose, Fields: tk.bonds(), Value: tk.Value},
			PRK:   r.Key, Rev: r.Version().Rev, Life: tk.Life, Now: t.db.view.StoreTime(),
		})
		if err == nil {
			t.db.emit(ctx, Event{Kind: EventIssue, PRK: r.Key, Purpose: tk.Purpose})
			return secret, r, nil
		}
		if !errors.Is(err, ErrConflict) {
			return "", r, err
		}
		if err := retryAfter(ctx, attempt); err != nil {
			return "", r, err
		}
	}
	return "", store.Record{}, ErrConflict
}

// mayHave refuses a token for an entry that cannot have it.
func (t *Type) mayHave(r store.Record, tk Token) error {
	if r.Fields[store.FieldDisabled] != "" {
		return errDisabled
	}
	if e := (Entry{t: t.t, was: r.Fields}); tk.Field != "" && e.Text(tk.Field) == "" {
		return change.Invalid(tk.Field, "absent", "the entry has no such facet")
	}
	return nil
}

func (t *Type) checkToken(tk *Token) error {
	if tk.Life == 0 {
		tk.Life = defaultLife
	}
	switch {
	case tk.Purpose == "" || len(tk.Purpose) > maxPurpose:
		return change.Invalid("purpose", "size", "empty or over 256 bytes")
	case len(tk.Value) > maxValue:
		return change.Invalid("value", "size", "over 4 KiB")
	case tk.Life < time.Millisecond || tk.Life > longestLife:
		return change.Invalid("life", "range", "not between a millisecond and 30 days")
	case tk.Field == store.FieldPassword || store.OwnField(tk.Field) || len(tk.Field) > maxValue:
		return change.Invalid("field", "name", "not the name of a facet")
	}
	field, changes := strings.CutPrefix(tk.Purpose, PurposeChange)
	switch {
	case !changes:
		return nil
	case !slices.Contains(t.t.Secondary, field):
		return change.Invalid("purpose", "change", "the schema has no secondary field of that name")
	}
	_, err := t.t.Encode(schema.Facets{field: schema.Text(tk.Value)}, nil)
	return err
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

// Peek returns what Redeem would, and spends nothing: for the page that asks for a new password. No event
// is told.
func (t *Type) Peek(ctx context.Context, purpose, secret string) (Entry, Token, error) {
	l, err := t.look(ctx, purpose, secret)
	if err != nil {
		return Entry{}, Token{}, err
	}
	e, err := t.entry(l.r)
	return e, l.told(), err
}

// Redeem spends a token: of any number of callers one gets the entry and what the token was bound
// to. It is a change of the entry, which has a new revision then. ErrNotFound is the one answer to a secret that is
// spent, expired, ended, of another purpose, made up, or of an entry that is disabled or gone. With a purpose of
// PurposeChange the same change sets the facet; ErrDuplicate says that somebody has the value by now. Whatever
// the error, but for ErrOutcomeUnknown, nothing was spent. Set a password with ResetPassword instead.
func (t *Type) Redeem(ctx context.Context, purpose, secret string) (Entry, Token, error) {
	field, changes := strings.CutPrefix(purpose, PurposeChange)
	l, err := t.look(ctx, purpose, secret)
	r := l.r
	if err == nil {
		r, err = t.spend(ctx, l, func(now store.Record) (facets, own map[string]string, err error) {
			facets = change.Bare(now)
			if changes {
				var changed map[string]string
				changed, err = t.t.Encode(schema.Facets{field: schema.Text(l.token.Value)}, now.Fields)
				maps.Copy(facets, changed)
			}
			return facets, nil, err
		})
	}
	e, err := t.spent(ctx, purpose, r, err)
	if !made(err) {
		return Entry{}, Token{}, err
	}
	return e, l.told(), err
}

// ResetPassword spends a token and sets the password of its entry, as one change: of two at once one
// succeeds, and a password that the policy refuses (*password.PolicyError) leaves the token good. It ends
// all other tokens and forgets failed logins, as SetPassword does. Errors are those of Redeem.
func (t *Type) ResetPassword(ctx context.Context, purpose, secret, pw string) (Entry, error) {
	if strings.HasPrefix(purpose, PurposeChange) {
		return Entry{}, change.Invalid("purpose", "change", "a token of that purpose changes something else")
	}
	l, err := t.look(ctx, purpose, secret)
	r := l.r
	if err == nil {
		var hash string
		if hash, err = t.hash(ctx, pw, t.identifiers(r)); err != nil {
			return Entry{}, err
		}
		r, err = t.spend(ctx, l, func(now store.Record) (facets, own map[string]string, err error) {
			facets, own = change.Bare(now), map[string]string{}
			change.SetPassword(now, t.db.view.Now(), hash, facets, own)
			return facets, own, nil
		})
	}
	e, err := t.spent(ctx, purpose, r, err)
	if made(err) {
		t.passwordSet(ctx, r, "")
	}
	return e, err
}

// A look is a token that was good a moment ago, with its entry.
type look struct {
	r     store.Record
	token store.Token
}

// told is what the caller hears of the token.
func (l look) told() Token {
	tk := Token{Purpose: l.token.Purpose, Value: l.token.Value}
	if len(l.token.Fields) > 0 {
		tk.Field = l.token.Fields[0]
	}
	return tk
}

// look reads what a secret is good for. Nothing is said of an entry to somebody who has no token of it.
func (t *Type) look(ctx context.Context, purpose, secret string) (l look, err error) {
	uid, ok := uidOf(secret)
	if !ok || len(purpose) > maxPurpose {
		return l, ErrNotFound
	}
	prk, err := t.t.PRK(uid)
	if err != nil {
		return l, ErrNotFound
	}
	l.token, err = t.db.view.Engine.Peek(ctx, prk, hashOf(secret), t.db.view.StoreTime())
	if err != nil {
		return l, err
	}
	if l.token.Purpose != purpose {
		return l, ErrNotFound
	}
	r, err := t.db.view.Read(ctx, store.Lookup{PRK: prk})
	if err == nil {
		err = t.admits(r, l.token)
	}
	if err == nil {
		l.r = r
	}
	return l, err
}

// admits refuses to spend a token of an entry that is disabled, has ended it, or cannot be read.
func (t *Type) admits(r store.Record, token store.Token) error {
	if !r.HasToken(token.Hash) || r.Fields[store.FieldDisabled] != "" {
		return ErrNotFound
	}
	return t.t.Readable(r)
}

// spend makes a change that spends a token, if it and its entry are good at that moment.
func (t *Type) spend(ctx context.Context, l look, change rewriting) (store.Record, error) {
	return t.rewriteBy(ctx, l.r, l.token, func(now store.Record) (facets, own map[string]string, err error) {
		if err := t.admits(now, l.token); err != nil {
			return nil, nil, err
		}
		return change(now)
	})
}

// spent tells what became of a token, and returns its entry.
func (t *Type) spent(ctx context.Context, purpose string, r store.Record, err error) (Entry, error) {
	if !made(err) {
		if !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrOutcomeUnknown) {
			t.db.emit(ctx, Event{Kind: EventRefuse, PRK: r.Key, Purpose: purpose})
		}
		return Entry{}, err
	}
	t.db.emit(ctx, Event{Kind: EventRedeem, PRK: r.Key, Purpose: purpose})
	e, unreadable := t.entry(r)
	return e, cmp.Or(unreadable, err)
}
