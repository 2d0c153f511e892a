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
	"github.com/coffeenode/userdb/internal/store/throttle"
	"github.com/coffeenode/userdb/internal/store/token"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// Limits on the tokens and invitations that visitors may request.
const (
	visitorWindow = time.Hour

	// maxPerIdentifier limits the tokens of one purpose for one account or for one identifier that
	// nobody has, the invitations to one address, and the changes to one address.
	maxPerIdentifier = 3

	// maxPerAccount limits the tokens of all purposes for one account or for one identifier that
	// nobody has. An entry can have more tokens than that, so requests by strangers alone do not
	// displace the tokens that its owner asked for. It also limits the changes of one account.
	maxPerAccount = 12

	// maxPerOrigin limits all requests from one origin and, counted apart from these, the changes.
	maxPerOrigin = 30
)

// IssueForVisitor issues a token like IssueFor, for an entry that a visitor named by one of its
// identifiers, as for Login. It does the same work whether or not such an entry exists and may have
// a token.
//
// The error is ErrNotFound if nobody has the identifier, or if the entry is disabled, has no value
// in the field that may receive a secret, or has a UID of over 200 bytes. Give the visitor the
// usual answer and send nothing. Do the same for ErrTooManyAttempts: in an hour, one account gets
// at most three tokens of one purpose and twelve in all, whichever of its identifiers are entered,
// and one origin thirty tokens and invitations.
func (t *Type) IssueForVisitor(ctx context.Context, field, entered string, tk Token, a Attempt) (secret, address string, err error) {
	ctx, v := t.db.begin(ctx, "IssueForVisitor", &err)
	defer v.end(&err)
	t = t.current()
	if err := cmp.Or(tk.bindTo(field), t.checkToken(&tk)); err != nil {
		return "", "", err
	}
	if err := t.admitOrigin(ctx, entered, a); err != nil {
		return "", "", err
	}
	counted := false
	canonical, _ := t.declared.Schema.Identifier(entered)
	err = retryOnConflict(ctx, func() (conflict bool, err error) {
		r, err := t.findConstantTime(ctx, entered)
		if err == nil && !counted {
			counted, err = true, t.admitVisitor(ctx, r, entered, tk.Purpose, a)
		}
		if err != nil {
			return false, err
		}
		address = t.addressFor(r, field, canonical)
		changed := r.Fields[strings.TrimPrefix(tk.Purpose, PurposeChange)]
		issuable := r.Live() && len(r.Key.Value()) <= token.MaxUID && t.checkIssuable(r, tk) == nil && address != ""
		if !issuable {
			address, changed = entered, entered
			if r, err = t.decoyRecord(); err != nil {
				return false, err
			}
		}
		bound := t.bonds(tk, address, changed)
		if secret, err = newSecret(r.Key.Value()); err != nil {
			return false, err
		}
		stored := tk.stored(secret, bound)
		if !issuable { // write a token that nobody can find and that expires soon
			_, err = t.view.Engine.Invite(ctx, token.Invitation{Token: stored, PRK: r.Key, Life: min(tk.Lifetime, time.Minute), Now: t.view.StoreTime()})
			return false, cmp.Or(err, ErrNotFound)
		}
		t.db.recordLimited(view.WithActor(ctx, view.Actor{Origin: a.Origin}), t.visitorLimit(), func(ctx context.Context) bool {
			err = t.storeToken(ctx, r, tk, stored)
			return err == nil
		})
		if err == nil {
			t.db.emit(ctx, Event{Kind: EventIssue, Key: r.Key, Origin: a.Origin, Purpose: tk.Purpose})
		}
		return errors.Is(err, ErrConflict), err
	})
	if err != nil {
		return "", "", err
	}
	return secret, address, nil
}

// decoyRecord returns a record with a UID that no entry has. Callers do the same work with it as
// with a real one, so that visitors cannot tell whether an entry exists.
func (t *Type) decoyRecord() (store.Record, error) {
	uid, err := RandomUID(32)()
	if err != nil {
		return store.Record{}, err
	}
	prk, err := t.declared.PRK(uid)
	return store.Record{Key: prk}, err
}

// admitOrigin counts a request against the limit of its origin.
func (t *Type) admitOrigin(ctx context.Context, entered string, a Attempt) error {
	if err := t.db.loadSecret(ctx); err != nil || a.Origin == "" {
		return err
	}
	return t.limit(ctx, a.counter("origin"), t.db.originDigest(a.Origin), maxPerOrigin, t.throttleEvent(entered, a))
}

// counter returns the kind of counters for an attempt. Strangers who type an address must not use
// up the limit of its proven owner.
func (a Attempt) counter(kind string) string {
	if a.Proven {
		return "proven-" + kind
	}
	return kind
}

// admitVisitor counts a visitor's request for a token against the limits of the account, whichever
// of its identifiers was entered, or of the identifier if there is no account. Each purpose has a
// limit of its own, so that somebody who keeps asking for tokens of one purpose cannot prevent the
// owner from getting one of another.
func (t *Type) admitVisitor(ctx context.Context, r store.Record, entered, purpose string, a Attempt) error {
	e := t.throttleEvent(entered, a)
	name := e.Identifier
	if r.Live() {
		name = t.db.digest("account", r.Key.String())
	}
	err := t.limit(ctx, "purpose", t.db.digest("purpose", name+purpose), maxPerIdentifier, e)
	if err == nil {
		err = t.limit(ctx, "identifier", name, maxPerAccount, e)
	}
	return err
}

// admitMail counts a mail to an address that a visitor entered. kind keeps the counters for
// invitations and changes apart. All spellings of an address that differ only in case, or in other
// ways that FoldCasefold ignores, are counted as one even under FoldExact, because they usually
// lead to one mailbox.
func (t *Type) admitMail(ctx context.Context, kind, address, origin string) error {
	folded := t.declared.Schema
	folded.Fold = schema.FoldCasefold
	e := t.throttleEvent(address, Attempt{Origin: origin})
	return t.limit(ctx, kind, t.db.digest("address", folded.Canonical(address)), maxPerIdentifier, e)
}

// throttleEvent returns the event for a visitor who made too many requests.
func (t *Type) throttleEvent(entered string, a Attempt) Event {
	return Event{Kind: EventThrottle, Origin: a.Origin, Identifier: t.identifierDigest(entered)}
}

// identifierDigest returns the keyed hash under which text from a visitor is counted and logged. If
// the text is too long to be an identifier, only its beginning is hashed, so that it costs no more
// than other text.
func (t *Type) identifierDigest(entered string) string {
	form, ok := t.declared.Schema.Identifier(entered)
	if !ok {
		form = entered[:schema.MaxValue]
	}
	return t.db.digest("identifier", form)
}

// admitChange counts a token that would change a facet of an entry to an address. There is a limit
// for the entry, one for the origin of the actor, and one for the address, whichever entries ask
// for it, because such a token sends a mail to somebody who may not want it.
func (t *Type) admitChange(ctx context.Context, prk recordkey.Key, address string) error {
	if err := t.db.loadSecret(ctx); err != nil {
		return err
	}
	origin := view.ActorOf(ctx).Origin
	e := t.throttleEvent(address, Attempt{Origin: origin})
	err := t.limit(ctx, "changes", t.db.digest("account", prk.String()), maxPerAccount, e)
	if err == nil && origin != "" {
		err = t.limit(ctx, "change-origin", t.db.originDigest(origin), maxPerOrigin, e)
	}
	if err == nil {
		err = t.admitMail(ctx, "change", address, origin)
	}
	return err
}

// limit counts one request. If there were too many within an hour, it emits e with the time to wait
// and returns a *WaitError.
func (t *Type) limit(ctx context.Context, kind, name string, limit int, e Event) error {
	counter, err := throttle.VisitsKey(t.view.NS, t.Name(), kind, name)
	if err != nil {
		return err
	}
	e.Wait, err = t.view.Engine.Limit(ctx, throttle.Limit{Counter: counter, Max: limit, Window: visitorWindow, Now: t.view.StoreTime()})
	if err == nil && e.Wait > 0 {
		t.db.emit(ctx, e)
		err = &WaitError{Wait: e.Wait}
	}
	return err
}

// findConstantTime returns the entry that hints.Any finds by a text, or the zero record if there is
// none. In both cases it takes the same round trips and reads the same number of records. It takes
// no round trip for text that cannot be an identifier of any entry.
func (t *Type) findConstantTime(ctx context.Context, entered string) (store.Record, error) {
	_, l, err := t.view.Resolve(hints.Any(entered), t.declared.Name)
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
			r, err := t.decoyRecord()
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

// An Invitation describes a mail to send to Address. The mail contains a link with Secret or, if
// Registered is set, says that an account with this address exists. If Held is set, no mail may be
// sent.
type Invitation struct {
	Field      string // the facet that will hold the address
	Address    string // as entered, without surrounding space; if an entry has it, as stored there
	Value      string // Token.Value
	Secret     string // the secret for AcceptInvitation; "" if Registered or Held
	Registered bool   // an entry has the address or an identifier with the same canonical form
	// Held says that an entry gave up the address, or an identifier with the same canonical form,
	// and that no other entry may take it yet; see schema.Field.Hold. Send no mail: the mailbox may
	// belong to another person by now.
	Held bool
}

// Invite starts the registration of a visitor who entered an address. field names the facet that
// will hold the address. The reader of the mail creates the account with AcceptInvitation. Invite
// chooses the UID of the account but claims no values. Only the application learns whether somebody
// already has the address; Invite does the same work in both cases. Show the visitor no difference.
//
// Invite uses only two fields of tk: Value, which PeekInvitation returns, and Lifetime, which says
// how long the invitation is valid. The error is ErrInvalid if the facet cannot have the address.
// If it is ErrTooManyAttempts, give the visitor the usual answer and send nothing, as with
// IssueForVisitor. Set a.Proven for a visitor who has shown that they own the address.
func (t *Type) Invite(ctx context.Context, field, entered string, tk Token, a Attempt) (i Invitation, err error) {
	ctx, v := t.db.begin(ctx, "Invite", &err)
	defer v.end(&err)
	t = t.current()
	tk = Token{Purpose: PurposeChange + field, Value: tk.Value, Lifetime: tk.Lifetime}
	address, value := strings.TrimSpace(entered), tk.Value
	if tk.Value = address; len(address)+len(value) > maxValue {
		return Invitation{}, invalid("value", "size", "over 4 KiB with the address")
	}
	// The address must satisfy the same rules as in a change to it.
	if err := t.checkToken(&tk); err != nil {
		return Invitation{}, err
	}
	// From here on only address matters, since the mail goes there. entered may be longer.
	if err := t.admitOrigin(ctx, address, a); err != nil {
		return Invitation{}, err
	}
	r, err := t.findConstantTime(ctx, address)
	if err == nil {
		err = t.admitMail(ctx, a.counter("invitation"), address, a.Origin)
	}
	if err != nil {
		return Invitation{}, err
	}
	i = Invitation{Field: field, Address: address, Value: value, Registered: r.Live()}
	if stored, ok := t.receivingAddress(r, field, t.declared.Schema.Canonical(address)); ok {
		i.Address = stored
	}
	if i.Held, err = t.isHeld(ctx, address); err != nil {
		return Invitation{}, err
	}
	taken := i.Registered || i.Held
	secret, prk, err := t.invite(ctx, token.Token{Purpose: purposeInvite + field, Value: recordkey.Escape(address) + " " + value}, tk.Lifetime, taken)
	if err != nil || taken {
		return i, err
	}
	i.Secret = secret
	t.db.emit(ctx, Event{Kind: EventIssue, Key: prk, Origin: a.Origin, Purpose: purposeInvite + field})
	return i, nil
}

// invite stores an invitation at the next UID that no entry and no other invitation has, and
// returns its secret. If decoy is true, it does the same work at a random UID, and the caller must
// tell nobody the secret.
func (t *Type) invite(ctx context.Context, tk token.Token, life time.Duration, decoy bool) (secret string, prk recordkey.Key, err error) {
	newUID := t.db.options.NewUID
	if decoy {
		newUID = RandomUID(32)
	}
	prk, _, err = t.inviteAt(ctx, newUID, life, func(uid string) (token.Token, error) {
		secret, err = newSecret(uid)
		tk.Hash = hashSecret(secret)
		return tk, err
	})
	return secret, prk, err
}

// inviteAt stores the token that newToken returns, at the next UID that no entry and no other
// invitation has. It returns the token that is stored there.
func (t *Type) inviteAt(
	ctx context.Context, newUID func() (string, error), life time.Duration, newToken func(uid string) (token.Token, error),
) (prk recordkey.Key, tk token.Token, err error) {
	for range maxUIDAttempts {
		uid, err := newUID()
		if err == nil {
			prk, err = t.declared.PRK(uid)
		}
		if err == nil {
			tk, err = newToken(uid)
		}
		if err != nil {
			return prk, tk, err
		}
		_, err = t.view.FindOne(ctx, store.Lookup{PRK: prk})
		if errors.Is(err, ErrNotFound) && t.declared.Schema.Retire && !t.db.options.randomUIDs {
			err = t.checkRetired(ctx, prk)
		}
		switch {
		case err == nil, errors.Is(err, ErrCorrupt), errors.Is(err, ErrDuplicate):
			continue
		case !errors.Is(err, ErrNotFound):
			return prk, tk, err
		}
		tk, err = t.view.Engine.Invite(ctx, token.Invitation{Token: tk, PRK: prk, Life: life, Now: t.view.StoreTime()})
		if !errors.Is(err, ErrDuplicate) {
			return prk, tk, err
		}
	}
	return prk, tk, errNoFreeUID
}

// PeekInvitation returns an invitation without redeeming it, for the page that asks for a name and
// a password. The error is ErrNotFound if the secret was redeemed, has expired or is invalid.
func (t *Type) PeekInvitation(ctx context.Context, secret string) (i Invitation, err error) {
	ctx, v := t.db.begin(ctx, "PeekInvitation", &err)
	defer v.end(&err)
	i, _, _, err = t.current().invitation(ctx, secret)
	return i, err
}

// invitation returns the invitation of a secret, its token and the PRK of the future entry.
func (t *Type) invitation(ctx context.Context, secret string) (Invitation, token.Token, recordkey.Key, error) {
	fail := func(err error) (Invitation, token.Token, recordkey.Key, error) {
		return Invitation{}, token.Token{}, recordkey.Key{}, err
	}
	prk, ok := t.secretOwner(secret)
	if !ok {
		return fail(ErrNotFound)
	}
	tk, _, err := t.view.Engine.Peek(ctx, prk, hashSecret(secret), t.view.StoreTime())
	if err != nil {
		return fail(err)
	}
	field, ok := strings.CutPrefix(tk.Purpose, purposeInvite)
	address, value, _ := strings.Cut(tk.Value, " ")
	address, err = recordkey.Unescape(address)
	if !ok || err != nil {
		return fail(ErrNotFound)
	}
	// If an entry exists at the PRK, the invitation has been redeemed.
	if _, err = t.view.FindOne(ctx, store.Lookup{PRK: prk}); !errors.Is(err, ErrNotFound) {
		return fail(cmp.Or(store.StoreError(err), ErrNotFound))
	}
	return Invitation{Field: field, Address: address, Value: value}, tk, prk, nil
}

// AcceptInvitation creates the account of an invitation, in the same change that redeems the
// invitation: of any number of callers, only one gets the entry. n.UID must be "", and the address
// must not be among n.Facets. The entry has the address of the invitation, marked as verified.
//
// The error is ErrNotFound if the secret was redeemed, has expired or is invalid. The invitation
// remains valid after any other error, such as one for a taken value or for a password that the
// policy refuses, except ErrOutcomeUnknown and ErrUnconfirmed. ErrDuplicate for the address means
// that somebody has taken it since.
func (t *Type) AcceptInvitation(ctx context.Context, secret string, n NewEntry) (e Entry, err error) {
	ctx, v := t.db.begin(ctx, "AcceptInvitation", &err)
	defer v.end(&err)
	i, tk, prk, err := t.current().invitation(ctx, secret)
	if err != nil {
		if errors.Is(err, ErrNotFound) {
			t.db.emit(ctx, Event{Kind: EventRefuse, Purpose: purposeInvite})
		}
		return Entry{}, err
	}
	if _, given := n.Facets[i.Field]; given || n.UID != "" || len(n.Values[i.Field]) > 0 {
		return Entry{}, invalid(i.Field, "invitation", "the invitation determines the UID and the address")
	}
	n.UID, n.SelfRegistered = prk.Value(), false
	n.Facets = maps.Clone(n.Facets)
	if n.Facets == nil {
		n.Facets = schema.Facets{}
	}
	n.Facets[i.Field] = schema.Text(i.Address)
	err = t.retryOnSchemaChange(ctx, func(t *Type) error {
		d, err := t.newDraft(ctx, n)
		if err != nil {
			return publicError(err)
		}
		d.SetOwn(store.FieldVerified(i.Field), store.Verified(d.Facets[i.Field]))
		e, err = t.createWithToken(ctx, d, tk)
		return err
	})
	if t.isTakenUID(err) {
		err = ErrNotFound // another call has redeemed the invitation
	}
	switch {
	case committed(err):
		t.db.emit(ctx, Event{Kind: EventRedeem, Key: prk, Purpose: tk.Purpose})
	case errors.Is(err, ErrNotFound):
		t.db.emit(ctx, Event{Kind: EventRefuse, Key: prk, Purpose: tk.Purpose})
	}
	return e, err
}

// createWithToken creates the entry of a draft in the change that redeems the token at its UID.
func (t *Type) createWithToken(ctx context.Context, d change.Draft, tk token.Token) (Entry, error) {
	r, err := t.createDraft(ctx, d, false, token.Ending{Known: true, All: true, Spend: tk.Hash, Purpose: tk.Purpose})
	return t.entry(r, t.draftProblems(ctx, err, d))
}
