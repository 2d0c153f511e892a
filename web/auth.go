package web

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/userdb"
)

// An Auth identifies the visitor who sends a request. It is safe for concurrent use once its fields
// are set; do not change them after the first request.
type Auth struct {
	Users *userdb.Type
	// SignInPath is where Require redirects visitors who are not signed in. If "", Require answers
	// 401.
	SignInPath string
	// VerifyPath is where RequireLevel redirects visitors who must prove again who they are, and
	// FactorsPath is where it redirects those who must add a second factor first. If "",
	// RequireLevel answers them with a problem of RFC 9457.
	VerifyPath, FactorsPath string
	// Cookie describes the session cookie.
	Cookie Cookie
	// Bearer says that programs may send the secret of a session in the header "Authorization:
	// Bearer SECRET" in place of the cookie; see Token. If a request has this header, its cookie is
	// ignored.
	Bearer bool
	// Proxies holds the addresses of trusted proxies, see Origin. If there are none, the peer of
	// the connection is the visitor.
	Proxies []netip.Prefix
	// Session holds the Lifetime and IdleTimeout of sessions. Origin and Agent are taken from the
	// request.
	Session userdb.SessionOptions
	// Allowed reports whether an entry may sign in here and stay signed in. If nil, every entry
	// that can log in may. Visitors who are not allowed get the same answer as after a wrong
	// password, and their passwords count as wrong.
	Allowed func(e userdb.Entry) bool
	// Failed answers a request for which the store failed or did not answer within ten seconds. If
	// nil, the answer has the status of the error's code, mostly 503, and does not show the error.
	Failed func(w http.ResponseWriter, r *http.Request, err error)

	brief *userdb.SessionOptions // Flows.Brief, if it is set

	// Flows.Register sets these. denied is what RequireTag answers with. ended answers a form whose
	// sender's session has ended, and paused one whose sender must prove again who they are.
	denied, ended, paused http.Handler
}

// A Cookie describes the session cookie. The cookie is always HttpOnly and SameSite=Lax, and covers
// the whole site. Unless Transient is set, it expires with the session. If the request came over
// TLS, directly or through a trusted proxy, the cookie is also Secure and, unless Domain is set,
// its name begins with __Host-, so that no other site of the same domain can set it.
type Cookie struct {
	Name string // if "", session
	// Transient says that the browser forgets the cookie when it is closed. The session itself
	// still ends as Auth.Session says. For "stay signed in", see Flows.Brief; without Flows, copy
	// the Auth, which is a value, and set Transient of the copy for those who did not ask for it.
	Transient bool
	// Domain also sends the cookie to all hosts below a domain, such as example.com. Every one of
	// them can then read and replace the cookie, whose name begins with __Secure- in place of
	// __Host-.
	Domain string
}

const hostPrefix, securePrefix = "__Host-", "__Secure-"

func (c Cookie) name(secure bool) string {
	name := cmp.Or(c.Name, "session")
	switch {
	case secure && c.Domain == "":
		name = hostPrefix + name
	case secure:
		name = securePrefix + name
	}
	return name
}

// CookieValue returns the value of a cookie of the request, or "" if it has none.
func (a Auth) CookieValue(r *http.Request, c Cookie) string {
	cookie, err := r.Cookie(c.name(a.secure(r)))
	if err != nil {
		return ""
	}
	return cookie.Value
}

// SetCookie sets a cookie with the attributes of the session cookie; see Cookie. If value is "", it
// removes the cookie.
func (a Auth) SetCookie(w http.ResponseWriter, r *http.Request, c Cookie, value string, life time.Duration) {
	secure, age := a.secure(r), int(life/time.Second)
	switch {
	case value == "":
		age = -1
	case c.Transient:
		age = 0
	}
	http.SetCookie(w, &http.Cookie{
		Name: c.name(secure), Value: value, Path: "/", MaxAge: age, Domain: c.Domain,
		Secure: secure, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
}

// storeTimeout limits how long a request waits for the store.
const storeTimeout = 10 * time.Second

func withTimeout(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), storeTimeout)
}

type visitorKey struct{}

// A visitor holds the entry and the session of the visitor who sent a request.
type visitor struct {
	entry   userdb.Entry
	session userdb.Session
}

// Entry returns the visitor's entry as it was when the request came. It returns the zero Entry if
// nobody is signed in, or if the handler is not wrapped by an Auth.
func Entry(ctx context.Context) userdb.Entry {
	v, _ := ctx.Value(visitorKey{}).(visitor)
	return v.entry
}

// Session returns the visitor's session, or the zero Session under the same conditions as Entry.
func Session(ctx context.Context) userdb.Session {
	v, _ := ctx.Value(visitorKey{}).(visitor)
	return v.session
}

// Visitor calls next. If there is a session, it puts the visitor's entry and session into the
// request's context. If the request has a session and the store does not answer, Auth.Failed
// answers the request in place of next. Like Require, Visitor also puts the visitor's network
// address into the context, for histories; see [userdb.WithActor].
func (a Auth) Visitor(next http.Handler) http.Handler {
	return a.handler(next, func(http.ResponseWriter, *http.Request, visitor) bool { return true })
}

// Require calls next for visitors who are signed in. It redirects others to SignInPath with 303,
// adding the path of the request if that can be requested again (see ReturnPath). It answers
// programs and scripts with a problem of RFC 9457 and 401.
func (a Auth) Require(next http.Handler) http.Handler {
	return a.handler(next, a.signedIn)
}

// RequireTag does what Require does, and answers 403 to visitors whose entry lacks the tag. It also
// does so if the entry is unproven, that is, if nobody has verified the address with which it was
// registered; see userdb.NewEntry.SelfRegistered. With Flows, the answer is the page "gone".
// RequireTag takes one more round trip than Require.
func (a Auth) RequireTag(tag string, next http.Handler) http.Handler {
	return a.handler(next, func(w http.ResponseWriter, r *http.Request, v visitor) bool {
		if !a.signedIn(w, r, v) {
			return false
		}
		ctx, cancel := withTimeout(r)
		defer cancel()
		has, err := a.Users.Tags(hints.Key(v.entry.Key())).Has(ctx, tag)
		has = has && !v.entry.Unproven()
		switch {
		case errors.Is(err, userdb.ErrNotFound): // deleted meanwhile
			has = false
		case err != nil:
			a.fail(w, r, err)
			return false
		}
		switch {
		case !has && a.isProgram(r):
			writeProblem(w, userdb.CodeScope)
		case !has && a.denied != nil:
			a.denied.ServeHTTP(w, withVisitor(r, v))
		case !has:
			http.Error(w, http.StatusText(http.StatusForbidden), http.StatusForbidden)
		}
		return has
	})
}

// signedIn reports whether the visitor is signed in. If not, it answers the request.
func (a Auth) signedIn(w http.ResponseWriter, r *http.Request, v visitor) bool {
	switch {
	case v.entry.Key().IsValid():
		return true
	case a.isProgram(r):
		writeProblem(w, userdb.CodeLogin)
	case a.SignInPath == "":
		http.Error(w, http.StatusText(http.StatusUnauthorized), http.StatusUnauthorized)
	case a.ended != nil && a.hadSession(r):
		a.ended.ServeHTTP(w, r)
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		http.Redirect(w, r, withReturn(a.SignInPath, withoutDone(r.URL.RequestURI())), http.StatusSeeOther)
	default:
		http.Redirect(w, r, a.SignInPath, http.StatusSeeOther)
	}
	return false
}

// redirectAndReturn redirects a visitor to a page, and adds the path to return to afterwards, if
// that can be requested again.
func redirectAndReturn(w http.ResponseWriter, r *http.Request, to string) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		to = withReturn(to, r.URL.RequestURI())
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// handler finds out who the visitor is and calls next if allowed returns true. It forbids caches to
// keep the response.
func (a Auth) handler(next http.Handler, allowed func(http.ResponseWriter, *http.Request, visitor) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Cookie")
		if a.Bearer {
			w.Header().Add("Vary", "Authorization")
		}
		w.Header().Set("Cache-Control", "no-store")
		var v visitor
		if secret := a.Secret(r); secret != "" {
			ctx, cancel := withTimeout(r)
			var err error
			v.entry, v.session, err = a.Users.Session(ctx, secret)
			if cancel(); err != nil && !errors.Is(err, userdb.ErrNotFound) {
				a.fail(w, r, err)
				return
			}
			if err == nil && !a.allows(v.entry) {
				v = visitor{}
			}
		}
		if allowed(w, r, v) {
			next.ServeHTTP(w, a.withOrigin(withVisitor(r, v)))
		}
	})
}

func withVisitor(r *http.Request, v visitor) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), visitorKey{}, v))
}

// withOrigin returns a request whose context has the visitor's address, unless it has an address
// already. Histories record it, and it limits how much of the queue for hashing passwords one
// visitor can fill.
func (a Auth) withOrigin(r *http.Request) *http.Request {
	if view.ActorOf(r.Context()).Origin != "" {
		return r
	}
	return r.WithContext(userdb.WithActor(r.Context(), userdb.Actor{Origin: Origin(r, a.Proxies)}))
}

func (a Auth) allows(e userdb.Entry) bool { return a.Allowed == nil || a.Allowed(e) }

func (a Auth) fail(w http.ResponseWriter, r *http.Request, err error) {
	if a.Failed != nil {
		a.Failed(w, r, err)
		return
	}
	if a.isProgram(r) {
		WriteProblem(w, r, err)
		return
	}
	sendText(w, r, "", "unavailable", userdb.CodeOf(err).HTTPStatus())
}

// Secret returns the secret of the visitor's session, for methods that take one, such as
// [userdb.Type.EnrolTOTP]. It is "" if the request has none.
func (a Auth) Secret(r *http.Request) string {
	if secret, sent := a.bearer(r); sent {
		return secret
	}
	return a.CookieValue(r, a.Cookie)
}

// Attempt returns the userdb.Attempt to pass to Login and to other methods that act for the visitor
// who sent the request.
func (a Auth) Attempt(r *http.Request) userdb.Attempt {
	return userdb.Attempt{Origin: Origin(r, a.Proxies), Allowed: a.Allowed}
}

// SignIn logs a visitor in, starts a session and sets its cookie. It returns the errors of Login.
// Show the same message for every ErrLogin, so that it does not reveal what was wrong; for a
// *userdb.WaitError, say how long to wait. After a *userdb.FactorError, ask for a code, and call
// Prove.
func (a Auth) SignIn(w http.ResponseWriter, r *http.Request, identifier, password string) (userdb.Entry, error) {
	ctx, cancel := withTimeout(r)
	defer cancel()
	const logins = 3 // a login starts over if the password changes meanwhile
	for n := range logins {
		e, err := a.Users.Login(ctx, identifier, password, a.Attempt(r))
		if err == nil {
			err = a.Start(w, r, e)
		} else {
			a.keepTicket(w, r, err)
		}
		if err == nil || !errors.Is(err, userdb.ErrConflict) && !errors.Is(err, userdb.ErrNotFound) || n == logins-1 {
			return e, err
		}
	}
	return userdb.Entry{}, userdb.ErrConflict
}

// Start starts a session for an entry that AcceptInvitation, ResetPassword, ChangePassword or the
// like has just returned, and sets its cookie. It ends the session that the visitor had here
// before. If the error is a *userdb.FactorError, ask for a code, and call Prove.
func (a Auth) Start(w http.ResponseWriter, r *http.Request, e userdb.Entry) error {
	ctx, cancel := withTimeout(r)
	defer cancel()
	s, secret, err := a.Users.StartSession(ctx, e, a.SessionOptions(r))
	if err != nil {
		a.keepTicket(w, r, err)
		return err
	}
	if before := a.Secret(r); before != "" {
		if err := a.Users.EndSession(ctx, before); err != nil {
			return errors.Join(err, a.Users.EndSession(ctx, secret))
		}
	}
	a.startCookie(w, r, s, secret)
	return nil
}

// SessionOptions returns the options with which Start starts a session for the visitor who sent a
// request.
func (a Auth) SessionOptions(r *http.Request) userdb.SessionOptions {
	o := a.Session
	if !a.stays(r) {
		o = *a.brief
	}
	o.Origin, o.Agent = Origin(r, a.Proxies), r.UserAgent()
	return o
}

// startCookie sets the cookie of a session that was started, keeps the choice to stay signed in for
// as long, and removes the cookie of a ticket.
func (a Auth) startCookie(w http.ResponseWriter, r *http.Request, s userdb.Session, secret string) {
	c, life := a.Cookie, s.Expires.Sub(s.Started) // both by the store's clock
	c.Transient = c.Transient || !a.stays(r)
	a.SetCookie(w, r, c, secret, life)
	a.keepChoice(w, r, life)
	a.dropTicket(w, r)
}

// Verify checks the password of a signed-in visitor again, before a sensitive change. It returns
// the errors of Login, and sets [userdb.Session.Verified] to now on success. Call it only if
// Verified is too long ago.
func (a Auth) Verify(r *http.Request, password string) error {
	ctx, cancel := withTimeout(r)
	defer cancel()
	_, _, err := a.Users.VerifySession(ctx, a.Secret(r), password, a.Attempt(r))
	return err
}

// SignOut ends the visitor's session and removes its cookie. Call it only for POST requests: any
// site can make a visitor send a GET.
func (a Auth) SignOut(w http.ResponseWriter, r *http.Request) error {
	if a.CookieValue(r, a.stayCookie()) != "" {
		a.SetCookie(w, r, a.stayCookie(), "", 0)
	}
	secret := a.Secret(r)
	if secret == "" {
		return nil
	}
	ctx, cancel := withTimeout(r)
	defer cancel()
	if err := a.Users.EndSession(ctx, secret); err != nil {
		return err
	}
	a.SetCookie(w, r, a.Cookie, "", 0)
	return nil
}
