package userdb

import (
	"context"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/session"
)

// A Link represents an identity at another provider with which the owner of an entry signs in. It
// is a value of a secondary field whose schema says "typed": false, so that no two entries have the
// same identity and nobody finds an entry by typing one. Package web/oidc makes links.
type Link struct {
	Field string // of the schema
	// Identity identifies the person among all providers. It may be the SHA-256, in lower-case
	// hexadecimal digits, of the provider and the name there. It must be in canonical form, so
	// that identities that differ by case stay apart.
	Identity string
	Label    string // of the value, which says where the identity is from; see Entry.SetLabel
}

// check returns an ErrInvalid if the schema has no field of that name for links, if there is no
// identity, or if the identity is not in canonical form.
func (l Link) check(t *Type) error {
	switch {
	case !slices.Contains(t.declared.Secondary, l.Field) || slices.Contains(t.declared.Typed, l.Field):
		return invalid(l.Field, "link", `not a secondary field with "typed": false`)
	case l.Identity == "":
		return invalid(l.Field, "non-empty", "no identity is given")
	case t.declared.Schema.Canonical(l.Identity) != l.Identity:
		return invalid(l.Field, "form", "different identities could have the same canonical form")
	}
	return nil
}

// LoginLinked returns the entry that has the link. It takes the first step of a login for somebody
// whose identity the caller has verified. It ignores the Label of the link.
//
// The error is ErrInvalid if the link is invalid, ErrNotFound if no entry has it, ErrLogin if the
// entry that has it is disabled or refused by a.Allowed, and ErrFactor with a *FactorError if the
// entry has a second factor.
func (t *Type) LoginLinked(ctx context.Context, l Link, a Attempt) (e Entry, err error) {
	ctx, v := t.db.begin(ctx, "LoginLinked", &err)
	defer v.end(&err)
	t = t.current()
	if err := l.check(t); err != nil {
		return Entry{}, err
	}
	r, err := t.record(ctx, hints.Field(l.Field, l.Identity))
	if err != nil {
		return Entry{}, publicError(err)
	}
	if r.Fields[store.FieldDisabled] != "" || !t.allows(a.Allowed, r) {
		t.db.emit(ctx, Event{Kind: EventFailure, Key: r.Key, Origin: a.Origin})
		return Entry{}, ErrLogin
	}
	second := r.Factors()
	if e, err = t.entry(r, nil); err != nil {
		return Entry{}, err
	}
	if second.Any() {
		return Entry{}, t.requireFactor(ctx, r, stepLink, a.Origin)
	}
	t.db.emit(ctx, Event{Kind: EventLogin, Key: r.Key, Origin: a.Origin})
	return e, nil
}

// LinkIdentity adds a link for the owner of a session, and returns the entry. If the entry has the
// link already, only the label is set.
//
// The session must be verified within the last ten minutes, on level 2 if the entry has a factor;
// otherwise the error is ErrNotVerified. The error is ErrNotFound if the session has ended,
// ErrDuplicate if another entry already has the link, and ErrInvalid if the link is invalid or the
// entry has as many links as the schema allows.
func (t *Type) LinkIdentity(ctx context.Context, session string, l Link) (e Entry, err error) {
	ctx, v := t.db.begin(ctx, "LinkIdentity", &err)
	defer v.end(&err)
	t = t.current()
	if err := l.check(t); err != nil {
		return Entry{}, err
	}
	r, s, _, _, err := t.verifiedSession(ctx, session, nil)
	if err != nil {
		return Entry{}, err
	}
	_, r, err = t.changeLinks(ctx, r, s, func(_ *Type, _ store.Record, e *Entry, _ map[string]string) error {
		e.AddText(l.Field, l.Identity)
		e.SetLabel(l.Field, l.Identity, l.Label)
		return nil
	})
	return t.current().entry(r, publicError(err))
}

// UnlinkOptions says with which other links the owner can still sign in, and describes the new
// session.
type UnlinkOptions struct {
	// Labels holds the labels of links with which owners can sign in: the configured providers.
	Labels []string
	// Session describes the session that replaces the others.
	Session SessionOptions
}

// UnlinkIdentity removes a link for the owner of a session. All sessions of the entry end, and all
// logins under way, since the link may have begun them. The results are the entry and a new session
// of the same level with its secret.
//
// The errors are those of LinkIdentity. The error is also ErrNotFound if the entry does not have
// the link, and ErrInvalid with the rule "last" if the owner could no longer sign in: the entry
// would have no usable password, no usable passkey and no link with one of o.Labels.
func (t *Type) UnlinkIdentity(ctx context.Context, secret string, l Link, o UnlinkOptions) (e Entry, s Session, sessionSecret string, err error) {
	ctx, v := t.db.begin(ctx, "UnlinkIdentity", &err)
	defer v.end(&err)
	t = t.current()
	if err = l.check(t); err == nil {
		err = o.Session.Check()
	}
	if err != nil {
		return Entry{}, Session{}, "", err
	}
	r, old, _, _, err := t.verifiedSession(ctx, secret, nil)
	if err != nil {
		return Entry{}, Session{}, "", err
	}
	before, r, err := t.changeLinks(ctx, r, old, func(t *Type, current store.Record, e *Entry, own map[string]string) error {
		if !slices.Contains(e.Texts(l.Field), l.Identity) {
			return ErrNotFound
		}
		e.DropText(l.Field, l.Identity)
		if can, err := t.canSignIn(ctx, current, *e, l.Field, o); err != nil {
			return err
		} else if !can {
			return invalid(l.Field, "last", "the owner would no longer be able to sign in")
		}
		change.EndSessions(own)
		return nil
	})
	if !committed(err) {
		return Entry{}, Session{}, "", publicError(err)
	}
	t = t.current()
	t.clearSessions(ctx, before, r)
	t.db.emit(ctx, Event{Kind: EventEnd, Key: r.Key})
	e, readErr := t.entry(r, nil)
	if readErr != nil {
		return Entry{}, Session{}, "", readErr
	}
	e.proved, e.verified, e.verifiedLevel2 = !old.VerifiedLevel2.IsZero(), old.Verified, old.VerifiedLevel2
	s, sessionSecret, startErr := t.startSession(ctx, e, o.Session)
	return e, s, sessionSecret, errors.Join(err, startErr)
}

// canSignIn reports whether the owner of an entry can sign in with a password, with a link in the
// field that has one of o.Labels, or with a passkey that can be used.
func (t *Type) canSignIn(ctx context.Context, r store.Record, e Entry, field string, o UnlinkOptions) (bool, error) {
	if t.hasPassword(r) {
		return true, nil
	}
	for _, v := range e.TextValues(field) {
		if slices.Contains(o.Labels, v.Label) {
			return true, nil
		}
	}
	usable, err := t.usableFactors(ctx, r)
	return hasPasskey(usable), err
}

// hasPassword reports whether an entry has a password, and an identifier to sign in with it.
func (t *Type) hasPassword(r store.Record) bool {
	return t.passwordState(r) == PasswordStored && t.identifiers(r) > 0
}

// changeLinks changes an entry for the owner of a session, which must be valid when the change is
// made. edit changes the current entry, or the store's own fields. changeLinks returns the record
// before and after the change.
func (t *Type) changeLinks(
	ctx context.Context, r store.Record, s session.Session,
	edit func(t *Type, current store.Record, e *Entry, own map[string]string) error,
) (before, after store.Record, err error) {
	return t.rewriteInForce(ctx, r, func(t *Type, current store.Record) (c store.Change, due bool, err error) {
		if !s.ValidFor(current.ForSessions()) {
			return c, false, ErrNotFound
		}
		own := map[string]string{}
		e := t.entryUnchecked(store.Record{Key: current.Key, Fields: maps.Clone(current.Fields)})
		if err := edit(t, current, &e, own); err != nil {
			return c, false, err
		}
		encoded, wrong, err := t.encodeFacets(current, e, own)
		if err == nil {
			err = wrong.err()
		}
		if err != nil {
			return c, false, err
		}
		if c, due, err = t.declared.Update(current, encoded, own); err == nil {
			t.declared.Hold(&c, current, t.view.Now())
		}
		return c, due, err
	})
}

// Spend marks a single-use value that belongs to no entry, such as the answer of another provider,
// as spent. It returns ErrNotFound if the value was spent before; of any number of callers, only
// one spends it. hash is the SHA-256 of the value, in lower-case hexadecimal digits. The mark stays
// for the time life, up to a day; afterwards the caller must refuse the value for another reason.
// Spend a value only after all other checks have succeeded, so that strangers cannot fill the
// store.
func (t *Type) Spend(ctx context.Context, hash string, life time.Duration) (err error) {
	ctx, v := t.db.begin(ctx, "Spend", &err)
	defer v.end(&err)
	t = t.current()
	if b, bad := hex.DecodeString(hash); bad != nil || len(b) != 32 || hash != strings.ToLower(hash) {
		return invalid("hash", "form", "not 64 hexadecimal digits in lower case")
	}
	if life < time.Millisecond || life > maxSpentLife {
		return invalid("life", "range", "not between a millisecond and a day")
	}
	fresh, err := t.view.Engine.Spend(ctx, t.view.NS, hash, life)
	if err == nil && !fresh {
		err = ErrNotFound
	}
	return err
}

const maxSpentLife = 24 * time.Hour
