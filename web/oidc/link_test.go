package oidc

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// TestLinking checks that an identity is linked only in the session in which the linking began, and
// only at the provider for which it began.
func TestLinking(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		p, other := newOP(t), newOP(t)
		s := newSite(t, store, nil, p, other)
		ada := s.createLinked("ada", p, "a")
		s.create("bob")

		if status, to, _ := s.send(s.browser(), "/signin/with/op", "link", "1"); status != http.StatusSeeOther || to != "/signin" {
			t.Errorf("linking without a session: got %d %s, want 303 to /signin", status, to)
		}
		// Somebody else signs in meanwhile, in the same browser.
		query := p.authorize(s.begin(ada, "op", "link", "1"), "b", "")
		s.signInBy(ada, "bob")
		if status, to, _ := s.answer(ada, "op", query); status != http.StatusGone {
			t.Errorf("a linking of another session: got %d %s, want 410", status, to)
		}
		if s.links("ada") != 1 || s.links("bob") != 0 {
			t.Error("a linking of another session changed the account")
		}
		// An attempt to link cannot be used to sign in, and an attempt to sign in cannot be used to
		// link.
		s.signInBy(ada, "ada")
		query = p.authorize(s.begin(ada, "op", "link", "1"), "b", "")
		s.send(ada, "/signout", "x", "")
		if status, _, _ := s.answer(ada, "op", query); status != http.StatusGone {
			t.Errorf("a linking after the session has ended: got %d, want 410", status)
		}
		query = p.authorize(s.begin(ada, "op"), "b", "")
		s.signInBy(ada, "ada")
		s.answer(ada, "op", query)
		// The identity of one provider is not that of another with the same subject.
		if status, to, _ := s.answer(ada, "op2", other.authorize(s.begin(ada, "op2", "link", "1"), "a", "")); to != "/account/links?done=linked" {
			t.Errorf("the same subject of another provider: got %d %s, want a redirect to the linked accounts", status, to)
		}
		if s.links("ada") != 2 {
			t.Errorf("ada has %d links, want 2", s.links("ada"))
		}
		for range 4 {
			s.through(ada, p, fmt.Sprint("more ", time.Now()), "", "link", "1")
		}
		if s.links("ada") != 5 {
			t.Errorf("ada has %d links, want as many as the schema allows", s.links("ada"))
		}
	})
}

// TestStaleSession checks that nobody links or unlinks in a session that was not verified within
// ten minutes, and that the visitor is asked to verify it.
func TestStaleSession(t *testing.T) {
	p := newOP(t)
	s := newSite(t, "memory:", nil, p)
	early := s.createLinked("ada", p, "a")
	query := p.authorize(s.begin(early, "op", "link", "1"), "b", "")
	stale := s.browser()
	s.skew.Store(int64(-11 * time.Minute))
	s.signInBy(stale, "ada")
	s.skew.Store(0)
	const verify = "/account/verify?return=%2Faccount%2Flinks"
	if status, to, body := s.send(stale, "/signin/with/op", "link", "1"); to != verify {
		t.Errorf("beginning to link: got %d %s, want a redirect to %s\n%s", status, to, verify, body)
	}
	e, err := s.users.Find(t.Context(), hints.UID("ada"))
	must(t, err)
	if status, to, body := s.send(stale, "/account/links", "identity", e.Texts("links")[0]); to != verify {
		t.Errorf("unlinking: got %d %s, want a redirect to %s\n%s", status, to, verify, body)
	}
	s.skew.Store(int64(11 * time.Minute))
	if status, to, body := s.answer(early, "op", query); to != verify {
		t.Errorf("linking: got %d %s, want a redirect to %s\n%s", status, to, verify, body)
	}
	s.skew.Store(0)
	if s.links("ada") != 1 {
		t.Errorf("ada has %d links, want 1", s.links("ada"))
	}
}

// TestLinkedTwice checks that of two visitors who link one identity at once, only one gets it, and
// that an account that is deleted and created again has no links.
func TestLinkedTwice(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		p := newOP(t)
		s := newSite(t, store, nil, p)
		s.create("ada")
		s.create("bob")
		browsers := map[string]*http.Client{"ada": s.browser(), "bob": s.browser()}
		for name, c := range browsers {
			s.signInBy(c, name)
		}
		var wg sync.WaitGroup
		for _, c := range browsers {
			query := p.authorize(s.begin(c, "op", "link", "1"), "one", "")
			wg.Go(func() { s.answer(c, "op", query) })
		}
		wg.Wait()
		if s.links("ada")+s.links("bob") != 1 {
			t.Fatalf("the identity is linked %d times to ada and %d times to bob, want once to one of them", s.links("ada"), s.links("bob"))
		}
		winner := "ada"
		if s.links("bob") == 1 {
			winner = "bob"
		}
		b := s.browser()
		s.through(b, p, "one", "")
		s.wantWho("the identity", b, winner)

		must(t, s.users.Delete(t.Context(), hints.UID(winner)))
		s.wantWho("after the account was deleted", b, "")
		e, err := s.users.Create(t.Context(), userdb.NewEntry{UID: winner, Facets: schema.Texts("name", winner), Password: goodPassword})
		must(t, err)
		if status, _, body := s.through(b, p, "one", ""); status != http.StatusUnprocessableEntity || len(e.Texts("links")) != 0 {
			t.Errorf("an account that was created again: got %d, want 422 and no links\n%s", status, body)
		}
		s.wantWho("after the account was created again", b, "")
	})
}

// TestUnlink checks that removing a link also ends all sessions that it may have begun, and that
// the last way to sign in cannot be removed.
func TestUnlink(t *testing.T) {
	p := newOP(t)
	s := newSite(t, "memory:", func(s *SignIn) { s.Providers[0].Domains = []string{"example.org"} }, p)
	ada := s.createLinked("ada", p, "a")
	_, _, page := s.send(ada, "/account/links")
	if !strings.Contains(page, "<strong>op</strong>") {
		t.Errorf("the page of linked accounts does not show the provider:\n%s", page)
	}
	other := s.browser()
	s.through(other, p, "a", "")
	e, err := s.users.Find(t.Context(), hints.UID("ada"))
	must(t, err)
	identity := e.Texts("links")[0]
	if status, to, body := s.send(ada, "/account/links", "identity", identity); to != "/account/links?done=unlinked" {
		t.Fatalf("removing a link: got %d %s, want 303\n%s", status, to, body)
	}
	s.wantWho("who removed it", ada, "ada")
	s.wantWho("whom the link signed in", other, "")
	if status, _, _ := s.send(ada, "/account/links", "identity", identity); status != http.StatusGone {
		t.Errorf("removing it again: got %d, want 410", status)
	}
	s.through(other, p, "a", "")
	s.wantWho("whom the link would sign in", other, "")

	s.through(other, p, "new", "new@example.org") // an account without a password
	uid := s.who(other)
	e, err = s.users.Find(t.Context(), hints.UID(uid))
	must(t, err)
	if status, _, body := s.send(other, "/account/links", "identity", e.Texts("links")[0]); status != http.StatusUnprocessableEntity || !strings.Contains(body, "You would no longer be able to sign in") {
		t.Errorf("removing the last way to sign in: got %d, want 422\n%s", status, body)
	}
	if s.links(uid) != 1 {
		t.Error("the last way to sign in was removed")
	}
	want := []string{"linked ada@example.com", "unlinked ada@example.com"}
	if got := s.sent(); !slices.Equal(got, want) {
		t.Errorf("got the mails %q, want %q", got, want)
	}
}

// TestRedirects checks that a sign-in leads only to paths of the site.
func TestRedirects(t *testing.T) {
	p := newOP(t)
	s := newSite(t, "memory:", nil, p)
	s.createLinked("ada", p, "a")
	for to, want := range map[string]string{
		"/orders?x=1": "/orders?x=1", "": "/account", "https://evil.example": "/account", "//evil.example": "/account", `/\evil.example`: "/account",
		"/" + strings.Repeat("x", maxCookie): "/account", "javascript:alert(1)": "/account", "/a\tb": "/account", "evil": "/account",
	} {
		status, got, _ := s.through(s.browser(), p, "a", "", "return", to)
		if status != http.StatusSeeOther || got != want {
			t.Errorf("return %.40q: got %d %s, want 303 to %s", to, status, got, want)
		}
	}
	// Nothing that a request says decides where the provider sends the visitor.
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/signin/with/op", strings.NewReader("return=/"))
	req.Host = "evil.example"
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	rec := httptest.NewRecorder()
	s.server.Config.Handler.ServeHTTP(rec, req)
	next := httptest.NewRequestWithContext(t.Context(), http.MethodGet, rec.Header().Get("Location"), nil)
	next.Host = "evil.example"
	for _, c := range rec.Result().Cookies() {
		next.AddCookie(c)
	}
	page := httptest.NewRecorder()
	s.server.Config.Handler.ServeHTTP(page, next)
	if body := page.Body.String(); strings.Contains(body, "evil.example") || !strings.Contains(body, url.QueryEscape(s.server.URL)) {
		t.Errorf("the page leads to a host that the request names:\n%s", body)
	}
	// Other sites cannot begin a sign-in.
	req = httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/signin/with/op", nil)
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	rec = httptest.NewRecorder()
	s.server.Config.Handler.ServeHTTP(rec, req)
	if rec.Code != http.StatusForbidden {
		t.Errorf("a form of another site: got %d, want 403", rec.Code)
	}
}

// TestMixUp checks that answers must name their provider, if its metadata says that they do, and
// that a code of one provider is never sent to another.
func TestMixUp(t *testing.T) {
	honest, evil := newOP(t), newOP(t)
	codes := 0
	evil.set(func(p *op) {
		p.metadata = func(says map[string]any) {
			// The evil provider leads visitors to the honest one.
			says["authorization_endpoint"] = honest.issuer() + "/auth"
			says["authorization_response_iss_parameter_supported"] = true
		}
		p.tokens = func(http.ResponseWriter) bool { codes++; return false }
	})
	s := newSite(t, "memory:", nil, honest, evil)
	s.createLinked("ada", honest, "ada")
	b := s.browser()
	at := s.begin(b, "op2")
	query := honest.authorize(at, "ada", "")
	u, _ := url.Parse(at)
	if redirect := u.Query().Get("redirect_uri"); redirect != s.server.URL+"/signin/with/op2/callback" {
		t.Errorf("the redirect URI is %s, want one for this provider alone", redirect)
	}
	for what, change := range map[string]func(url.Values){
		"the answer of the honest provider":       func(url.Values) {},
		"the same without the name of the issuer": func(q url.Values) { q.Del("iss") },
	} {
		c := s.browser()
		q := honest.authorize(s.begin(c, "op2"), "ada", "")
		change(q)
		if status, _, _ := s.answer(c, "op2", q); status != http.StatusUnprocessableEntity {
			t.Errorf("%s: got %d, want 422", what, status)
		}
		s.wantWho(what, c, "")
	}
	s.answer(b, "op", query) // at the other redirect URI
	s.wantWho("the answer at another redirect URI", b, "")
	if codes != 0 {
		t.Errorf("%d codes were sent to the wrong provider, want none", codes)
	}
}

// TestHangingProvider checks that a provider that does not answer does not delay visitors who use
// another one, that only a limited number of visitors wait for it, and that it is used once it
// answers again.
func TestHangingProvider(t *testing.T) {
	good, bad := newOP(t), newOP(t)
	release := make(chan struct{})
	bad.hang = release
	s := newSite(t, "memory:", nil, good, bad) // starts, although the provider does not answer
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	ask := func() {
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.server.URL+"/signin/with/op2", nil)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
		}
	}
	for range 3 {
		wg.Go(ask)
	}
	s.createLinked("ada", good, "a")
	b := s.browser()
	s.through(b, good, "a", "")
	s.wantWho("another provider", b, "ada")
	for range maxWaiting {
		wg.Go(ask)
	}
	for n := 0; n < 5000 && len(s.signIn.remotes["op2"].readers) < maxWaiting; n++ {
		time.Sleep(time.Millisecond)
	}
	if status, _, _ := s.send(s.browser(), "/signin/with/op2", "x", ""); status != http.StatusServiceUnavailable {
		t.Errorf("one more than may wait: got %d, want 503", status)
	}
	cancel()
	wg.Wait()
	close(release)
	bad.set(func(p *op) { p.hang = nil })
	for range 500 {
		if status, _, _ := s.send(s.browser(), "/signin/with/op2", "x", ""); status == http.StatusSeeOther {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the provider answers again, but is not used")
}

// TestBackOff checks that metadata is read when it is first needed, less and less often while that
// fails, and again after a day. Meanwhile the old metadata stays in use.
func TestBackOff(t *testing.T) {
	p, begun := newOP(t), time.Now()
	var s *site
	s = newSite(t, "memory:", func(si *SignIn) {
		// Time that passes would end the first wait, of a second.
		si.now = func() time.Time {
			s.mu.Lock()
			defer s.mu.Unlock()
			return begun.Add(s.now)
		}
	}, p)
	reads := func() (n int) {
		p.set(func(p *op) { n = p.reads })
		return n
	}
	if reads() != 0 {
		t.Error("the program asked a provider when it started")
	}
	broken := func(says map[string]any) { says["token_endpoint"] = "http://example.com/token" }
	p.set(func(p *op) { p.metadata = broken })
	advance := func(d time.Duration) {
		s.mu.Lock()
		s.now += d
		s.mu.Unlock()
	}
	try := func(status, want int) {
		t.Helper()
		if got, _, _ := s.send(s.browser(), "/signin/with/op", "x", ""); got != status || reads() != want {
			t.Errorf("got %d after %d reads, want %d after %d", got, reads(), status, want)
		}
	}
	try(503, 1)
	try(503, 1)
	advance(firstBackOff)
	try(503, 2)
	advance(firstBackOff)
	try(503, 2)
	advance(firstBackOff)
	try(503, 3)
	for range 10 {
		advance(longestBackOff)
		s.send(s.browser(), "/signin/with/op", "x", "")
	}
	try(503, 13)
	p.set(func(p *op) { p.metadata = nil })
	advance(longestBackOff)
	try(303, 14)
	try(303, 14)
	p.set(func(p *op) { p.metadata = broken })
	advance(metadataAge)
	if got, _, _ := s.send(s.browser(), "/signin/with/op", "x", ""); got != http.StatusSeeOther {
		t.Errorf("with old metadata: got %d, want 303", got)
	}
	for n := 0; n < 5000 && reads() < 15; n++ { // the program does not wait for this read
		time.Sleep(time.Millisecond)
	}
	if n := reads(); n != 15 {
		t.Errorf("the metadata was read %d times after a day, want 15 times", n)
	}
}

// TestMetadata checks that metadata is refused if it is incomplete or too large, if it belongs to
// another issuer, or if it would send secrets anywhere but to a server with TLS.
func TestMetadata(t *testing.T) {
	for what, change := range map[string]func(map[string]any){
		"another issuer":            func(says map[string]any) { says["issuer"] = "https://example.com" },
		"an endpoint without TLS":   func(says map[string]any) { says["token_endpoint"] = "http://example.com/" },
		"no keys":                   func(says map[string]any) { delete(says, "jwks_uri") },
		"keys without TLS":          func(says map[string]any) { says["jwks_uri"] = "http://example.com/" },
		"UserInfo without TLS":      func(says map[string]any) { says["userinfo_endpoint"] = "http://example.com/" },
		"an endpoint of no server":  func(says map[string]any) { says["authorization_endpoint"] = "javascript:alert(1)" },
		"an endpoint with a secret": func(says map[string]any) { says["authorization_endpoint"] = "https://a:b@example.com/" },
		"too much":                  func(says map[string]any) { says["x"] = strings.Repeat("x", maxAnswer) },
	} {
		p := newOP(t)
		p.metadata = change
		s := newSite(t, "memory:", nil, p)
		if status, _, _ := s.send(s.browser(), "/signin/with/op", "x", ""); status != http.StatusServiceUnavailable {
			t.Errorf("%s: got %d, want 503", what, status)
		}
	}
}

// TestClockApart checks that in a process whose clock is an hour off the store's, nobody links who
// was verified too long ago, and nobody is refused who was verified just now.
func TestClockApart(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, time.Hour} {
		p := newOP(t)
		s := newSite(t, "memory:", nil, p)
		s.create("ann")
		s.skew.Store(int64(skew))
		ann := s.browser()
		s.signInBy(ann, "ann")
		for _, tt := range []struct {
			after time.Duration
			want  string
		}{{0, "/signin/with/op?"}, {8 * time.Minute, "/signin/with/op?"}, {11 * time.Minute, "/account/verify?"}, {30 * time.Minute, "/account/verify?"}} {
			s.skew.Store(int64(skew + tt.after))
			if status, to, body := s.send(ann, "/signin/with/op", "link", "1"); status != http.StatusSeeOther || !strings.HasPrefix(to, tt.want) {
				t.Errorf("a store whose clock is off by %s, %s after the sign-in: got %d %s, want 303 to %s:\n%s", skew, tt.after, status, to, tt.want, body)
			}
		}
	}
}

// TestCookies checks the cookies of attempts: what protects them, that they do not show the state,
// and that one browser has only a few.
func TestCookies(t *testing.T) {
	p := newOP(t)
	s := newSite(t, "memory:", nil, p)
	s.flows.Proxies = nil
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://example.com/signin/with/op", nil)
	rec := httptest.NewRecorder()
	s.server.Config.Handler.ServeHTTP(rec, req)
	cookies := rec.Result().Cookies()
	if len(cookies) != 1 {
		t.Fatalf("got %d cookies, want 1", len(cookies))
	}
	c := cookies[0]
	if !strings.HasPrefix(c.Name, "__Host-oidc-") || !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.MaxAge != 600 || c.Domain != "" {
		t.Errorf("got the cookie %v, want a protected one that lives for ten minutes", c)
	}
	state := strings.TrimPrefix(rec.Header().Get("Location"), "/signin/with/op?attempt=")
	if len(state) != 26 || strings.Contains(c.Value, state) {
		t.Errorf("got the state %q and the cookie %q, want a state of 26 characters that the cookie does not show", state, c.Value)
	}
	b := s.browser()
	home, _ := url.Parse(s.server.URL)
	for range 20 {
		s.begin(b, "op")
	}
	if n := len(b.Jar.Cookies(home)); n > maxAttempts {
		t.Errorf("a browser has %d attempts, want at most %d", n, maxAttempts)
	}
}

// TestConfiguration checks which configurations are refused.
func TestConfiguration(t *testing.T) {
	p := newOP(t)
	good := newSite(t, "memory:", nil, p).flows
	valid := Provider{Name: "a", Issuer: "https://a.example", ClientID: "c"}
	with := func(change func(*Provider)) []Provider {
		other := valid
		change(&other)
		return []Provider{valid, other}
	}
	unregistered := &web.Flows{Auth: web.Auth{Users: good.Users}}
	for what, s := range map[string]*SignIn{
		"no keys":               {Flows: good, Providers: []Provider{valid}},
		"a short key":           {Flows: good, Keys: [][]byte{{1}}},
		"flows not registered":  {Flows: unregistered, Keys: siteKeys()},
		"a field that is typed": {Flows: good, Keys: siteKeys(), Field: "email"},
		"no such field":         {Flows: good, Keys: siteKeys(), Field: "x"},
		"one name twice":        {Flows: good, Keys: siteKeys(), Providers: with(func(p *Provider) { p.Issuer += "/b" })},
		"one issuer twice":      {Flows: good, Keys: siteKeys(), Providers: with(func(p *Provider) { p.Name = "b" })},
		"a bad name":            {Flows: good, Keys: siteKeys(), Providers: with(func(p *Provider) { p.Name = "A/" })},
		"no client ID":          {Flows: good, Keys: siteKeys(), Providers: with(func(p *Provider) { p.Name, p.ClientID = "b", "" })},
		"an issuer without TLS": {Flows: good, Keys: siteKeys(), Providers: with(func(p *Provider) { p.Name, p.Issuer = "b", "http://a.example" })},
	} {
		if err := s.Register(http.NewServeMux()); err == nil {
			t.Errorf("%s: got no error", what)
		}
	}
}
