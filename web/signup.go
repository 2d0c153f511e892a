package web

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// purposeProve is the purpose of tokens that verify the address of an account that was created at
// once.
const purposeProve = "prove"

// Limits on accounts that are created at once, in an hour.
const (
	maxAtOnce = 20 // from one origin
	maxProofs = 3  // further mails to the address of one account
)

// signUpAtOnce creates an account whose address nobody has verified, and mails a link that verifies
// it.
func (f *Flows) signUpAtOnce(w http.ResponseWriter, r *http.Request) (string, error) {
	r = withChoice(r)
	if err := (Limit{Auth: f.Auth, Name: "sign-ups", Max: maxAtOnce}).allowOrigin(r); err != nil {
		return "", err
	}
	slots, err := f.Mail.reserve(1)
	if err != nil {
		return "", err
	}
	defer slots.giveBack()
	i := userdb.Invitation{Field: f.Address, Address: strings.TrimSpace(r.PostFormValue("email"))}
	e, err := f.createEntered(r, i, func(n userdb.NewEntry) (userdb.Entry, error) {
		n.SelfRegistered = true
		if i.Address != "" {
			n.Facets[f.Address] = schema.Text(i.Address)
		}
		if !hasIdentifier(f.Users.Schema(), n) {
			n.Problems = errors.Join(n.Problems, &userdb.FieldError{Field: f.Address, Rule: "required", Err: userdb.ErrInvalid, Reason: "the account has no identifier"})
		}
		return f.Users.Create(r.Context(), n)
	})
	if err == nil {
		_ = f.mailProof(r, slots, e) // if this fails, the visitor asks for the mail again
	}
	if taken := Problems(err); onlyTaken(taken) {
		entered := i.Address
		if field := taken[0].Field; field != f.Address {
			entered = enteredIn(r, f.Users.Schema(), field)
		}
		done := func(e userdb.Entry) string {
			if !f.hasEntered(r, e) || e.Text(f.Address) != i.Address {
				return "" // the visitor must learn that a correction was not saved
			}
			return "welcome"
		}
		to, failed := f.signInOnceMore(w, r, hints.Field(taken[0].Field, entered), entered, r.PostFormValue("password"), done)
		if !errors.Is(failed, userdb.ErrNotFound) {
			return to, failed
		}
	}
	return f.enter(w, r, e, err, "welcome")
}

// onlyTaken reports whether there are problems, all of which are values that somebody has. After a
// double click, that may be the account that the first form created.
func onlyTaken(all []Problem) bool {
	return len(all) > 0 && !slices.ContainsFunc(all, func(p Problem) bool { return p.Rule != "taken" })
}

// hasEntered reports whether an account has everything that the visitor entered. If it has not, the
// visitor has corrected something since the first form, and must learn that it was not saved.
func (f *Flows) hasEntered(r *http.Request, e userdb.Entry) bool {
	declared := f.Users.Schema()
	for _, field := range f.Fields {
		entered := enteredIn(r, declared, field.Name)
		if v, _ := e.Get(field.Name); entered != "" && v.Wire() != parseEntered(declared, field.Name, entered).Wire() {
			return false
		}
	}
	return true
}

// hasIdentifier reports whether an account has an identifier that people type. Nobody can sign in
// to an account that has none.
func hasIdentifier(declared schema.Type, n userdb.NewEntry) bool {
	for name, field := range declared.Fields {
		_, has := n.Facets[name]
		if field.Role.Has(schema.RoleSecondary) && field.IsTyped() && (has || len(n.Values[name]) > 0) {
			return true
		}
	}
	return false
}

// mailProof mails the link that verifies the address of an account.
func (f *Flows) mailProof(r *http.Request, slots *reservation, e userdb.Entry) error {
	if e.Text(f.Address) == "" || f.Paths.Prove == "" {
		return nil
	}
	token := userdb.Token{Purpose: purposeProve, Lifetime: invitationLifetime}
	secret, to, err := f.Users.IssueFor(r.Context(), hints.UID(e.UID()), f.Address, token)
	if err == nil {
		slots.fill(r.Context(), Mail{Kind: MailProve, To: to, Link: f.link(f.Paths.Prove, secret), Entry: e})
	}
	return err
}

// mailProofAgain mails the link again if a visitor who is signed in asks for that.
func (f *Flows) mailProofAgain(r *http.Request, slots *reservation) (string, error) {
	if err := (Limit{Auth: f.Auth, Name: "proofs", Max: maxProofs}).Allow(r); err != nil {
		return "", err
	}
	e := Entry(r.Context())
	return f.sentPath(e.Text(f.Address)), f.mailProof(r, slots, e)
}

// A Proving holds what the page "prove" shows.
type Proving struct {
	Token userdb.Token
	// Here says that the visitor is signed in to the account. Others choose a new password, since
	// somebody else may have created the account with their address.
	Here bool
}

func (f *Flows) peekProof(r *http.Request) (Proving, error) {
	e, token, err := f.Users.Peek(r.Context(), purposeProve, r.FormValue("token"))
	return Proving{token, err == nil && e.Key() == Entry(r.Context()).Key()}, err
}

// prove verifies the address of an account that was created at once. That is all for visitors who
// are signed in to it. For others it also sets a new password, and removes whatever another person
// may have left.
func (f *Flows) prove(w http.ResponseWriter, r *http.Request) (string, error) {
	r = withChoice(r)
	secret := r.PostFormValue("token")
	proving, err := f.peekProof(r)
	switch {
	case err == nil && !proving.Here:
		return f.resetPassword(w, r, purposeProve)
	case err == nil:
		_, _, err = f.Users.Redeem(r.Context(), purposeProve, secret, userdb.InSession(f.Secret(r)))
	}
	if errors.Is(err, userdb.ErrNotFound) {
		// Only somebody who was not signed in to the account has chosen a password.
		chosen := r.PostFormValue("password") != ""
		if chosen || !f.isConfirmed(r, Entry(r.Context()).Text(f.Address)) {
			return f.afterDoubleClick(w, r, secret, passwordSet)
		}
		err = nil
	}
	return f.Paths.Account + "?done=proved", err
}
