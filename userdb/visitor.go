package userdb

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// How many tokens and invitations visitors may ask for in an hour.
const (
	visitorWindow  = time.Hour
	mostIdentifier = 3  // for one account, or one identifier that nobody has, of tokens; for one address, of invitations and of changes
	mostOrigin     = 30 // from one origin
)

// IssueForVisitor is IssueFor for the text that a visitor typed: one of the identifiers of an entry, as for Login. It does the same
// work whether there is such an entry or not, and whether it may have a token.
//
// ErrNotFound: nobody has the identifier, the entry is disabled, has no such facet, or a UID of over 200 bytes. Answer the visitor
// as always, and send nothing. So after ErrTooManyAttempts, which comes after three tokens for one account in an hour, by whichever of
// its identifiers, and after thirty tokens and invitations from one origin.
func (t *Type) IssueForVisitor(ctx context.Context, field, typed string, tk Token, a Attempt) (secret, address string, err error) {
	ctx, v := t.db.begin(ctx, "IssueForVisitor", &err)
	defer v.end(&err)
	t = t.now()
	if err := cmp.Or(tk.sentTo(field), t.checkToken(&tk)); err != nil {
		return "", "", err
	}
	if err := t.admitOrigin(ctx, typed, a); err != nil {
		return "", "", err
	}
	bonds, counted := append(tk.bonds(), sent), false
	err = retry(ctx, func() (conflict bool, err error) {
		r, err := t.known(ctx, typed)
		if err == nil && !counted {
			counted, err = true, t.admitVisitor(ctx, "identifier", r, typed, a)
		}
		if err != nil {
			return false, err
		}
		may := r.Live() && len(r.Key.Value()) <= maxTokenUID && t.mayHave(r, tk) == nil
		if may {
			address = t.bare(r).Text(field)
		} else if r, err = t.nobody(); err != nil {
			return false, err
		}
		if secret, err = newSecret(r.Key.Value()); err != nil {
			return false, err
		}
		token := store.Token{Hash: hashOf(secret), Purpose: tk.Purpose, Fields: bonds, Value: tk.Value}
		if !may { // it is written as well, where nobody looks, and soon gone
			err = t.view.Engine.Invite(ctx, store.Invitation{Token: token, PRK: r.Key, Life: min(tk.Life, time.Minute), Now: t.view.StoreTime()})
			return false, cmp.Or(err, ErrNotFound)
		}
		err = t.view.Engine.Issue(ctx, store.Issue{
			Token: token, PRK: r.Key, Rev: r.Seen().Rev, Life: tk.Life, Now: t.view.StoreTime(),
			Note: t.view.Note(view.WithActor(ctx, view.Actor{Origin: a.Origin}), EventIssue, tk.Purpose, boundTo(bonds)...),
		})
		if err == nil {
			t.db.emit(ctx, Event{Kind: EventIssue, PRK: r.Key, Origin: a.Origin, Purpose: tk.Purpose})
		}
		return errors.Is(err, ErrConflict), err
	})
	if err != nil {
		return "", "", err
	}
	return secret, address, nil
}

// nobody is a record of a UID that no entry has, to do work on.
func (t *Type) nobody() (store.Record, error) {
	uid, err := RandomUID(32)()
	if err != nil {
		return store.Record{}, err
	}
	prk, err := t.declared.PRK(uid)
	return store.Record{Key: prk}, err
}

// admitOrigin counts what is asked for from one origin.
func (t *Type) admitOrigin(ctx context.Context, typed string, a Attempt) error {
	if err := t.db.loadSecret(ctx); err != nil || a.Origin == "" {
		return err
	}
	return t.limit(ctx, "origin", t.db.originDigest(a.Origin), mostOrigin, t.throttled(typed, a))
}

// admitVisitor counts what a visitor asks for, by the account if there is one, whichever identifier of it was typed. Tokens and
// invitations are counted apart: somebody who has an owner invited all the time does not keep the owner from a new password.
func (t *Type) admitVisitor(ctx context.Context, what string, r store.Record, typed string, a Attempt) error {
	e := t.throttled(typed, a)
	name := e.Identifier
	if r.Live() {
		name = t.db.digest("account", r.Key.String())
	}
	return t.limit(ctx, what, name, mostIdentifier, e)
}

// throttled returns the event of a visitor who asked too often.
func (t *Type) throttled(typed string, a Attempt) Event {
	return Event{Kind: EventThrottle, Origin: a.Origin, Identifier: t.typedDigest(typed)}
}

// typedDigest returns the keyed hash under which a text that a visitor typed is counted and logged.
// Of a text that is too long to be an identifier the beginning counts, so that it costs no more
// than others.
func (t *Type) typedDigest(typed string) string {
	form, ok := t.declared.Schema.Identifier(typed)
	if !ok {
		form = typed[:schema.MaxValue]
	}
	return t.db.digest("identifier", form)
}

// admitChange counts the tokens that change a facet to an address, whichever accounts ask for them: each is a mail to somebody who may not want it.
func (t *Type) admitChange(ctx context.Context, address string) error {
	if err := t.db.loadSecret(ctx); err != nil {
		return err
	}
	e := t.throttled(address, Attempt{Origin: view.ActorOf(ctx).Origin})
	return t.limit(ctx, "change", e.Identifier, mostIdentifier, e)
}

// limit counts one more of a kind, and returns how long to wait if there were too many within an hour, which e tells.
func (t *Type) limit(ctx context.Context, kind, name string, most int, e Event) error {
	counter, err := t.declared.Own("visits", kind, name)
	if err != nil {
		return err
	}
	e.Wait, err = t.view.Engine.Limit(ctx, store.Limit{Counter: counter, Most: most, Window: visitorWindow, Now: t.view.StoreTime()})
	if err == nil && e.Wait > 0 {
		t.db.emit(ctx, e)
		err = &WaitError{Wait: e.Wait}
	}
	return err
}

// known is the entry that has an identifier under any secondary field, the zero record where none does. It takes as many round
// trips, and reads as many records, in both cases. A text that no entry can have takes none.
func (t *Type) known(ctx context.Context, typed string) (store.Record, error) {
	_, l, err := t.view.Resolve(hints.Any(typed), t.declared.Name)
	if err != nil {
		return store.Record{}, nil
	}
	keys := make([]string, len(l.SRKs))
	for i, srk := range l.SRKs {
		keys[i] = srk.String()
	}
	owners, err := store.Texts(ctx, t.view.Engine, keys)
	if err != nil {
		return store.Record{}, err
	}
	reads := make([]store.Lookup, len(owners))
	for i, o := range owners {
		prk, err := recordkey.Parse(store.Owner(o.Wire))
		if err != nil || prk.Kind() != recordkey.KindPRK {
			r, err := t.nobody()
			if err != nil {
				return store.Record{}, err
			}
			prk = r.Key
		}
		reads[i].PRK = prk.In(t.view.NS)
	}
	found, err := t.view.Engine.Find(ctx, reads)
	if err != nil {
		return store.Record{}, err
	}
	var candidates []store.Candidate
	for i, f := range found {
		if f.Err == nil {
			candidates = append(candidates, store.Candidate{SRK: l.SRKs[i], Owner: store.Owner(owners[i].Wire), Fields: f.Record.Fields})
		}
	}
	f := store.Believe(l, candidates)
	if store.IsEntryError(f.Err) {
		return store.Record{}, nil
	}
	return f.Record, f.Err
}

// An Invitation is what Invite made: a mail to be sent to Address, with the Secret in a link or, where somebody has the address
// already, with that news.
type Invitation struct {
	Field   string // the facet that the address is to be
	Address string // as it was typed, without white space around it; where an entry has it, as it is there
	Value   string // of the token
	Secret  string // for Accept; "" if Known
	Known   bool   // an entry has the address, or another identifier that means the same
}

// Invite begins an account for a visitor who typed an address, which is to be the facet field of an entry: the one who gets the mail
// makes the account, with Accept. It fixes the UID that the account will have, and claims nothing. Whether somebody has the address
// already is said to the application alone, after the same work: let the visitor see no difference.
//
// Of the token only Value and Life count: what PeekInvitation gives, and how long the invitation is good. ErrInvalid: the address is
// not one that the facet can have. ErrTooManyAttempts: as with IssueForVisitor, answer as always and send nothing.
func (t *Type) Invite(ctx context.Context, field, typed string, tk Token, a Attempt) (i Invitation, err error) {
	ctx, v := t.db.begin(ctx, "Invite", &err)
	defer v.end(&err)
	t = t.now()
	tk = Token{Purpose: PurposeChange + field, Value: tk.Value, Life: tk.Life}
	address, value := strings.TrimSpace(typed), tk.Value
	if tk.Value = address; len(address)+len(value) > maxValue {
		return Invitation{}, invalid("value", "size", "over 4 KiB with the address")
	}
	if err := t.checkToken(&tk); err != nil { // the address is held to the rules of a change to it
		return Invitation{}, err
	}
	if err := t.admitOrigin(ctx, typed, a); err != nil {
		return Invitation{}, err
	}
	r, err := t.known(ctx, typed)
	if err == nil { // by the address: the mail goes there
		err = t.admitVisitor(ctx, "invitation", store.Record{}, typed, a)
	}
	if err != nil {
		return Invitation{}, err
	}
	i = Invitation{Field: field, Address: address, Value: value}
	if r.Live() {
		i.Known = true
		if r.SKV(field) == t.declared.Schema.Canonical(address) {
			i.Address = t.bare(r).Text(field)
		}
	}
	secret, prk, err := t.invite(ctx, store.Token{Purpose: purposeInvite + field, Value: recordkey.Escape(address) + " " + value}, tk.Life, i.Known)
	if err != nil || i.Known {
		return i, err
	}
	i.Secret = secret
	t.db.emit(ctx, Event{Kind: EventIssue, PRK: prk, Origin: a.Origin, Purpose: purposeInvite + field})
	return i, nil
}

// invite keeps an invitation at the next UID that nobody has, no entry and no other invitation; for show, under one of which nobody
// learns the secret.
func (t *Type) invite(ctx context.Context, tk store.Token, life time.Duration, show bool) (secret string, prk recordkey.Key, err error) {
	newUID := t.db.options.NewUID
	if show {
		newUID = RandomUID(32)
	}
	prk, err = t.inviteAt(ctx, newUID, life, func(uid string) (store.Token, error) {
		secret, err = newSecret(uid)
		tk.Hash = hashOf(secret)
		return tk, err
	})
	return secret, prk, err
}

// inviteAt keeps what invites to a UID at the next one that nobody has.
func (t *Type) inviteAt(
	ctx context.Context, newUID func() (string, error), life time.Duration, with func(uid string) (store.Token, error),
) (prk recordkey.Key, err error) {
	for range uidAttempts {
		var tk store.Token
		uid, err := newUID()
		if err == nil {
			prk, err = t.declared.PRK(uid)
		}
		if err == nil {
			tk, err = with(uid)
		}
		if err != nil {
			return prk, err
		}
		_, err = t.view.FindOne(ctx, store.Lookup{PRK: prk})
		switch {
		case err == nil, errors.Is(err, ErrCorrupt):
			continue
		case !errors.Is(err, ErrNotFound):
			return prk, err
		}
		err = t.view.Engine.Invite(ctx, store.Invitation{Token: tk, PRK: prk, Life: life, Now: t.view.StoreTime()})
		if !errors.Is(err, ErrDuplicate) {
			return prk, err
		}
	}
	return prk, errUIDs
}

// PeekInvitation returns what an invitation is for, and spends nothing: for the page that asks for a name and a password. ErrNotFound
// is the one answer to a secret that is spent, expired or made up.
func (t *Type) PeekInvitation(ctx context.Context, secret string) (i Invitation, err error) {
	ctx, v := t.db.begin(ctx, "PeekInvitation", &err)
	defer v.end(&err)
	i, _, _, err = t.now().invitation(ctx, secret)
	return i, err
}

// invitation reads what a secret invites to, and where the entry will lie.
func (t *Type) invitation(ctx context.Context, secret string) (Invitation, store.Token, recordkey.Key, error) {
	refuse := func(err error) (Invitation, store.Token, recordkey.Key, error) {
		return Invitation{}, store.Token{}, recordkey.Key{}, err
	}
	prk, ok := t.ownerOf(secret)
	if !ok {
		return refuse(ErrNotFound)
	}
	tk, _, err := t.view.Engine.Peek(ctx, prk, hashOf(secret), t.view.StoreTime())
	if err != nil {
		return refuse(err)
	}
	field, is := strings.CutPrefix(tk.Purpose, purposeInvite)
	address, value, _ := strings.Cut(tk.Value, " ")
	address, err = recordkey.Unescape(address)
	if !is || err != nil {
		return refuse(ErrNotFound)
	}
	// Where there is an entry, or was one that took the invitation with it, the invitation is spent.
	if _, err = t.view.FindOne(ctx, store.Lookup{PRK: prk}); !errors.Is(err, ErrNotFound) {
		return refuse(cmp.Or(store.NotOfEntry(err), ErrNotFound))
	}
	return Invitation{Field: field, Address: address, Value: value}, tk, prk, nil
}

// Accept makes the account that an invitation is for, in the change that spends it: of any number of callers one gets the entry. The
// address is that of the invitation, and verified. UID stays "", and the address is not among the facets.
//
// ErrNotFound is the one answer to a secret that is spent, expired or made up. Whatever else is wrong leaves the invitation good: a
// value that is refused or taken, or a password against the policy. ErrDuplicate of the address: somebody has it by now.
func (t *Type) Accept(ctx context.Context, secret string, n NewEntry) (e Entry, err error) {
	ctx, v := t.db.begin(ctx, "Accept", &err)
	defer v.end(&err)
	i, tk, prk, err := t.now().invitation(ctx, secret)
	if err != nil {
		if errors.Is(err, ErrNotFound) {
			t.db.emit(ctx, Event{Kind: EventRefuse, Purpose: purposeInvite})
		}
		return Entry{}, err
	}
	if _, given := n.Facets[i.Field]; given || n.UID != "" {
		return Entry{}, invalid(i.Field, "invitation", "the UID and the address are those of the invitation")
	}
	n.UID, n.Facets = prk.Value(), maps.Clone(n.Facets)
	if n.Facets == nil {
		n.Facets = schema.Facets{}
	}
	n.Facets[i.Field] = schema.Text(i.Address)
	err = t.following(ctx, func(t *Type) (err error) {
		e, err = t.createSpending(ctx, n, i.Field, tk)
		return err
	})
	if t.takenUID(err) {
		err = ErrNotFound // another has accepted it
	}
	switch {
	case done(err):
		t.db.emit(ctx, Event{Kind: EventRedeem, PRK: prk, Purpose: tk.Purpose})
	case errors.Is(err, ErrNotFound):
		t.db.emit(ctx, Event{Kind: EventRefuse, PRK: prk, Purpose: tk.Purpose})
	}
	return e, err
}

// createSpending is create at a UID, in the change that spends a token there. What is in the field is verified, if one is named.
func (t *Type) createSpending(ctx context.Context, n NewEntry, field string, tk store.Token) (Entry, error) {
	d, err := t.draft(ctx, n)
	if err != nil {
		return Entry{}, public(err)
	}
	if d.Own == nil {
		d.Own = map[string]string{}
	}
	if field != "" {
		change.Verify(field, d.Facets[field], d.Own)
	}
	c, err := t.declared.Create(d)
	if err != nil {
		return Entry{}, t.allOf(ctx, err, t.unwritten(d.UID), d.Facets)
	}
	c.Tokens = store.Ending{Known: true, All: true, Spend: tk.Hash, Purpose: tk.Purpose}
	var r store.Record
	rev, err := t.view.Apply(ctx, t.declared, c)
	if done(err) {
		r = change.Into(d.Facets, c, rev)
		t.db.emit(ctx, Event{Kind: EventCreate, PRK: c.Key})
	}
	return t.entry(r, t.allOf(ctx, err, t.unwritten(d.UID), d.Facets))
}
