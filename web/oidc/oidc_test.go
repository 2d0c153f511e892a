package oidc

import (
	"encoding/base32"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/totp"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// TestSignIn checks what becomes of an identity that is linked to the account, to another account,
// or to nobody: the cases in the first table of docs/oidc.md.
func TestSignIn(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		p := newOP(t)
		s := newSite(t, store, func(s *SignIn) { s.Providers[0].Domains = []string{"example.org"} }, p)
		ada := s.createLinked("ada", p, "ada at op")
		s.create("bob")

		// A linked identity signs in, in any browser, whatever address the provider reports.
		c := s.browser()
		if status, to, body := s.through(c, p, "ada at op", "bob@example.com", "return", "/account?x=1"); status != http.StatusSeeOther || to != "/account?x=1" {
			t.Errorf("a linked identity: got %d %s, want 303 to /account?x=1\n%s", status, to, body)
		}
		s.wantWho("a linked identity", c, "ada")

		// A linked identity is never linked to anybody else.
		bob := s.browser()
		s.signInBy(bob, "bob")
		if status, _, body := s.through(bob, p, "ada at op", "", "link", "1"); status != http.StatusUnprocessableEntity || !strings.Contains(body, "another account") {
			t.Errorf("linking an identity of another account: got %d, want 422\n%s", status, body)
		}
		if s.links("bob") != 0 {
			t.Error("the link moved to another account")
		}
		s.wantWho("after that", bob, "bob")

		// An ordinary sign-in with an unknown identity links nothing, even while somebody is signed
		// in.
		if status, _, body := s.through(bob, p, "unknown", "bob@example.com"); status != http.StatusUnprocessableEntity || !strings.Contains(body, "sign in first") {
			t.Errorf("an unknown identity: got %d, want 422\n%s", status, body)
		}
		if s.links("bob") != 0 || s.links("ada") != 1 {
			t.Error("an ordinary sign-in linked something")
		}

		// A visitor whose address the provider itself assigns gets an account, without a mail.
		c = s.browser()
		if status, to, body := s.through(c, p, "new", "New@example.org"); status != http.StatusSeeOther || to != "/account" {
			t.Errorf("a new visitor: got %d %s, want 303 to /account\n%s", status, to, body)
		}
		e, err := s.users.Find(t.Context(), hints.Field("email", "new@example.org"))
		must(t, err)
		if !e.VerifiedText("email", "New@example.org") || len(e.Texts("links")) != 1 || e.TextValues("links")[0].Label != "op" {
			t.Errorf("the new account is %v, want a verified address and a link with the label op", e.Flat())
		}
		s.wantWho("a new visitor", c, e.UID())
		c = s.browser()
		s.through(c, p, "new", "another@example.org")
		s.wantWho("a new visitor, again", c, e.UID())

		// An address of another domain gets an invitation by mail.
		c = s.browser()
		if status, _, body := s.through(c, p, "other", "other@example.net"); status != http.StatusUnprocessableEntity || !strings.Contains(body, "sign in first") {
			t.Errorf("an address of another domain: got %d, want 422\n%s", status, body)
		}
		s.wantWho("an address of another domain", c, "")
		// An address that somebody has creates nothing, even if the provider assigns it.
		c = s.browser()
		s.through(c, p, "thief", "new@example.org")
		s.wantWho("an address that somebody has", c, "")
		want := []string{"linked ada@example.com", "registered bob@example.com", "welcome other@example.net", "registered New@example.org"}
		if got := s.sent(); !slices.Equal(got, want) {
			t.Errorf("got the mails %q, want %q", got, want)
		}
		s.wantWho("the owner", ada, "ada")

		must(t, s.users.Disable(t.Context(), hints.UID("ada")))
		c = s.browser()
		if status, _, _ := s.through(c, p, "ada at op", ""); status != http.StatusUnprocessableEntity {
			t.Errorf("a disabled account: got %d, want 422", status)
		}
		s.wantWho("a disabled account", c, "")
	})
}

// TestSecondFactor checks that a provider replaces only the first step of a sign-in, whatever the
// claims acr and amr say.
func TestSecondFactor(t *testing.T) {
	p := newOP(t)
	p.token = func(claims, _ jsonMap) { claims["acr"], claims["amr"] = "aal3", []string{"mfa", "hwk"} }
	var refuse atomic.Bool
	s := newSite(t, "memory:", func(s *SignIn) {
		s.Flows.Allowed = func(userdb.Entry) bool { return !refuse.Load() }
	}, p)
	s.createLinked("ada", p, "a")
	ctx := t.Context()
	e, err := s.users.Find(ctx, hints.UID("ada"))
	must(t, err)
	_, secret, err := s.users.StartSession(ctx, e, userdb.SessionOptions{})
	must(t, err)
	enrolment, err := s.users.EnrolTOTP(ctx, secret, userdb.TOTPOptions{})
	must(t, err)
	key, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(enrolment.Secret)
	must(t, err)
	confirmed, err := s.users.ConfirmTOTP(ctx, secret, enrolment.ID, totp.Code(key, totp.Step(time.Now())), userdb.SessionOptions{})
	must(t, err)
	c := s.browser()
	refuse.Store(true)
	if status, to, body := s.through(c, p, "a", ""); status != http.StatusUnprocessableEntity {
		t.Errorf("an account that may not sign in: got %d %s, want 422: %s", status, to, body)
	}
	refuse.Store(false)
	status, to, _ := s.through(c, p, "a", "")
	if status != http.StatusSeeOther || !strings.HasPrefix(to, "/signin/code?") {
		t.Errorf("got %d %s, want 303 to the page that asks for a code", status, to)
	}
	s.wantWho("before the second step", c, "")
	if status, to, body := s.send(c, to, "recovery", confirmed.RecoveryCodes[0]); status != http.StatusSeeOther {
		t.Errorf("the second step: got %d %s, want 303: %s", status, to, body)
	}
	s.wantWho("after the second step", c, "ada")

	// To link another identity, an account with a second factor needs both steps again: the
	// password alone is not enough.
	s.skew.Store(int64(-11 * time.Minute))
	c = s.browser()
	_, to, _ = s.through(c, p, "a", "")
	s.send(c, to, "recovery", confirmed.RecoveryCodes[1])
	query := p.authorize(s.begin(c, "op", "link", "1"), "b", "")
	s.skew.Store(0)
	site, err := url.Parse(s.server.URL)
	must(t, err)
	cookies := c.Jar.Cookies(site)
	at := slices.IndexFunc(cookies, func(c *http.Cookie) bool { return c.Name == "session" })
	_, _, err = s.users.VerifySession(ctx, cookies[at].Value, goodPassword, userdb.Attempt{})
	must(t, err)
	const verify = "/account/verify?return=%2Faccount%2Flinks"
	if _, to, body := s.answer(c, "op", query); to != verify || s.links("ada") != 1 {
		t.Errorf("the answer: got %s and %d links, want %s and 1: %s", to, s.links("ada"), verify, body)
	}
	if _, to, body := s.send(c, "/signin/with/op", "link", "1"); to != verify {
		t.Errorf("beginning to link: got %s, want %s: %s", to, verify, body)
	}
}

// TestMailsOfCallback checks that mails sent because of a provider's answer are in the language of
// the pages, and that the history of an account says where a link was added from.
func TestMailsOfCallback(t *testing.T) {
	p := newOP(t)
	s := newSite(t, "memory:", func(s *SignIn) { s.Flows.Languages = []string{"de", "en"} }, p)
	s.createLinked("ada", p, "a")
	s.through(s.browser(), p, "new", "new@example.com")
	s.sent()
	for i, kind := range []web.MailKind{web.MailLinked, web.MailWelcome} {
		if m := s.mails[i]; m.Kind != kind || m.Language != "de" {
			t.Errorf("mail %d: got the kind %s and the language %q, want %s and de", i, m.Kind, m.Language, kind)
		}
	}
	all, err := s.users.History(t.Context(), hints.UID("ada"))
	must(t, err)
	if !slices.ContainsFunc(all, func(e userdb.HistoryEvent) bool {
		return slices.Contains(e.Fields, "links") && e.Origin == "127.0.0.1"
	}) {
		t.Errorf("the history is %+v, want a change of the links from 127.0.0.1", all)
	}
}

// TestSameWords checks that the answer to an unknown identity does not depend on whether somebody
// has the address, or on the state of that account.
func TestSameWords(t *testing.T) {
	p := newOP(t)
	s := newSite(t, "memory:", nil, p)
	ctx := t.Context()
	for _, name := range []string{"live", "disabled", "deleted", "linked"} {
		s.create(name)
		secret, to, err := s.users.IssueFor(ctx, hints.UID(name), "email", userdb.Token{Purpose: "x"})
		must(t, err)
		if _, _, err := s.users.Redeem(ctx, "x", secret); err != nil || to == "" {
			t.Fatal(err)
		}
	}
	must(t, s.users.Disable(ctx, hints.UID("disabled")))
	must(t, s.users.Delete(ctx, hints.UID("deleted"))) // its address is held
	c := s.browser()
	s.signInBy(c, "linked")
	s.through(c, p, "somebody", "", "link", "1")
	answers := map[string]bool{}
	for _, name := range []string{"live", "disabled", "deleted", "linked", "nobody"} {
		status, to, body := s.through(s.browser(), p, "unknown "+name, name+"@example.com")
		answers[fmt.Sprint(status, to, strings.ReplaceAll(body, name+"@", ""))] = true
	}
	for _, email := range []string{"", "not an address", strings.Repeat("x", 5000) + "@example.com"} {
		status, to, body := s.through(s.browser(), p, "unknown", email)
		answers[fmt.Sprint(status, to, body)] = true
	}
	if len(answers) != 1 {
		t.Errorf("got %d different answers, want 1: %v", len(answers), answers)
	}
	want := []string{"linked linked@example.com", "registered live@example.com", "registered disabled@example.com", "registered linked@example.com", "welcome nobody@example.com"}
	if got := s.sent(); !slices.Equal(got, want) {
		t.Errorf("got the mails %q, want %q", got, want)
	}
	s.flows.SignUp = web.SignUpClosed
	s.through(s.browser(), p, "unknown", "closed@example.com")
	if got := s.sent(); len(got) != len(want) {
		t.Errorf("after a visit to a closed site, got the mails %q, want no new one", got)
	}
}

// TestNewAccounts checks which visitors get an account at once, and which get an invitation by mail
// instead.
func TestNewAccounts(t *testing.T) {
	p := newOP(t)
	s := newSite(t, "memory:", func(s *SignIn) {
		s.Providers[0].Domains = []string{"example.org"}
		s.Complete = func(c Claims, n *userdb.NewEntry) { n.Facets["name"] = schema.Text(c.Name) }
	}, p)
	for _, c := range []struct {
		email, name string
		verified    any
		creates     bool
	}{
		{"a@example.org", "Ann", true, true},
		{"b@EXAMPLE.org", "Bob", "true", true},
		{"c@example.org", "Cid", false, false},
		{"d@example.org", "Dan", nil, false},
		{"e@sub.example.org", "Eve", true, false},
		{"f@example.org@example.net", "Fay", true, false},
		{"g@example.org", "Ann", true, false}, // the name is taken
		{"h@example.org", "", true, false},
	} {
		p.set(func(p *op) {
			p.token = func(claims, _ jsonMap) {
				claims["name"] = c.name
				if claims["email_verified"] = c.verified; c.verified == nil {
					delete(claims, "email_verified")
				}
			}
		})
		b := s.browser()
		s.through(b, p, "sub "+c.email, c.email)
		if got := s.who(b) != ""; got != c.creates {
			t.Errorf("%v: an account was created: %v, want %v", c, got, c.creates)
		}
	}
	want := "[welcome c@example.org welcome d@example.org welcome e@sub.example.org welcome g@example.org welcome h@example.org]"
	if got := fmt.Sprint(s.sent()); got != want {
		t.Errorf("got the mails %s, want %s", got, want)
	}
	p.set(func(p *op) { p.token = nil })
	s.flows.SignUp = web.SignUpClosed
	b := s.browser()
	s.through(b, p, "closed", "closed@example.org")
	s.wantWho("a closed site", b, "")
	s.flows.SignUp, s.flows.Paths.SignUp = web.SignUpByMail, ""
	b, mails := s.browser(), len(s.sent())
	s.through(b, p, "uninvited", "uninvited@example.org")
	s.wantWho("a site that people join by invitation", b, "")
	if got := s.sent(); len(got) != mails {
		t.Errorf("a site that people join by invitation sent the mails %q, want none", got[mails:])
	}
	for _, c := range []struct {
		claims Claims
		owns   bool
	}{
		{Claims{Email: "x@gmail.com", EmailVerified: true}, true},
		{Claims{Email: "x@example.org", EmailVerified: true}, false},
		{Claims{Email: "x@example.org", EmailVerified: true, HostedDomain: "example.org"}, true},
		{Claims{Email: "x@example.org", EmailVerified: true, HostedDomain: "example.com"}, false},
		{Claims{Email: "x@example.com", EmailVerified: true, HostedDomain: "example.com"}, false},
	} {
		google := remote{Provider: Provider{Issuer: "https://accounts.google.com", Domains: []string{"gmail.com", "example.org"}}}
		if got := google.owns(c.claims); got != c.owns {
			t.Errorf("Google and %+v: the address is proven: %v, want %v", c.claims, got, c.owns)
		}
	}
	for domain, owns := range map[string]bool{
		"λόγοσ.example": true, "ΛΌΓΟΣ.example": true, "xn--oxapnq6b.example": true, "λόγος.example": false, "xn--oxapnm1c.example": false,
		"strasse.example": true, "straße.example": false, "STRASSE.example.": true,
	} {
		greek := remote{Provider: Provider{Issuer: "https://id.example.org", Domains: []string{"λόγοσ.example", "strasse.example"}}}
		if got := greek.owns(Claims{Email: "x@" + domain, EmailVerified: true}); got != owns {
			t.Errorf("%s: the address is proven: %v, want %v", domain, got, owns)
		}
	}
}

// TestUserInfo checks that an address that only the provider's UserInfo endpoint gives is used,
// unless the endpoint answers for another subject.
func TestUserInfo(t *testing.T) {
	p := newOP(t)
	s := newSite(t, "memory:", func(s *SignIn) { s.Providers[0].Domains = []string{"example.org"} }, p)
	p.set(func(p *op) {
		p.info = func(string) map[string]any {
			return jsonMap{"sub": "another", "email": "a@example.org", "email_verified": true}
		}
	})
	b := s.browser()
	s.through(b, p, "a", "")
	s.wantWho("UserInfo of another subject", b, "")
	p.set(func(p *op) {
		p.info = func(sub string) map[string]any {
			return jsonMap{"sub": sub, "email": "a@example.org", "email_verified": true}
		}
	})
	s.through(b, p, "a", "")
	if s.who(b) == "" {
		t.Error("the address at the UserInfo endpoint was not used")
	}
}

// TestAnswers checks what becomes of wrong answers of a provider, each in an attempt that would
// succeed otherwise.
func TestAnswers(t *testing.T) {
	p, other := newOP(t), newOP(t)
	s := newSite(t, "memory:", func(s *SignIn) { s.Providers[0].MaxAge = time.Hour }, p, other)
	s.createLinked("ada", p, "ada")
	claim := func(name string, v any) func(*op) {
		return func(p *op) { p.token = func(claims, _ jsonMap) { claims[name] = v } }
	}
	now := time.Now()
	replacePart := func(n int, with string) func(*op) {
		return func(p *op) {
			p.forge = func(signed string) string {
				parts := strings.Split(signed, ".")
				parts[n] = with
				return strings.Join(parts, ".")
			}
		}
	}
	type change = func(url.Values)
	set := func(name, v string) change { return func(q url.Values) { q.Set(name, v) } }
	for _, c := range []struct {
		name   string
		op     func(*op)
		answer change
		status int
	}{
		{"nothing wrong", func(*op) {}, nil, 303},
		{"wrong nonce", claim("nonce", "x"), nil, 422},
		{"no nonce", claim("nonce", ""), nil, 422},
		{"wrong audience", claim("aud", "another"), nil, 422},
		{"several audiences without azp", claim("aud", []string{"client", "another"}), nil, 422},
		{"another authorized party", claim("azp", "another"), nil, 422},
		{"wrong issuer", claim("iss", other.issuer()), nil, 422},
		{"expired", claim("exp", now.Add(-time.Second).Unix()), nil, 422},
		{"of the future", claim("nbf", now.Add(time.Hour).Unix()), nil, 422},
		{"no subject", claim("sub", ""), nil, 422},
		{"a long subject", claim("sub", strings.Repeat("a", 256)), nil, 422},
		{"another subject", claim("sub", "Ada"), nil, 422},
		{"signed in too long ago", claim("auth_time", now.Add(-2*time.Hour).Unix()), nil, 422},
		{"no time of signing in", claim("auth_time", nil), nil, 422},
		{"alg none", replacePart(0, encode([]byte(`{"alg":"none"}`))), nil, 422},
		{"alg none, not signed", func(p *op) {
			p.forge = func(signed string) string {
				return encode([]byte(`{"alg":"none"}`)) + "." + strings.Split(signed, ".")[1] + "."
			}
		}, nil, 422},
		{"alg HS256", replacePart(0, encode([]byte(`{"alg":"HS256","kid":"k"}`))), nil, 422},
		{"no signature", replacePart(2, ""), nil, 422},
		{"another signature", replacePart(2, encode(make([]byte, 64))), nil, 422},
		{"signed by another key", func(p *op) {
			p.forge = func(signed string) string { return signWith(other.key, jsonMap{"alg": "ES256", "kid": "k"}, jsonMap{}) }
		}, nil, 422},
		{"no ID token", func(p *op) { p.forge = func(string) string { return "" } }, nil, 422},
		{"an answer that is too long", func(p *op) {
			p.tokens = func(w http.ResponseWriter) bool {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"access_token":"%s"}`, strings.Repeat("x", maxAnswer))
				return true
			}
		}, nil, 503},
		{"a provider that fails", func(p *op) {
			p.tokens = func(w http.ResponseWriter) bool { http.Error(w, "no", http.StatusBadGateway); return true }
		}, nil, 503},
		{"a redirect", func(p *op) {
			p.tokens = func(w http.ResponseWriter) bool {
				w.Header().Set("Location", other.issuer()+"/token")
				w.WriteHeader(http.StatusTemporaryRedirect)
				return true
			}
		}, nil, 422},
		{"another issuer in the answer", func(*op) {}, set("iss", other.issuer()), 422},
		{"no issuer in the answer", func(*op) {}, func(q url.Values) { q.Del("iss") }, 303},
		{"no code", func(*op) {}, func(q url.Values) { q.Del("code") }, 422},
		{"a long code", func(*op) {}, set("code", strings.Repeat("x", maxCode+1)), 422},
		{"another code", func(*op) {}, set("code", "x"), 422},
		{"two codes", func(*op) {}, func(q url.Values) { q.Add("code", "x") }, 410},
		{"an error", func(*op) {}, set("error", "access_denied"), 422},
		{"no state", func(*op) {}, func(q url.Values) { q.Del("state") }, 410},
		{"another state", func(*op) {}, set("state", strings.Repeat("A", 26)), 410},
	} {
		b := s.browser()
		at := s.begin(b, "op")
		query := p.authorize(at, "ada", "")
		p.set(c.op)
		if c.answer != nil {
			c.answer(query)
		}
		status, to, body := s.answer(b, "op", query)
		uid := map[bool]string{true: "ada"}[c.status == 303]
		if got := s.who(b); status != c.status || got != uid || strings.Contains(body, "ada") && uid == "" {
			t.Errorf("%s: got %d %s, signed in as %q; want %d and %q\n%s", c.name, status, to, got, c.status, uid, body)
		}
		p.set(func(p *op) { p.token, p.forge, p.tokens = nil, nil, nil })
	}
}

// TestAttempts checks that an answer is accepted only once, and only in the browser of its attempt,
// from the same provider and in time.
func TestAttempts(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		p, other := newOP(t), newOP(t)
		s := newSite(t, store, nil, p, other)
		s.createLinked("ada", p, "ada")
		refused := func(what string, c *http.Client, provider string, query url.Values) {
			t.Helper()
			if status, to, _ := s.answer(c, provider, query); status == http.StatusSeeOther || status >= 500 {
				t.Errorf("%s: got %d %s, want an error", what, status, to)
			}
			s.wantWho(what, c, "")
		}
		b := s.browser()
		query := p.authorize(s.begin(b, "op"), "ada", "")
		refused("another browser", s.browser(), "op", query)
		refused("another provider", b, "op2", query)
		second := s.browser()
		s.begin(second, "op")
		refused("a browser with another attempt", second, "op", query)

		// A thief puts the code of one attempt into another: PKCE and the nonce refuse it.
		swapped := p.authorize(s.begin(second, "op"), "mallory", "")
		swapped.Set("code", query.Get("code"))
		refused("a swapped code", second, "op", swapped)

		query = p.authorize(s.begin(b, "op"), "ada", "")
		copied := s.browser()
		home, _ := url.Parse(s.server.URL)
		cookies := b.Jar.Cookies(home)
		copied.Jar.SetCookies(home, cookies)
		if status, to, body := s.answer(b, "op", query); status != http.StatusSeeOther {
			t.Errorf("the answer: got %d %s, want 303\n%s", status, to, body)
		}
		s.wantWho("the answer", b, "ada")
		refused("the answer again", copied, "op", query)

		late := s.browser()
		query = p.authorize(s.begin(late, "op"), "ada", "")
		s.mu.Lock()
		s.now = attemptLife
		s.mu.Unlock()
		refused("a late answer", late, "op", query)
		s.mu.Lock()
		s.now = 0
		s.mu.Unlock()
	})
}

// TestReplay sends five answers to one attempt at once, each with a code of its own, and checks
// that only one of them signs in: the store marks the attempt as spent.
func TestReplay(t *testing.T) {
	eachStore(t, func(t *testing.T, store string) {
		p := newOP(t)
		s := newSite(t, store, nil, p)
		s.createLinked("ada", p, "ada")
		b := s.browser()
		at := s.begin(b, "op")
		home, _ := url.Parse(s.server.URL)
		cookies := b.Jar.Cookies(home)
		var wg sync.WaitGroup
		results := make([]bool, 5)
		for i := range results {
			c := s.browser()
			c.Jar.(*cookiejar.Jar).SetCookies(home, cookies)
			query := p.authorize(at, "ada", "") // a code for each
			wg.Go(func() {
				_, to, _ := s.answer(c, "op", query)
				results[i] = to == "/account"
			})
		}
		wg.Wait()
		n := 0
		for _, ok := range results {
			if ok {
				n++
			}
		}
		if n != 1 {
			t.Errorf("one attempt signed in %d times, want once", n)
		}
	})
}

// TestStaySignedIn checks that a sign-in through a provider keeps what the visitor chose on the
// page where it began.
func TestStaySignedIn(t *testing.T) {
	p := newOP(t)
	const brief = time.Hour
	s := newSite(t, "memory:", func(s *SignIn) { s.Flows.Brief = userdb.SessionOptions{Lifetime: brief} }, p)
	s.createLinked("ada", p, "ada at op")
	c := s.browser()
	if _, _, page := s.send(c, "/signin"); strings.Count(page, `name="stay"`) != 1 || !strings.Contains(page, `form="signin" formaction="/signin/with/`) {
		t.Errorf("want one box, and a button that sends it to the provider's page:\n%s", page)
	}
	for _, tt := range []struct {
		form []string
		life time.Duration
	}{{nil, brief}, {[]string{"stay", "1"}, 30 * 24 * time.Hour}, {nil, brief}} {
		if status, _, body := s.through(c, p, "ada at op", "", tt.form...); status != http.StatusSeeOther {
			t.Fatalf("signing in: got %d, want 303\n%s", status, body)
		}
		u, err := url.Parse(s.server.URL)
		must(t, err)
		i := slices.IndexFunc(c.Jar.Cookies(u), func(c *http.Cookie) bool { return c.Name == "session" })
		_, session, err := s.users.Session(t.Context(), c.Jar.Cookies(u)[i].Value)
		if must(t, err); session.Expires.Sub(session.Started) != tt.life {
			t.Errorf("with the form %q: got a session of %s, want %s", tt.form, session.Expires.Sub(session.Started), tt.life)
		}
	}
}
