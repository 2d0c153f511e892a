package browser

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// A provider is an OpenID provider at which everybody is signed in as one subject.
type provider struct {
	server *httptest.Server
	key    *ecdsa.PrivateKey
	mu     sync.Mutex
	sub    string
	grants map[string]grant // by code
}

// A grant holds what a code stands for.
type grant struct{ sub, nonce, challenge string }

func newProvider(t *testing.T) *provider {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{key: key, grants: map[string]grant{}}
	p.server = httptest.NewServer(p)
	t.Cleanup(p.server.Close)
	return p
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// setSubject sets the subject that later visitors are signed in as.
func (p *provider) setSubject(sub string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sub = sub
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	type object = map[string]any
	var answer object
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		answer = object{
			"issuer": p.server.URL, "authorization_endpoint": p.server.URL + "/auth", "token_endpoint": p.server.URL + "/token",
			"jwks_uri": p.server.URL + "/jwks", "id_token_signing_alg_values_supported": []string{"ES256"},
		}
	case "/jwks":
		point, err := p.key.PublicKey.Bytes() // 4, x and y
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		answer = object{"keys": []object{{"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "x": encode(point[1:33]), "y": encode(point[33:])}}}
	case "/auth":
		q, code := r.URL.Query(), rand.Text()
		p.grants[code] = grant{p.sub, q.Get("nonce"), q.Get("code_challenge")}
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {code}, "state": {q.Get("state")}}.Encode(), http.StatusFound)
		return
	case "/token":
		g := p.grants[r.PostFormValue("code")]
		sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		if id, secret, _ := r.BasicAuth(); id != "webapp" || secret != "client-secret" || encode(sum[:]) != g.challenge {
			http.Error(w, `{"error":"invalid_grant"}`, http.StatusBadRequest)
			return
		}
		answer = object{"access_token": "x", "token_type": "Bearer", "id_token": p.sign(object{
			"iss": p.server.URL, "sub": g.sub, "aud": "webapp", "nonce": g.nonce, "iat": time.Now().Unix(), "exp": time.Now().Unix() + 60,
		})}
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// sign returns a token with claims.
func (p *provider) sign(claims map[string]any) string {
	c, _ := json.Marshal(claims)
	text := encode([]byte(`{"alg":"ES256","typ":"JWT"}`)) + "." + encode(c)
	sum := sha256.Sum256([]byte(text))
	r, s, _ := ecdsa.Sign(rand.Reader, p.key, sum[:])
	return text + "." + encode(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

// TestLinkedAccounts links an account of a provider, signs in with it, with and without a second
// factor, and removes it.
func TestLinkedAccounts(t *testing.T) {
	t.Parallel()
	for i, w := range passkeyWindows {
		t.Run(w.name, func(t *testing.T) {
			p, secret := newProvider(t), filepath.Join(t.TempDir(), "secret")
			if err := os.WriteFile(secret, []byte("client-secret\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			scripts := i%2 == 0
			b := open(t, w, scripts, webappWith("--issuer", p.server.URL, "--client", "webapp", "--secret", secret, "--provider", "Example ID"))
			b.testLinkedAccounts(p)
		})
	}
}

func (b *browser) testLinkedAccounts(p *provider) {
	b.t.Helper()
	press := func(selector string) {
		b.t.Helper()
		b.follow("pressing "+selector, chromedp.Click(selector, chromedp.ByQuery))
	}
	p.setSubject("nobody")
	b.visit("/signin")
	b.onPage("Sign in", "Or continue with", "Example ID")
	press(".provider button")
	b.onPage("Not linked", "sign in first")

	p.setSubject("ann")
	b.signUp("ann@example.com", "ann")
	b.visit("/account/security")
	b.onPage("Security", "Linked accounts", "Link Example ID")
	press(".provider button")
	b.onPage("Security", "The account is linked.", "You can sign in with each of these accounts")
	b.link("ann@example.com") // reads the mail about the new link

	b.signOut()
	b.visit("/signin")
	press(".provider button")
	b.onPage("Your account", "ann")
	b.wantStay(false)
	b.signOut()
	b.visit("/signin")
	b.run("choosing to stay signed in", click(`[name=stay]`))
	press(".provider button")
	b.onPage("Your account", "ann")
	b.wantStay(true)

	// The same identity is not linked to another account.
	b.signOut()
	b.signUp("bob@example.com", "bob")
	b.visit("/account/security")
	press(".provider button")
	b.onPage("Linked accounts", "This is linked to another account here")
	b.signOut()

	// The link is only the first step.
	b.visit("/signin")
	press(".provider button")
	b.onPage("Your account", "ann")
	codes := b.addApp()
	b.signOut()
	b.visit("/signin")
	press(".provider button")
	b.onPage("Enter a code")
	press("main p a")
	b.submit("/signin/code", "recovery", codes[0])
	b.onPage("Your account", "ann")

	b.visit("/account/security")
	b.onPage("Security", "Example ID", "followed by your second step")
	press(`form[action="/account/links"] button`)
	b.onPage("Security", "The link has been removed.")
	b.signOut()
	b.visit("/signin")
	press(".provider button")
	b.onPage("Not linked")
}
