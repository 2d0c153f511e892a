package console

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// codeName is the name of the input for the operator's own code. No facet has such a name.
const codeName = "~code"

// belongs reports whether an operator may use this console.
func (c *Console) belongs(operator userdb.Entry) bool {
	return admin.CanSee(operator.Text(admin.OperatorNamespace), c.options.Namespace)
}

// allowed reports whether an operator may be signed in here. If operators need a second factor, an
// operator without one may not.
func (c *Console) allowed(operator userdb.Entry) bool {
	return c.belongs(operator) && (hasFactor(operator) || !c.requiresFactor(context.Background()))
}

// requiresFactor reports whether operators need a second factor. It returns true if the setting
// cannot be read. The answer is not cached, so that no process lets anybody in after another one
// has required factors.
func (c *Console) requiresFactor(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, settingTimeout)
	defer cancel()
	required, err := admin.FactorsRequired(ctx, c.store)
	return required || err != nil
}

// settingTimeout limits how long a request waits for a setting.
const settingTimeout = 5 * time.Second

func hasFactor(operator userdb.Entry) bool { return len(operator.FactorMethods()) > 0 }

// steps returns how many steps an operator takes to sign in.
func steps(operator userdb.Entry) int {
	if hasFactor(operator) {
		return 2
	}
	return 1
}

// requireSession calls next for operators who are signed in with as many steps as they can take. If
// a session has ended, interrupt answers the forms of typedForms. Before a form of somebody who may
// not be signed in is read, requireSession calls leave: one that arrives slowly must not keep the
// capacity for looking up sessions.
func (c *Console) requireSession(leave func(), next http.Handler) http.Handler {
	auth := c.auth
	auth.Failed = func(w http.ResponseWriter, r *http.Request, err error) {
		leave()
		c.failLookup(w, r, err)
	}
	isSignedIn := func(r *http.Request) bool {
		e := web.Entry(r.Context())
		return e.Key().IsValid() && web.Session(r.Context()).Level() >= steps(e)
	}
	required := auth.Require(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isSignedIn(r) {
			http.Redirect(w, r, "/console/signin", http.StatusSeeOther)
			return
		}
		next.ServeHTTP(w, r)
	}))
	visitor := auth.Visitor(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case isSignedIn(r):
			next.ServeHTTP(w, r)
		case web.Entry(r.Context()).Key().IsValid(): // the second step is missing
			http.Redirect(w, r, "/console/signin", http.StatusSeeOther)
		default:
			leave()
			c.interrupt(w, r)
		}
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.isTyped(r) {
			visitor.ServeHTTP(w, r)
			return
		}
		required.ServeHTTP(w, r)
	})
}

// A secondStep is the data of the page that asks for the second step. By lists the methods of the
// operator. App and Passkey report which of them the page offers.
type secondStep struct {
	Return, By   string
	App, Passkey bool
	Kept         []input // see carriedInputs
}

// showSecondStep shows the page that asks for the second step by one of the methods.
func (c *Console) showSecondStep(w http.ResponseWriter, r *http.Request, methods []string, problems []web.Problem) {
	data := secondStep{
		Return: returnPath(r), By: strings.Join(methods, " "), Kept: carriedInputs(r),
		App: slices.Contains(methods, "totp"), Passkey: c.passkeys != nil && slices.Contains(methods, "passkey"),
	}
	c.show(w, r, statusOf(problems), page{Name: "code", Title: "Second step", Problems: problems, Data: data})
}

// signInCode takes the second step of a sign-in.
func (c *Console) signInCode(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Redirect(w, r, "/console/signin", http.StatusSeeOther)
		return
	}
	leave, ok := c.admit(w, r, WorkSignIn)
	if !ok {
		return
	}
	defer leave()
	byPasskey, guessed := c.hasPasskey(r), false
	var proof userdb.Proof
	var err error
	if byPasskey {
		proof, err = c.passkeyProof(w, r)
	} else {
		proof, err = enteredProof(r.PostFormValue("code"))
	}
	var e userdb.Entry
	if err == nil {
		e, err = c.auth.Prove(w, r, proof)
		// Only wrong codes are guesses: nobody guesses passkeys, and the answer to another
		// challenge is refused before the ticket is checked.
		guessed = !byPasskey && errors.Is(err, userdb.ErrLogin)
	}
	var name string
	if guessed {
		name = c.ticketHolder(r)
	}
	leave() // a client that reads slowly must not keep the capacity
	problems := web.Problems(err)
	if byPasskey {
		problems = passkeyProblems(err)
	}
	switch {
	case err == nil:
		c.recordAction(r, userdb.EventOperatorLogin, e.Text(admin.OperatorName), "")
		c.respondSignedIn(w, r, e)
	case isAny(err, userdb.ErrNotFound, userdb.ErrConflict):
		c.showSignIn(w, r, []web.Problem{{Code: userdb.CodeLogin, Text: "This took too long, or there were too many wrong codes. Enter your password again."}})
	case isServiceProblem(problems):
		c.fail(w, r, err)
	default:
		if guessed {
			c.recordGuess(r, err, name)
		}
		c.showSecondStep(w, r, strings.Fields(r.PostFormValue("by")), problems)
	}
}

// enteredProof returns the proof that an operator entered: six digits are a code of an app, and
// everything else is a recovery code. An empty text is an error, so that it does not count as an
// attempt.
func enteredProof(entered string) (userdb.Proof, error) {
	digits := strings.Join(strings.Fields(entered), "")
	switch {
	case digits == "":
		return userdb.Proof{}, &userdb.FieldError{Err: userdb.ErrInvalid, Field: "code", Rule: "required", Reason: "no code was entered"}
	case len(digits) == 6 && strings.Trim(digits, "0123456789") == "":
		return userdb.TOTP(digits), nil
	}
	return userdb.RecoveryCode(entered), nil
}

type secretKey struct{}

// sessionSecret returns the secret of the session of the operator who sent a request.
func (c *Console) sessionSecret(r *http.Request) string {
	if secret, ok := r.Context().Value(secretKey{}).(string); ok {
		return secret
	}
	return c.auth.Secret(r)
}

// verify checks the password of an operator again and, if they have a second factor, a code. If
// both are right, it replaces the session, so use the returned request from then on.
func (c *Console) verify(w http.ResponseWriter, r *http.Request, password, code string) (*http.Request, []web.Problem, error) {
	two := hasFactor(web.Entry(r.Context()))
	var proof userdb.Proof
	var err error
	if two {
		if proof, err = enteredProof(code); err != nil {
			return r, web.Problems(err), err
		}
	}
	if err = c.auth.Verify(r, password); err != nil || !two {
		return r, web.Problems(err), err
	}
	r, err = c.raise(w, r, proof)
	return r, codeProblems(err), err
}

// raise replaces the session of an operator with one of level 2 that is verified now. Use the
// returned request from then on.
func (c *Console) raise(w http.ResponseWriter, r *http.Request, proof userdb.Proof) (*http.Request, error) {
	_, s, secret, err := c.operators.RaiseSession(r.Context(), c.auth.Secret(r), proof, c.auth.SessionOptions(r))
	if err != nil {
		return r, err
	}
	c.auth.Replace(w, r, s, secret)
	return r.WithContext(context.WithValue(r.Context(), secretKey{}, secret)), nil
}

// codeProblems returns the problems of an error about a code.
func codeProblems(err error) []web.Problem {
	problems := web.Problems(err)
	for i := range problems {
		if problems[i].Field == "" {
			problems[i].Field = "code"
			problems[i].Text = web.Texts.Text(problems[i])
		}
	}
	return problems
}
