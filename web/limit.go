package web

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/coffeenode/userdb/userdb"
)

// A Limit limits how often each visitor may do something. It counts the uses of an account if the
// visitor is signed in, otherwise those of the address from which the request came (see Origin). A
// visitor who is not signed in and whose address is unknown is not limited. The store holds the
// counters, so all processes together admit no more than Max uses.
type Limit struct {
	Auth   Auth
	Name   string        // of the counters, which limits of the same name share; if "", requests
	Max    int           // uses in one Window; if 0, 60
	Window time.Duration // begins with the first use; if 0, one hour
}

// Allow counts one use by the visitor who sent a request. It returns a *userdb.WaitError if the
// visitor has used up the limit. To count visitors by their accounts, call it in a handler that the
// Auth wraps.
func (l Limit) Allow(r *http.Request) error {
	visitor := "origin " + Origin(r, l.Auth.Proxies)
	if e := Entry(r.Context()); e.Key().IsValid() {
		visitor = "entry " + e.Key().String()
	} else if visitor == "origin " {
		return nil
	}
	return l.count(r, visitor)
}

// allowOrigin does what Allow does, and counts a visitor by the origin of the request even if the
// visitor is signed in.
func (l Limit) allowOrigin(r *http.Request) error {
	if origin := Origin(r, l.Auth.Proxies); origin != "" {
		return l.count(r, "origin "+origin)
	}
	return nil
}

func (l Limit) count(r *http.Request, visitor string) error {
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	uses := userdb.Limit{Name: cmp.Or(l.Name, "requests"), Max: cmp.Or(l.Max, 60), Window: cmp.Or(l.Window, time.Hour)}
	return l.Auth.Users.Admit(ctx, uses, visitor)
}

// Handler counts each request, and calls next if the limit allows it. If the limit is used up, it
// answers 429 with the header Retry-After; if the store does not answer, 503. Auth.Failed, if it is
// set, sends the answer. Otherwise programs get a problem of RFC 9457.
func (l Limit) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := l.Allow(r)
		if err == nil {
			next.ServeHTTP(w, r)
			return
		}
		setRetryAfter(w, err)
		switch {
		case l.Auth.Failed == nil && l.Auth.isProgram(r):
			WriteProblem(w, r, err)
		case l.Auth.Failed != nil || !errors.Is(err, userdb.ErrTooManyAttempts):
			l.Auth.fail(w, r, err)
		default:
			language := requestLanguage(r)
			setLanguage(w, language)
			http.Error(w, problemsIn(language, err)[0].Text, http.StatusTooManyRequests)
		}
	})
}

// setRetryAfter sets the header Retry-After if an error says how long to wait.
func setRetryAfter(w http.ResponseWriter, err error) {
	if wait, is := errors.AsType[*userdb.WaitError](err); is {
		w.Header().Set("Retry-After", seconds(wait.Wait))
	}
}
