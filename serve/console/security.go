package console

import (
	"context"
	"errors"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/web"
	"github.com/coffeenode/userdb/web/qr"
)

// A securityPage shows the second factors of the operator who is signed in.
type securityPage struct {
	factors
	WhyNot      string // why no factor can be added, or ""
	Passkeys    bool   // passkeys can be added
	OldPasskeys bool   // passkeys could be added if this version had made the store
}

// factors holds the second factors of an operator or an account.
type factors struct {
	AppsAndPasskeys []userdb.Factor
	HasCodes        bool
	CodesLeft       int
	Used            bool // HasCodes, and none is left
}

func newFactors(all []userdb.Factor) (f factors) {
	for _, one := range all {
		if one.Method == "recovery" {
			f.HasCodes, f.CodesLeft, f.Used = true, one.Left, one.Left == 0
		} else {
			f.AppsAndPasskeys = append(f.AppsAndPasskeys, one)
		}
	}
	return f
}

// HasPasskey reports whether a passkey is among the factors.
func (f factors) HasPasskey() bool {
	return slices.ContainsFunc(f.AppsAndPasskeys, func(one userdb.Factor) bool { return one.Method == "passkey" })
}

// An enrolment shows an app that an operator is adding. If Token is not "", it is the token of a
// link, and the operator has no second factor yet. If Passkeys is also set, the operator may add a
// passkey in place of the app.
type enrolment struct {
	Path, Token, ID string
	Secret          string        // in groups of four, or "" if it was shown before
	QR              template.HTML // or ""
	Passkeys        bool
}

// whyNoFactor returns why operators cannot enrol a second factor, or "", and whether they can enrol
// passkeys.
func (c *Console) whyNoFactor(ctx context.Context) (why string, passkeys bool, err error) {
	if !c.store.HasKeys() {
		return "No app can be added, because this service has no key to encrypt its secret with. Start “userdb serve” with --key-file FILE.", false, nil
	}
	allowed, passkeys, err := admin.FactorsAllowed(ctx, c.store)
	if err != nil || allowed {
		return "", passkeys && c.passkeys != nil, err
	}
	return "No app can be added yet, because an earlier version of userdb made this store. When all processes have this version, run “userdb operator enrol NAME”, which allows it for all operators.", false, nil
}

// security shows an operator the second factors of their own sign-in.
func (c *Console) security(w http.ResponseWriter, r *http.Request) {
	c.showSecurity(w, r, nil)
}

func (c *Console) showSecurity(w http.ResponseWriter, r *http.Request, problems []web.Problem) {
	var p securityPage
	all, err := c.operators.Factors(r.Context(), hints.Key(web.Entry(r.Context()).Key()))
	if err == nil {
		p.WhyNot, p.Passkeys, err = c.whyNoFactor(r.Context())
	}
	if err != nil {
		c.fail(w, r, err)
		return
	}
	p.factors, p.OldPasskeys = newFactors(all), c.passkeys != nil && p.WhyNot == "" && !p.Passkeys
	c.show(w, r, statusOf(problems), page{Name: "security", Title: "Your sign-in", Problems: problems, Done: doneMessages[r.URL.Query().Get("done")], Data: p})
}

// addApp begins to add an authenticator app.
func (c *Console) addApp(w http.ResponseWriter, r *http.Request) {
	why, _, err := c.whyNoFactor(r.Context())
	if err == nil && why != "" {
		c.showSecurity(w, r, nil)
		return
	}
	var one enrolment
	if err == nil {
		one, err = c.beginEnrolment(r, web.Entry(r.Context()), c.sessionSecret(r))
	}
	if err != nil {
		c.failSecurity(w, r, err)
		return
	}
	one.Path = "/console/security/confirm"
	c.showEnrolment(w, r, one, nil)
}

func (c *Console) showEnrolment(w http.ResponseWriter, r *http.Request, one enrolment, problems []web.Problem) {
	c.show(w, r, statusOf(problems), page{Name: "app", Title: "Add an authenticator app", Problems: problems, Data: one})
}

// beginEnrolment begins to add an app for the operator e. session is the secret of their session.
func (c *Console) beginEnrolment(r *http.Request, e userdb.Entry, session string) (one enrolment, err error) {
	app, err := c.operators.EnrolTOTP(r.Context(), session, userdb.TOTPOptions{
		Name: strings.TrimSpace(r.PostFormValue("label")), Issuer: "userdb console", Account: e.Text(admin.OperatorName),
	})
	if err != nil {
		return one, err
	}
	one.ID = app.ID
	for i := 0; i < len(app.Secret); i += 4 {
		one.Secret += " " + app.Secret[i:min(i+4, len(app.Secret))]
	}
	one.Secret = one.Secret[1:]
	one.QR, err = qr.SVG(app.URI, "QR code for the authenticator app; the secret below it says the same")
	return one, err
}

// confirmFactor adds an app or a passkey if its code or answer in the form is right, and shows the
// recovery codes if it is the first factor.
func (c *Console) confirmFactor(w http.ResponseWriter, r *http.Request) {
	kind := "app"
	if c.hasPasskey(r) {
		kind = "passkey"
	}
	done, err := c.confirmEnrolment(w, r, c.sessionSecret(r))
	switch {
	case kind == "passkey" && isAny(err, userdb.ErrLogin, userdb.ErrDuplicate):
		c.showNewPasskey(w, r, passkeyProblems(err))
		return
	case errors.Is(err, userdb.ErrLogin):
		one := enrolment{Path: "/console/security/confirm", ID: r.PostFormValue("id")}
		c.showEnrolment(w, r, one, codeProblems(err))
		return
	}
	if err != nil {
		c.failSecurity(w, r, err)
		return
	}
	c.recordOwnAction(r, userdb.EventOperatorFactor, senderName(r))
	if len(done.RecoveryCodes) > 0 {
		c.showCodes(w, r, done.RecoveryCodes)
		return
	}
	http.Redirect(w, r, "/console/security?done="+kind, http.StatusSeeOther)
}

// confirmEnrolment adds an app or a passkey for the owner of a session, whose secret is session.
// For a first factor, it also sets the cookie of the session that replaces this one.
func (c *Console) confirmEnrolment(w http.ResponseWriter, r *http.Request, session string) (done userdb.FactorChange, err error) {
	if c.hasPasskey(r) {
		done, err = c.registerPasskey(w, r, session)
	} else {
		code := strings.TrimSpace(r.PostFormValue("code"))
		done, err = c.operators.ConfirmTOTP(r.Context(), session, r.PostFormValue("id"), code, c.auth.SessionOptions(r))
	}
	if len(done.RecoveryCodes) > 0 {
		err = nil // the factor was added, and its owner sees the codes now or never
	}
	c.replaceSession(w, r, done)
	return done, err
}

func (c *Console) replaceSession(w http.ResponseWriter, r *http.Request, done userdb.FactorChange) {
	if done.Secret != "" {
		c.auth.Replace(w, r, done.Session, done.Secret)
	}
}

func (c *Console) showCodes(w http.ResponseWriter, r *http.Request, codes []string) {
	c.show(w, r, http.StatusOK, page{Name: "codes", Title: "Your recovery codes", Data: codes})
}

// removeFactor removes an app or a passkey after a confirmation.
func (c *Console) removeFactor(w http.ResponseWriter, r *http.Request) {
	all, err := c.operators.Factors(r.Context(), hints.Key(web.Entry(r.Context()).Key()))
	if err != nil {
		c.fail(w, r, err)
		return
	}
	own, id := newFactors(all), r.PostFormValue("id")
	if len(own.AppsAndPasskeys) == 1 && c.requiresFactor(r.Context()) {
		c.showSecurity(w, r, []web.Problem{{Text: "Operators need a second step here. Add another app or passkey before you remove the only one."}})
		return
	}
	at := slices.IndexFunc(own.AppsAndPasskeys, func(f userdb.Factor) bool { return f.ID == id })
	if at < 0 {
		c.failSecurity(w, r, userdb.ErrNotFound)
		return
	}
	question := appQuestion{own.AppsAndPasskeys[at], len(own.AppsAndPasskeys) == 1}
	if r.PostFormValue(confirmName) == "" {
		c.show(w, r, http.StatusOK, page{Name: "app-remove", Title: "Remove this " + question.Kind() + "?", Data: question})
		return
	}
	done, err := c.operators.RemoveFactor(r.Context(), c.sessionSecret(r), id, c.auth.SessionOptions(r))
	c.replaceSession(w, r, done)
	if err != nil {
		c.failSecurity(w, r, err)
		return
	}
	c.recordOwnAction(r, userdb.EventOperatorNoFactor, senderName(r))
	http.Redirect(w, r, "/console/security?done=no-"+question.Kind(), http.StatusSeeOther)
}

// An appQuestion asks whether to remove an app or a passkey.
type appQuestion struct {
	App  userdb.Factor
	Last bool
}

// Kind returns what is to be removed: app or passkey.
func (q appQuestion) Kind() string {
	if q.App.Method == "passkey" {
		return "passkey"
	}
	return "app"
}

// replaceCodes replaces the recovery codes of the operator, and shows the new ones.
func (c *Console) replaceCodes(w http.ResponseWriter, r *http.Request) {
	codes, err := c.operators.ReplaceRecoveryCodes(r.Context(), c.sessionSecret(r))
	if len(codes) == 0 {
		c.failSecurity(w, r, err)
		return
	}
	c.recordOwnAction(r, userdb.EventOperatorCodes, senderName(r))
	c.showCodes(w, r, codes)
}

// failSecurity shows what is wrong with a change of the operator's own factors.
func (c *Console) failSecurity(w http.ResponseWriter, r *http.Request, err error) {
	problems := web.Problems(err)
	if isServiceProblem(problems) || isAny(err, userdb.ErrCorrupt) {
		c.fail(w, r, err)
		return
	}
	if isAny(err, userdb.ErrNotFound) {
		problems = []web.Problem{{Code: userdb.CodeNotFound, Text: "This has expired, or was done or undone meanwhile. Begin again."}}
	}
	for i := range problems {
		if p := &problems[i]; p.Field == "factor" && p.Rule == "name" { // shown beside the input
			p.Field = "label"
			if r.PostForm.Has("passkey-label") {
				p.Field = "passkey-label"
			}
		}
	}
	c.showSecurity(w, r, problems)
}

// An enrolPage asks an operator who has opened a link for the password.
type enrolPage struct{ Token, Operator string }

// enrol begins to add the first app of the operator whom a link is for. The link alone gives
// nothing: the password is also needed. If operators need a second factor, the session that begins
// here allows nothing but adding one.
func (c *Console) enrol(w http.ResponseWriter, r *http.Request) {
	c.withLink(w, r, func(r *http.Request, e userdb.Entry, token string, leave func()) {
		name := e.Text(admin.OperatorName)
		var problems []web.Problem
		if r.Method == http.MethodPost {
			attempt := c.auth.Attempt(r)
			attempt.Allowed = c.belongs // the operator has no second factor yet
			signedIn, err := c.operators.Login(r.Context(), name, r.PostFormValue("password"), attempt)
			if err == nil && signedIn.Key() != e.Key() {
				err = userdb.ErrLogin
			}
			var one enrolment
			if err == nil {
				one, err = c.enrolFirst(w, r, signedIn, token)
			}
			leave() // a client that reads slowly must not keep the capacity
			if err == nil {
				c.showEnrolment(w, r, one, nil)
				return
			}
			if problems = web.Problems(err); isServiceProblem(problems) {
				c.fail(w, r, err)
				return
			}
			c.recordGuess(r, err, name)
		}
		leave()
		c.show(w, r, statusOf(problems), page{Name: "enrol", Title: "Set up the second step", Problems: problems, Data: enrolPage{token, name}})
	})
}

// enrolFirst starts a session of an operator without a second factor and begins to add the first.
func (c *Console) enrolFirst(w http.ResponseWriter, r *http.Request, e userdb.Entry, token string) (one enrolment, err error) {
	if before := c.auth.Secret(r); before != "" {
		if err := c.operators.EndSession(r.Context(), before); err != nil {
			return one, err
		}
	}
	s, secret, err := c.operators.StartSession(r.Context(), e, c.auth.SessionOptions(r))
	if err != nil {
		return one, err
	}
	c.auth.Replace(w, r, s, secret)
	if !c.requiresFactor(r.Context()) { // the session gives full access
		c.recordAction(r, userdb.EventOperatorLogin, e.Text(admin.OperatorName), "")
	}
	if one, err = c.beginEnrolment(r, e, secret); err != nil {
		return one, err
	}
	one.Path, one.Token = "/console/enrol/confirm", token
	_, one.Passkeys, err = c.whyNoFactor(r.Context())
	return one, err
}

// enrolConfirm adds the first app or passkey of an operator, and spends the link.
func (c *Console) enrolConfirm(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Redirect(w, r, "/console/signin", http.StatusSeeOther)
		return
	}
	c.withLink(w, r, func(r *http.Request, e userdb.Entry, token string, leave func()) {
		secret := c.auth.Secret(r)
		signedIn, _, err := c.operators.Session(r.Context(), secret)
		if err == nil && signedIn.Key() != e.Key() {
			err = userdb.ErrNotFound
		}
		var done userdb.FactorChange
		if err == nil {
			done, err = c.confirmEnrolment(w, r, secret)
		}
		name := e.Text(admin.OperatorName)
		if err == nil {
			err = admin.SpendEnrolLink(r.Context(), c.operators, token)
			if err != nil { // the operator has a factor now, so the link is of no use to anybody
				c.options.OnFailure(r, err)
			}
			c.recordAction(r, userdb.EventOperatorFactor, name, name)
			if c.requiresFactor(r.Context()) {
				c.recordAction(r, userdb.EventOperatorLogin, name, "")
			}
			leave()
			c.showCodes(w, r, done.RecoveryCodes)
			return
		}
		leave()
		problems := codeProblems(err)
		switch {
		case c.hasPasskey(r) && isAny(err, userdb.ErrLogin, userdb.ErrDuplicate):
			problems = []web.Problem{{Code: userdb.CodeOf(err), Text: "The passkey could not be added. Enter your password, and try again or add an app."}}
			c.show(w, r, statusOf(problems), page{Name: "enrol", Title: "Set up the second step", Problems: problems, Data: enrolPage{token, name}})
		case isAny(err, userdb.ErrLogin):
			c.showEnrolment(w, r, enrolment{Path: "/console/enrol/confirm", Token: token, ID: r.PostFormValue("id")}, problems)
		case isAny(err, userdb.ErrNotFound, userdb.ErrNotVerified, userdb.ErrConflict):
			problems = []web.Problem{{Text: "This took too long. Enter your password again."}}
			c.show(w, r, http.StatusUnauthorized, page{Name: "enrol", Title: "Set up the second step", Problems: problems, Data: enrolPage{token, name}})
		default:
			c.fail(w, r, err)
		}
	})
}

// withLink calls do for a visitor with a valid link for a first second factor, and the operator
// whom it is for. leave gives back the capacity of the request.
func (c *Console) withLink(w http.ResponseWriter, r *http.Request, do func(r *http.Request, e userdb.Entry, token string, leave func())) {
	leave, ok := c.admit(w, r, WorkSignIn)
	if !ok {
		return
	}
	defer leave()
	token := r.FormValue("token")
	e, err := admin.EnrolLinkOwner(r.Context(), c.operators, token)
	if err == nil && !c.belongs(e) {
		err = userdb.ErrNotFound
	}
	why := ""
	if err == nil {
		why, _, err = c.whyNoFactor(r.Context())
	}
	switch {
	case errors.Is(err, userdb.ErrNotFound):
		leave()
		c.show(w, r, http.StatusGone, page{Name: "message", Title: "This link is no longer valid", Data: "A link for the second step is valid for one hour and can be used once. “userdb operator enrol NAME” makes another one, if the operator has no second step."})
	case err != nil:
		leave()
		c.fail(w, r, err)
	case why != "":
		leave()
		c.show(w, r, http.StatusServiceUnavailable, page{Name: "message", Title: "Set up the second step", Data: why})
	default:
		do(r, e, token, leave)
	}
}
