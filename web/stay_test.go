package web_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// post sends a form and returns the life, in seconds, of the session's cookie that the answer sets.
// It returns 0 if the cookie ends with the browser, and -1 if there is none.
func (s *flowSite) post(c *http.Client, path string, form ...string) int {
	s.t.Helper()
	values := url.Values{}
	for i := 0; i+1 < len(form); i += 2 {
		values.Set(form[i], form[i+1])
	}
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.server.URL+path, strings.NewReader(values.Encode()))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := c.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	for _, cookie := range answer.Cookies() {
		if cookie.Name == "session" {
			return cookie.MaxAge
		}
	}
	return -1
}

// wantSession checks the life of a visitor's cookie, in seconds, and of the session.
func (s *flowSite) wantSession(what string, c *http.Client, cookie, want int, life time.Duration) {
	s.t.Helper()
	_, session, err := s.users.Session(s.t.Context(), s.cookie(c, "session"))
	if got := session.Expires.Sub(session.Started); cookie != want || got != life || err != nil {
		s.t.Errorf("%s: got a cookie of %d s and a session of %s (%v), want %d s and %s", what, cookie, got, err, want, life)
	}
}

const (
	longLife  = 30 * 24 * time.Hour
	briefLife = 8 * time.Hour
	longAge   = int(longLife / time.Second)
)

// TestStaySignedIn checks that visitors stay signed in if they tick the box, and that this holds
// for the sessions that replace the one of their sign-in.
func TestStaySignedIn(t *testing.T) {
	s := newFlows(t, "memory:", func(f *web.Flows) { f.Brief = userdb.SessionOptions{Lifetime: briefLife} })
	ann := s.create("ann")
	if _, _, page := s.send(s.client(), "/signin"); strings.Count(page, `name="stay"`) != 1 || strings.Contains(page, "checked") {
		t.Errorf("the page does not ask whether to stay signed in:\n%s", page)
	}
	if _, _, page := s.send(s.client(), "/signin", "identifier", "ann", "password", "wrong horse battery", "stay", "1"); !strings.Contains(page, "checked") {
		t.Errorf("after a wrong password the box is no longer ticked:\n%s", page)
	}
	for _, tt := range []struct {
		stay   []string
		cookie int
		life   time.Duration
	}{{nil, 0, briefLife}, {[]string{"stay", "1"}, longAge, longLife}} {
		c := s.client()
		age := s.post(c, "/signin", append([]string{"identifier", "ann", "password", goodPassword}, tt.stay...)...)
		s.wantSession("signing in", c, age, tt.cookie, tt.life)
		age = s.post(c, "/account/password", "old", goodPassword, "new", goodPassword)
		s.wantSession("a new password", c, age, tt.cookie, tt.life)
		age = s.post(c, "/signin", "identifier", "ann", "password", goodPassword)
		s.wantSession("signing in again without the box", c, age, 0, briefLife)
	}

	// What one visitor chose does not apply to the next one at the same browser, even if the
	// session was ended elsewhere.
	c := s.client()
	s.post(c, "/signin", "identifier", "ann", "password", goodPassword, "stay", "1")
	if _, err := s.users.EndSessions(t.Context(), hints.UID(ann.UID())); err != nil {
		t.Fatal(err)
	}
	reset, _, err := s.users.IssueFor(t.Context(), hints.UID(ann.UID()), "email", userdb.Token{Purpose: "reset"})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/reset", "/prove"} { // the second form counts as a double click
		age := s.post(c, path, "token", reset, "password", otherPassword)
		s.wantSession(path, c, age, 0, briefLife)
		if s.cookie(c, "session-stay") != "" {
			t.Errorf("after %s the browser keeps what an earlier visitor chose", path)
		}
		s.post(c, "/signin", "identifier", "ann", "password", otherPassword, "stay", "1")
	}
}

// TestStaySignedInTwoSteps checks that the second step of a sign-in keeps what the visitor chose in
// the first, and that taking both steps again also keeps it.
func TestStaySignedInTwoSteps(t *testing.T) {
	s, clock := newFactorFlows(t)
	s = newFlows(t, "memory:", func(f *web.Flows) {
		f.Users, f.Brief = s.users, userdb.SessionOptions{Lifetime: briefLife}
	})
	s.users = s.flows.Users
	app := enrol(t, s.users, s.create("ann"), clock.Now)
	for _, tt := range []struct {
		stay   []string
		cookie int
		life   time.Duration
	}{{nil, 0, briefLife}, {[]string{"stay", "1"}, longAge, longLife}} {
		c := s.client()
		if age := s.post(c, "/signin", append([]string{"identifier", "ann", "password", goodPassword}, tt.stay...)...); age != -1 {
			t.Errorf("the first step sets a cookie of %d s for a session, want none", age)
		}
		age := s.post(c, "/signin/code", "code", app.code())
		s.wantSession("the second step", c, age, tt.cookie, tt.life)
		clock.Advance(time.Minute)
		age = s.post(c, "/account/verify", "password", goodPassword, "code", app.code())
		if age > 0 != (tt.cookie > 0) {
			t.Errorf("both steps again: got a cookie of %d s, want one that outlives the browser: %v", age, tt.cookie > 0)
		}
		clock.Advance(time.Minute)
	}
}

// TestStaySignedInByDefault checks that visitors stay signed in and are not asked if Flows has no
// Brief, and that programs then have long sessions as well.
func TestStaySignedInByDefault(t *testing.T) {
	s := newFlows(t, "memory:", nil)
	s.create("ann")
	c := s.client()
	if _, _, page := s.send(c, "/signin"); strings.Contains(page, `name="stay"`) {
		t.Errorf("the page asks whether to stay signed in:\n%s", page)
	}
	age := s.post(c, "/signin", "identifier", "ann", "password", goodPassword)
	s.wantSession("signing in", c, age, longAge, longLife)
	if got := s.cookie(c, "session-stay"); got != "" {
		t.Errorf("got a cookie session-stay=%s, want none", got)
	}
	if _, session, err := s.flows.Token(formRequest(t), "ann", goodPassword); err != nil || session.Expires.Sub(session.Started) != longLife {
		t.Errorf("a token: got a session of %s (%v), want %s", session.Expires.Sub(session.Started), err, longLife)
	}
}

// formRequest returns a request with a form.
func formRequest(t *testing.T, form ...string) *http.Request {
	t.Helper()
	values := url.Values{}
	for i := 0; i+1 < len(form); i += 2 {
		values.Add(form[i], form[i+1])
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(values.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r
}

// TestBriefTokens checks that the sessions of programs are as Flows.Brief says, unless the form
// asks to stay signed in, and that this also holds after a second step, and for the sessions that
// replace these.
func TestBriefTokens(t *testing.T) {
	s, clock := newFactorFlows(t)
	s = newFlows(t, "memory:", func(f *web.Flows) {
		f.Users, f.Bearer, f.Brief = s.users, true, userdb.SessionOptions{Lifetime: briefLife}
	})
	s.users = s.flows.Users
	s.create("bob")
	app := enrol(t, s.users, s.create("ann"), clock.Now)
	for _, tt := range []struct {
		form []string
		want time.Duration
	}{{nil, briefLife}, {[]string{"stay", "1"}, longLife}} {
		r := formRequest(t, tt.form...)
		r.AddCookie(&http.Cookie{Name: "session-stay", Value: "1"}) // of the browser
		check := func(what, secret string, level int, err error) {
			t.Helper()
			_, session, readErr := s.users.Session(t.Context(), secret)
			if got := session.Expires.Sub(session.Started); err != nil || readErr != nil || got != tt.want || session.Level() != level {
				t.Errorf("%s with %v: got a session of %s and level %d (%v, %v), want %s and %d", what, tt.form, got, session.Level(), err, readErr, tt.want, level)
			}
		}
		secret, _, err := s.flows.Token(r, "bob", goodPassword)
		check("a token", secret, 1, err)
		_, _, err = s.flows.Token(r, "ann", goodPassword)
		refused, is := errors.AsType[*userdb.FactorError](err)
		if !is {
			t.Fatalf("got %v, want a FactorError", err)
		}
		if _, _, err = s.flows.ProveToken(r, refused.Ticket, userdb.TOTP(app.wrong())); !errors.Is(err, userdb.ErrLogin) {
			t.Errorf("a wrong code: got %v, want ErrLogin", err)
		}
		w := httptest.NewRecorder()
		web.WriteProblem(w, r, err)
		for _, text := range []string{`"field":"code"`, `"detail":"This is not the right code, or it was used before."`, `"code":"login"`} {
			if w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), text) {
				t.Errorf("a wrong code: got %d %s, want 401 and %s", w.Code, w.Body, text)
			}
		}
		secret, _, err = s.flows.ProveToken(r, refused.Ticket, userdb.TOTP(app.code()))
		check("the second step", secret, 2, err)
		clock.Advance(time.Minute)

		raised := ""
		h := s.flows.Require(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			err := s.flows.Verify(r, goodPassword)
			if err == nil {
				_, _, raised, err = s.users.RaiseSession(r.Context(), s.flows.Secret(r), userdb.TOTP(app.code()), s.flows.SessionOptions(r))
			}
			if err != nil {
				t.Error(err)
			}
		}))
		again := formRequest(t)
		again.Header.Set("Authorization", "Bearer "+secret)
		h.ServeHTTP(httptest.NewRecorder(), again)
		check("both steps again", raised, 2, nil)
		clock.Advance(time.Minute)
	}
}
