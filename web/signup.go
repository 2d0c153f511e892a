package web

import (
	"errors"
	"net/http"
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
	places, err := f.Mail.reserve(1)
	if err != nil {
		return "", err
	}
	defer places.leave(r.Context())
	i := userdb.Invitation{Field: f.Address, Address: strings.TrimSpace(r.PostFormValue("email"))}
	e, err := f.createTyped(r, i, func(n userdb.NewEntry) (userdb.Entry, error) {
		n.SelfRegistered = true
		if i.Address != "" {
			n.Facets[f.Address] = schema.Text(i.Address)
		}
		return f.Users.Create(r.Context(), n)
	})
	if err == nil {
		_ = f.mailProof(r, places, e) // if this fails, the visitor asks for the mail again
	}
	return f.enter(w, r, e, err, "welcome")
}

// mailProof mails the link that verifies the address of an account.
func (f *Flows) mailProof(r *http.Request, places *place, e userdb.Entry) error {
	if e.Text(f.Address) == "" || f.Paths.Prove == "" {
		return nil
	}
	token := userdb.Token{Purpose: purposeProve, Lifetime: invitationLifetime}
	secret, to, err := f.Users.IssueFor(r.Context(), hints.UID(e.UID()), f.Address, token)
	if err == nil {
		places.fill(r.Context(), Mail{Kind: MailProve, To: to, Link: f.link(f.Paths.Prove, secret), Entry: e})
	}
	return err
}

// mailProofAgain mails the link again if a visitor who is signed in asks for that.
func (f *Flows) mailProofAgain(r *http.Request, places *place) (string, error) {
	if err := (Limit{Auth: f.Auth, Name: "proofs", Max: maxProofs}).Allow(r); err != nil {
		return "", err
	}
	e := Entry(r.Context())
	return f.sentPath(e.Text(f.Address)), f.mailProof(r, places, e)
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
	if errors.Is(err, userdb.ErrNotFound) {
		return f.afterDoubleClick(w, r, secret, "password")
	}
	if err != nil {
		return "", err
	}
	if proving.Here {
		_, _, err := f.Users.Redeem(r.Context(), purposeProve, secret, userdb.InSession(f.Secret(r)))
		return f.Paths.Account + "?done=proved", err
	}
	return f.resetPassword(w, r, purposeProve)
}
