package oidc

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/hashcost"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

func TestMain(m *testing.M) { os.Exit(hashcost.Cheap(m)) }

const goodPassword = "correct horse battery"

// An op is an OpenID provider that does what a test says.
type op struct {
	t      *testing.T
	server *httptest.Server
	key    *ecdsa.PrivateKey

	mu       sync.Mutex
	grants   map[string]grant                // by code
	reads    int                             // of the metadata
	metadata func(map[string]any)            // changes the metadata
	token    func(claims, head jsonMap)      // changes an ID token before it is signed
	forge    func(signed string) string      // changes the signed ID token
	tokens   func(http.ResponseWriter) bool  // answers in place of the token endpoint
	hang     chan struct{}                   // if not nil, answers wait until it is closed
	info     func(sub string) map[string]any // the answer of the UserInfo endpoint
}

type jsonMap = map[string]any

// A grant holds what a code stands for.
type grant struct {
	sub, email, nonce, challenge, redirect string
}

func newOP(t *testing.T) *op {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	p := &op{t: t, key: key, grants: map[string]grant{}}
	p.server = httptest.NewServer(p)
	t.Cleanup(p.server.Close)
	return p
}

func (p *op) issuer() string { return p.server.URL }

// set changes what the provider does.
func (p *op) set(change func(p *op)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

func (p *op) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	hang := p.hang
	p.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var answer any
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		p.reads++
		says := jsonMap{
			"issuer": p.issuer(), "authorization_endpoint": p.issuer() + "/auth", "token_endpoint": p.issuer() + "/token", "jwks_uri": p.issuer() + "/jwks",
			"userinfo_endpoint": p.issuer() + "/info", "id_token_signing_alg_values_supported": []string{"ES256"},
		}
		if p.metadata != nil {
			p.metadata(says)
		}
		answer = says
	case "/jwks":
		x, y := p.key.X.FillBytes(make([]byte, 32)), p.key.Y.FillBytes(make([]byte, 32))
		answer = jsonMap{"keys": []jsonMap{{"kty": "EC", "crv": "P-256", "kid": "k", "alg": "ES256", "use": "sig", "x": encode(x), "y": encode(y)}}}
	case "/token":
		if p.tokens != nil && p.tokens(w) {
			return
		}
		g, is := p.grants[r.PostFormValue("code")]
		delete(p.grants, r.PostFormValue("code"))
		sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		id, secret, _ := r.BasicAuth()
		if !is || encode(sum[:]) != g.challenge || r.PostFormValue("redirect_uri") != g.redirect || id != "client" || secret != "secret" {
			w.WriteHeader(http.StatusBadRequest)
			answer = jsonMap{"error": "invalid_grant"}
			break
		}
		answer = jsonMap{"access_token": g.sub, "token_type": "Bearer", "expires_in": 60, "id_token": p.sign(g)}
	case "/info":
		sub := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if p.info == nil {
			http.NotFound(w, r)
			return
		}
		answer = p.info(sub)
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// sign returns an ID token for a grant.
func (p *op) sign(g grant) string {
	now := time.Now().Unix()
	head := jsonMap{"alg": "ES256", "kid": "k", "typ": "JWT"}
	claims := jsonMap{"iss": p.issuer(), "sub": g.sub, "aud": "client", "exp": now + 60, "iat": now, "auth_time": now, "nonce": g.nonce}
	if g.email != "" {
		claims["email"], claims["email_verified"] = g.email, true
	}
	if p.token != nil {
		p.token(claims, head)
	}
	signed := signWith(p.key, head, claims)
	if p.forge != nil {
		signed = p.forge(signed)
	}
	return signed
}

func signWith(key *ecdsa.PrivateKey, head, claims jsonMap) string {
	h, _ := json.Marshal(head)
	c, _ := json.Marshal(claims)
	text := encode(h) + "." + encode(c)
	sum := sha256.Sum256([]byte(text))
	r, s, _ := ecdsa.Sign(rand.Reader, key, sum[:])
	return text + "." + encode(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// authorize does what the provider does when somebody with a subject and an address visits its
// authorization endpoint, and returns the query of its answer.
func (p *op) authorize(at, sub, email string) url.Values {
	p.t.Helper()
	u, err := url.Parse(at)
	must(p.t, err)
	q := u.Query()
	if !strings.HasPrefix(at, p.issuer()+"/auth?") || q.Get("response_type") != "code" || q.Get("client_id") != "client" ||
		q.Get("code_challenge_method") != "S256" || len(q.Get("nonce")) < 20 || len(q.Get("state")) < 20 ||
		!slices.Contains(strings.Fields(q.Get("scope")), "openid") {
		p.t.Fatalf("got the request for authorization %s, want one for a code, with PKCE, a nonce, a state and the scope openid", at)
	}
	code := rand.Text()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grants[code] = grant{sub, email, q.Get("nonce"), q.Get("code_challenge"), q.Get("redirect_uri")}
	return url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {p.issuer()}}
}

// A site serves Flows with providers.
type site struct {
	t      *testing.T
	users  *userdb.Type
	flows  *web.Flows
	signIn *SignIn
	server *httptest.Server
	mu     sync.Mutex
	mails  []web.Mail
	now    time.Duration // how far the clock of the site was moved
	skew   atomic.Int64  // how far the clock of the store was moved, as a time.Duration
}

// linkSchema returns the built-in schema with links, second factors, and addresses that are held.
func linkSchema() schema.Schema {
	s := schema.User()
	user := s.Types["user"]
	user.Fields["links"] = schema.Field{Role: schema.RoleSecondary, Many: 5, Typed: new(false)}
	user.Factors = true
	email := user.Fields["email"]
	email.Hold = 30 * schema.Day
	user.Fields["email"] = email
	s.Types["user"] = user
	return s
}

func siteKeys() [][]byte { return [][]byte{bytes.Repeat([]byte("k"), 32)} }

// newSite serves a site on a store with providers, the first of which is called op.
func newSite(t *testing.T, store string, edit func(*SignIn), ops ...*op) *site {
	t.Helper()
	db, err := userdb.Open(t.Context(), store, userdb.Options{Schema: linkSchema(), Keys: siteKeys(), History: true})
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	s := &site{t: t}
	db, err = view.Reconfigure(db, func(c *view.Config) {
		c.Clock = func() time.Time { return time.Now().Add(time.Duration(s.skew.Load())) }
	})
	must(t, err)
	s.users, err = db.Type("user")
	must(t, err)
	mux := http.NewServeMux()
	s.server = httptest.NewServer(web.Protect(mux))
	t.Cleanup(s.server.Close)
	s.flows = &web.Flows{
		Auth: web.Auth{Users: s.users}, SignUp: web.SignUpByMail, Base: s.server.URL,
		// With one worker, the mails are sent in the order in which they were queued.
		Mail: &web.MailQueue{Workers: 1, Send: func(_ context.Context, m web.Mail) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.mails = append(s.mails, m)
			return nil
		}},
	}
	s.signIn = &SignIn{Flows: s.flows, Keys: siteKeys(), now: func() time.Time {
		s.mu.Lock()
		defer s.mu.Unlock()
		return time.Now().Add(s.now)
	}}
	for i, p := range ops {
		name := "op"
		if i > 0 {
			name = fmt.Sprint("op", i+1)
		}
		s.signIn.Providers = append(s.signIn.Providers, Provider{Name: name, Issuer: p.issuer(), ClientID: "client", ClientSecret: "secret"})
	}
	if edit != nil {
		edit(s.signIn)
	}
	s.flows.Register(mux)
	must(t, s.signIn.Register(mux))
	mux.Handle("GET /account", s.flows.Require(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "you are ", web.Entry(r.Context()).UID())
	})))
	return s
}

// eachStore runs a test on the five kinds of stores; with -short, on two.
func eachStore(t *testing.T, test func(t *testing.T, url string)) {
	for name, url := range map[string]func(t *testing.T) string{
		"memory":   func(*testing.T) string { return "memory:" },
		"redis":    func(t *testing.T) string { return redistest.Shared(t).URL() },
		"file":     func(t *testing.T) string { return "file:" + filepath.Join(t.TempDir(), "store") },
		"sentinel": func(t *testing.T) string { return redistest.StartSentinel(t).URL() },
		"cluster":  func(t *testing.T) string { return redistest.StartCluster(t).URL() },
	} {
		if testing.Short() && name != "memory" && name != "redis" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, url(t))
		})
	}
}

// browser returns a client with cookies of its own.
func (s *site) browser() *http.Client {
	jar, _ := cookiejar.New(nil)
	return &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// send sends a form, or a GET if there is none, and returns the status, the target of a redirect
// and the body.
func (s *site) send(c *http.Client, path string, form ...string) (status int, to, body string) {
	s.t.Helper()
	method, values := http.MethodGet, url.Values{}
	if len(form) > 0 {
		method = http.MethodPost
	}
	for i := 0; i+1 < len(form); i += 2 {
		values.Set(form[i], form[i+1])
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.server.URL+path, strings.NewReader(values.Encode()))
	must(s.t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := c.Do(req)
	must(s.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(s.t, err)
	return resp.StatusCode, resp.Header.Get("Location"), string(text)
}

// begin begins a sign-in, or a linking with the form link=1, and returns where the browser is sent.
func (s *site) begin(c *http.Client, provider string, form ...string) string {
	s.t.Helper()
	status, to, body := s.send(c, "/signin/with/"+provider, append(form, "x", "")...)
	if status != http.StatusSeeOther || !strings.HasPrefix(to, "/signin/with/") {
		s.t.Fatalf("beginning: got %d %s, want 303 to a page of the site\n%s", status, to, body)
	}
	status, _, body = s.send(c, to)
	found := regexp.MustCompile(`<a href="([^"]*)">(?:Continue|Weiter)`).FindStringSubmatch(body)
	refresh := regexp.MustCompile(`http-equiv="refresh" content="0; url=([^"]*)"`).FindStringSubmatch(body)
	if status != http.StatusOK || found == nil || refresh == nil || html.UnescapeString(found[1]) != html.UnescapeString(refresh[1]) {
		s.t.Fatalf("the page that leads to the provider: got %d, want 200 and one address\n%s", status, body)
	}
	return html.UnescapeString(found[1])
}

// answer sends the provider's answer.
func (s *site) answer(c *http.Client, provider string, query url.Values) (status int, to, body string) {
	s.t.Helper()
	return s.send(c, "/signin/with/"+provider+"/callback?"+query.Encode())
}

// through carries out a sign-in, or a linking with link=1, at the provider op.
func (s *site) through(c *http.Client, p *op, sub, email string, form ...string) (status int, to, body string) {
	s.t.Helper()
	return s.answer(c, "op", p.authorize(s.begin(c, "op", form...), sub, email))
}

// who returns the UID of the account that a browser is signed in to, or "".
func (s *site) who(c *http.Client) string {
	s.t.Helper()
	_, _, body := s.send(c, "/account")
	uid, _ := strings.CutPrefix(body, "you are ")
	if uid == body {
		return ""
	}
	return uid
}

// wantWho checks which account a browser is signed in to.
func (s *site) wantWho(what string, c *http.Client, uid string) {
	s.t.Helper()
	if got := s.who(c); got != uid {
		s.t.Errorf("%s: signed in as %q, want %q", what, got, uid)
	}
}

func (s *site) create(name string) {
	s.t.Helper()
	_, err := s.users.Create(s.t.Context(), userdb.NewEntry{UID: name, Facets: schema.Texts("name", name, "email", name+"@example.com"), Password: goodPassword})
	must(s.t, err)
}

// signInBy signs a browser in with the account's password.
func (s *site) signInBy(c *http.Client, name string) {
	s.t.Helper()
	if status, _, body := s.send(c, "/signin", "identifier", name, "password", goodPassword); status != http.StatusSeeOther {
		s.t.Fatalf("signing in: got %d, want 303\n%s", status, body)
	}
}

// createLinked creates an account with a link and returns a browser that is signed in to it.
func (s *site) createLinked(name string, p *op, sub string) *http.Client {
	s.t.Helper()
	s.create(name)
	c := s.browser()
	s.signInBy(c, name)
	if status, to, body := s.through(c, p, sub, "", "link", "1"); status != http.StatusSeeOther || to != "/account/links?done=linked" {
		s.t.Fatalf("linking: got %d %s, want 303 to the linked accounts\n%s", status, to, body)
	}
	return c
}

// links returns the number of links of an account.
func (s *site) links(uid string) int {
	s.t.Helper()
	e, err := s.users.Find(s.t.Context(), hints.UID(uid))
	must(s.t, err)
	return len(e.Texts("links"))
}

// sent waits for the mails and returns their kinds and addresses, in order.
func (s *site) sent() []string {
	for s.flows.Mail.Len() > 0 {
		time.Sleep(time.Millisecond)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, m := range s.mails {
		all = append(all, string(m.Kind)+" "+m.To)
	}
	return all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
