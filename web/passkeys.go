package web

import (
	"net/http"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/userdb"
)

// Passkeys lets the visitors of Flows use passkeys. Package passkey/pages implements it, so that
// only programs that import that package need its dependencies.
type Passkeys interface {
	// Proof returns the userdb.Proof for a form that a passkey has answered.
	Proof(w http.ResponseWriter, r *http.Request) (userdb.Proof, error)
	// Enrol adds the passkey in a form to the account of a visitor who is signed in. The errors are
	// those of [userdb.Type.AddPasskey]. If the form has no passkey, because the script was refused
	// a challenge, the error is the reason for that.
	Enrol(w http.ResponseWriter, r *http.Request) (userdb.FactorChange, error)
}

// Ticket returns the ticket for the second step of the visitor's sign-in, or "" if the visitor has
// not taken the first.
func (a Auth) Ticket(r *http.Request) string { return a.CookieValue(r, a.ticketCookie()) }

// A passkeyError is an error about the passkey in a form.
type passkeyError struct{ error }

func (e passkeyError) Unwrap() error { return e.error }

// ofPasskey returns err as an error about the passkey in a form, if visitors can do something about
// it.
func ofPasskey(err error) error {
	switch userdb.CodeOf(err) {
	case userdb.CodeLogin, userdb.CodeDuplicate, userdb.CodeThrottled, userdb.CodeConflict, userdb.CodeNotFound:
		return passkeyError{err}
	}
	return err
}

// hasPasskey reports whether a form has the answer of a passkey.
func (f *Flows) hasPasskey(r *http.Request) bool {
	return f.Passkeys != nil && r.PostForm.Has("passkey")
}

// signInByPasskey signs in a visitor by a passkey, which counts as both steps.
func (f *Flows) signInByPasskey(w http.ResponseWriter, r *http.Request) (userdb.Entry, error) {
	ctx, cancel := withTimeout(r)
	defer cancel()
	proof, err := f.Passkeys.Proof(w, r)
	var e userdb.Entry
	if err == nil {
		e, err = f.Users.LoginPasskey(ctx, proof, f.Attempt(r))
	}
	if err == nil && !f.allows(e) {
		err = userdb.ErrLogin
	}
	if err == nil {
		err = f.Start(w, r, e)
	}
	return e, ofPasskey(err)
}

// raiseByPasskey verifies a signed-in visitor again, by a passkey alone.
func (f *Flows) raiseByPasskey(w http.ResponseWriter, r *http.Request) error {
	proof, err := f.Passkeys.Proof(w, r)
	if err == nil {
		_, err = f.Raise(w, r, proof)
	}
	return ofPasskey(err)
}

// addPasskey adds a passkey, and returns recovery codes if it is the first factor.
func (f *Flows) addPasskey(w http.ResponseWriter, r *http.Request) ([]string, error) {
	if f.Passkeys == nil {
		return nil, passkeyError{userdb.ErrLogin}
	}
	c, err := f.Passkeys.Enrol(w, r)
	f.replaceSession(w, r, c)
	return c.RecoveryCodes, ofPasskey(err)
}

// factorKind returns the method of one of the visitor's factors, or "" if there is no such factor.
func (f *Flows) factorKind(r *http.Request, id string) string {
	all, _ := f.Users.Factors(r.Context(), visitorHint(r))
	for _, one := range all {
		if one.ID == id {
			return one.Method
		}
	}
	return ""
}

// methodsParameter names the form value that lists the methods of the second step. Without it,
// these are a code of an app and a recovery code.
const methodsParameter = "by"

// withMethods adds to the path of a page the methods by which the second step can be taken, if
// passkeys are among them.
func withMethods(to string, methods []string) string {
	if !slices.Contains(methods, "passkey") {
		return to
	}
	return to + "&" + methodsParameter + "=" + strings.Join(methods, "+")
}

// By reports whether the second step can be taken by a method: "totp", "recovery" or "passkey". On
// the page named "code", the methods are those that the first step found.
func (p Page) By(method string) bool {
	methods := p.Me.FactorMethods()
	if p.Name == "code" {
		methods = strings.Fields(p.Methods())
	}
	return slices.Contains(methods, method) && (method != "passkey" || p.Passkeys)
}

// Methods returns the methods of the second step for the form on the page named "code".
func (p Page) Methods() string {
	if given := p.Form.Get(methodsParameter); given != "" {
		return given
	}
	return "recovery totp"
}

// ByRecoveryCode reports whether a page asks for a recovery code rather than for a code of an app.
func (p Page) ByRecoveryCode() bool { return p.Form.Has("recovery") || !p.By("totp") }

// passkeyPages are the pages that have a form for passkeys.
var passkeyPages = []string{"signin", "code", "verify", "security"}

// passkeyPolicy lets pages run the script for passkeys, and the script ask for challenges.
const passkeyPolicy = "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// allowScript lets a page run the script for passkeys, if it has a form for them.
func (f *Flows) allowScript(w http.ResponseWriter, name string) {
	if f.Passkeys != nil && slices.Contains(passkeyPages, name) {
		w.Header().Set("Content-Security-Policy", passkeyPolicy)
	}
}

// ForIdentifier returns the value of the attribute autocomplete of the input for an identifier.
func (p Page) ForIdentifier() string {
	if p.Passkeys {
		return "username webauthn"
	}
	return "username"
}
