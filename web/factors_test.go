package web_test

import (
	"bytes"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/totp"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdbtest"
	"github.com/coffeenode/userdb/web"
)

// factorOptions returns options that allow second factors.
func factorOptions() userdb.Options {
	sc := schema.User()
	user := sc.Types["user"]
	user.Factors = true
	sc.Types["user"] = user
	return userdb.Options{Schema: sc, Keys: [][]byte{bytes.Repeat([]byte("k"), 32)}}
}

// An app is the authenticator app of an account, with the account's recovery codes.
type app struct {
	t        *testing.T
	secret   []byte
	recovery []string
	now      func() time.Time // the store's clock
	last     int64            // the step of the last code
}

// code returns a code that was not used before. The store accepts three at any time.
func (a *app) code() string {
	a.t.Helper()
	step := max(totp.Step(a.now())-1, a.last+1)
	if step > totp.Step(a.now())+1 {
		a.t.Fatal("no code is left that the store would accept now")
	}
	a.last = step
	return totp.Code(a.secret, step)
}

// wrong returns a code that the store does not accept.
func (a *app) wrong() string {
	for n := range 10 {
		code, near := fmt.Sprintf("%06d", n), false
		for step := totp.Step(a.now()) - 2; step <= totp.Step(a.now())+2; step++ {
			near = near || totp.Code(a.secret, step) == code
		}
		if !near {
			return code
		}
	}
	panic("unreachable")
}

func newApp(t *testing.T, secret string, now func() time.Time) *app {
	t.Helper()
	raw, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(secret)
	if err != nil {
		t.Fatal(err)
	}
	return &app{t: t, secret: raw, now: now}
}

// soon returns the time in ten seconds. For an app of a store with a real clock, it takes the place
// of that clock, so that the store still accepts the first code if a step ends meanwhile.
func soon() time.Time { return time.Now().Add(10 * time.Second) }

// enrol gives an entry a second factor. All its sessions end.
func enrol(t *testing.T, users *userdb.Type, e userdb.Entry, now func() time.Time) *app {
	t.Helper()
	_, secret, err := users.StartSession(t.Context(), e, userdb.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	enrolment, err := users.EnrolTOTP(t.Context(), secret, userdb.TOTPOptions{Name: "phone"})
	if err != nil {
		t.Fatal(err)
	}
	a := newApp(t, enrolment.Secret, now)
	c, err := users.ConfirmTOTP(t.Context(), secret, enrolment.ID, a.code(), userdb.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	a.recovery = c.RecoveryCodes
	return a
}

// newFactorFlows returns a site that allows second factors, with the clock of its store.
func newFactorFlows(t *testing.T) (*flowSite, *userdbtest.Clock) {
	t.Helper()
	store := userdbtest.New(t, userdbtest.With(factorOptions()))
	users := store.Type("user")
	s := newFlows(t, "memory:", func(f *web.Flows) { f.Users = users })
	s.users = users
	return s, store.Clock
}

// cookie returns the value of a visitor's cookie, or "" if there is none.
func (s *flowSite) cookie(c *http.Client, name string) string {
	u, err := url.Parse(s.server.URL)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, cookie := range c.Jar.Cookies(u) {
		if cookie.Name == name {
			return cookie.Value
		}
	}
	return ""
}

// wantLevel checks the level of a visitor's session; 0 means that there is none.
func (s *flowSite) wantLevel(what string, c *http.Client, want int) {
	s.t.Helper()
	_, session, _ := s.users.Session(s.t.Context(), s.cookie(c, "session"))
	if session.Level() != want {
		s.t.Errorf("%s: the visitor has a session of level %d, want %d", what, session.Level(), want)
	}
}

func (s *flowSite) issue(e userdb.Entry, token userdb.Token) (secret string) {
	s.t.Helper()
	secret, err := s.users.Issue(s.t.Context(), hints.UID(e.UID()), token)
	if err != nil {
		s.t.Fatal(err)
	}
	return secret
}

// TestFlowsWithFactor takes the first step of every flow for an account with a second factor. None
// of them signs in, and all of them lead to the page that asks for a code.
func TestFlowsWithFactor(t *testing.T) {
	const codePage = "/signin/code?return=%2Faccount"
	again := func(s *flowSite, c *http.Client, password string) string {
		_, to, _ := s.send(c, "/signin", "identifier", "ann", "password", password, "return", "/account")
		return to
	}
	for _, tt := range []struct {
		name string
		// first is the page that the first step leads to. then is the page after the sign-in that
		// the flow asks for; it is "" if first already asks for a code.
		first, then string
		step        func(s *flowSite, e userdb.Entry, c *http.Client) (to string)
		password    string // after the step; "" if it is unchanged
	}{
		{name: "sign-in", first: codePage, step: func(s *flowSite, _ userdb.Entry, c *http.Client) string { return again(s, c, goodPassword) }},
		{name: "reset", first: "/signin?done=password", then: codePage, password: otherPassword, step: func(s *flowSite, e userdb.Entry, c *http.Client) string {
			_, to, _ := s.send(c, "/reset", "token", s.issue(e, userdb.Token{Purpose: "reset"}), "password", otherPassword)
			return to
		}},
		{name: "sign-up again", first: "/sent?to=ann%40example.com", then: codePage, step: func(s *flowSite, _ userdb.Entry, c *http.Client) string {
			_, to, _ := s.send(c, "/signup", "email", "ann@example.com")
			if mails := fmt.Sprint(s.sent()); mails != "[registered ann@example.com]" {
				s.t.Errorf("got the mails %s, want one that leads to the sign-in", mails)
			}
			return to
		}},
		{name: "change of the address", first: "the page confirmed", then: codePage, step: func(s *flowSite, e userdb.Entry, c *http.Client) string {
			status, to, body := s.send(c, "/confirm", "token", s.issue(e, userdb.Token{Purpose: "change:email", Value: "new@example.com"}))
			if status == http.StatusOK && strings.Contains(body, "<strong>new@example.com</strong> is now an address of the account <strong>ann</strong>.") {
				return "the page confirmed"
			}
			return to
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, clock := newFactorFlows(t)
			e := s.create("ann")
			a, c := enrol(t, s.users, e, clock.Now), s.client()
			if got := tt.step(s, e, c); got != tt.first {
				t.Errorf("the first step leads to %s, want %s", got, tt.first)
			}
			s.wantLevel("after the first step", c, 0)
			if tt.then != "" {
				password := goodPassword
				if tt.password != "" {
					password = tt.password
				}
				if got := again(s, c, password); got != tt.then {
					t.Errorf("signing in leads to %s, want %s", got, tt.then)
				}
			}
			s.wantLevel("before the code", c, 0)
			if status, to, _ := s.send(c, "/account"); status != 303 || !strings.HasPrefix(to, "/signin?") {
				t.Errorf("before the code, the account's page answers %d %s, want 303 to the sign-in", status, to)
			}
			if status, to, body := s.send(c, "/signin/code", "code", a.code(), "return", "/account"); status != 303 || to != "/account" {
				t.Errorf("the code: got %d %s, want 303 to the account: %s", status, to, body)
			}
			s.wantLevel("after the code", c, 2)
		})
	}
}

// TestFlowsInvitationTwice checks that a link that creates an account signs nobody in if an account
// with a second factor has got the address meanwhile.
func TestFlowsInvitationTwice(t *testing.T) {
	s, clock := newFactorFlows(t)
	c := s.client()
	s.send(c, "/signup", "email", "ann@example.com")
	s.sent()
	_, token, _ := strings.Cut(s.mails[0].Link, "token=")
	enrol(t, s.users, s.create("ann"), clock.Now)
	if status, to, body := s.send(c, "/welcome", "token", token, "name", "eve", "password", goodPassword); status == 303 {
		t.Errorf("got %d %s, want an error: %s", status, to, body)
	}
	s.wantLevel("after the link", c, 0)
}

// TestFlowsCode checks the page that asks for a code: what it says about wrong, used and missing
// codes, when it expires, and where it leads.
func TestFlowsCode(t *testing.T) {
	s, clock := newFactorFlows(t)
	a := enrol(t, s.users, s.create("ann"), clock.Now)
	signIn := func(to string) *http.Client {
		t.Helper()
		c := s.client()
		status, _, body := s.send(c, "/signin", "identifier", "ann", "password", goodPassword, "return", to)
		if status != 303 || s.cookie(c, "session-ticket") == "" {
			t.Fatalf("got %d and the ticket %q, want 303 and a ticket: %s", status, s.cookie(c, "session-ticket"), body)
		}
		return c
	}
	want := func(what string, c *http.Client, form []string, status int, text string) {
		t.Helper()
		got, to, body := s.send(c, "/signin/code", form...)
		if got != status || !strings.Contains(to+body, text) {
			t.Errorf("%s: got %d %s, want %d and %q:\n%s", what, got, to, status, text, body)
		}
		for i := 1; i < len(form); i += 2 {
			if form[i-1] != "return" && len(form[i]) > 1 && strings.Contains(to+body, form[i]) {
				t.Errorf("%s: the page shows the code again", what)
			}
		}
	}

	const again = "/signin?return=%2F&done=again"
	want("without a first step", s.client(), nil, 303, again)
	want("a code without a first step", s.client(), []string{"code", "123456"}, 303, again)

	c := signIn("/secret?x=1")
	if _, _, body := s.send(c, "/signin/code?return=%2Fsecret%3Fx%3D1"); !strings.Contains(body, `value="/secret?x=1"`) || !strings.Contains(body, `autocomplete="one-time-code" inputmode="numeric"`) {
		t.Errorf("the page lacks an input or the path to return to:\n%s", body)
	}
	want("no code", c, []string{"code", " "}, 422, `id="code-problem" role="alert">This field is required.`)
	want("a wrong code", c, []string{"code", a.wrong()}, 422, `id="code-problem" role="alert">This is not the right code`)
	want("a wrong recovery code", c, []string{"recovery", "abcde-fghjk"}, 422, `id="recovery-problem" role="alert">This is not the right code`)
	want("no recovery code", c, []string{"recovery", ""}, 422, `id="recovery-problem" role="alert">This field is required.`)
	used := a.code()
	want("another site", c, []string{"code", used, "return", "https://evil.example/"}, 303, "/")
	if s.cookie(c, "session-ticket") != "" {
		t.Error("the ticket's cookie stays after the second step")
	}
	s.wantLevel("after the code", c, 2)
	want("a second time", c, []string{"code", "123456"}, 303, again)

	clock.Advance(time.Minute)
	want("a used code", signIn("/"), []string{"code", used}, 422, "it was used before")
	c = signIn("/")
	for range 5 {
		want("a wrong code", c, []string{"code", a.wrong()}, 422, "not the right code")
	}
	want("after five attempts", c, []string{"code", a.code(), "return", "/secret"}, 303, "/signin?return=%2Fsecret&done=again")
	if _, _, body := s.send(c, "/signin?return=%2Fsecret&done=again"); !strings.Contains(body, "Sign in again.") || !strings.Contains(body, `value="/secret"`) {
		t.Errorf("the page to sign in does not say why, or where to go on:\n%s", body)
	}
	if s.cookie(c, "session-ticket") != "" {
		t.Error("the cookie of a ticket that is not valid stays")
	}

	c = signIn("/")
	clock.Advance(5*time.Minute + time.Second) // more than the ticket's life
	want("after five minutes", c, []string{"code", a.code()}, 303, again)
	c = signIn("/")
	if _, err := s.users.SetPassword(t.Context(), hints.Any("ann"), otherPassword); err != nil {
		t.Fatal(err)
	}
	want("after a new password", c, []string{"code", a.code()}, 303, again)
	s.wantLevel("after a new password", c, 0)

	c = s.client()
	s.send(c, "/signin", "identifier", "ann", "password", otherPassword)
	want("a recovery code", c, []string{"recovery", strings.ToUpper(a.recovery[0])}, 303, "/")
	s.wantLevel("after the recovery code", c, 2)
}

// TestFlowsCodeGuesses checks that the page answers 429 after too many wrong codes, and still
// accepts a recovery code.
func TestFlowsCodeGuesses(t *testing.T) {
	s, clock := newFactorFlows(t)
	a, c := enrol(t, s.users, s.create("ann"), clock.Now), s.client()
	status, body := 0, ""
	for n := 0; n < 25 && status != http.StatusTooManyRequests; n++ {
		if n%5 == 0 {
			s.send(c, "/signin", "identifier", "ann", "password", goodPassword)
		}
		status, _, body = s.send(c, "/signin/code", "code", a.wrong())
	}
	if status != http.StatusTooManyRequests || !strings.Contains(body, `id="code-problem" role="alert">There were too many wrong codes. Use a recovery code`) {
		t.Errorf("got %d, want 429 and a text that leads to recovery codes:\n%s", status, body)
	}
	if status, to, body := s.send(c, "/signin/code", "recovery", a.recovery[0]); status != 303 {
		t.Errorf("a recovery code: got %d %s, want 303: %s", status, to, body)
	}
	s.wantLevel("after the recovery code", c, 2)
}

// TestFlowsWithoutCode checks that a site without the page for codes signs nobody in by a password
// alone.
func TestFlowsWithoutCode(t *testing.T) {
	store := userdbtest.New(t, userdbtest.With(factorOptions()))
	users := store.Type("user")
	s := newFlows(t, "memory:", func(f *web.Flows) { f.Users, f.Paths = users, web.DefaultPaths; f.Paths.Code = "" })
	s.users = users
	enrol(t, users, s.create("ann"), store.Clock.Now)
	c := s.client()
	if status, to, body := s.send(c, "/signin", "identifier", "ann", "password", goodPassword); status != 422 || !strings.Contains(body, "second factor") {
		t.Errorf("got %d %s, want 422 and that there is a second factor: %s", status, to, body)
	}
	s.wantLevel("after the password", c, 0)
}

// TestFlowsCodeFromOtherSites checks that a form of another site takes no second step, and how the
// cookie of the ticket is protected.
func TestFlowsCodeFromOtherSites(t *testing.T) {
	s, clock := newFactorFlows(t)
	a := enrol(t, s.users, s.create("ann"), clock.Now)
	server := httptest.NewTLSServer(s.server.Config.Handler)
	defer server.Close()
	client := server.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	post := func(path, from string, cookies []*http.Cookie, form url.Values) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "POST", server.URL+path, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Sec-Fetch-Site", from)
		for _, c := range cookies {
			req.AddCookie(c)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp
	}
	first := post("/signin", "same-origin", nil, url.Values{"identifier": {"ann"}, "password": {goodPassword}})
	cookies := first.Cookies()
	if len(cookies) != 1 {
		t.Fatalf("got the cookies %v, want one", cookies)
	}
	if c := cookies[0]; c.Name != "__Host-session-ticket" || !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.MaxAge != 300 {
		t.Errorf("got the cookie %v, want a protected one that lives for five minutes", c)
	}
	if strings.Contains(first.Header.Get("Location"), cookies[0].Value) {
		t.Error("the path of the next page has the ticket")
	}
	code := url.Values{"code": {a.code()}}
	if got := post("/signin/code", "cross-site", cookies, code); got.StatusCode != 403 || len(got.Cookies()) > 0 {
		t.Errorf("a form of another site: got %s and the cookies %v, want 403 and none", got.Status, got.Cookies())
	}
	got := post("/signin/code", "same-origin", cookies, code)
	if got.StatusCode != 303 || len(got.Cookies()) != 2 || got.Cookies()[0].Name != "__Host-session" || got.Cookies()[1].MaxAge >= 0 {
		t.Errorf("the second step: got %s and the cookies %v, want 303, a session, and no ticket", got.Status, got.Cookies())
	}
}

// TestFlowsCodeStores takes both steps with accounts in memory and on Redis.
func TestFlowsCodeStores(t *testing.T) {
	for name, store := range map[string]string{"memory": "memory:", "redis": redistest.Start(t).URL()} {
		t.Run(name, func(t *testing.T) {
			users := openUsers(t, store, factorOptions())
			s := newFlows(t, "memory:", func(f *web.Flows) { f.Users = users })
			s.users = users
			a, c := enrol(t, users, s.create("ann"), soon), s.client()
			for _, form := range [][]string{{"code", a.code()}, {"recovery", a.recovery[3]}} {
				s.send(c, "/signin", "identifier", "ann", "password", goodPassword)
				if status, to, body := s.send(c, "/signin/code", form...); status != 303 || to != "/" {
					t.Errorf("got %d %s, want 303: %s", status, to, body)
				}
				s.wantLevel("after "+form[0], c, 2)
			}
		})
	}
}

// TestRequireLevel checks who gets to a page that requires two steps of a sign-in, and what others
// are told.
func TestRequireLevel(t *testing.T) {
	store := userdbtest.New(t, userdbtest.With(factorOptions()))
	users := store.Type("user")
	page := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	answer := func(auth web.Auth, level int, maxAge time.Duration, secret, method, mode string) string {
		r := httptest.NewRequest(method, "/page?x=1", nil)
		if secret != "" {
			r.AddCookie(&http.Cookie{Name: "session", Value: secret})
		}
		if mode != "" {
			r.Header.Set("Sec-Fetch-Mode", mode)
		}
		w := httptest.NewRecorder()
		auth.RequireLevel(level, maxAge, page).ServeHTTP(w, r)
		if to := w.Header().Get("Location"); to != "" {
			return fmt.Sprint(w.Code, " ", to)
		}
		return strings.TrimSpace(fmt.Sprint(w.Code, " ", w.Body))
	}
	start := func(name string, o userdb.SessionOptions) (userdb.Entry, string) {
		t.Helper()
		e, err := users.Create(t.Context(), userdb.NewEntry{Facets: schema.Texts("name", name, "email", name+"@example.com"), Password: goodPassword})
		if err != nil {
			t.Fatal(err)
		}
		_, secret, err := users.StartSession(t.Context(), e, o)
		if err != nil {
			t.Fatal(err)
		}
		return e, secret
	}
	_, plain := start("plain", userdb.SessionOptions{})
	_, byApplication := start("application", userdb.SessionOptions{Level: 2})
	ann, _ := start("ann", userdb.SessionOptions{})
	a := enrol(t, users, ann, store.Clock.Now)
	var secrets []string // of sessions of level 2, the first of which is old
	for range 2 {
		store.Clock.Advance(time.Hour)
		_, err := users.Login(t.Context(), "ann", goodPassword, userdb.Attempt{})
		refused, is := err.(*userdb.FactorError)
		if !is {
			t.Fatalf("got %v, want a *FactorError", err)
		}
		e, err := users.Prove(t.Context(), refused.Ticket, userdb.TOTP(a.code()), userdb.Attempt{})
		if err != nil {
			t.Fatal(err)
		}
		_, secret, err := users.StartSession(t.Context(), e, userdb.SessionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		secrets = append(secrets, secret)
	}
	old, fresh := secrets[0], secrets[1]
	// A password alone renews level 1.
	if _, _, err := users.VerifySession(t.Context(), old, goodPassword, userdb.Attempt{}); err != nil {
		t.Fatal(err)
	}

	pages := web.Auth{Users: users, SignInPath: "/signin", VerifyPath: "/verify", FactorsPath: "/security"}
	none := web.Auth{Users: users}
	for _, tt := range []struct {
		what         string
		auth         web.Auth
		level        int
		maxAge       time.Duration
		secret       string
		method, mode string
		want         string
	}{
		{"nobody", pages, 2, 0, "", "GET", "navigate", "303 /signin?return=%2Fpage%3Fx%3D1"},
		{"nobody, a form", pages, 2, 0, "", "POST", "", "303 /signin"},
		{"nobody, a script", pages, 2, 0, "", "GET", "cors", `401 {"code":"login","status":401,"title":"Unauthorized","type":"urn:userdb:error:login"}`},
		{"level 2", pages, 2, 0, old, "GET", "", "200"},
		{"level 2, just now", pages, 2, time.Minute, fresh, "GET", "", "200"},
		{"level 2, an hour ago", pages, 2, time.Minute, old, "GET", "", "303 /verify?return=%2Fpage%3Fx%3D1"},
		{"level 2, an hour ago, a form", pages, 2, time.Minute, old, "POST", "navigate", "303 /verify"},
		{"level 2, an hour ago, a script", pages, 2, time.Minute, old, "POST", "same-origin", `403 {"code":"not_verified","status":403,"title":"Forbidden","type":"urn:userdb:error:not_verified"}`},
		{"level 1, just now, of an entry with a factor", pages, 1, time.Minute, old, "GET", "", "200"},
		{"no factor", pages, 2, 0, plain, "GET", "", "303 /security?return=%2Fpage%3Fx%3D1"},
		{"no factor, a script", pages, 2, 0, plain, "GET", "cors", `403 {"code":"factor","status":403,"title":"Forbidden","type":"urn:userdb:error:factor"}`},
		{"no factor, level 1, two hours ago", pages, 1, time.Minute, plain, "GET", "", "303 /verify?return=%2Fpage%3Fx%3D1"},
		{"no factor, level 1", pages, 1, 0, plain, "GET", "", "200"},
		{"level 2 by the application", pages, 2, 0, byApplication, "GET", "", "200"},
		{"no pages, nobody", none, 2, 0, "", "GET", "", "401 Unauthorized"},
		{"no pages, an hour ago", none, 2, time.Minute, old, "GET", "", `403 {"code":"not_verified","status":403,"title":"Forbidden","type":"urn:userdb:error:not_verified"}`},
		{"no pages, no factor", none, 2, time.Minute, plain, "GET", "", `403 {"code":"factor","status":403,"title":"Forbidden","type":"urn:userdb:error:factor"}`},
	} {
		if got := answer(tt.auth, tt.level, tt.maxAge, tt.secret, tt.method, tt.mode); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.what, got, tt.want)
		}
	}

	// With a bearer token that is too old, the answer asks for another one. If the owner has no
	// factor, no other token would help.
	programs := web.Auth{Users: users, Bearer: true, SignInPath: "/signin", VerifyPath: "/verify", FactorsPath: "/security"}
	const again = `Bearer realm="userdb", error="insufficient_user_authentication", error_description="sign in again"`
	for _, tt := range []struct {
		what      string
		level     int
		maxAge    time.Duration
		secret    string
		status    int
		code      string
		challenge string
	}{
		{"a token that is made up", 2, time.Minute, "made up", 401, "login", `Bearer realm="userdb"`},
		{"level 2, just now", 2, time.Minute, fresh, 200, "", ""},
		{"level 2, an hour ago", 2, 10 * time.Minute, old, 401, "not_verified", again + `, max_age="600"`},
		{"level 1, two hours ago", 1, time.Minute, plain, 401, "not_verified", again + `, max_age="60"`},
		{"no factor", 2, time.Minute, plain, 403, "factor", ""},
	} {
		w := ask(t, programs.RequireLevel(tt.level, tt.maxAge, page), "/page", "Authorization", "Bearer "+tt.secret)
		var problem struct {
			Code   string
			Status int
		}
		if tt.code != "" {
			if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil || problem.Status != tt.status {
				t.Errorf("a bearer token, %s: got %s, %v; want a problem with status %d", tt.what, w.Body, err, tt.status)
			}
		}
		if got := w.Header().Get("WWW-Authenticate"); w.Code != tt.status || problem.Code != tt.code || got != tt.challenge {
			t.Errorf("a bearer token, %s: got %d %q %q, want %d %q %q", tt.what, w.Code, problem.Code, got, tt.status, tt.code, tt.challenge)
		}
	}
}

// TestFlowsVerify checks that an account with a second factor is asked for the password and a code,
// and that the session then has another secret.
func TestFlowsVerify(t *testing.T) {
	s, clock := newFactorFlows(t)
	a, c := enrol(t, s.users, s.create("ann"), clock.Now), s.client()
	s.send(c, "/signin", "identifier", "ann", "password", goodPassword)
	s.send(c, "/signin/code", "code", a.code())
	clock.Advance(time.Hour)
	before := s.cookie(c, "session")
	const verify = "/account/verify?return=%2Fsecret"
	if status, to, _ := s.send(c, "/secret"); status != 303 || to != verify {
		t.Errorf("got %d %s, want 303 to %s", status, to, verify)
	}
	if _, _, body := s.send(c, verify); !strings.Contains(body, `name="password"`) || !strings.Contains(body, `name="code"`) {
		t.Errorf("the page does not ask for the password and a code:\n%s", body)
	}
	code := a.code()
	for _, tt := range []struct{ what, password, code, id string }{
		{"no code", goodPassword, "", "code"},
		{"a wrong code", goodPassword, a.wrong(), "code"},
		{"a wrong password", "wrong", code, "password"},
	} {
		status, _, body := s.send(c, "/account/verify", "password", tt.password, "code", tt.code)
		if status != 422 || !strings.Contains(body, `id="`+tt.id+`-problem"`) || strings.Count(body, `-problem" role`) != 1 {
			t.Errorf("%s: got %d, want 422 and a problem beside the %s:\n%s", tt.what, status, tt.id, body)
		}
		if s.cookie(c, "session") != before {
			t.Errorf("%s: the session has another secret", tt.what)
		}
	}
	if status, to, body := s.send(c, "/account/verify", "password", goodPassword, "code", code, "return", "/secret"); status != 303 || to != "/secret" {
		t.Errorf("got %d %s, want 303 to /secret: %s", status, to, body)
	}
	if s.cookie(c, "session") == before {
		t.Error("the session kept its secret")
	}
	if _, _, err := s.users.Session(t.Context(), before); err == nil {
		t.Error("the old secret of the session still works")
	}
	if _, session, err := s.users.Session(t.Context(), s.cookie(c, "session")); err != nil || clock.Now().Sub(session.VerifiedLevel2) > time.Minute {
		t.Errorf("got the session %v, %v; want one that was verified now on level 2", session, err)
	}
}

// TestFlowsPasswordWithFactor checks that the owner of an account with a second factor changes the
// password in a session that was verified recently, and continues in a session of level 2.
func TestFlowsPasswordWithFactor(t *testing.T) {
	s, clock := newFactorFlows(t)
	a, c := enrol(t, s.users, s.create("ann"), clock.Now), s.client()
	s.send(c, "/signin", "identifier", "ann", "password", goodPassword)
	s.send(c, "/signin/code", "code", a.code())
	clock.Advance(time.Hour)
	const page = "/account/password"
	if status, to, _ := s.send(c, page); status != 303 || !strings.HasPrefix(to, "/account/verify?") {
		t.Errorf("an hour after the sign-in: got %d %s, want 303 to the page that asks for a code", status, to)
	}
	s.send(c, "/account/verify", "password", goodPassword, "code", a.code(), "return", page)
	before := s.cookie(c, "session")
	const next = "another correct horse"
	if status, to, body := s.send(c, page, "old", goodPassword, "new", next); status != 303 || to != "/account?done=password" {
		t.Fatalf("got %d %s, want 303 to the account: %s", status, to, body)
	}
	if _, _, err := s.users.Session(t.Context(), before); err == nil {
		t.Error("the session from before the change still works")
	}
	s.wantLevel("after the change", c, 2)
	if status, to, _ := s.send(s.client(), "/signin", "identifier", "ann", "password", next); status != 303 || !strings.HasPrefix(to, "/signin/code") {
		t.Errorf("the new password: got %d %s, want 303 to the page that asks for a code", status, to)
	}
}
