package serve_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/authenticator"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/passkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/serve"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

// TestConsoleBehindProxy checks that behind a trusted proxy the console sets a cookie that browsers
// send only over HTTPS, and that behind any other proxy it says what to do.
func TestConsoleBehindProxy(t *testing.T) {
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema())
	_, err := admin.AddOperator(t.Context(), s.DB, "Olga", "correct horse battery")
	must(t, err)
	signIn := func(header, visitor string, proxies ...netip.Prefix) *httptest.ResponseRecorder {
		service, err := serve.New(s.DB, serve.Options{Namespace: s.NS, Console: true, Proxies: proxies})
		must(t, err)
		r := httptest.NewRequest(http.MethodPost, "/console/signin", strings.NewReader("name=olga&password=correct+horse+battery"))
		r.Header.Set("Content-Type", formType)
		r.Header.Set(header, visitor)
		r.Header.Set("X-Forwarded-Proto", "https")
		answer := httptest.NewRecorder()
		service.ServeHTTP(answer, r)
		return answer
	}
	const peer = "192.0.2.1" // the address in requests of httptest
	for header, visitor := range map[string]string{"X-Forwarded-For": "198.51.100.7", "X-Real-IP": "198.51.100.7", "Forwarded": "for=198.51.100.7"} {
		if answer := signIn(header, visitor); answer.Code != http.StatusForbidden || !strings.Contains(answer.Body.String(), "--proxy "+peer) {
			t.Errorf("through a proxy that is not trusted and sends %s: got %d %s, want 403 and the advice --proxy %s", header, answer.Code, answer.Body, peer)
		}
	}
	answer := signIn("X-Forwarded-For", "198.51.100.7", netip.MustParsePrefix(peer+"/32"))
	if cookie := answer.Header().Get("Set-Cookie"); answer.Code != http.StatusSeeOther || !strings.HasPrefix(cookie, "__Host-console=") || !strings.Contains(cookie, "; Secure") {
		t.Errorf("through a trusted proxy: got %d and cookie %q, want 303 and a secure cookie", answer.Code, cookie)
	}
}

// TestConsoleOrigin checks that passkeys for accounts do not enable passkeys for operators, and
// that the challenges for operators name the configured relying party. An operator's passkey must
// sign in only with an answer made for the origin of the console.
func TestConsoleOrigin(t *testing.T) {
	s := testdb.Open(t, testdb.EmbeddedClient(t), testdb.Space(t, ""), testSchema())
	for _, tt := range []struct {
		options serve.Options
		want    int
	}{
		{serve.Options{Passkeys: passkeyConfig()}, http.StatusGone},
		{serve.Options{OperatorPasskeys: passkeyConfig()}, http.StatusOK},
	} {
		tt.options.Namespace, tt.options.Console = s.NS, true
		service, err := serve.New(s.DB, tt.options)
		must(t, err)
		answer := httptest.NewRecorder()
		service.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/console/passkey/signin", nil))
		if answer.Code != tt.want || tt.want == http.StatusOK != strings.Contains(answer.Body.String(), `"rpId":"example.com"`) {
			t.Errorf("a challenge for operators: got %d %s, want %d", answer.Code, answer.Body, tt.want)
		}
	}

	const consoleOrigin = "https://console.example.com"
	c := newClient(t, s, serve.Options{
		Console: true, Passkeys: passkeyConfig(), OperatorPasskeys: &passkey.Config{RPID: "example.com", Origins: []string{consoleOrigin}},
	})
	_, err := admin.AddOperator(c.Ctx, c.DB, "Olga", "correct horse battery")
	must(t, err)
	jar, _ := cookiejar.New(nil)
	browser := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	post := func(want int, path string, form url.Values) string {
		t.Helper()
		answer, err := browser.PostForm(c.url+path, form)
		must(t, err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		must(t, err)
		if answer.StatusCode != want {
			t.Fatalf("%s: got %s, want %d", path, answer.Status, want)
		}
		return string(body)
	}
	answer := func(purpose string, device func(challenge string) (string, error)) url.Values {
		t.Helper()
		challenge := post(http.StatusOK, "/console/passkey/"+purpose, nil)
		var wire struct{ State string }
		must(t, json.Unmarshal([]byte(challenge), &wire))
		text, err := device(challenge)
		must(t, err)
		return url.Values{"passkey": {text}, "state": {wire.State}}
	}
	device := authenticator.New("example.com", consoleOrigin)
	post(http.StatusSeeOther, "/console/signin", url.Values{"name": {"olga"}, "password": {"correct horse battery"}})
	post(http.StatusOK, "/console/security/confirm", answer("add", device.Create))
	browser.Jar, _ = cookiejar.New(nil)
	onSite := device.With(func(d *authenticator.Device) { d.RP.Origin = passkeyOrigin })
	post(http.StatusUnauthorized, "/console/signin/passkey", answer("signin", onSite.Get))
	post(http.StatusSeeOther, "/console/signin/passkey", answer("signin", device.Get))
}

// TestConsole checks on every store that an operator can find an account and disable it, that the
// history names the operator, and that the log names only the operator.
func TestConsole(t *testing.T) {
	testdb.EachEngine(t, func(t *testing.T, s *testdb.Site) {
		s = s.Under(t, testSchema())
		c := newClient(t, s, serve.Options{Console: true})
		users, err := c.DB.Type("user")
		must(t, err)
		_, err = users.Create(c.Ctx, userdb.NewEntry{UID: "u1", Facets: schema.Texts("name", "Zebedee", "email", "zebedee@example.com")})
		must(t, err)
		_, err = admin.AddOperator(c.Ctx, c.DB, "Olga", "correct horse battery")
		must(t, err)
		jar, _ := cookiejar.New(nil)
		browser := &http.Client{Jar: jar}
		read := func(answer *http.Response, err error) string {
			t.Helper()
			must(t, err)
			defer answer.Body.Close()
			body, err := io.ReadAll(answer.Body)
			must(t, err)
			if answer.StatusCode != http.StatusOK {
				t.Errorf("%s: got %s, want 200", answer.Request.URL.Path, answer.Status)
			}
			return string(body)
		}
		if page := read(browser.Get(c.url + "/console")); !strings.Contains(page, "<h1>Sign in</h1>") {
			t.Errorf("without a session, the console shows\n%s", page)
		}
		read(browser.PostForm(c.url+"/console/signin", url.Values{"name": {"olga"}, "password": {"correct horse battery"}}))
		at, err := url.Parse(c.url)
		must(t, err)
		for _, cookie := range jar.Cookies(at) { // forward authentication does not accept operators
			c.do("401 login", "GET", "/v1/session/check", "", "Cookie", "session="+cookie.Value)
		}
		for _, path := range []string{"/console/find?q=ZEBEDEE", "/console/types/user?where=name:zebedee", "/console/types/user/u1"} {
			if page := read(browser.Get(c.url + path)); !strings.Contains(page, "/console/types/user/u1") {
				t.Errorf("%s does not lead to the account:\n%s", path, page)
			}
		}
		for _, path := range []string{"/console/history", "/console/status", "/console/schema", "/console/keys", "/console/import", "/console/export", "/console/check"} {
			read(browser.Get(c.url + path))
		}
		if page := read(browser.PostForm(c.url+"/console/types/user/u1/disable", nil)); !strings.Contains(page, "by operator Olga at") {
			t.Errorf("after disabling the account, the page does not say who did it:\n%s", page)
		}
		past, err := users.History(c.Ctx, hints.UID("u1"))
		if err != nil || past[0].Kind != "disable" || past[0].Actor != "operator:Olga" || past[0].Origin != "127.0.0.1" {
			t.Errorf("the history is %+v, %v; want it to begin with disable by operator:Olga from 127.0.0.1", past, err)
		}
		for _, word := range []string{"ebedee", "EBEDEE", "olga", "battery", "u1"} {
			if strings.Contains(c.logs.String(), word) {
				t.Errorf("the log has %q:\n%s", word, c.logs)
			}
		}
		for _, line := range []string{
			`"operation":"console"`, `"route":"POST /console/types/{type}/{uid}/disable","operator":"Olga","origin":"127.0.0.1"`,
			`"route":"/console/signin","operator":"","origin":"127.0.0.1"`,
		} {
			if !strings.Contains(c.logs.String(), line) {
				t.Errorf("the log lacks %s:\n%s", line, c.logs)
			}
		}
		without, err := serve.New(s.DB, serve.Options{Namespace: s.NS})
		must(t, err)
		answer := httptest.NewRecorder()
		without.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/console/signin", nil))
		if answer.Code != http.StatusNotFound {
			t.Errorf("without a console, the page has status %d, want 404", answer.Code)
		}
	})
}
