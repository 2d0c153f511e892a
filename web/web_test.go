package web_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/hashcost"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

func TestMain(m *testing.M) { os.Exit(hashcost.Cheap(m)) }

const (
	goodPassword  = "correct horse battery"
	otherPassword = "battery staple horse"
)

// A site serves one account, alice, over HTTP.
type site struct {
	t      *testing.T
	users  *userdb.Type
	auth   web.Auth
	server *httptest.Server
	client *http.Client
	last   error // what the handler of the latest form returned
}

// openUsers returns the type user of the store at url, which it closes when the test ends.
func openUsers(t *testing.T, url string, o userdb.Options) *userdb.Type {
	t.Helper()
	db, err := userdb.Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	users, err := db.Type("user")
	if err != nil {
		t.Fatal(err)
	}
	return users
}

func newSite(t *testing.T, tls bool, edit func(*web.Auth)) *site {
	t.Helper()
	users := openUsers(t, "memory:", userdb.Options{})
	_, err := users.Create(t.Context(), userdb.NewEntry{UID: "alice", Facets: schema.Texts("name", "alice", "email", "alice@example.com"), Password: goodPassword})
	if err != nil {
		t.Fatal(err)
	}
	p := &site{t: t, users: users, auth: web.Auth{Users: users, SignInPath: "/signin"}}
	if edit != nil {
		edit(&p.auth)
	}
	if p.server = httptest.NewUnstartedServer(p.mux()); tls {
		p.server.StartTLS()
	} else {
		p.server.Start()
	}
	t.Cleanup(p.server.Close)
	p.client = p.server.Client()
	p.client.Jar, _ = cookiejar.New(nil)
	p.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return p
}

func (p *site) mux() http.Handler {
	mux := http.NewServeMux()
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello %s, %v", web.Entry(r.Context()).Text("name"), web.Session(r.Context()).Agent != "")
	})
	mux.Handle("/", p.auth.Visitor(hello))
	mux.Handle("/account", p.auth.Require(hello))
	mux.Handle("/admin/", p.auth.RequireTag("admin", hello))
	form := func(do func(w http.ResponseWriter, r *http.Request) error) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if p.last = do(w, r); p.last == nil {
				http.Redirect(w, r, web.ReturnPath(r), http.StatusSeeOther)
			}
		}
	}
	mux.Handle("POST /signin", form(func(w http.ResponseWriter, r *http.Request) error {
		_, err := p.auth.SignIn(w, r, r.FormValue("identifier"), r.FormValue("password"))
		return err
	}))
	mux.Handle("POST /signout", form(p.auth.SignOut))
	return mux
}

// do sends a request. It returns the status with the body, or with the target of a redirect.
func (p *site) do(method, path string, form ...string) string {
	p.t.Helper()
	values := url.Values{}
	for i := 0; i+1 < len(form); i += 2 {
		values.Set(form[i], form[i+1])
	}
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.server.URL+path, strings.NewReader(values.Encode()))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := p.client.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if to := resp.Header.Get("Location"); to != "" {
		body = []byte(to)
	}
	return strings.TrimSpace(fmt.Sprint(resp.StatusCode, " ", string(body)))
}

func (p *site) want(what, got, want string) {
	p.t.Helper()
	if got != want {
		p.t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func (p *site) signIn() {
	p.t.Helper()
	p.want("sign in", p.do("POST", "/signin", "identifier", "alice", "password", goodPassword), "303 /")
}

// TestSignIn signs in and out, and visits pages that require an entry or a tag.
func TestSignIn(t *testing.T) {
	for _, tls := range []bool{false, true} {
		p := newSite(t, tls, nil)
		p.want("home page, not signed in", p.do("GET", "/"), "200 hello , false")
		p.want("account page, not signed in", p.do("GET", "/account?a=1&b=/2"), "303 /signin?return=%2Faccount%3Fa%3D1%26b%3D%2F2")
		p.want("form of the account page, not signed in", p.do("POST", "/account"), "303 /signin")
		p.do("POST", "/signin", "identifier", "alice", "password", otherPassword)
		if !errors.Is(p.last, userdb.ErrLogin) {
			t.Errorf("a wrong password: got %v, want ErrLogin", p.last)
		}
		p.want("account page after a wrong password", p.do("GET", "/account"), "303 /signin?return=%2Faccount")
		p.want("sign in by address", p.do("POST", "/signin?return=%2Faccount%3Fa%3D1", "identifier", "Alice@example.com", "password", goodPassword), "303 /account?a=1")
		p.want("account page, signed in", p.do("GET", "/account"), "200 hello alice, true")
		p.want("home page, signed in", p.do("GET", "/"), "200 hello alice, true")
		p.want("admin page without the tag", p.do("GET", "/admin/"), "403 Forbidden")
		if _, err := p.users.Tags(hints.UID("alice")).Add(t.Context(), "admin"); err != nil {
			t.Fatal(err)
		}
		p.want("admin page with the tag", p.do("GET", "/admin/"), "200 hello alice, true")
		cookies := p.client.Jar.Cookies(mustURL(t, p.server.URL))
		p.want("sign out", p.do("POST", "/signout"), "303 /")
		p.want("admin page, signed out", p.do("GET", "/admin/"), "303 /signin?return=%2Fadmin%2F")
		if left := p.client.Jar.Cookies(mustURL(t, p.server.URL)); len(left) > 0 {
			t.Errorf("after signing out, the browser has the cookies %v, want none", left)
		}
		p.client.Jar.SetCookies(mustURL(t, p.server.URL), []*http.Cookie{{Name: cookies[0].Name, Value: cookies[0].Value, Secure: tls, Path: "/"}})
		p.want("account page with the old cookie", p.do("GET", "/account"), "303 /signin?return=%2Faccount")
		p.want("sign out again", p.do("POST", "/signout"), "303 /")
	}
}

func mustURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestOneSession checks that signing in twice in one browser leaves one session, and that a new
// password ends it.
func TestOneSession(t *testing.T) {
	p := newSite(t, false, nil)
	p.signIn()
	p.signIn()
	n := 0
	for s, err := range p.users.Sessions(t.Context(), hints.UID("alice")) {
		if n++; err != nil || s.Origin != "127.0.0.1" || s.Agent == "" {
			t.Errorf("the session is %+v, %v; want one with an origin and an agent", s, err)
		}
	}
	if n != 1 {
		t.Errorf("got %d sessions, want 1", n)
	}
	if _, err := p.users.SetPassword(t.Context(), hints.UID("alice"), otherPassword); err != nil {
		t.Fatal(err)
	}
	p.want("account page after a new password", p.do("GET", "/account"), "303 /signin?return=%2Faccount")
}

// TestAllowed checks that visitors who are not allowed get the answer for a wrong password, and
// that their earlier sessions no longer count.
func TestAllowed(t *testing.T) {
	var refuse atomic.Bool
	p := newSite(t, false, func(a *web.Auth) {
		a.Allowed = func(e userdb.Entry) bool { return !refuse.Load() || e.Text("name") != "alice" }
	})
	p.signIn()
	p.want("account page, allowed", p.do("GET", "/account"), "200 hello alice, true")
	refuse.Store(true)
	p.want("account page, no longer allowed", p.do("GET", "/account"), "303 /signin?return=%2Faccount")
	p.want("home page, no longer allowed", p.do("GET", "/"), "200 hello , false")
	if p.do("POST", "/signin", "identifier", "alice", "password", goodPassword); !errors.Is(p.last, userdb.ErrLogin) {
		t.Errorf("signing in: got %v, want ErrLogin", p.last)
	}
	// The right password counts as a failure: otherwise somebody who guesses would notice it.
	s, err := p.users.LoginStatus(t.Context(), hints.UID("alice"))
	if err != nil || len(s.Familiar) != 1 || s.Familiar[0].Remaining != 7 {
		t.Errorf("after signing in: got the origins %+v and %v, want one with 7 failures left", s.Familiar, err)
	}
}

// TestNoSignInPage checks that the answer is 401 without a sign-in page, and that a visitor is not
// taken for signed out because the store does not answer.
func TestNoSignInPage(t *testing.T) {
	p := newSite(t, false, func(a *web.Auth) { a.SignInPath = "" })
	p.want("account page, not signed in", p.do("GET", "/account"), "401 Unauthorized")
	p.signIn()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	req := httptest.NewRequestWithContext(ended, "GET", "/account", nil)
	for _, c := range p.client.Jar.Cookies(mustURL(t, p.server.URL)) {
		req.AddCookie(c)
	}
	w := httptest.NewRecorder()
	p.mux().ServeHTTP(w, req)
	p.want("page while the store does not answer", fmt.Sprint(w.Code, " ", w.Body), "503 The service is not responding. Try again in a moment.\n")
	failedPath := ""
	p.auth.Failed = func(w http.ResponseWriter, r *http.Request, err error) {
		failedPath = r.URL.Path
		w.WriteHeader(http.StatusTeapot)
	}
	w = httptest.NewRecorder()
	p.mux().ServeHTTP(w, req)
	p.want("the application's own page while the store does not answer", fmt.Sprint(w.Code, failedPath), "418/account")
}

// TestCookie checks the cookie's attributes for requests over HTTP, TLS and proxies.
func TestCookie(t *testing.T) {
	proxy := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	for _, tt := range []struct{ url, from, proto, name, want string }{
		{"http://example.com/", "192.0.2.1:1", "", "", "session=; Path=/; Max-Age=2592000; HttpOnly; SameSite=Lax"},
		{"https://example.com/", "203.0.113.1:1", "", "", "__Host-session=; Path=/; Max-Age=2592000; HttpOnly; Secure; SameSite=Lax"},
		{"http://example.com/", "192.0.2.1:1", "https", "id", "__Host-id=; Path=/; Max-Age=2592000; HttpOnly; Secure; SameSite=Lax"},
		{"http://example.com/", "192.0.2.1:1", "https, http", "id", "id=; Path=/; Max-Age=2592000; HttpOnly; SameSite=Lax"},
		{"http://example.com/", "203.0.113.1:1", "https", "id", "id=; Path=/; Max-Age=2592000; HttpOnly; SameSite=Lax"},
	} {
		p := newSite(t, false, func(a *web.Auth) { a.Cookie.Name, a.Proxies = tt.name, proxy })
		r := httptest.NewRequestWithContext(t.Context(), "POST", tt.url, nil)
		r.RemoteAddr = tt.from
		if tt.proto != "" {
			r.Header.Set("X-Forwarded-Proto", tt.proto)
		}
		w := httptest.NewRecorder()
		if _, err := p.auth.SignIn(w, r, "alice", goodPassword); err != nil {
			t.Fatal(err)
		}
		got := w.Header().Get("Set-Cookie")
		before, after, _ := strings.Cut(got, "=")
		secret, flags, _ := strings.Cut(after, ";")
		p.want(tt.url+tt.proto, strings.Replace(before+"=;"+flags, "Max-Age=2591999", "Max-Age=2592000", 1), tt.want)
		if _, _, err := p.users.Session(t.Context(), secret); err != nil {
			t.Errorf("%s: the cookie does not hold a session: %v", tt.url, err)
		}
	}
}

// TestCookieClock checks that a cookie lives as long as its session even if the store's clock
// differs from this program's.
func TestCookieClock(t *testing.T) {
	for _, off := range []time.Duration{-2 * time.Hour, 0, 2 * time.Hour} {
		p := newSite(t, false, nil)
		db, err := userdb.Open(t.Context(), "memory:", userdb.Options{})
		if err == nil {
			t.Cleanup(func() { _ = db.Close() })
			db, err = view.Reconfigure(db, func(c *view.Config) { c.Clock = func() time.Time { return time.Now().Add(off) } })
		}
		if err != nil {
			t.Fatal(err)
		}
		users, err := db.Type("user")
		if err != nil {
			t.Fatal(err)
		}
		e, err := users.Create(t.Context(), userdb.NewEntry{UID: "alice"})
		if err != nil {
			t.Fatal(err)
		}
		p.auth.Users, p.auth.Session.Lifetime = users, time.Hour
		w := httptest.NewRecorder()
		if err := p.auth.Start(w, httptest.NewRequestWithContext(t.Context(), "POST", "/", nil), e); err != nil {
			t.Fatal(err)
		}
		if got := w.Header().Get("Set-Cookie"); !strings.Contains(got, "; Max-Age=3600;") {
			t.Errorf("a store that is %v ahead: got %s, want Max-Age=3600", off, got)
		}
	}
}

// TestOrigin checks that the origin is the last address that is not a proxy's, whatever the visitor
// sends.
func TestOrigin(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for _, tt := range []struct {
		from, forwarded, want string
	}{
		{"203.0.113.7:1234", "", "203.0.113.7"},
		{"203.0.113.7:1234", "198.51.100.1", "203.0.113.7"},
		{"10.1.2.3:80", "198.51.100.1", "198.51.100.1"},
		{"10.1.2.3:80", "1.1.1.1, 198.51.100.1, 10.9.9.9", "198.51.100.1"},
		{"10.1.2.3:80", "", "10.1.2.3"},
		{"10.1.2.3:80", "10.4.5.6", "10.4.5.6"},
		{"10.1.2.3:80", "198.51.100.1:4711", "198.51.100.1"},
		{"10.1.2.3:80", "unknown", ""},
		{"10.1.2.3:80", "198.51.100.1, unknown", ""},
		{"[2001:db8:1:2:3:4:5:6]:80", "", "2001:db8:1:2::/64"},
		{"[fd00::1]:80", "2001:db8::1", "2001:db8::/64"},
		{"[fd00::1]:80", "[2001:db8::1]:80", "2001:db8::/64"},
		{"[::ffff:10.0.0.1]:80", "::ffff:198.51.100.1", "198.51.100.1"},
		{"[fe80::1%eth0]:80", "", "fe80::/64"},
		{"@", "198.51.100.1", ""},
		{"", "198.51.100.1", ""},
	} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		r.RemoteAddr = tt.from
		if tt.forwarded != "" {
			for part := range strings.SplitSeq(tt.forwarded, ", ") { // as several headers
				r.Header.Add("X-Forwarded-For", part)
			}
		}
		if got := web.Origin(r, proxies); got != tt.want {
			t.Errorf("peer %q, headers %q: got %q, want %q", tt.from, tt.forwarded, got, tt.want)
		}
		r.Header.Set("X-Forwarded-For", tt.forwarded)
		if got := web.Origin(r, proxies); got != tt.want {
			t.Errorf("peer %q, one header %q: got %q, want %q", tt.from, tt.forwarded, got, tt.want)
		}
	}
}

// TestOriginOfStranger checks that X-Forwarded-For is not even parsed unless a proxy sent it.
func TestOriginOfStranger(t *testing.T) {
	work := func(forwarded string) float64 {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		r.Header.Set("X-Forwarded-For", forwarded)
		least := math.Inf(1) // others may allocate meanwhile
		for range 5 {
			least = min(least, testing.AllocsPerRun(5, func() { web.Origin(r, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}) }))
		}
		return least
	}
	if none, much := work(""), work(strings.Repeat(",", 1<<20)); none != much {
		t.Errorf("got %v allocations for a megabyte of commas, want %v, as for no address", much, none)
	}
}

// TestReturnPath checks that no visitor is redirected to another site.
func TestReturnPath(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"/account", "/account"},
		{"/a?b=c&d=//e#f", "/a?b=c&d=//e#f"},
		{"", "/"},
		{"account", "/"},
		{"//evil.example", "/"},
		{"/\\evil.example", "/"},
		{"\\\\evil.example", "/"},
		{"https://evil.example/", "/"},
		{"/\t/evil.example", "/"},
		{"javascript:alert(1)", "/"},
		{"///evil.example", "/"},
		{"/%2fevil.example", "/%2fevil.example"},
		{"/a\r\nSet-Cookie: x", "/"},
		{"/%zz", "/"},
		{"/" + strings.Repeat("x", 3000), "/"},
		{" /account", "/"},
		{"\x00/a", "/"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/signin?"+url.Values{"return": {tt.text}}.Encode(), nil)
		if got := web.ReturnPath(r); got != tt.want {
			t.Errorf("ReturnPath of %q: got %q, want %q", tt.text, got, tt.want)
		}
	}
}

// TestProblems checks that Problems returns everything that is wrong with a form, each with its
// field and a text, and nothing that visitors need not know.
func TestProblems(t *testing.T) {
	p := newSite(t, false, nil)
	_, err := p.users.Create(t.Context(), userdb.NewEntry{Facets: schema.Texts("name", "alice", "email", "x"), Password: "short"})
	secret := errors.New("dial tcp 10.0.0.1:6379: refused")
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{err, "email email: This is not an e-mail address.; name taken: Somebody has this already. Choose another one.; " +
			"password min: At least 8 characters."},
		{&password.PolicyError{Rule: "strength", Reason: "its strength 1 is less than 3"}, "password strength: This is too easy to guess. Add another word or two."},
		{userdb.ErrLogin, " login: Wrong name or password."},
		{&userdb.WaitError{Wait: 1500e6}, " wait: Too many attempts. Try again in 2 seconds."},
		{fmt.Errorf("saving: %w", userdb.ErrConflict), " conflict: This was changed in the meantime. Check it and send it again."},
		{userdb.ErrNotFound, " gone: This is no longer valid."},
		{userdb.ErrCursor, " gone: This is no longer valid."},
		{&userdb.FieldError{Err: userdb.ErrUnproven, Field: "email", Rule: "unproven"}, " unproven: Confirm your address first."},
		{&userdb.FieldError{Err: userdb.ErrInvalid, Field: "born", Rule: "codec", Reason: "not a value of codec date"}, "born date: This is not a date. Write it like 2026-11-20."},
		{&userdb.WaitError{Wait: 3 * time.Hour}, " wait: Too many attempts. Try again in 3 hours."},
		{fmt.Errorf("%w: %w", userdb.ErrUnavailable, secret), " unavailable: The service is not responding. Try again in a moment."},
		{fmt.Errorf("%w: %w", userdb.ErrOutcomeUnknown, secret), " unknown: The service is not responding. Check whether this was done before you try again."},
		{fmt.Errorf("%w: %w", userdb.ErrUnconfirmed, secret), " unknown: The service is not responding. Check whether this was done before you try again."},
		{secret, " unavailable: The service is not responding. Try again in a moment."},
	} {
		var got []string
		for _, one := range web.Problems(tt.err) {
			got = append(got, one.Field+" "+one.Rule+": "+one.Text)
		}
		p.want(fmt.Sprint(tt.err), strings.Join(got, "; "), tt.want)
	}
	german := web.Catalogue{"email taken": "Diese Adresse ist vergeben.", "": "Das geht nicht: {reason}"}
	p.want("text of a rule of a field", german.Text(web.Problem{Field: "email", Rule: "taken"}), "Diese Adresse ist vergeben.")
	p.want("text of any other problem", german.Text(web.Problem{Field: "name", Rule: "x", Params: map[string]string{"reason": "zu lang"}}), "Das geht nicht: zu lang")
}
