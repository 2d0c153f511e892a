package web

import (
	"cmp"
	"context"
	"net/http"
	"time"
)

type stayKey struct{}

// withChoice returns a request whose context holds the choice in its form: whether to stay signed
// in. If the box is not ticked, or the form has no box, the choice is no, even if an earlier
// visitor at this browser chose to stay.
func withChoice(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), stayKey{}, r.PostFormValue("stay") != ""))
}

// stayCookie describes the cookie of browsers whose visitor chose to stay signed in. The second
// step of a sign-in reads it, and so does a request that replaces the visitor's session.
func (a Auth) stayCookie() Cookie {
	return Cookie{Name: cmp.Or(a.Cookie.Name, "session") + "-stay", Domain: a.Cookie.Domain, Transient: a.Cookie.Transient}
}

// stays reports whether a session that starts now is for a visitor who stays signed in. If a
// program sends a bearer secret and no choice, its new session is a long one if its current one
// lasts longer than Flows.Brief.
func (a Auth) stays(r *http.Request) bool {
	if a.brief == nil {
		return true
	}
	if chosen, is := r.Context().Value(stayKey{}).(bool); is {
		return chosen
	}
	if _, program := a.bearer(r); program {
		s := Session(r.Context())
		return s.Expires.Sub(s.Started) > a.brief.Lifetime
	}
	return a.CookieValue(r, a.stayCookie()) != ""
}

// keepChoice sets the cookie that says that the visitor stays signed in, or removes it.
func (a Auth) keepChoice(w http.ResponseWriter, r *http.Request, life time.Duration) {
	switch {
	case a.brief == nil:
	case a.stays(r):
		a.SetCookie(w, r, a.stayCookie(), "1", life)
	case a.CookieValue(r, a.stayCookie()) != "":
		a.SetCookie(w, r, a.stayCookie(), "", 0)
	}
}

// KeepChoice keeps what a visitor chose in a form that begins a sign-in through another provider,
// until FirstStep; see Flows.Brief. Package web/oidc calls it.
func (f *Flows) KeepChoice(w http.ResponseWriter, r *http.Request, life time.Duration) {
	f.keepChoice(w, withChoice(r), life)
}
