package clients_test

import (
	"bytes"
	"context"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
	"github.com/coffeenode/userdb/web/oidc"
)

// An openIDProvider is npm's oidc-provider in a process of its own.
type openIDProvider struct {
	*process
	t      *testing.T
	name   string
	issuer string
	input  io.Writer
}

// startProvider starts a provider that lets visitors return to a site.
func startProvider(t *testing.T, name, site string) *openIDProvider {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	_, port, err := net.SplitHostPort(l.Addr().String())
	must(t, err)
	must(t, l.Close())
	cmd := exec.Command("node", "provider.js", port, site+"/signin/with/"+name+"/callback")
	input, err := cmd.StdinPipe()
	must(t, err)
	p := &openIDProvider{t: t, name: name, issuer: "http://127.0.0.1:" + port, input: input}
	p.process = startProcess(t, cmd, cmd.StdoutPipe)
	for line, open := p.first, true; line != p.issuer; line, open = <-p.lines {
		if !open {
			t.Fatal("the provider did not start")
		}
	}
	return p
}

// newKeys makes the provider forget everything and sign with other keys.
func (p *openIDProvider) newKeys() {
	p.t.Helper()
	_, err := fmt.Fprintln(p.input, "keys")
	must(p.t, err)
	for line := range p.lines {
		if line == "keys" {
			return
		}
	}
	p.t.Fatal("the provider has ended")
}

// An openIDSite is a site that lets visitors sign in with providers.
type openIDSite struct {
	t         *testing.T
	url       string
	providers []*openIDProvider
}

func newOpenIDSite(t *testing.T) *openIDSite {
	t.Helper()
	sch := schema.User()
	sch.Types["user"].Fields["links"] = schema.Field{Role: schema.RoleSecondary, Many: 5, Typed: new(false)}
	db, err := userdb.Open(t.Context(), "memory:", userdb.Options{Schema: sch})
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	users, err := db.Type("user")
	must(t, err)
	mux := http.NewServeMux()
	server := httptest.NewServer(web.Protect(mux))
	t.Cleanup(server.Close)
	s := &openIDSite{t: t, url: server.URL}
	s.providers = []*openIDProvider{startProvider(t, "one", s.url), startProvider(t, "two", s.url)}
	flows := &web.Flows{
		Auth: web.Auth{Users: users}, SignUp: web.SignUpByMail, Base: s.url,
		Mail: &web.MailQueue{Send: func(context.Context, web.Mail) error { return nil }},
	}
	signIn := &oidc.SignIn{Flows: flows, Keys: [][]byte{bytes.Repeat([]byte("k"), 32)}}
	for _, p := range s.providers {
		signIn.Providers = append(signIn.Providers, oidc.Provider{
			Name: p.name, Issuer: p.issuer, ClientID: "client", ClientSecret: "secret of the client", Domains: []string{"example.org"},
		})
	}
	flows.Register(mux)
	must(t, signIn.Register(mux))
	mux.Handle("GET /account", flows.Require(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e := web.Entry(r.Context())
		fmt.Fprintf(w, "you are %s with %d links", e.Text("email"), len(e.Texts("links")))
	})))
	return s
}

// An openIDVisitor uses the site and the providers in a browser.
type openIDVisitor struct {
	*http.Client
	s *openIDSite
}

func (s *openIDSite) visitor() openIDVisitor {
	jar, _ := cookiejar.New(nil)
	return openIDVisitor{&http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, s}
}

// send sends a form, or a GET if there is none, and returns the status, the target of a redirect
// and the body.
func (v openIDVisitor) send(at string, form url.Values) (status int, to, body string) {
	v.s.t.Helper()
	if strings.HasPrefix(at, "/") {
		at = v.s.url + at
	}
	method := http.MethodGet
	if form != nil {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(v.s.t.Context(), method, at, strings.NewReader(form.Encode()))
	must(v.s.t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := v.Do(req)
	must(v.s.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(v.s.t, err)
	if to = resp.Header.Get("Location"); to != "" {
		u, err := resp.Request.URL.Parse(to)
		must(v.s.t, err)
		to = u.String()
	}
	return resp.StatusCode, to, string(text)
}

// begin begins a sign-in, or the linking of an account if the form has link=1, and returns where
// the visitor is sent.
func (v openIDVisitor) begin(p *openIDProvider, form url.Values) string {
	v.s.t.Helper()
	if form == nil {
		form = url.Values{}
	}
	_, to, body := v.send("/signin/with/"+p.name, form)
	if to == "" {
		v.s.t.Fatalf("no redirect:\n%s", body)
	}
	_, _, body = v.send(to, nil)
	found := regexp.MustCompile(`<a href="([^"]*)">Continue`).FindStringSubmatch(body)
	if found == nil {
		v.s.t.Fatalf("the page that leads to the provider:\n%s", body)
	}
	return html.UnescapeString(found[1])
}

var (
	formAction = regexp.MustCompile(`<form[^>]* action="([^"]*)"`)
	formPrompt = regexp.MustCompile(`name="prompt" value="([^"]*)"`)
	abortLink  = regexp.MustCompile(`<a href="([^"]*/abort)"`)
)

// atProvider does what the provider asks, and returns where it sends the visitor back. If login is
// "", the visitor aborts.
func (v openIDVisitor) atProvider(at, login string) string {
	v.s.t.Helper()
	form := url.Values(nil)
	for range 20 {
		_, to, body := v.send(at, form)
		form = nil
		switch action, prompt := formAction.FindStringSubmatch(body), formPrompt.FindStringSubmatch(body); {
		case strings.HasPrefix(to, v.s.url):
			return to
		case to != "":
			at = to
		case login == "":
			found := abortLink.FindStringSubmatch(body)
			if found == nil {
				v.s.t.Fatalf("no way to abort:\n%s", body)
			}
			at = html.UnescapeString(found[1])
		case action != nil && prompt != nil:
			at, form = html.UnescapeString(action[1]), url.Values{"prompt": {prompt[1]}, "login": {login}, "password": {"x"}}
		default:
			v.s.t.Fatalf("the provider asks something else:\n%s", body)
		}
	}
	v.s.t.Fatal("the provider keeps asking")
	return ""
}

// signIn signs in with a provider and returns the status and the body of the last page.
func (v openIDVisitor) signIn(p *openIDProvider, login string, form url.Values) (status int, body string) {
	v.s.t.Helper()
	status, _, body = v.send(v.atProvider(v.begin(p, form), login), nil)
	return status, body
}

func (v openIDVisitor) wantAccount(what, want string) {
	v.s.t.Helper()
	_, _, body := v.send("/account", nil)
	if who, _ := strings.CutPrefix(body, "you are "); want != "" && who != want || want == "" && who != body {
		v.s.t.Errorf("%s: signed in as %q, want %q", what, who, want)
	}
}

// TestOpenIDProvider signs in with an OpenID provider that others have written, npm's
// oidc-provider.
func TestOpenIDProvider(t *testing.T) {
	requireNode(t, ".")
	s := newOpenIDSite(t)
	one, two := s.providers[0], s.providers[1]

	// The provider gives the address only at its UserInfo endpoint, and also sends a refresh token.
	ada := s.visitor()
	at := ada.atProvider(ada.begin(one, nil), "ada")
	if status, to, body := ada.send(at, nil); status != http.StatusSeeOther || to != s.url+"/account" {
		t.Fatalf("signing in: got %d %q, want a redirect to /account\n%s", status, to, body)
	}
	ada.wantAccount("a new visitor", "ada@example.org with 1 links")
	if status, _, _ := ada.send(at, nil); status != http.StatusGone {
		t.Errorf("reloading the page of the answer: got status %d, want 410", status)
	}
	ada.wantAccount("after reloading", "ada@example.org with 1 links")
	again := s.visitor()
	again.signIn(one, "ada", nil)
	again.wantAccount("another browser", "ada@example.org with 1 links")

	// The address that the other provider reports for her already has an account: she must sign in
	// to that account to link the new identity.
	other := s.visitor()
	if status, body := other.signIn(two, "ada", nil); status != http.StatusUnprocessableEntity || !strings.Contains(body, "sign in first") {
		t.Errorf("an identity that is not linked: got status %d, want 422 and \"sign in first\"\n%s", status, body)
	}
	other.wantAccount("an identity that is not linked", "")
	if status, body := ada.signIn(two, "ada", url.Values{"link": {"1"}}); status != http.StatusSeeOther {
		t.Errorf("linking: got status %d, want 303\n%s", status, body)
	}
	other.signIn(two, "ada", nil)
	other.wantAccount("an identity that is linked", "ada@example.org with 2 links")

	// Errors.
	v := s.visitor()
	if status, body := v.signIn(one, "", nil); status != http.StatusUnprocessableEntity || !strings.Contains(body, "did not sign you in") {
		t.Errorf("a visitor who aborts: got status %d, want 422 and \"did not sign you in\"\n%s", status, body)
	}
	change := func(at string, values ...string) string {
		u, err := url.Parse(at)
		must(t, err)
		q := u.Query()
		for i := 0; i < len(values); i += 2 {
			q.Set(values[i], values[i+1])
		}
		u.RawQuery = q.Encode()
		return u.String()
	}
	query := func(at string) url.Values {
		u, err := url.Parse(at)
		must(t, err)
		return u.Query()
	}
	mallory := s.visitor()
	stolen := query(mallory.atProvider(mallory.begin(one, nil), "ada")).Get("code")
	wrong := map[string]string{
		"a code of another attempt":  change(v.atProvider(v.begin(one, nil), "eve"), "code", stolen),
		"a code that does not exist": change(v.atProvider(v.begin(one, nil), "eve"), "code", "x"),
		"the name of another issuer": change(v.atProvider(v.begin(one, nil), "ada"), "iss", two.issuer),
		"no name of the issuer":      change(v.atProvider(v.begin(one, nil), "ada"), "iss", ""),
	}
	for what, at := range wrong {
		if status, _, body := v.send(at, nil); status != http.StatusUnprocessableEntity {
			t.Errorf("%s: got status %d, want 422\n%s", what, status, body)
		}
		v.wantAccount(what, "")
	}

	// Mix-up: the answer of one provider goes to the redirect URI of the other.
	mixed := strings.Replace(v.atProvider(v.begin(one, nil), "ada"), "/with/one/", "/with/two/", 1)
	v.begin(two, nil)
	if status, _, _ := v.send(mixed, nil); status != http.StatusGone {
		t.Errorf("an answer at the other redirect URI: got status %d, want 410", status)
	}
	attempt := query(v.begin(two, nil)).Get("state")
	if status, _, _ := v.send(change(mixed, "state", attempt), nil); status != http.StatusUnprocessableEntity {
		t.Errorf("an answer at the other redirect URI, with its state: got status %d, want 422", status)
	}
	v.wantAccount("mix-up", "")

	// The provider signs with keys that the site has not seen.
	one.newKeys()
	v.signIn(one, "ada", nil)
	v.wantAccount("new keys", "ada@example.org with 2 links")

	// If the provider is gone, the response says so within five seconds.
	late := s.visitor()
	at = late.atProvider(late.begin(one, nil), "ada")
	one.kill()
	begin := time.Now()
	if status, _, _ := late.send(at, nil); status != http.StatusServiceUnavailable || time.Since(begin) > 5*time.Second {
		t.Errorf("a provider that is gone: got status %d after %v, want 503 within 5s", status, time.Since(begin))
	}
	late.signIn(two, "ada", nil)
	late.wantAccount("the other provider meanwhile", "ada@example.org with 2 links")
}
