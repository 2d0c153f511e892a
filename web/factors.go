package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/coffeenode/userdb/userdb"
)

// ticketLifetime is how long a browser keeps the ticket for the second step of a sign-in. The store
// accepts it for as long.
const ticketLifetime = 5 * time.Minute

// ticketCookie describes the cookie that holds the ticket between the two steps of a sign-in.
func (a Auth) ticketCookie() Cookie {
	return Cookie{Name: cmp.Or(a.Cookie.Name, "session") + "-ticket"}
}

// keepTicket sets a cookie with the ticket of err, if err is a *userdb.FactorError with a ticket.
func (a Auth) keepTicket(w http.ResponseWriter, r *http.Request, err error) {
	if refused, is := errors.AsType[*userdb.FactorError](err); is && refused.Ticket != "" {
		a.SetCookie(w, r, a.ticketCookie(), refused.Ticket, ticketLifetime)
		a.keepChoice(w, r, ticketLifetime)
	}
}

func (a Auth) dropTicket(w http.ResponseWriter, r *http.Request) {
	if a.CookieValue(r, a.ticketCookie()) != "" {
		a.SetCookie(w, r, a.ticketCookie(), "", 0)
	}
}

// A codeError is an error about a code that a visitor entered for the second step.
type codeError struct{ error }

func (e codeError) Unwrap() error { return e.error }

// Prove takes the second step of a sign-in that SignIn or Start has answered with a
// *userdb.FactorError, and starts a session of level 2. It finds the ticket in a cookie. The errors
// are those of Type.Prove and StartSession. After ErrNotFound or ErrConflict the visitor must sign
// in again.
func (a Auth) Prove(w http.ResponseWriter, r *http.Request, p userdb.Proof) (userdb.Entry, error) {
	ctx, cancel := withTimeout(r)
	defer cancel()
	e, err := a.prove(ctx, r, a.CookieValue(r, a.ticketCookie()), p)
	if err != nil {
		if errors.Is(err, userdb.ErrNotFound) {
			a.dropTicket(w, r)
		}
		return userdb.Entry{}, err
	}
	return e, a.Start(w, r, e)
}

// prove takes the second step of a sign-in. Its errors are about the code.
func (a Auth) prove(ctx context.Context, r *http.Request, ticket string, p userdb.Proof) (userdb.Entry, error) {
	e, err := a.Users.Prove(ctx, ticket, p, a.Attempt(r))
	if err == nil && !a.allows(e) {
		err = userdb.ErrLogin
	}
	if err != nil {
		return userdb.Entry{}, codeError{err}
	}
	return e, nil
}

// Raise takes the second step for a visitor who is signed in and whose password Verify has just
// accepted. The session is then of level 2 and verified now, and its cookie changes. The errors are
// those of Type.RaiseSession.
func (a Auth) Raise(w http.ResponseWriter, r *http.Request, p userdb.Proof) (userdb.Entry, error) {
	ctx, cancel := withTimeout(r)
	defer cancel()
	e, s, secret, err := a.Users.RaiseSession(ctx, a.Secret(r), p, a.SessionOptions(r))
	if err != nil {
		return userdb.Entry{}, codeError{err}
	}
	a.startCookie(w, r, s, secret)
	return e, nil
}

// RequireLevel does what Require does, and calls next only for visitors whose session has a level
// that they proved within maxAge; if maxAge is 0, it may have been proved at any time. Level 1 is
// one step of a sign-in, such as a password, and level 2 is two steps.
//
// It redirects visitors to VerifyPath if they can prove the level again. An entry without a second
// factor never has level 2: its visitors are redirected to FactorsPath to add one.
//
// Requests of scripts are not redirected: the answer is a problem of RFC 9457. Its code is login,
// with status 401, if nobody is signed in; factor, with 403, if level 2 is required and the entry
// has no second factor; and otherwise not_verified, with 403. If the request has a bearer token,
// not_verified comes with 401 and the challenge of RFC 9470: it has the error
// insufficient_user_authentication and, if there is a maxAge, max_age, and tells the program to get
// a new token.
func (a Auth) RequireLevel(level int, maxAge time.Duration, next http.Handler) http.Handler {
	return a.handler(next, func(w http.ResponseWriter, r *http.Request, v visitor) bool {
		script := a.isProgram(r)
		switch {
		case v.entry.Key().IsValid() && hasLevel(v.session, level, maxAge):
			return true
		case script && !v.entry.Key().IsValid():
			writeProblem(w, userdb.CodeLogin)
		case !a.signedIn(w, r, v): // signedIn has answered the request
		case level > 1 && len(v.entry.FactorMethods()) == 0:
			a.redirectOrRefuse(w, r, a.FactorsPath, script, userdb.CodeFactor)
		default:
			if _, sent := a.bearer(r); sent {
				w.Header().Set("WWW-Authenticate", stepUp(maxAge))
			}
			if !script && a.paused != nil && canInterrupt(r) {
				a.paused.ServeHTTP(w, withVisitor(r, v))
				return false
			}
			a.redirectOrRefuse(w, r, a.VerifyPath, script, userdb.CodeNotVerified)
		}
		return false
	})
}

// stepUp returns the challenge of RFC 9470 for a token whose owner must sign in again. It names no
// acr_values: there are none for the levels of sessions.
func stepUp(maxAge time.Duration) string {
	challenge := `Bearer realm="userdb", error="insufficient_user_authentication", error_description="sign in again"`
	if maxAge > 0 {
		challenge += fmt.Sprintf(`, max_age="%d"`, int64(maxAge/time.Second))
	}
	return challenge
}

// redirectOrRefuse redirects a visitor who is signed in to a page. A script, or any visitor if the
// page does not exist, gets a problem with the code. Its status is 401 if there is a challenge, and
// otherwise 403: no other credentials of this entry would help.
func (a Auth) redirectOrRefuse(w http.ResponseWriter, r *http.Request, to string, script bool, code userdb.Code) {
	if to != "" && !script {
		redirectAndReturn(w, r, to)
		return
	}
	status := http.StatusForbidden
	if w.Header().Get("WWW-Authenticate") != "" {
		status = http.StatusUnauthorized
	}
	body := newProblem(code)
	body["status"], body["title"] = status, http.StatusText(status)
	sendProblem(w, body)
}

// VerifiedWithin reports whether a visitor who is signed in proved within maxAge who they are: by a
// password, or by two steps if their account has a second factor. It goes by the store's clock; if
// the clock of this process differs, it is wrong by at most a minute.
func VerifiedWithin(ctx context.Context, maxAge time.Duration) bool {
	s, level := Session(ctx), ownLevel(Entry(ctx))
	return !s.VerifiedAt(level).IsZero() && verifiedAge(s, level) <= maxAge
}

// hasLevel reports whether a session has a level that its owner proved within maxAge.
func hasLevel(s userdb.Session, level int, maxAge time.Duration) bool {
	if s.VerifiedAt(level).IsZero() {
		return false
	}
	return maxAge <= 0 || verifiedAge(s, level) <= maxAge
}

// verifiedAge returns how long ago the owner of a session proved a level. The time of the proof and
// LastSeen come from the store's clock, and the store has seen the session within a minute. So the
// result is off by at most that minute if the clock here differs from the store's.
func verifiedAge(s userdb.Session, level int) time.Duration {
	verified := s.VerifiedAt(level)
	atLeast := max(s.LastSeen.Sub(verified), 0)
	return min(max(time.Since(verified), atLeast), atLeast+time.Minute)
}

// ownLevel returns the highest level that an entry can have: 2 if it has a second factor.
func ownLevel(e userdb.Entry) int {
	if len(e.FactorMethods()) > 0 {
		return 2
	}
	return 1
}

// fromScript reports whether a request was sent by a script rather than by somebody who follows a
// link or sends a form.
func fromScript(r *http.Request) bool {
	if mode := r.Header.Get("Sec-Fetch-Mode"); mode != "" {
		return mode != "navigate"
	}
	accepts := r.Header.Get("Accept")
	return strings.Contains(accepts, "json") && !strings.Contains(accepts, "text/html")
}

// writeProblem answers a request with a problem of RFC 9457.
func writeProblem(w http.ResponseWriter, code userdb.Code) { sendProblem(w, newProblem(code)) }
