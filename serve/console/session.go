package console

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/store/token"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
)

// setup creates the first operator from the form behind the set-up link. It shows no form if the
// link has been used, has expired or is invalid.
func (c *Console) setup(w http.ResponseWriter, r *http.Request) {
	leave, ok := c.admit(w, r, WorkSignIn)
	if !ok {
		return
	}
	defer leave()
	token := r.FormValue("token")
	err := admin.CheckSetup(r.Context(), c.store, token)
	var problems []web.Problem
	if err == nil && r.Method == http.MethodPost {
		var e userdb.Entry
		e, err = admin.SetUp(r.Context(), c.store, token, r.PostFormValue("name"), r.PostFormValue("password"))
		if err == nil {
			c.recordAction(r, userdb.EventOperatorAdd, e.Text(admin.OperatorName), e.Text(admin.OperatorName))
			// The link proves access to the command line, as a link of 'operator enrol' does.
			if c.requiresFactor(r.Context()) {
				c.continueSetup(w, r, e, leave)
				return
			}
			err = c.auth.Start(w, r, e)
		}
		if err == nil {
			http.Redirect(w, r, "/console", http.StatusSeeOther)
			return
		}
		problems = web.Problems(err)
	}
	leave() // a client that reads slowly must not keep the capacity
	switch {
	case errors.Is(err, userdb.ErrNotFound):
		c.show(w, r, http.StatusGone, page{Name: "message", Title: "This link is no longer valid", Data: "A set-up link is valid for one hour, and only until there is an operator. If you have just sent its form, that may have created you already: sign in. You can also create an operator at any time with “userdb operator add NAME”."})
		return
	case isServiceProblem(problems), err != nil && len(problems) == 0:
		c.fail(w, r, err)
		return
	}
	c.show(w, r, statusOf(problems), page{Name: "setup", Title: "Create the first operator", Problems: problems, Data: token})
}

// continueSetup lets the first operator, who was just created, enrol a second factor.
func (c *Console) continueSetup(w http.ResponseWriter, r *http.Request, e userdb.Entry, leave func()) {
	token, err := admin.IssueEnrolLink(r.Context(), c.store, hints.Key(e.Key()))
	var one enrolment
	if err == nil {
		one, err = c.enrolFirst(w, r, e, token)
	}
	leave()
	if err != nil {
		c.fail(w, r, err)
		return
	}
	c.showEnrolment(w, r, one, nil)
}

// A signInPage is the data of the page to sign in. If Passkeys is set, it offers passkeys.
type signInPage struct {
	Return   string
	Passkeys bool
	Kept     []input // see carriedInputs
}

// signIn signs an operator in, or takes the first of two steps. It is throttled like every login
// and does not reveal what was wrong.
func (c *Console) signIn(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		c.showSignIn(w, r, nil)
		return
	}
	leave, ok := c.admit(w, r, WorkSignIn)
	if !ok {
		return
	}
	defer leave()
	lacksFactor := false // and that is the only reason why the operator is refused
	auth := c.auth
	auth.Allowed = func(e userdb.Entry) bool {
		lacksFactor = c.belongs(e) && !c.allowed(e)
		return c.allowed(e)
	}
	e, err := auth.SignIn(w, r, r.PostFormValue("name"), r.PostFormValue("password"))
	leave() // a client that reads slowly must not keep the capacity
	refused, isRefused := errors.AsType[*userdb.FactorError](err)
	problems := web.Problems(err)
	switch {
	case err == nil:
		c.recordAction(r, userdb.EventOperatorLogin, e.Text(admin.OperatorName), "")
		c.respondSignedIn(w, r, e)
		return
	case isRefused:
		c.showSecondStep(w, r, refused.Methods, nil)
		return
	case isServiceProblem(problems):
		c.fail(w, r, err)
		return
	}
	c.recordGuess(r, err, c.operatorNamed(r, r.PostFormValue("name")))
	if lacksFactor {
		c.show(w, r, http.StatusForbidden, page{Name: "message", Title: "You need a second step", Data: "Operators sign in with two steps here, and you have no second step yet. Ask somebody with access to the command line for a link: “userdb operator enrol NAME”."})
		return
	}
	c.showSignIn(w, r, problems)
}

func (c *Console) showSignIn(w http.ResponseWriter, r *http.Request, problems []web.Problem) {
	data := signInPage{returnPath(r), c.passkeys != nil, carriedInputs(r)}
	c.show(w, r, statusOf(problems), page{Name: "signin", Title: "Sign in", Problems: problems, Data: data})
}

// recordGuess records a failed login. Attempts whose password was not checked are left out: anybody
// can make any number of them.
func (c *Console) recordGuess(r *http.Request, err error, name string) {
	if !errors.Is(err, userdb.ErrTooManyAttempts) {
		c.recordAction(r, userdb.EventOperatorLoginFailed, "", name)
	}
}

// operatorNamed returns the stored name of the operator whose name was entered, or "" if this
// console has no such operator. The entered text itself is never recorded, because it may be a
// password.
func (c *Console) operatorNamed(r *http.Request, entered string) string {
	return c.nameOf(c.operators.Find(r.Context(), hints.Field(admin.OperatorName, entered)))
}

// ticketHolder returns the stored name of the operator who took the first step of a sign-in, or ""
// if this console has no such operator. The ticket of the request must have been accepted.
func (c *Console) ticketHolder(r *http.Request) string {
	uid, _ := token.SecretUID(c.auth.Ticket(r))
	return c.nameOf(c.operators.Find(r.Context(), hints.UID(uid)))
}

// nameOf returns the name of the operator that Find returned, or "" if Find found none or the
// operator may not use this console.
func (c *Console) nameOf(e userdb.Entry, err error) string {
	if err != nil || !c.belongs(e) {
		return ""
	}
	return e.Text(admin.OperatorName)
}

// verifiedFor is how long an operator who has entered the password is not asked for it again.
const verifiedFor = 10 * time.Minute

// verifyName is the name of the input for the operator's own password. No facet has such a name.
const verifyName = "~password"

// A verification asks for the operator's password and, if they have a second factor, for a code. It
// carries the submitted form. If the form sets the password of an account, that password is left
// out, and the next page asks for it again: if one form had both passwords, a password manager
// would take the account's for the operator's new one.
type verification struct {
	Path, Back  string // Back is the page of the job whose file was requested, or ""
	Inputs      []input
	NewPassword bool   // the form sets a password
	Code        bool   // also ask for a code
	App         bool   // the code may be that of an app
	Passkey     bool   // a passkey is enough
	Packed      string // the inputs, encoded as one, for the form of the passkey
}

// requirePassword returns the handler of a route. If the route needs the password and the operator
// last gave it more than verifiedFor ago, the handler asks for it first.
func (c *Console) requirePassword(rt route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		passkey := c.unpackForm(w, r)
		if !rt.password(r) {
			rt.handler(w, r)
			return
		}
		operator := web.Entry(r.Context())
		now, err := c.now(r.Context(), operator)
		if err != nil {
			c.fail(w, r, err)
			return
		}
		if now.Sub(web.Session(r.Context()).VerifiedAt(steps(operator))) <= verifiedFor {
			rt.handler(w, r)
			return
		}
		if passkey == nil && !r.PostForm.Has(verifyName) {
			c.askPassword(w, r, rt, nil)
			return
		}
		verified, problems, err := c.verifyAgain(w, r, passkey)
		switch {
		case err == nil:
			rt.handler(w, verified)
		case isServiceProblem(problems):
			c.fail(w, r, err)
		default:
			c.askPassword(w, r, rt, problems)
		}
	}
}

// verifyAgain checks the passkey or, if it is nil, the password with which an operator confirms a
// request. It records a wrong password or code. Use the returned request from then on.
func (c *Console) verifyAgain(w http.ResponseWriter, r *http.Request, passkey *givenPasskey) (*http.Request, []web.Problem, error) {
	if passkey != nil {
		return c.verifyPasskey(w, r, passkey)
	}
	r, problems, err := c.verify(w, r, r.PostForm.Get(verifyName), r.PostForm.Get(codeName))
	for i := range problems {
		if problems[i].Rule == "login" && problems[i].Field == "" {
			problems[i].Text = "Wrong password."
		}
	}
	guessed := err != nil && !isServiceProblem(problems) && !errors.Is(err, userdb.ErrInvalid)
	if guessed {
		c.recordGuess(r, err, senderName(r))
	}
	return r, problems, err
}

// askPassword shows the page that asks operators to confirm a request. problems are those of the
// last attempt.
func (c *Console) askPassword(w http.ResponseWriter, r *http.Request, rt route, problems []web.Problem) {
	operator := web.Entry(r.Context())
	v := verification{
		Path: r.URL.EscapedPath(), NewPassword: rt.setsPassword(), Code: hasFactor(operator),
		App: slices.Contains(operator.FactorMethods(), "totp"), Passkey: c.usesPasskey(operator),
	}
	if strings.HasSuffix(rt.pattern, "/files/{name}") {
		v.Back = "/console/jobs/" + escapeSegment(r.PathValue("id"))
	}
	packed := url.Values{}
	for _, name := range slices.Sorted(maps.Keys(r.PostForm)) {
		if name == verifyName || name == codeName || name == "password" && rt.setsPassword() {
			continue
		}
		packed[name] = r.PostForm[name]
		for _, value := range packed[name] {
			v.Inputs = append(v.Inputs, input{Name: name, Value: value})
		}
	}
	v.Packed = packed.Encode()
	title := "Confirm your password"
	if v.Passkey {
		title = "Confirm that it is you"
	}
	c.show(w, r, statusOf(problems), page{Name: "verify", Title: title, Problems: problems, Data: v})
}

// escapedDots replaces escaped dots as browsers do before they resolve a path.
var escapedDots = strings.NewReplacer("%2e", ".", "%2E", ".")

// returnPath returns the page of the console to open after signing in. A path with .. in it could
// lead out of the console, so it does not count.
func returnPath(r *http.Request) string {
	to := web.ReturnPath(r)
	at, _, _ := strings.Cut(to, "?")
	at = escapedDots.Replace(at)
	if path.Clean(at) != at || at != "/console" && !strings.HasPrefix(at, "/console/") {
		return "/console"
	}
	return to
}

func (c *Console) signOut(w http.ResponseWriter, r *http.Request) {
	if err := c.auth.SignOut(w, r); err != nil {
		c.fail(w, r, err)
		return
	}
	http.Redirect(w, r, "/console/signin", http.StatusSeeOther)
}

func accountPath(typ, uid string) string {
	return typePath(typ) + "/" + escapeSegment(uid)
}

// typePath returns the path of a type's list.
func typePath(typ string) string { return "/console/types/" + escapeSegment(typ) }

// escapeSegment escapes text as one segment of a path.
func escapeSegment(text string) string { return strings.ReplaceAll(url.PathEscape(text), ".", "%2E") }
