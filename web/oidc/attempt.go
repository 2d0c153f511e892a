package oidc

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/coffeenode/userdb/internal/sealed"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// An attempt is a sign-in or a linking that has begun. It is kept sealed in a cookie of its own, so
// the store holds nothing of it until it has succeeded.
type attempt struct {
	State    string `json:"s"`
	Nonce    string `json:"n"`
	Verifier string `json:"v"`
	Session  string `json:"l,omitempty"` // the ID of the session that links; "" for a sign-in
	Return   string `json:"r"`
	Until    int64  `json:"u"` // seconds
}

const (
	attemptLife = 10 * time.Minute
	maxAttempts = 5 // cookies of one browser
	cookieStart = "oidc-"
	// maxCookie limits the value of a cookie, in bytes. Browsers keep no cookie of over 4 KiB, and
	// proxies refuse a request whose cookies have over 8 KiB together.
	maxCookie = 1400
)

// newAttempt returns an attempt to link for the owner of a session, or to sign in if session is "".
func newAttempt(session, returnTo string, now time.Time) attempt {
	return attempt{
		State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(),
		Session: session, Return: returnTo, Until: now.Add(attemptLife).Unix(),
	}
}

// cookieOf returns the cookie of an attempt. Its name contains a part of a hash of the state, so
// that several attempts in one browser do not disturb each other.
func cookieOf(state string) web.Cookie {
	sum := sha256.Sum256([]byte(state))
	return web.Cookie{Name: cookieStart + hex.EncodeToString(sum[:6])}
}

// seal returns the value of the cookie of an attempt. An attempt whose path is too long for a
// cookie returns to the account.
func (a attempt) seal(ring sealed.Ring, provider string) string {
	text, _ := json.Marshal(a) // marshaling strings cannot fail
	value := ring.Seal(text, sealContext(provider)...)
	if len(value) > maxCookie && a.Return != "/" {
		a.Return = "/"
		return a.seal(ring, provider)
	}
	return value
}

// keep sets the cookie of an attempt. If the browser has too many of them, keep first removes them
// all.
func (a attempt) keep(w http.ResponseWriter, r *http.Request, auth web.Auth, ring sealed.Ring, provider string) {
	var others []string
	for _, c := range r.Cookies() {
		if name := strings.TrimPrefix(c.Name, "__Host-"); strings.HasPrefix(name, cookieStart) {
			others = append(others, name)
		}
	}
	if len(others) >= maxAttempts {
		for _, name := range others {
			auth.SetCookie(w, r, web.Cookie{Name: name}, "", 0)
		}
	}
	auth.SetCookie(w, r, cookieOf(a.State), a.seal(ring, provider), attemptLife)
}

// sealContext returns the context in which attempts of a provider are sealed, so that the same keys
// can also seal other things.
func sealContext(provider string) []string { return []string{"web/oidc", "attempt", provider} }

// drop removes the cookie of an attempt.
func (a attempt) drop(w http.ResponseWriter, r *http.Request, auth web.Auth) {
	auth.SetCookie(w, r, cookieOf(a.State), "", 0)
}

// findAttempt returns the attempt with a state that this browser began. The error is
// userdb.ErrNotFound if there is none, or if it has expired.
func findAttempt(r *http.Request, auth web.Auth, ring sealed.Ring, provider, state string, now time.Time) (attempt, error) {
	value := auth.CookieValue(r, cookieOf(state))
	if state == "" || len(state) > 64 || value == "" || len(value) > maxCookie {
		return attempt{}, userdb.ErrNotFound
	}
	text, err := ring.Open(value, sealContext(provider)...)
	var a attempt
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	if err != nil || !equal(a.State, state) || now.Unix() >= a.Until {
		return attempt{}, userdb.ErrNotFound
	}
	return a, nil
}

// spentHash returns the hash by which an attempt is marked as spent.
func (a attempt) spentHash() string {
	sum := sha256.Sum256([]byte("web/oidc\x00" + a.State))
	return hex.EncodeToString(sum[:])
}

// equal reports whether two texts are equal and not "". It takes the same time wherever they
// differ.
func equal(a, b string) bool {
	return a != "" && subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}
