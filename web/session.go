package web

import (
	"net/http"

	"github.com/coffeenode/userdb/userdb"
)

// Replace sets the cookie of a session that has replaced the visitor's, such as the session of a
// [userdb.FactorChange].
func (a Auth) Replace(w http.ResponseWriter, r *http.Request, s userdb.Session, secret string) {
	a.startCookie(w, r, s, secret)
}
