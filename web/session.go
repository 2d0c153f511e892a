package web

import (
	"context"
	"net/http"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/userdb"
)

// Secret returns the secret of the visitor's session, for methods that take one, such as
// [userdb.Type.EnrolTOTP]. It is "" if the request has none.
func (a Auth) Secret(r *http.Request) string { return a.secret(r) }

// SessionOptions returns the options with which Start starts a session for the visitor who sent a
// request.
func (a Auth) SessionOptions(r *http.Request) userdb.SessionOptions { return a.sessionOptions(r) }

// Replace sets the cookie of a session that has replaced the visitor's, such as the session of a
// [userdb.FactorChange].
func (a Auth) Replace(w http.ResponseWriter, r *http.Request, s userdb.Session, secret string) {
	a.startCookie(w, r, s, secret)
}

// checkAllowed returns ErrLogin if the entry with an identifier may not sign in here.
func (a Auth) checkAllowed(ctx context.Context, identifier string) error {
	if a.Allowed == nil {
		return nil
	}
	e, err := a.Users.Find(ctx, hints.Any(identifier))
	if err == nil && !a.allows(e) {
		err = userdb.ErrLogin
	}
	return err
}
