package pages_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/descope/virtualwebauthn"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/hashcost"
	"github.com/coffeenode/userdb/passkey"
	"github.com/coffeenode/userdb/passkey/pages"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdbtest"
	"github.com/coffeenode/userdb/web"
)

func TestMain(m *testing.M) { os.Exit(hashcost.Cheap(m)) }

const (
	rpID     = "example.com"
	rpOrigin = "https://example.com"
	password = "correct horse battery"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A site serves Flows with passkeys.
type site struct {
	t      *testing.T
	users  *userdb.Type
	flows  *web.Flows
	server *httptest.Server
	clock  *userdbtest.Clock
	mu     sync.Mutex
	mails  []string
}

func newSite(t *testing.T, edit func(*web.Flows)) *site {
	t.Helper()
	sc := schema.User()
	user := sc.Types["user"]
	user.Factors = true
	user.Fields["passkeys"] = schema.Field{Role: schema.RoleSecondary, Many: 8, Typed: new(false)}
	sc.Types["user"] = user
	store := userdbtest.New(t, userdbtest.With(userdb.Options{Schema: sc, Keys: [][]byte{bytes.Repeat([]byte("k"), 32)}}))
	s := &site{t: t, users: store.Type("user"), clock: store.Clock}
	s.flows = &web.Flows{
		Auth: web.Auth{Users: s.users}, Base: rpOrigin,
		Mail: &web.MailQueue{Send: func(_ context.Context, m web.Mail) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.mails = append(s.mails, string(m.Kind))
			return nil
		}},
	}
	if edit != nil {
		edit(s.flows)
	}
	keys, err := passkey.New(store.DB, "user", passkey.Config{RPID: rpID, Origins: []string{rpOrigin}})
	must(t, err)
	mux := http.NewServeMux()
	s.flows.Register(mux)
	must(t, pages.Register(mux, s.flows, keys))
	mux.Handle("GET /account", s.flows.Require(http.NotFoundHandler()))
	s.server = httptest.NewServer(web.Protect(mux))
	t.Cleanup(s.server.Close)
	for _, name := range []string{"ann", "bob"} {
		_, err := s.users.Create(t.Context(), userdb.NewEntry{Facets: schema.Texts("name", name, "email", name+"@example.com"), Password: password})
		must(t, err)
	}
	return s
}

// A browser belongs to one visitor, who has an authenticator with one passkey.
type browser struct {
	*site
	client *http.Client
	rp     virtualwebauthn.RelyingParty
	auth   virtualwebauthn.Authenticator
	cred   virtualwebauthn.Credential
}

func (s *site) browser() *browser {
	jar, _ := cookiejar.New(nil)
	b := &browser{
		site: s, rp: virtualwebauthn.RelyingParty{ID: rpID, Name: "Example", Origin: rpOrigin}, auth: virtualwebauthn.NewAuthenticator(),
		client: &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
	// For one key in 128, virtualwebauthn drops a leading zero byte.
	for b.cred = virtualwebauthn.NewCredential(virtualwebauthn.KeyTypeEC2); len(b.cred.Key.AttestationData()) != 77; {
		b.cred = virtualwebauthn.NewCredential(virtualwebauthn.KeyTypeEC2)
	}
	return b
}

// do sends a form, or a GET if there is none.
func (b *browser) do(path string, form ...string) (status int, to, body string, header http.Header) {
	b.t.Helper()
	method, values := http.MethodGet, url.Values{}
	for i := 0; i+1 < len(form); i += 2 {
		method = http.MethodPost
		values.Set(form[i], form[i+1])
	}
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.server.URL+path, strings.NewReader(values.Encode()))
	must(b.t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := b.client.Do(req)
	must(b.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(b.t, err)
	return resp.StatusCode, resp.Header.Get("Location"), string(text), resp.Header
}

// want calls do, and checks the status and the target of a redirect.
func (b *browser) want(what string, status int, to, path string, form ...string) string {
	b.t.Helper()
	gotStatus, gotTo, body, _ := b.do(path, form...)
	if gotStatus != status || gotTo != to {
		b.t.Errorf("%s: got %d %s, want %d %s:\n%s", what, gotStatus, gotTo, status, to, body)
	}
	return body
}

// challenge returns the options of a challenge, and the field state of the form that answers it.
func (b *browser) challenge(purpose string) (options, state string) {
	b.t.Helper()
	status, _, body, _ := b.do("/passkey?for="+purpose, "x", "")
	var c struct {
		State     string
		PublicKey json.RawMessage
	}
	if err := json.Unmarshal([]byte(body), &c); status != 200 || err != nil {
		b.t.Fatalf("a challenge for %s: got %d, %v: %s", purpose, status, err, body)
	}
	return body, c.State
}

// answer asks for a challenge and returns the fields of the form with the answer.
func (b *browser) answer(purpose string) []string {
	b.t.Helper()
	text, state := b.challenge(purpose)
	return b.answerTo(text, state)
}

func (b *browser) answerTo(text, state string) []string {
	b.t.Helper()
	if strings.Contains(text, `"user"`) {
		var c struct {
			PublicKey struct{ User struct{ ID string } }
		}
		must(b.t, json.Unmarshal([]byte(text), &c))
		var err error
		b.auth.Options.UserHandle, err = base64.RawURLEncoding.DecodeString(c.PublicKey.User.ID)
		must(b.t, err)
		o, err := virtualwebauthn.ParseAttestationOptions(text)
		must(b.t, err)
		return []string{"state", state, "passkey", virtualwebauthn.CreateAttestationResponse(b.rp, b.auth, b.cred, *o)}
	}
	o, err := virtualwebauthn.ParseAssertionOptions(text)
	must(b.t, err)
	return []string{"state", state, "passkey", virtualwebauthn.CreateAssertionResponse(b.rp, b.auth, b.cred, *o)}
}

func (b *browser) cookies() (names []string) {
	u, err := url.Parse(b.server.URL)
	must(b.t, err)
	for _, c := range b.client.Jar.Cookies(u) {
		names = append(names, c.Name)
	}
	return names
}

// wantLevel checks the level of the visitor's session; 0 means that there is none.
func (b *browser) wantLevel(what string, want int) {
	b.t.Helper()
	u, err := url.Parse(b.server.URL)
	must(b.t, err)
	level := 0
	for _, c := range b.client.Jar.Cookies(u) {
		if c.Name == "session" {
			_, session, _ := b.users.Session(b.t.Context(), c.Value)
			level = session.Level()
		}
	}
	if level != want {
		b.t.Errorf("%s: the visitor has a session of level %d, want %d", what, level, want)
	}
}

// enrol signs in with the password and adds the passkey.
func (b *browser) enrol(name string) (page string) {
	b.t.Helper()
	b.want("the password", 303, "/account", "/signin", "identifier", name, "password", password, "return", "/account")
	form := append(b.answer("add"), "do", "passkey", "passkey-name", "my <laptop>")
	return b.want("adding a passkey", 200, "", "/account/security", form...)
}

// TestLongName checks that a name that is too long is refused before the authenticator is asked,
// and that the form shows it again with the limit.
func TestLongName(t *testing.T) {
	s := newSite(t, nil)
	b := s.browser()
	b.want("the password", 303, "/account", "/signin", "identifier", "ann", "password", password, "return", "/account")
	for _, name := range []string{strings.Repeat("x", 65), strings.Repeat("電", 22)} {
		b.want("a challenge", 422, "", "/passkey?for=add", "do", "passkey", "passkey-name", name)
		page := b.want("the form without a passkey", 422, "", "/account/security", "do", "passkey", "passkey-name", name)
		input := regexp.MustCompile(`(?s)<input id="passkey-name"[^>]*>.*?</span>`).FindString(page)
		if !strings.Contains(input, name) || !strings.Contains(input, "64 letters") || strings.Contains(page, "was not accepted") {
			t.Errorf("the form does not say that the name is too long, or lost it:\n%s", page)
		}
	}
	page := b.want("an app with a long name", 422, "", "/account/security", "do", "add", "label", strings.Repeat("x", 65))
	if !strings.Contains(page, `id="label-problem"`) {
		t.Errorf("the form does not say that the name of the app is too long:\n%s", page)
	}
	b.want("a challenge for a name as long as allowed", 200, "", "/passkey?for=add", "do", "passkey", "passkey-name", strings.Repeat("x", 64))
}

// TestNoChallenge checks that a form that the script sends without a passkey, because it got no
// challenge, is answered with the reason.
func TestNoChallenge(t *testing.T) {
	s := newSite(t, nil)
	b := s.browser()
	b.enrol("ann")
	for range 7 { // an account may have eight
		b.cred = s.browser().cred
		b.want("another passkey", 303, "/account/security?done=passkey", "/account/security", append(b.answer("add"), "do", "passkey", "passkey-name", "key")...)
	}
	b.want("a challenge for a ninth", 422, "", "/passkey?for=add", "do", "passkey", "passkey-name", "key")
	page := b.want("the form", 422, "", "/account/security", "do", "passkey", "passkey-name", "key", "passkey", "")
	if strings.Contains(page, "was not accepted") || !strings.Contains(page, "as many passkeys and apps as are allowed") {
		t.Errorf("the form does not say that there are too many:\n%s", page)
	}
}

// TestFormOfOtherAccount checks that a form of an account gets no challenge after another account
// has signed in, as in another tab. The form without a passkey is answered with the reason.
func TestFormOfOtherAccount(t *testing.T) {
	s := newSite(t, nil)
	b := s.browser()
	b.want("the password", 303, "/account", "/signin", "identifier", "ann", "password", password, "return", "/account")
	for path, purpose := range map[string]string{"/account/security": "add", "/account/verify": "verify"} {
		b.want("a challenge for a form of another account", 422, "", "/passkey?for="+purpose, "do", "passkey", "~whose", "someone")
		page := b.want("the form without a passkey", 403, "", path, "do", "passkey", "~whose", "someone", "passkey", "")
		if !strings.Contains(page, "You are signed in to another account by now") {
			t.Errorf("%s does not say that somebody else is signed in:\n%s", path, page)
		}
	}
	e, err := s.users.Find(t.Context(), hints.Any("ann"))
	must(t, err)
	b.want("a challenge for the visitor's own form", 200, "", "/passkey?for=add", "do", "passkey", "~whose", e.UID())
}

func (b *browser) signOut() {
	b.t.Helper()
	b.want("signing out", 303, "/?done=signout", "/signout", "x", "")
}

// TestPasskeys adds a passkey, signs in with it alone and as the second step, verifies the visitor
// again with it, and removes it.
func TestPasskeys(t *testing.T) {
	s := newSite(t, nil)
	b, other := s.browser(), s.browser()
	other.want("another device", 303, "/", "/signin", "identifier", "ann", "password", password)
	page := b.enrol("ann")
	codes := regexp.MustCompile(`<li><code>(.*)</code>`).FindAllString(page, -1)
	if len(codes) != 10 {
		t.Errorf("got %d recovery codes, want 10:\n%s", len(codes), page)
	}
	b.wantLevel("after the first factor", 2)
	other.wantLevel("the other device after that", 0)
	if page := b.want("the list", 200, "", "/account/security"); !strings.Contains(page, "my &lt;laptop&gt;") || !strings.Contains(page, "10 can still be used") {
		t.Errorf("the page does not list the passkey:\n%s", page)
	}

	b.signOut()
	b.want("signing in without a name", 303, "/account/devices", "/signin", append(b.answer("signin"), "return", "/account/devices")...)
	b.wantLevel("by a passkey alone", 2)

	b.signOut()
	const code = "/signin/code?return=%2Faccount&by=passkey+recovery"
	b.want("the first step", 303, code, "/signin", "identifier", "ann", "password", password, "return", "/account")
	page = b.want("the second step", 200, "", code)
	if !strings.Contains(page, "for=code") || !strings.Contains(page, `id="recovery"`) || strings.Contains(page, `id="code"`) {
		t.Errorf("the page does not ask for a passkey or a recovery code, or asks for a code of an app:\n%s", page)
	}
	b.want("the second step", 303, "/account", "/signin/code", append(b.answer("code"), "return", "/account")...)
	b.wantLevel("by both steps", 2)

	s.clock.Advance(11 * time.Minute)
	b.want("eleven minutes later", 303, "/account/verify?return=%2Faccount%2Fsecurity", "/account/security")
	b.want("a challenge for another passkey", 303, "/account/verify?return=/account/security", "/passkey?for=add", "x", "")
	b.want("a challenge for one with a name", 303, "/account/verify?return=%2Faccount%2Fsecurity%3Fpasskey-name%3Dmy%2Bkey", "/passkey?for=add", "passkey-name", "my key")
	if page := b.want("the page to verify", 200, "", "/account/verify"); !strings.Contains(page, "for=verify") || strings.Contains(page, `id="code"`) {
		t.Errorf("the page does not ask for a passkey, or asks for the code of an app:\n%s", page)
	}
	b.want("verifying", 303, "/account/security", "/account/verify", append(b.answer("verify"), "return", "/account/security")...)
	all, err := s.users.Factors(t.Context(), hints.Any("ann"))
	must(t, err)
	b.want("removing", 303, "/account/security?done=no-passkey", "/account/security", "do", "remove", "id", all[0].ID)
	if page := b.want("after the removal", 200, "", "/account/security"); !strings.Contains(page, "You sign in with your password alone.") {
		t.Errorf("the page does not say that there is no factor:\n%s", page)
	}
	b.signOut()
	page = b.want("the removed passkey", 422, "", "/signin", b.answer("signin")...)
	if !strings.Contains(page, "This passkey was not accepted.") || !strings.Contains(page, `data-passkey-error>`) {
		t.Errorf("the page does not say what is wrong:\n%s", page)
	}
	must(t, s.flows.Mail.Close(t.Context()))
	if got := fmt.Sprint(s.mails); got != "[passkey-added passkey-removed]" {
		t.Errorf("got the mails %s, want passkey-added and passkey-removed", got)
	}
}

// TestPasskeysRefused sends answers that must not sign in or change anything.
func TestPasskeysRefused(t *testing.T) {
	var closed atomic.Bool
	s := newSite(t, func(f *web.Flows) { f.Allowed = func(userdb.Entry) bool { return !closed.Load() } })
	b, other := s.browser(), s.browser()
	b.enrol("ann")
	b.signOut()
	refused := func(what string, b *browser, path string, form []string) {
		t.Helper()
		page := b.want(what, 422, "", path, form...)
		if !strings.Contains(page, "was not accepted") {
			t.Errorf("%s: the page does not say what is wrong:\n%s", what, page)
		}
		b.wantLevel(what, 0)
	}
	refused("an answer to a challenge of another browser", other, "/signin", b.answer("signin"))
	refused("an answer to no challenge", b, "/signin", []string{"passkey", "{}"})
	refused("an answer that is not JSON", b, "/signin", append(b.answer("signin"), "passkey", "x"))
	form := b.answer("signin")
	b.want("an answer", 303, "/", "/signin", form...)
	b.signOut()
	refused("the same answer again", b, "/signin", form)
	slow := b.answer("signin")
	s.clock.Advance(6 * time.Minute)
	refused("an answer after six minutes", b, "/signin", slow)
	b.rp.Origin = "https://evil.example"
	refused("an answer from another origin", b, "/signin", b.answer("signin"))
	b.rp.Origin, b.rp.ID = rpOrigin, "evil.example"
	refused("an answer for another relying party", b, "/signin", b.answer("signin"))
	b.rp.ID = rpID

	b.want("the first step", 303, "/signin/code?return=%2F&by=passkey+recovery", "/signin", "identifier", "ann", "password", password)
	refused("an answer for signing in, as the second step", b, "/signin/code", append(b.answer("signin"), "by", "passkey"))
	refused("an answer for the second step, for signing in", b, "/signin", b.answer("code"))
	must(t, s.users.Disable(t.Context(), hints.Any("ann")))
	refused("a disabled account", b, "/signin", b.answer("signin"))
	must(t, s.users.Enable(t.Context(), hints.Any("ann")))

	closed.Store(true)
	refused("an account that may not sign in here", b, "/signin", b.answer("signin"))
	closed.Store(false)

	// Another account can register neither the same passkey nor one with somebody else's challenge.
	other.cred, other.auth = b.cred, b.auth
	other.want("the password of another account", 303, "/", "/signin", "identifier", "bob", "password", password)
	page := other.want("a passkey that ann has", 422, "", "/account/security", append(other.answer("add"), "do", "passkey")...)
	if !strings.Contains(page, "This passkey is in use already.") {
		t.Errorf("the page does not say what is wrong:\n%s", page)
	}
	b.want("ann again", 303, "/", "/signin", b.answer("signin")...)
	other.want("an answer to a challenge of ann", 422, "", "/account/security", append(b.answer("add"), "do", "passkey")...)
}

// TestSeveralPages checks that challenges of one browser do not disturb each other, that the
// browser keeps only a few of them, and that an answer removes the challenge that it answers.
func TestSeveralPages(t *testing.T) {
	s := newSite(t, nil)
	b := s.browser()
	b.enrol("ann")
	b.signOut()
	first, state := b.challenge("signin")
	b.challenge("signin")
	b.want("the first of two challenges", 303, "/", "/signin", b.answerTo(first, state)...)
	if names := b.cookies(); slices.Contains(names, "passkey-"+state) {
		t.Errorf("the challenge that was answered is still kept: %q", names)
	}
	for range 20 {
		b.challenge("signin")
		if names := b.cookies(); len(names) > 6 {
			t.Fatalf("the browser keeps the cookies %q, want at most 6", names)
		}
	}
}

// TestPolicy checks that only pages with forms for passkeys may run a script, and that challenges
// are not stored by caches. It also requests the script, and challenges that nobody may get.
func TestPolicy(t *testing.T) {
	s := newSite(t, nil)
	b := s.browser()
	for path, want := range map[string]bool{"/signin": true, "/forgot": false} {
		_, _, body, header := b.do(path)
		policy := header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "script-src 'self'; connect-src 'self'") != want || strings.Contains(body, "<script") != want {
			t.Errorf("%s: got the policy %q and the page\n%s\nwant a script: %t", path, policy, body, want)
		}
	}
	if _, _, _, header := b.do("/passkey?for=signin", "x", ""); header.Get("Cache-Control") != "no-store" {
		t.Errorf("a challenge may be stored: %v", header)
	}
	status, _, body, header := b.do("/pages/passkey.js")
	if status != 200 || !strings.HasPrefix(header.Get("Content-Type"), "text/javascript") || strings.Count(body, "\n") > 80 {
		t.Errorf("the script: got %d, %s and %d lines; want 200, text/javascript and at most 80", status, header.Get("Content-Type"), strings.Count(body, "\n"))
	}
	for _, purpose := range []string{"", "other"} {
		b.want("a challenge for nothing", 410, "", "/passkey?for="+purpose, "x", "")
	}
	b.want("a challenge to add a passkey for nobody", 410, "", "/passkey?for=add", "x", "")
}
