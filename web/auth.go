package web

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/userdb"
)

// An Auth knows who sends a request. It is safe for concurrent use; its fields stay as they are from its first use on.
type Auth struct {
	Users      *userdb.Type
	SignInPath string                // where Require sends visitors who are not signed in; "": it answers 401
	Cookie     Cookie                // that of sessions
	Proxies    []netip.Prefix        // see Origin; none: the visitor's address is that of the connection
	Session    userdb.SessionOptions // Life and Idle of sessions; the rest is taken from the request
	// Allowed reports whether an entry may sign in here, and stay signed in; nil: every entry that can log in. To any other the answer
	// is that of a wrong password.
	Allowed func(e userdb.Entry) bool
	// Failed answers a request where the store did not within ten seconds; nil: 503, and what failed is not shown.
	Failed func(w http.ResponseWriter, r *http.Request, err error)
}

// A Cookie says how the cookie of sessions is called. It is always HttpOnly and SameSite=Lax and of the whole site, and ends with the
// session's life. Where the request came over TLS, its own or a trusted proxy's, it is Secure, and its name begins with __Host-:
// then no other site of the domain can set it.
type Cookie struct {
	Name string // "": session
}

const hostPrefix = "__Host-"

func (c Cookie) name(secure bool) string {
	name := c.Name
	if name == "" {
		name = "session"
	}
	if secure {
		name = hostPrefix + name
	}
	return name
}

// patience is how long a request waits for the store.
const patience = 10 * time.Second

func patient(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), patience)
}

type visitorKey struct{}

// A visitor is who sent a request.
type visitor struct {
	entry   userdb.Entry
	session userdb.Session
}

// Entry is the entry of the visitor, as it was when the request came; the zero Entry where nobody is signed in, or no handler of an
// Auth is around.
func Entry(ctx context.Context) userdb.Entry {
	v, _ := ctx.Value(visitorKey{}).(visitor)
	return v.entry
}

// Session is the session of the visitor, like Entry.
func Session(ctx context.Context) userdb.Session {
	v, _ := ctx.Value(visitorKey{}).(visitor)
	return v.session
}

// Visitor puts the visitor's entry and session into the context, if there is a session, and goes on in any case.
func (a Auth) Visitor(next http.Handler) http.Handler {
	return a.handler(next, func(http.ResponseWriter, *http.Request, userdb.Entry) bool { return true })
}

// Require goes on for visitors who are signed in. Others are sent to SignInPath with 303, and with the path that they came for, where
// that can be asked for once more: see ReturnPath.
func (a Auth) Require(next http.Handler) http.Handler {
	return a.handler(next, a.signedIn)
}

// RequireTag is Require, and answers 403 to those whose entry lacks the tag, at the cost of one more round trip.
func (a Auth) RequireTag(tag string, next http.Handler) http.Handler {
	return a.handler(next, func(w http.ResponseWriter, r *http.Request, e userdb.Entry) bool {
		if !a.signedIn(w, r, e) {
			return false
		}
		ctx, done := patient(r)
		defer done()
		has, err := a.Users.Tags(hints.Key(e.Key())).Has(ctx, tag)
		switch {
		case errors.Is(err, userdb.ErrNotFound): // deleted since
			has = false
		case err != nil:
			a.fail(w, r, err)
			return false
		}
		if !has {
			http.Error(w, http.StatusText(http.StatusForbidden), http.StatusForbidden)
		}
		return has
	})
}

// signedIn reports whether somebody is, and else answers.
func (a Auth) signedIn(w http.ResponseWriter, r *http.Request, e userdb.Entry) bool {
	switch {
	case e.Key().IsValid():
		return true
	case a.SignInPath == "":
		http.Error(w, http.StatusText(http.StatusUnauthorized), http.StatusUnauthorized)
	default:
		to := a.SignInPath
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			to += "?" + url.Values{returnParameter: {r.URL.RequestURI()}}.Encode()
		}
		http.Redirect(w, r, to, http.StatusSeeOther)
	}
	return false
}

// handler asks who the visitor is, and goes on if may says so. What is shown to somebody who is signed in is kept by no cache.
func (a Auth) handler(next http.Handler, may func(http.ResponseWriter, *http.Request, userdb.Entry) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var v visitor
		if secret := a.secret(r); secret != "" {
			ctx, done := patient(r)
			var err error
			v.entry, v.session, err = a.Users.Session(ctx, secret)
			if done(); err != nil && !errors.Is(err, userdb.ErrNotFound) {
				a.fail(w, r, err)
				return
			}
			if err == nil && !a.allows(v.entry) {
				v = visitor{}
			}
		}
		w.Header().Add("Vary", "Cookie")
		w.Header().Set("Cache-Control", "no-store")
		if may(w, r, v.entry) {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), visitorKey{}, v)))
		}
	})
}

func (a Auth) allows(e userdb.Entry) bool { return a.Allowed == nil || a.Allowed(e) }

func (a Auth) fail(w http.ResponseWriter, r *http.Request, err error) {
	if a.Failed != nil {
		a.Failed(w, r, err)
		return
	}
	http.Error(w, Texts["unavailable"], http.StatusServiceUnavailable)
}

// secret is that of the request's cookie, "" for none.
func (a Auth) secret(r *http.Request) string {
	c, err := r.Cookie(a.Cookie.name(a.secure(r)))
	if err != nil {
		return ""
	}
	return c.Value
}

// Attempt is where a login comes from, for Login and the verbs for visitors.
func (a Auth) Attempt(r *http.Request) userdb.Attempt {
	return userdb.Attempt{Origin: Origin(r, a.Proxies)}
}

// SignIn logs a visitor in, and begins a session with its cookie. The errors are those of Login: tell the visitor the same of ErrLogin,
// whatever was wrong, and how long to wait of a *userdb.WaitError.
func (a Auth) SignIn(w http.ResponseWriter, r *http.Request, identifier, password string) (userdb.Entry, error) {
	ctx, done := patient(r)
	defer done()
	const logins = 3 // a login that is overtaken by a new password begins again
	for n := range logins {
		e, err := a.Users.Login(ctx, identifier, password, a.Attempt(r))
		if err == nil && !a.allows(e) {
			e, err = userdb.Entry{}, userdb.ErrLogin
		}
		if err == nil {
			err = a.Start(w, r, e)
		}
		if err == nil || !errors.Is(err, userdb.ErrConflict) && !errors.Is(err, userdb.ErrNotFound) || n == logins-1 {
			return e, err
		}
	}
	return userdb.Entry{}, userdb.ErrConflict
}

// Start begins a session of an entry that a verb has just returned, such as Accept, ResetPassword or ChangePassword, and sets its
// cookie. A session that the visitor had here before ends.
func (a Auth) Start(w http.ResponseWriter, r *http.Request, e userdb.Entry) error {
	o := a.Session
	o.Origin, o.Agent = Origin(r, a.Proxies), r.UserAgent()
	ctx, done := patient(r)
	defer done()
	s, secret, err := a.Users.StartSession(ctx, e, o)
	if err != nil {
		return err
	}
	if before := a.secret(r); before != "" {
		if err := a.Users.EndSession(ctx, before); err != nil {
			return errors.Join(err, a.Users.EndSession(ctx, secret))
		}
	}
	a.setCookie(w, r, secret, s.Ends.Sub(s.Begun)) // both by the clock of the store
	return nil
}

// Verify asks the visitor who is signed in for the password once more, before something delicate: the errors are those of Login, and
// [userdb.Session.Verified] is new after it. A handler asks only if that is long ago.
func (a Auth) Verify(r *http.Request, password string) error {
	ctx, done := patient(r)
	defer done()
	_, _, err := a.Users.VerifySession(ctx, a.secret(r), password, a.Attempt(r))
	return err
}

// SignOut ends the visitor's session, and removes the cookie. It is for POST requests: any site can have a visitor send a GET.
func (a Auth) SignOut(w http.ResponseWriter, r *http.Request) error {
	secret := a.secret(r)
	if secret == "" {
		return nil
	}
	ctx, done := patient(r)
	defer done()
	if err := a.Users.EndSession(ctx, secret); err != nil {
		return err
	}
	a.setCookie(w, r, "", 0)
	return nil
}

func (a Auth) setCookie(w http.ResponseWriter, r *http.Request, value string, life time.Duration) {
	secure, age := a.secure(r), int(life/time.Second)
	if value == "" {
		age = -1 // it goes
	}
	http.SetCookie(w, &http.Cookie{
		Name: a.Cookie.name(secure), Value: value, Path: "/", MaxAge: age,
		Secure: secure, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
}
