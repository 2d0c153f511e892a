package oidc

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// TestLongReturn signs in from pages with long paths. The cookie of an attempt must have at most
// 1500 bytes, so that browsers keep it and proxies pass on five of them. The sign-in leads back to
// paths of less than 700 bytes.
func TestLongReturn(t *testing.T) {
	p := newOP(t)
	s := newSite(t, "memory:", nil, p)
	s.createLinked("ann", p, "ann")
	for _, path := range []string{
		"/a?" + strings.Repeat("x", 600), "/" + strings.Repeat("&", 50), "/" + strings.Repeat("&", 900), "/" + strings.Repeat("\u00e4", 450),
		"/?" + strings.Repeat("\x01", 900), "/" + strings.Repeat("x", 1900), "/" + strings.Repeat("<>", 400), "/?" + strings.Repeat("\xff", 600),
	} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://example.com/signin/with/op",
			strings.NewReader(url.Values{"return": {path}}.Encode()))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		rec := httptest.NewRecorder()
		s.server.Config.Handler.ServeHTTP(rec, req)
		for _, c := range rec.Result().Cookies() {
			if n := len(c.Name) + len(c.Value); n > 1500 {
				t.Errorf("%.20q of %d bytes: the cookie has %d bytes, want at most 1500", path, len(path), n)
			}
		}
		want := "/account"
		if len(path) < 700 && !strings.Contains(path, "\xff") {
			want = path
		}
		b := s.browser()
		if status, to, body := s.through(b, p, "ann", "", "return", path); status != http.StatusSeeOther || to != want && !sameURL(to, want) {
			t.Errorf("%.20q of %d bytes: got %d %.60q, want 303 to %.60q\n%.200s", path, len(path), status, to, want, body)
		}
		s.wantWho(path[:2], b, "ann")
	}
}

// sameURL reports whether two URLs differ at most in how they are escaped.
func sameURL(a, b string) bool {
	one, err := url.PathUnescape(a)
	other, otherErr := url.PathUnescape(b)
	return err == nil && otherErr == nil && one == other
}

// TestProvenBudget signs up with an address that the provider itself assigns, after strangers from
// the same origin have used up the limits for invitations. Another address must get nothing then.
func TestProvenBudget(t *testing.T) {
	p := newOP(t)
	s := newSite(t, "memory:", func(s *SignIn) { s.Providers[0].Domains = []string{"example.org"} }, p)
	for range 5 { // uses up the limit for the address
		s.send(s.browser(), "/signup", "email", "ann@example.org")
	}
	for range 40 { // uses up the limit for the origin
		s.send(s.browser(), "/forgot", "identifier", "nobody")
	}
	b := s.browser()
	if status, to, body := s.through(b, p, "ann", "ann@example.org"); status != http.StatusSeeOther || to != "/account" {
		t.Errorf("the owner of the address: got %d %s, want 303 to the account\n%s", status, to, body)
	}
	// A provider that does not assign the address proves nothing.
	b = s.browser()
	before := len(s.sent())
	s.through(b, p, "bob", "bob@example.net")
	if s.who(b) != "" || len(s.sent()) != before {
		t.Errorf("an address that is not proven got an account or a mail: %q", s.sent())
	}
}

// TestUnconfirmedNotice links an identity and removes the link while no replica confirms changes.
// The changes are made, so the owner gets the mails.
func TestUnconfirmedNotice(t *testing.T) {
	p := newOP(t)
	url := redistest.Start(t).URL()
	s := newSite(t, url, nil, p)
	s.create("ann")
	b := s.browser()
	s.signInBy(b, "ann")
	db, err := userdb.Open(t.Context(), url, userdb.Options{Schema: linkSchema(), Keys: siteKeys(), Replicas: 1, ReplicaTimeout: 1})
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	users, err := db.Type("user")
	must(t, err)
	mux := http.NewServeMux()
	flows := &web.Flows{Auth: web.Auth{Users: users}, Base: s.server.URL, Mail: s.flows.Mail}
	flows.Register(mux)
	must(t, (&SignIn{Flows: flows, Keys: siteKeys(), Providers: s.signIn.Providers}).Register(mux))
	s.server.Config.Handler = web.Protect(mux)
	if status, _, body := s.through(b, p, "ann", "", "link", "1"); status != http.StatusServiceUnavailable || !strings.Contains(body, "Check whether this was done") {
		t.Errorf("linking: got %d, want 503\n%s", status, body)
	}
	if s.links("ann") != 1 || !slices.Equal(s.sent(), []string{"linked ann@example.com"}) {
		t.Errorf("got %d links and the mails %q, want one of each", s.links("ann"), s.sent())
	}
	e, err := s.users.Find(t.Context(), hints.UID("ann"))
	must(t, err)
	s.send(b, "/account/links", "identity", e.Text("links"))
	if s.links("ann") != 0 || !slices.Equal(s.sent(), []string{"linked ann@example.com", "unlinked ann@example.com"}) {
		t.Errorf("got %d links and the mails %q, want none and two", s.links("ann"), s.sent())
	}
}
