package console

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/passkeys"
	"github.com/coffeenode/userdb/passkey"
	"github.com/coffeenode/userdb/passkey/pages"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// openPasskeys returns the passkeys of operators, or nil if operators cannot use passkeys here.
func openPasskeys(db *userdb.DB, operators *userdb.Type, config *passkey.Config) (*passkey.Passkeys, error) {
	if config == nil || !db.HasKeys() {
		return nil, nil
	}
	operatorDB, err := admin.OpenOperators(db)
	if err != nil {
		return nil, err
	}
	return passkey.New(operatorDB, operators.Name(), passkey.Config{
		RPID: config.RPID, Origins: config.Origins, Name: config.Name, Field: admin.PasskeyField,
	})
}

// usesPasskey reports whether an operator has a passkey that this console accepts.
func (c *Console) usesPasskey(operator userdb.Entry) bool {
	return c.passkeys != nil && slices.Contains(operator.FactorMethods(), "passkey")
}

// hasPasskey reports whether a form has the answer of a passkey.
func (c *Console) hasPasskey(r *http.Request) bool {
	return c.passkeys != nil && r.PostForm.Has("passkey")
}

// passkeyProof returns the proof that the passkey in a form gives.
func (c *Console) passkeyProof(w http.ResponseWriter, r *http.Request) (userdb.Proof, error) {
	return c.passkeys.Proof(pages.State(w, r, c.auth), []byte(r.PostFormValue("passkey")))
}

// passkeyProblems returns the problems of an error about a passkey.
func passkeyProblems(err error) []web.Problem {
	problems := web.Problems(err)
	for i := range problems {
		if p := &problems[i]; p.Field == "" || p.Field == "code" || p.Field == admin.PasskeyField {
			p.Field = "passkey"
			p.Text = web.Texts.Text(*p)
		}
	}
	return problems
}

// sendChallenge answers the script with the challenge that begin makes.
func (c *Console) sendChallenge(w http.ResponseWriter, r *http.Request, begin func() (passkey.Challenge, error)) {
	err := userdb.ErrNotFound
	var challenge passkey.Challenge
	if c.passkeys != nil {
		challenge, err = begin()
	}
	if err != nil {
		if isServiceProblem(web.Problems(err)) {
			c.options.OnFailure(r, err)
		}
		http.Error(w, http.StatusText(web.Status(err)), web.Status(err))
		return
	}
	pages.Send(w, r, c.auth, challenge)
}

// visitorChallenge answers visitors with the challenge that begin makes. It sends no command to the
// store.
func (c *Console) visitorChallenge(begin func(r *http.Request) (passkey.Challenge, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		leave, ok := c.admit(w, r, WorkSignIn)
		if !ok {
			return
		}
		defer leave()
		c.sendChallenge(w, r, func() (passkey.Challenge, error) { return begin(r) })
	}
}

// signInChallenge returns a challenge for signing in without a name.
func (c *Console) signInChallenge(*http.Request) (passkey.Challenge, error) {
	return c.passkeys.Begin()
}

// codeChallenge returns a challenge for the second step of a sign-in.
func (c *Console) codeChallenge(r *http.Request) (passkey.Challenge, error) {
	return c.passkeys.BeginTicket(c.auth.Ticket(r))
}

// verifyChallenge sends a challenge with which an operator proves again who they are.
func (c *Console) verifyChallenge(w http.ResponseWriter, r *http.Request) {
	c.sendChallenge(w, r, func() (passkey.Challenge, error) { return c.passkeys.BeginSession(c.auth.Secret(r)) })
}

// addChallenge sends a challenge for a new passkey of the operator who is signed in.
func (c *Console) addChallenge(w http.ResponseWriter, r *http.Request) {
	c.sendRegistration(w, r, web.Entry(r.Context()))
}

func (c *Console) sendRegistration(w http.ResponseWriter, r *http.Request, operator userdb.Entry) {
	c.sendChallenge(w, r, func() (passkey.Challenge, error) {
		// Browsers also offer this passkey on other sites of the same relying party, so its name
		// says what it is for.
		name := operator.Text(admin.OperatorName) + " (userdb console)"
		return c.passkeys.BeginRegistration(r.Context(), c.auth.Secret(r), passkey.Registration{Account: name})
	})
}

// enrolChallenge sends a challenge for the first factor of the operator whom a link is for.
func (c *Console) enrolChallenge(w http.ResponseWriter, r *http.Request) {
	c.withLink(w, r, func(r *http.Request, e userdb.Entry, _ string, leave func()) {
		defer leave()
		signedIn, _, err := c.operators.Session(r.Context(), c.auth.Secret(r))
		if err == nil && signedIn.Key() != e.Key() {
			err = userdb.ErrNotFound
		}
		if err != nil {
			http.Error(w, http.StatusText(web.Status(err)), web.Status(err))
			return
		}
		c.sendRegistration(w, r, e)
	})
}

// signInPasskey signs an operator in with a passkey, which counts as both steps. Wrong answers are
// not recorded, because strangers can send any number of them.
func (c *Console) signInPasskey(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || !c.hasPasskey(r) {
		http.Redirect(w, r, "/console/signin", http.StatusSeeOther)
		return
	}
	leave, ok := c.admit(w, r, WorkSignIn)
	if !ok {
		return
	}
	defer leave()
	proof, err := c.passkeyProof(w, r)
	var e userdb.Entry
	if err == nil {
		e, err = c.operators.LoginPasskey(r.Context(), proof, c.auth.Attempt(r))
	}
	// ErrInvalid means that the stored schema has no passkeys yet.
	if err == nil && !c.allowed(e) || errors.Is(err, userdb.ErrInvalid) {
		err = userdb.ErrLogin
	}
	if err == nil {
		err = c.auth.Start(w, r, e)
	}
	leave() // a client that reads slowly must not keep the capacity
	problems := passkeyProblems(err)
	switch {
	case err == nil:
		c.recordAction(r, userdb.EventOperatorLogin, e.Text(admin.OperatorName), "")
		c.respondSignedIn(w, r, e)
	case isServiceProblem(problems):
		c.fail(w, r, err)
	default:
		c.showSignIn(w, r, problems)
	}
}

// addPasskey shows the page that adds a passkey.
func (c *Console) addPasskey(w http.ResponseWriter, r *http.Request) {
	why, allowed, err := c.whyNoFactor(r.Context())
	switch {
	case err != nil:
		c.failSecurity(w, r, err)
	case why != "" || !allowed:
		c.showSecurity(w, r, nil)
	case len(passkeyLabel(r)) > passkeys.MaxName:
		// Say so now: a passkey that is refused later stays in the operator's device.
		c.failSecurity(w, r, &userdb.FieldError{Field: "factor", Rule: "name", Err: userdb.ErrInvalid})
	default:
		c.showNewPasskey(w, r, nil)
	}
}

func (c *Console) showNewPasskey(w http.ResponseWriter, r *http.Request, problems []web.Problem) {
	c.show(w, r, statusOf(problems), page{Name: "passkey", Title: "Add a passkey", Problems: problems, Data: passkeyLabel(r)})
}

// registerPasskey adds the passkey in a form for the owner of a session.
func (c *Console) registerPasskey(w http.ResponseWriter, r *http.Request, session string) (userdb.FactorChange, error) {
	return c.passkeys.Register(
		r.Context(), session, pages.State(w, r, c.auth), []byte(r.PostFormValue("passkey")), passkeyLabel(r), c.auth.SessionOptions(r))
}

// passkeyLabel returns the name in a form that adds a passkey.
func passkeyLabel(r *http.Request) string {
	return strings.TrimSpace(r.PostFormValue("passkey-label"))
}

// packedName is the name of the input in which the form for a passkey carries another form. It is a
// single input, so that the script never takes a facet for an input of its own.
const packedName = "~form"

// A givenPasskey holds the answer of a passkey with which an operator confirms an action.
type givenPasskey struct{ state, answer string }

// unpackForm replaces a form that confirms an action by a passkey with the form of the action,
// which it carries. It returns the answer of the passkey, or nil for other forms.
func (c *Console) unpackForm(w http.ResponseWriter, r *http.Request) *givenPasskey {
	if c.passkeys == nil || !r.PostForm.Has(packedName) {
		return nil
	}
	// If the text is damaged, some inputs of the form are missing.
	form, _ := url.ParseQuery(r.PostForm.Get(packedName))
	given := &givenPasskey{pages.State(w, r, c.auth), r.PostForm.Get("passkey")}
	r.PostForm, r.Form = form, form
	return given
}

// verifyPasskey verifies by a passkey alone who an operator is. It replaces the session, so use the
// returned request from then on.
func (c *Console) verifyPasskey(w http.ResponseWriter, r *http.Request, given *givenPasskey) (*http.Request, []web.Problem, error) {
	proof, err := c.passkeys.Proof(given.state, []byte(given.answer))
	if err == nil {
		r, err = c.raise(w, r, proof)
	}
	if errors.Is(err, userdb.ErrNotFound) { // the passkey was removed, or the session ended
		err = userdb.ErrLogin
	}
	return r, passkeyProblems(err), err
}
