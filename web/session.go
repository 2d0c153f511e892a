package web

import (
	"context"
	"net/http"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/userdb"
)

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
