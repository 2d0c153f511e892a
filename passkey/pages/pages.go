// Package pages lets the visitors of a web.Flows use passkeys: to sign in, as the second step, to
// prove again who they are, and to add them to their accounts.
//
//	keys, err := passkey.New(db, "user", passkey.Config{RPID: "example.com", …})
//	flows := &web.Flows{…}
//	flows.Register(mux)
//	err = pages.Register(mux, flows, keys)
package pages

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/coffeenode/userdb/passkey"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// pages implements web.Passkeys.
type pages struct {
	flows *web.Flows
	keys  *passkey.Passkeys
}

// Register adds challenges and the script for passkeys to mux, and lets flows offer passkeys. Call
// it after Flows.Register.
func Register(mux *http.ServeMux, flows *web.Flows, keys *passkey.Passkeys) error {
	p := &pages{flows: flows, keys: keys}
	if flows.Render == nil || flows.Paths.Passkey == "" || flows.Paths.Script == "" {
		return errors.New("pages: Flows is not registered, or has no paths for passkeys")
	}
	mux.Handle("POST "+flows.Paths.Passkey, web.Protect(flows.Visitor(http.HandlerFunc(p.begin))))
	mux.HandleFunc("GET "+flows.Paths.Script, passkey.ServeScript)
	flows.Passkeys = p
	return nil
}

// begin answers the script with a challenge for the kind of form that the query parameter "for"
// names. It redirects visitors who must first prove again who they are, if there is a page for
// that. If another account has signed in since the form was shown, begin sends no challenge: the
// authenticator would make or use a passkey of that account. The script sends the form after status
// 422, and its page says what is wrong.
func (p *pages) begin(w http.ResponseWriter, r *http.Request) {
	if err := web.CheckOwner(r); err != nil {
		http.Error(w, http.StatusText(web.Status(err)), http.StatusUnprocessableEntity)
		return
	}
	var c passkey.Challenge
	var err error
	switch r.URL.Query().Get("for") {
	case "signin":
		c, err = p.keys.Begin()
	case "code":
		c, err = p.keys.BeginTicket(p.flows.Ticket(r))
	case "verify":
		c, err = p.keys.BeginSession(p.flows.Secret(r))
	case "add":
		e := web.Entry(r.Context())
		c, err = p.keys.BeginRegistration(r.Context(), p.flows.Secret(r), passkey.Registration{
			Account: e.Text(p.flows.Address), DisplayName: e.Text("name"), Name: passkeyName(r),
		})
	default:
		err = userdb.ErrNotFound
	}
	if errors.Is(err, userdb.ErrNotVerified) && p.flows.Paths.Verify != "" {
		to := p.flows.Paths.Security
		if name := passkeyName(r); name != "" { // the page shows it again
			to = url.QueryEscape(to + "?" + url.Values{"passkey-name": {name}}.Encode())
		}
		http.Redirect(w, r, p.flows.Paths.Verify+"?return="+to, http.StatusSeeOther)
		return
	}
	if err != nil {
		http.Error(w, http.StatusText(web.Status(err)), web.Status(err))
		return
	}
	Send(w, r, p.flows.Auth, c)
}

// Send answers passkey.Script with a challenge, and keeps its state in a cookie of the browser.
// State finds it when the form arrives. A site with Flows calls neither Send nor State.
func Send(w http.ResponseWriter, r *http.Request, auth web.Auth, c passkey.Challenge) {
	options := map[string]json.RawMessage{}
	if err := json.Unmarshal(c.Options, &options); err != nil {
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	id := keep(w, r, auth, c)
	options["state"], _ = json.Marshal(id) // marshaling a string cannot fail
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(options)
}

const (
	cookieStart = "passkey-"
	maxCookies  = 5 // of one browser
)

// keep keeps the state of a challenge in a cookie, and returns the ID by which State finds it. Each
// challenge has a cookie of its own, so that several pages of one browser do not disturb each
// other. If the browser already has maxCookies of them, keep removes those.
func keep(w http.ResponseWriter, r *http.Request, auth web.Auth, c passkey.Challenge) (id string) {
	var others []string
	for _, c := range r.Cookies() {
		if name := strings.TrimPrefix(c.Name, "__Host-"); strings.HasPrefix(name, cookieStart) {
			others = append(others, name)
		}
	}
	if len(others) >= maxCookies {
		for _, name := range others {
			auth.SetCookie(w, r, web.Cookie{Name: name}, "", 0)
		}
	}
	sum := sha256.Sum256([]byte(c.State))
	id = hex.EncodeToString(sum[:6])
	auth.SetCookie(w, r, web.Cookie{Name: cookieStart + id}, c.State, passkey.ChallengeLife)
	return id
}

var validID = regexp.MustCompile(`^[0-9a-f]{12}$`)

// State returns the state of the challenge that a form answers, and removes its cookie. It returns
// "" if this browser has no such cookie.
func State(w http.ResponseWriter, r *http.Request, auth web.Auth) string {
	id := r.PostFormValue("state")
	if !validID.MatchString(id) {
		return ""
	}
	c := web.Cookie{Name: cookieStart + id}
	state := auth.CookieValue(r, c)
	if state != "" {
		auth.SetCookie(w, r, c, "", 0)
	}
	return state
}

// Proof implements web.Passkeys.
func (p *pages) Proof(w http.ResponseWriter, r *http.Request) (userdb.Proof, error) {
	return p.keys.Proof(State(w, r, p.flows.Auth), []byte(r.PostFormValue("passkey")))
}

// Enrol implements web.Passkeys.
func (p *pages) Enrol(w http.ResponseWriter, r *http.Request) (userdb.FactorChange, error) {
	return p.keys.Register(
		r.Context(), p.flows.Secret(r), State(w, r, p.flows.Auth), []byte(r.PostFormValue("passkey")), passkeyName(r), p.flows.SessionOptions(r))
}

// passkeyName returns the name in a form that adds a passkey.
func passkeyName(r *http.Request) string {
	return strings.TrimSpace(r.PostFormValue("passkey-name"))
}
