package clients_test

import (
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// A site is the running example in Node.
type site struct {
	*process
	t    *testing.T
	port string
	base string
}

var announcement = regexp.MustCompile(`^listening on port (\d+), as (.+)$`)

// startExample starts the example with further environment variables, and ends it with the test.
func startExample(t *testing.T, env ...string) *site {
	t.Helper()
	cmd := exec.Command("node", "app.js")
	var errs strings.Builder
	t.Cleanup(func() { // after the process has ended
		if t.Failed() {
			t.Log(errs.String())
		}
	})
	cmd.Dir, cmd.Env, cmd.Stderr = example, append(append(os.Environ(), "PORT=0"), env...), &errs
	p := startProcess(t, cmd, cmd.StdoutPipe)
	m := announcement.FindStringSubmatch(p.first)
	if m == nil {
		t.Fatalf("the site first printed %q, want its address", p.first)
	}
	return &site{p, t, m[1], m[2]}
}

// A visitor is a browser with its cookies.
type visitor struct {
	*site
	http.Client
	origin string // the header Origin of forms
}

// visitor returns a visitor without cookies.
func (s *site) visitor() *visitor {
	jar, err := cookiejar.New(nil)
	must(s.t, err)
	v := &visitor{site: s, origin: s.base}
	v.Jar, v.CheckRedirect = jar, func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return v
}

// An answer is a page or a redirect.
type answer struct {
	status int
	header http.Header
	text   string
}

// send sends a request with the host and the origin that a browser would name.
func (v *visitor) send(method, path, form string) (a answer, err error) {
	req, err := http.NewRequestWithContext(v.t.Context(), method, "http://localhost:"+v.port+path, strings.NewReader(form))
	if err != nil {
		return a, err
	}
	at, err := url.Parse(v.base)
	if err != nil {
		return a, err
	}
	req.Host = at.Host
	if method == "POST" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", v.origin)
	}
	res, err := v.Do(req)
	if err != nil {
		return a, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, html.UnescapeString(string(text))}, err
}

// get opens a page and checks the status and that the page contains texts.
func (v *visitor) get(path string, status int, texts ...string) answer {
	v.t.Helper()
	return v.expect("GET", path, "", status, texts)
}

// post sends a form with fields as pairs of name and value, and checks the response as get does.
func (v *visitor) post(path string, fields []string, status int, texts ...string) answer {
	v.t.Helper()
	return v.expect("POST", path, encoded(fields), status, texts)
}

// encoded returns a form as a browser sends it. fields holds pairs of name and value.
func encoded(fields []string) string {
	form := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	return form.Encode()
}

// expect sends a request, and checks the status and that the response contains texts.
func (v *visitor) expect(method, path, form string, status int, texts []string) answer {
	v.t.Helper()
	a, err := v.send(method, path, form)
	must(v.t, err)
	for _, text := range texts {
		if !strings.Contains(a.text+a.header.Get("Location"), text) {
			v.t.Errorf("%s %s lacks %q: %s", method, path, text, a.text)
		}
	}
	if a.status != status {
		v.t.Fatalf("%s %s: got status %d, want %d: %s", method, path, a.status, status, a.text)
	}
	if mistake := mistakePattern.FindString(a.text); mistake != "" {
		v.t.Errorf("%s %s shows %q: %s", method, path, mistake, a.text)
	}
	return a
}

// mistakePattern matches values that a template should not show.
var mistakePattern = regexp.MustCompile(`>\s*(false|undefined|NaN)\s*<|\[object`)

var onceFieldPattern = regexp.MustCompile(`name="once" value="([^"]+)"`)

// signUpForm returns the fields of the sign-up form, filled in.
func (v *visitor) signUpForm(name, email, password string) []string {
	v.t.Helper()
	m := onceFieldPattern.FindStringSubmatch(v.get("/signup", 200).text)
	if m == nil {
		v.t.Fatal("the form has no idempotency key")
	}
	return []string{"once", m[1], "name", name, "email", email, "password", password}
}

const (
	password1 = "correct horse battery"
	password2 = "another horse battery"
)

// mailedLink returns the link in the next mail to Bob. The example prints its mails.
func (s *site) mailedLink() string {
	s.t.Helper()
	line := <-s.lines
	to, link, ok := strings.Cut(line, ": "+s.base)
	if !ok || to != "mail to bob@example.com" {
		s.t.Fatalf("the site printed %q, want a mail to bob@example.com", line)
	}
	return link
}

// TestExpress uses the site as people do, with accounts in a file: they sign up, in and out, and
// change and forget their passwords.
func TestExpress(t *testing.T) {
	requireNode(t, example)
	store := "file:" + filepath.Join(t.TempDir(), "users.jsonl")
	s := startService(t, store, "127.0.0.1:0")
	app := startExample(t, "USERDB_URL="+s.url, "USERDB_KEY="+s.createKey("web", "read", "write", "login"))
	v := app.visitor()
	v.get("/", 303, "/login")
	if h := v.get("/signup", 200).header; h.Get("Cache-Control") != "no-store" || !strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'") {
		t.Errorf("the headers allow caching or frames: %v", h)
	}

	// Errors appear next to their fields, and the form keeps what was entered, except for the
	// password.
	form := v.signUpForm(`Bob "<b>"`, "nowhere", "short")
	a := v.post("/signup", form, 422, `id="email-wrong"`, `id="password-wrong"`, "At least 8 characters", `value="nowhere"`)
	if strings.Contains(a.text, `value="short"`) {
		t.Errorf("a password is shown: %s", a.text)
	}
	v.post("/signup", v.signUpForm("Bob", "bob@example.com", ""), 422, `id="password-wrong"`)

	// A form that is sent several times at once creates one account.
	form = v.signUpForm("Bob", "bob@example.com", password1)
	var all sync.WaitGroup
	statuses := make([]string, 4)
	for i := range statuses {
		all.Go(func() {
			a, err := v.send("POST", "/signup", encoded(form))
			statuses[i] = fmt.Sprint(a.status, err)
		})
	}
	all.Wait()
	for _, got := range statuses {
		if got != "303 <nil>" {
			t.Errorf("one form sent four times: got %v, want 303 each time", statuses)
		}
	}
	v.get("/", 200, "Hello, Bob", "bob@example.com")
	app.visitor().post("/signup", app.visitor().signUpForm("BOB", "bob@EXAMPLE.com", password1), 409, `id="name-wrong"`, `id="email-wrong"`, "Somebody has that already.")

	// People sign in with any identifier.
	other := app.visitor()
	other.post("/login", []string{"identifier", "bob", "password", "wrong"}, 401, "No account has this", `value="bob"`)
	other.post("/login", []string{"identifier", "nobody", "password", password1}, 401, "No account has this")
	a = other.post("/login", []string{"identifier", "BOB@example.com", "password", password1}, 303)
	if c := a.header.Get("Set-Cookie"); !strings.Contains(c, "HttpOnly") || !strings.Contains(c, "SameSite=Lax") || !strings.Contains(c, "Path=/") || strings.Contains(c, "Secure") {
		t.Errorf("got the cookie %s, want HttpOnly, SameSite=Lax and Path=/, and no Secure", c)
	}
	other.get("/", 200, "Hello, Bob")

	// A form from another site, of another scheme, or without an origin, does nothing.
	for _, origin := range []string{"https://evil.example", "https" + strings.TrimPrefix(app.base, "http"), "null", ""} {
		other.origin = origin
		other.post("/logout-everywhere", nil, 403)
	}
	other.origin = app.base
	other.get("/", 200)

	// A new password ends the other browser's session.
	for _, current := range []string{"", "wrong"} {
		v.post("/password", []string{"current", current, "password", password2}, 401, `id="current-wrong"`)
	}
	v.post("/password", []string{"current", password1, "password", "x"}, 422, `id="password-wrong"`)
	v.post("/password", []string{"current", password1, "password", password2}, 303)
	v.get("/", 200)
	other.get("/", 303, "/login")

	// People sign out here and everywhere.
	other.post("/login", []string{"identifier", "bob", "password", password2}, 303)
	other.post("/logout", nil, 303, "/login")
	other.get("/", 303)
	v.get("/", 200)
	other.post("/login", []string{"identifier", "bob", "password", password2}, 303)
	other.post("/logout-everywhere", nil, 303)
	v.get("/", 303)

	// After a forgotten password the response is the same for everybody, and the link works once.
	known := v.post("/forgot", []string{"identifier", "bob"}, 200)
	if unknown := v.post("/forgot", []string{"identifier", "nobody"}, 200); unknown.text != known.text {
		t.Errorf("the response reveals who has an account: %s\n%s", known.text, unknown.text)
	}
	v.post("/forgot", []string{"identifier", ""}, 200)
	link := app.mailedLink()
	at, err := url.Parse(link)
	must(t, err)
	secret := at.Query().Get("secret")
	v.get(link, 200, secret)
	v.post("/reset", []string{"secret", secret, "password", "x"}, 422, `id="password-wrong"`)
	v.post("/reset", []string{"secret", secret, "password", password1}, 303)
	v.get("/", 200, "Hello, Bob")
	v.post("/reset", []string{"secret", secret, "password", password1}, 404, "was used")

	// Guessing leads to waiting.
	var waits answer
	waitFor(t, "somebody has to wait", func() bool {
		waits, err = other.send("POST", "/login", encoded([]string{"identifier", "bob", "password", "wrong"}))
		return err != nil || waits.status == 429
	})
	if err != nil || waits.header.Get("Retry-After") == "" || !strings.Contains(waits.text, "Please wait") {
		t.Errorf("too many wrong passwords: got %v, %v; want Retry-After and a text that asks to wait", waits, err)
	}

	// While the service is unavailable people are told so, and afterwards they are still signed in.
	s.kill()
	a = v.get("/", 503, "come back in a moment")
	if a.header.Get("Retry-After") == "" || len(a.header.Values("Set-Cookie")) > 0 {
		t.Errorf("wrong headers while the service is unavailable, want Retry-After and no cookie: %v", a.header)
	}
	v.post("/login", []string{"identifier", "bob", "password", password1}, 503)
	startService(t, store, strings.TrimPrefix(s.url, "http://"))
	v.get("/", 200, "Hello, Bob")
}

// oathtool returns the code of an app that oathtool computes, at a time such as "now + 30 seconds".
func oathtool(t *testing.T, secret, at string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "oathtool", "--totp", "-b", "--now", at, secret).CombinedOutput()
	if err != nil {
		t.Fatalf("oathtool: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// waitForTime waits for the next step of codes if the current one ends within d. It waits a second
// more, because time(2), which oathtool calls, may be some milliseconds late.
func waitForTime(d time.Duration) {
	const step = 30 * time.Second
	if left := step - time.Duration(time.Now().UnixNano())%step; left < d {
		time.Sleep(left + time.Second)
	}
}

// TestExpressFactor adds an app to an account and signs in with its codes, which oathtool computes,
// and with a recovery code.
func TestExpressFactor(t *testing.T) {
	requireNode(t, example)
	if _, err := exec.LookPath("oathtool"); err != nil {
		t.Skip("oathtool is not installed")
	}
	s := startService(t, "file:"+filepath.Join(t.TempDir(), "users.jsonl"), "127.0.0.1:0")
	app := startExample(t, "USERDB_URL="+s.url, "USERDB_KEY="+s.createKey("web", "read", "write", "login"))
	v, other := app.visitor(), app.visitor()
	reset := func(v *visitor, password string, to string) {
		t.Helper()
		v.post("/forgot", []string{"identifier", "bob"}, 200)
		link, err := url.Parse(app.mailedLink())
		must(t, err)
		v.post("/reset", []string{"secret", link.Query().Get("secret"), "password", password}, 303, to)
	}
	v.post("/signup", v.signUpForm("Bob", "bob@example.com", password1), 303)
	v.get("/security", 200, "First show that the address bob@example.com is yours")
	v.post("/factors", nil, 303, "/security")
	reset(v, password1, "/") // which also verifies the address
	other.post("/login", []string{"identifier", "bob", "password", password1}, 303, "/")

	v.get("/security", 200, "with your password alone", "Add an app", `<form hidden method="post" action="/passkeys"`)
	page := v.post("/factors", nil, 200, "otpauth://totp/localhost:bob@example.com?secret=", `inputmode="numeric"`).text
	var form []string
	for _, name := range []string{"id", "secret", "uri"} {
		m := regexp.MustCompile(`name="` + name + `" value="([^"]+)"`).FindStringSubmatch(page)
		if m == nil {
			t.Fatalf("the page lacks the input %s: %s", name, page)
		}
		form = append(form, name, m[1])
	}
	secret := form[3]
	v.post("/factors/confirm", append(form, "totp", "no code"), 401, `id="totp-wrong"`, secret)
	waitForTime(10 * time.Second) // during which the code of the step before is accepted
	page = v.post("/factors/confirm", append(form, "totp", oathtool(t, secret, "now - 30 seconds")), 200, "Your recovery codes").text
	codes := regexp.MustCompile(`<li><code>([^<]+)</code>`).FindAllStringSubmatch(page, -1)
	if len(codes) != 10 {
		t.Fatalf("got %d recovery codes, want 10: %s", len(codes), page)
	}
	v.get("/security", 200, "and a second step", "10 left")
	other.get("/", 303, "/login") // all other sessions have ended
	v.post("/factors/confirm", append(form, "totp", oathtool(t, secret, "now")), 404, "Add the app again")

	// A password is no longer enough.
	other.get("/login/code", 303, "/login")
	other.post("/login/code", []string{"totp", "123456"}, 303, "/login")
	a := other.post("/login", []string{"identifier", "bob", "password", password1}, 303, "/login/code")
	if c := a.header.Get("Set-Cookie"); !strings.HasPrefix(c, "session-ticket=") || !strings.Contains(c, "HttpOnly") || !strings.Contains(c, "Max-Age=300") {
		t.Errorf("got the cookie %s, want the ticket", c)
	}
	other.get("/", 303, "/login")
	other.get("/login/code", 200, `autocomplete="one-time-code"`)
	other.post("/login/code", []string{"totp", ""}, 422, `id="totp-wrong"`)
	other.post("/login/code", []string{"totp", "no code"}, 401, `id="totp-wrong"`)
	other.post("/login/code", []string{"recovery_code", "no code"}, 401, `id="recovery_code-wrong"`)
	code := oathtool(t, secret, "now + 30 seconds")
	other.post("/login/code", []string{"totp", code}, 303, "/")
	other.get("/", 200, "Hello, Bob")

	// A link to reset the password is not enough either, and a code works only once.
	third := app.visitor()
	reset(third, password2, "/login")
	third.get("/", 303, "/login")
	third.post("/login", []string{"identifier", "bob", "password", password2}, 303, "/login/code")
	third.post("/login/code", []string{"totp", code}, 401, `id="totp-wrong"`)
	third.post("/login/code", []string{"recovery_code", strings.ToUpper(codes[0][1])}, 303, "/")
	page = third.get("/security", 200, "9 left").text

	// New codes replace the others, and without the app the password is enough again.
	if page := third.post("/recovery-codes", nil, 200, "Your recovery codes").text; strings.Contains(page, codes[1][1]) {
		t.Errorf("the codes are the same: %s", page)
	}
	third.get("/security", 200, "10 left")
	id := regexp.MustCompile(`action="/factors/remove">[^f]*name="id" value="([^"]+)"`).FindStringSubmatch(page)
	if id == nil {
		t.Fatalf("the page does not offer to remove the app: %s", page)
	}
	for range 2 { // also if the form is sent twice
		third.post("/factors/remove", []string{"id", id[1]}, 303, "/security")
	}
	third.get("/security", 200, "with your password alone")
	other.get("/", 303, "/login")
	other.post("/login", []string{"identifier", "bob", "password", password2}, 303, "/")
}

// TestExpressOldSession checks that somebody who signed in too long ago to add a factor has to sign
// in again. The test answers in place of the service.
func TestExpressOldSession(t *testing.T) {
	requireNode(t, example)
	ended := false
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/session":
			fmt.Fprint(w, `{"active": true, "entry": {"uid": "bob", "facets": {}}, "session": {}}`)
		case "/v1/session/end":
			ended = true
			w.WriteHeader(http.StatusNoContent)
		case "/v1/types/user/entries/bob/factors":
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"status": 403, "code": "not_verified"}`)
		}
	}))
	defer service.Close()
	v := startExample(t, "USERDB_URL="+service.URL, "USERDB_KEY=key").visitor()
	v.post("/factors", nil, 303, "/login?again")
	v.post("/passkeys/challenge", nil, 303, "/login?again")
	v.get("/login?again", 200, "Please sign in again to continue.")
	if !ended {
		t.Error("the old session did not end")
	}
}

// TestExpressElsewhere checks that the cookie requires TLS outside localhost, that the site waits
// for an unresponsive service no longer than configured, and that a visitor is told that the error
// is the site's if the API key is wrong.
func TestExpressElsewhere(t *testing.T) {
	requireNode(t, example)
	s := startService(t, "file:"+filepath.Join(t.TempDir(), "users.jsonl"), "127.0.0.1:0")
	key := s.createKey("web", "read", "write", "login")
	v := startExample(t, "USERDB_URL="+s.url, "USERDB_KEY="+key, "SITE=https://example.com").visitor()
	a := v.post("/signup", v.signUpForm("Bob", "bob@example.com", password1), 303)
	if c := a.header.Get("Set-Cookie"); !strings.HasPrefix(c, "__Host-session=") || !strings.Contains(c, "Secure") {
		t.Errorf("got the cookie %s, want Secure and the name __Host-session", c)
	}

	silent, err := net.Listen("tcp", "127.0.0.1:0") // it accepts connections and never responds
	must(t, err)
	defer silent.Close()
	v = startExample(t, "USERDB_URL=http://"+silent.Addr().String(), "USERDB_KEY="+key, "USERDB_TIMEOUT_MS=100").visitor()
	v.get("/", 503, "come back in a moment")

	v = startExample(t, "USERDB_URL="+s.url, "USERDB_KEY=udb_wrong").visitor()
	v.post("/login", []string{"identifier", "bob", "password", password1}, 500, "The error is ours")
}
