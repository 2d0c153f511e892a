package web

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A Provider is another provider with which visitors can sign in. Package web/oidc sets
// Flows.Providers.
type Provider struct {
	Name  string // labels the links of accounts, see [userdb.Link]
	Label string // for visitors
	Path  string // where a form begins a sign-in or, with link=1, the linking
}

// A LinkedIdentity is a link as pages show it.
type LinkedIdentity struct {
	Identity string
	Label    string // of the provider, or its name if it is no longer configured
}

// Link links an identity of another provider to the account of a visitor who is signed in. The
// errors are those of [userdb.Type.LinkIdentity].
func (a Auth) Link(r *http.Request, l userdb.Link) (userdb.Entry, error) {
	ctx, cancel := withTimeout(r)
	defer cancel()
	return a.Users.LinkIdentity(ctx, a.Secret(r), l)
}

// Unlink removes a link from the account of a visitor who is signed in, which ends all sessions of
// the account, and sets the cookie of a new one. The errors are those of
// [userdb.Type.UnlinkIdentity]. The visitor stays signed in as before; o.Session is taken from a.
func (a Auth) Unlink(w http.ResponseWriter, r *http.Request, l userdb.Link, o userdb.UnlinkOptions) (userdb.Entry, error) {
	ctx, cancel := withTimeout(r)
	defer cancel()
	o.Session = a.SessionOptions(r)
	e, s, secret, err := a.Users.UnlinkIdentity(ctx, a.Secret(r), l, o)
	if secret != "" {
		a.startCookie(w, r, s, secret)
	}
	return e, err
}

// FirstStep continues a sign-in whose first step the application has taken itself, such as by
// LoginLinked, whose results are e and err. It starts a session and returns the path to redirect
// to: that of the page that asks for the second step, if there is one, and otherwise the path to.
func (f *Flows) FirstStep(w http.ResponseWriter, r *http.Request, e userdb.Entry, err error, to string) (string, error) {
	switch {
	case err == nil && !f.allows(e):
		err = userdb.ErrLogin
	case err == nil:
		err = f.Start(w, r, e)
	default:
		f.keepTicket(w, r, err)
	}
	return f.afterFirstStep(to, err)
}

// An Unlinked is an identity of another provider that is linked to no account.
type Unlinked struct {
	Link userdb.Link
	// Address is the visitor's address according to the provider, or "". It proves nothing about
	// who the visitor is unless Owned is set.
	Address string
	// Owned says that the provider itself decides who has the addresses of this domain, and that
	// the visitor has this one.
	Owned bool
	// Complete sets facets of a new account that the visitor has not entered. It may be nil.
	Complete func(*userdb.NewEntry)
}

// ErrUnlinked means that an identity belongs to no account, and that no account was created for it.
// It is the same whether somebody has the address or not.
var ErrUnlinked error = &userdb.FieldError{Err: userdb.ErrInvalid, Rule: "unlinked", Reason: "sign in first, and then link it"}

// SignUpUnlinked handles a sign-in with an identity that no account has. If the visitor owns the
// address, visitors may sign up without an invitation, and nobody has or holds the address, it
// creates an account that has the address, verified, and the link. Otherwise it returns
// ErrUnlinked. If visitors can sign up, it also sends the mail that Flows sends to somebody who
// signs up with the address, within the limits on such mails. That mail does not link the identity:
// its reader might be another person.
func (f *Flows) SignUpUnlinked(r *http.Request, u Unlinked) (userdb.Entry, error) {
	if f.SignUp == SignUpClosed || f.Paths.SignUp == "" || f.Paths.Welcome == "" || u.Address == "" {
		return userdb.Entry{}, ErrUnlinked
	}
	r = f.forPage(r)
	slots, err := f.Mail.reserve(1)
	if err != nil {
		return userdb.Entry{}, err
	}
	defer slots.leave(r.Context())
	a := f.Attempt(r)
	a.Proven = u.Owned
	i, err := f.Users.Invite(r.Context(), f.Address, u.Address, userdb.Token{Lifetime: invitationLifetime}, a)
	if err != nil {
		slots.giveBack()
	}
	switch {
	case errors.Is(err, userdb.ErrTooManyAttempts), errors.Is(err, userdb.ErrInvalid):
		return userdb.Entry{}, ErrUnlinked
	case err != nil:
		return userdb.Entry{}, err
	case i.Registered || i.Held:
	case u.Owned:
		e, err := f.createLinked(r, i, u)
		switch {
		case err == nil || !errors.Is(err, userdb.ErrInvalid) && !errors.Is(err, userdb.ErrDuplicate):
			return e, err
		case f.takenMeanwhile(err, u.Link.Field):
			return userdb.Entry{}, ErrUnlinked
		}
	}
	f.mailInvitation(r.Context(), slots, i, MailWelcome)
	return userdb.Entry{}, ErrUnlinked
}

// createLinked creates an account by an invitation, with a link.
func (f *Flows) createLinked(r *http.Request, i userdb.Invitation, u Unlinked) (e userdb.Entry, err error) {
	for range maxNew {
		account := userdb.NewEntry{Facets: schema.Facets{}}
		if f.New != nil {
			if err := f.New(r, i, &account); err != nil {
				return e, err
			}
		}
		if u.Complete != nil {
			u.Complete(&account)
		}
		if account.Values == nil {
			account.Values = map[string][]string{}
		}
		if account.Labels == nil {
			account.Labels = map[string]map[string]string{}
		}
		account.Values[u.Link.Field] = []string{u.Link.Identity}
		account.Labels[u.Link.Field] = map[string]string{u.Link.Identity: u.Link.Label}
		e, err = f.Users.AcceptInvitation(r.Context(), i.Secret, account)
		if err == nil || u.Complete != nil || !f.onlyGeneratedTaken(err) {
			break
		}
	}
	return e, err
}

// takenMeanwhile reports whether an account could not be created because somebody has its address
// or its link by now.
func (f *Flows) takenMeanwhile(err error, links string) bool {
	return slices.ContainsFunc(Problems(err), func(p Problem) bool {
		return p.Rule == "taken" && (p.Field == f.Address || p.Field == links)
	})
}

// mailInvitation fills a slot with the mail that follows an invitation. kind is the kind of the
// mail to an address that nobody has.
func (f *Flows) mailInvitation(ctx context.Context, slots *reservation, i userdb.Invitation, kind MailKind) {
	switch {
	case i.Held: // another person may read the mailbox by now
	case i.Registered:
		slots.fill(ctx, Mail{Kind: MailRegistered, To: i.Address, Link: f.Base + f.Paths.SignIn})
	default:
		slots.fill(ctx, Mail{Kind: kind, To: i.Address, Link: f.link(f.Paths.Welcome, i.Secret)})
	}
}

const (
	// invitedLifetime is how long the link of an invitation by another visitor is valid.
	invitedLifetime = 7 * 24 * time.Hour
	// maxInvited limits the invitations by one visitor in an hour, because each of them sends a
	// mail to somebody who may not want it.
	maxInvited = 12
)

// Invite mails an invitation to an address, for visitors who may invite others. It needs SignUp and
// Paths.Welcome. Flows.New gets value with the invitation, such as a tag for the account. If
// somebody has the address, the mail says so, and the visitor does not learn it. The mail is in the
// visitor's language. A visitor invites at most twelve addresses in an hour. The errors include a
// [userdb.WaitError], those of [userdb.Type.Invite], ErrMailQueueFull and ErrMailQueueClosed.
func (f *Flows) Invite(r *http.Request, address, value string) error {
	r = f.forPage(r)
	if err := f.canInvite(); err != nil {
		return err
	}
	if err := (Limit{Auth: f.Auth, Name: "invitations", Max: maxInvited}).Allow(r); err != nil {
		return err
	}
	slots, err := f.Mail.reserve(1)
	if err != nil {
		return err
	}
	defer slots.leave(r.Context())
	i, err := f.Users.Invite(r.Context(), f.Address, address, userdb.Token{Lifetime: invitedLifetime, Value: value}, f.Attempt(r))
	if err == nil {
		f.mailInvitation(r.Context(), slots, i, MailInvited)
	} else {
		slots.giveBack()
	}
	return err
}

// canInvite returns an error if no page accepts an invitation.
func (f *Flows) canInvite() error {
	if f.SignUp == SignUpClosed || f.Paths.Welcome == "" {
		return errors.New("web: an invitation needs Flows.SignUp and Paths.Welcome")
	}
	return nil
}

// ChangeLinks calls change, which links an identity of another provider to the account of a visitor
// or unlinks it. If the change was made, ChangeLinks mails a notice to the addresses of the
// account. label names the provider.
func (f *Flows) ChangeLinks(r *http.Request, kind MailKind, label string, change func() error) error {
	r = f.forPage(r)
	notice, err := f.reserveNotice()
	if err != nil {
		return err
	}
	defer notice.giveBack()
	err = change()
	if made(err) {
		link := f.Base + cmp.Or(f.Paths.Forgot, f.Paths.SignIn)
		f.mailNotice(r.Context(), notice, Mail{Kind: kind, Link: link, Address: label, Entry: Entry(r.Context())})
	}
	return err
}
