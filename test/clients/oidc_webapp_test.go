package clients_test

import (
	"encoding/base32"
	"html"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/totp"
)

// startWebapp starts the example in Go, with a provider. It returns the site and the folder to
// which it writes its mails.
func startWebapp(t *testing.T) (s *openIDSite, mails string) {
	t.Helper()
	program, mails := filepath.Join(t.TempDir(), "webapp"), t.TempDir()
	if out, err := exec.Command("go", "build", "-o", program, "../../examples/webapp").CombinedOutput(); err != nil {
		t.Fatalf("building the site: %v\n%s", err, out)
	}
	// The provider is configured with the address of the site, so the port is chosen first.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := l.Addr().String()
	must(t, l.Close())
	s = &openIDSite{t: t, url: "http://localhost" + address[strings.LastIndex(address, ":"):]}
	p := startProvider(t, "provider", s.url)
	s.providers = []*openIDProvider{p}
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte("secret of the client\n"), 0o600))
	cmd := exec.Command(program, "--listen", address, "--mail", mails, "--issuer", p.issuer, "--client", "client", "--secret", secret, "--provider", "Example ID")
	if site := startProcess(t, cmd, cmd.StdoutPipe); site.first != "listening on "+s.url {
		t.Fatalf("the site first printed %q, want its address", site.first)
	}
	return s, mails
}

var (
	mailPattern  = regexp.MustCompile(`^To: ada@example\.org\n(?s:.*)token=(\S+)\n$`)
	inputPattern = regexp.MustCompile(`name="(id|uri)" value="([^"]+)"`)
)

// TestOpenIDWebapp uses the example in Go with an OpenID provider that others have written. A
// visitor signs up, links an account of the provider, and signs in with it and a second step.
func TestOpenIDWebapp(t *testing.T) {
	requireNode(t, ".")
	s, mails := startWebapp(t)
	p := s.providers[0]
	ada, other := s.visitor(), s.visitor()
	// want sends a request, and checks its status and that the page or the redirect contains text.
	want := func(v openIDVisitor, at string, form url.Values, status int, text string) (body string) {
		t.Helper()
		got, to, body := v.send(at, form)
		if got != status || !strings.Contains(to+body, text) {
			t.Fatalf("%s: got %d %s, want %d and %q\n%s", at, got, to, status, text, body)
		}
		return body
	}
	signedOut := func(v openIDVisitor) {
		t.Helper()
		want(v, "/account", nil, http.StatusSeeOther, "/signin")
	}

	// The site does not trust any provider's word about addresses: a new visitor gets a mail.
	want(ada, ada.atProvider(ada.begin(p, nil), "ada"), nil, http.StatusUnprocessableEntity, "sign in first")
	signedOut(ada)
	var token string
	waitFor(t, "a mail arrives", func() bool {
		all, err := filepath.Glob(filepath.Join(mails, "mail-*"))
		must(t, err)
		if len(all) == 0 {
			return false
		}
		text, err := os.ReadFile(all[0])
		must(t, err)
		m := mailPattern.FindStringSubmatch(string(text))
		if m == nil {
			t.Fatalf("got the mail %s, want one to ada@example.org with a token", text)
		}
		token = m[1]
		return true
	})
	want(ada, "/welcome", url.Values{"token": {token}, "name": {"ada"}, "password": {password1}}, http.StatusSeeOther, "/account")
	want(other, other.atProvider(other.begin(p, nil), "ada"), nil, http.StatusUnprocessableEntity, "sign in first")

	// She links the provider in her session, unless she aborts.
	link := url.Values{"link": {"1"}, "return": {"/account/security"}}
	want(ada, ada.atProvider(ada.begin(p, link)+"&prompt=login", ""), nil, http.StatusUnprocessableEntity, "did not sign you in")
	want(ada, "/account/security", nil, http.StatusOK, "Link Example ID")
	want(ada, ada.atProvider(ada.begin(p, link), "ada"), nil, http.StatusSeeOther, "/account/security?done=linked")
	want(other, other.atProvider(other.begin(p, nil), "ada"), nil, http.StatusSeeOther, "/account")
	want(other, "/account", nil, http.StatusOK, "ada@example.org")

	// The provider answers login_required if it may not ask the visitor anything.
	third := s.visitor()
	silent := third.atProvider(third.begin(p, nil)+"&prompt=none", "ada")
	if !strings.Contains(silent, "error=login_required") {
		t.Fatalf("the provider answered %s, want login_required", silent)
	}
	want(third, silent, nil, http.StatusUnprocessableEntity, "did not sign you in")
	signedOut(third)

	// With a second factor, signing in with the provider is only the first step.
	page := want(ada, "/account/security", url.Values{"do": {"add"}, "label": {"phone"}}, http.StatusOK, "Add an app")
	form := url.Values{"do": {"confirm"}}
	for _, m := range inputPattern.FindAllStringSubmatch(page, -1) {
		form.Set(m[1], html.UnescapeString(m[2]))
	}
	app, err := url.Parse(form.Get("uri"))
	must(t, err)
	key, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(app.Query().Get("secret"))
	must(t, err)
	step := totp.Step(time.Now())
	form.Set("code", totp.Code(key, step))
	want(ada, "/account/security", form, http.StatusOK, "Your recovery codes")
	signedOut(other)
	_, second, _ := other.send(other.atProvider(other.begin(p, nil), "ada"), nil)
	want(other, second, nil, http.StatusOK, "Enter a code")
	signedOut(other)
	want(other, second, url.Values{"code": {totp.Code(key, step)}}, http.StatusUnprocessableEntity, "not the right code")
	want(other, second, url.Values{"code": {totp.Code(key, step+1)}}, http.StatusSeeOther, "/account")
	want(other, "/account", nil, http.StatusOK, "ada@example.org")
}
