package serve

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

func (s *Service) registerFactors() {
	login, read := []string{admin.ScopeLogin}, []string{admin.ScopeRead}
	factors := typePrefix + "/entries/{uid}/factors"
	handle(s, route{id: "loginFactor", method: "POST", path: typePrefix + "/login/factor", scopes: login, summary: "Take the second step of a login, with the ticket of the first, and begin a session on request"}, logInFactor)
	handle(s, route{id: "raiseSession", method: "POST", path: "/v1/session/factor", scopes: login, summary: "Take the second step for a session, and replace it with a new one; except with a passkey, the password must have been checked within ten minutes"}, raiseSession)
	handleType(s, route{id: "listFactors", method: "GET", path: factors, scopes: read, summary: "List the second factors of an entry, without secrets"}, listFactors)
	handleType(s, route{id: "enrolFactor", method: "POST", path: factors, scopes: login, summary: "Begin to enrol an authenticator app or a passkey", status: http.StatusCreated}, enrolFactor)
	handle(s, route{id: "confirmFactor", method: "POST", path: factors + "/{id}/confirm", scopes: login, summary: "Enrol an authenticator app with a code from it, or a passkey with its answer; the first factor ends all other sessions"}, confirmFactor)
	handleType(s, route{id: "removeFactor", method: "DELETE", path: factors + "/{id}", scopes: login, summary: "Remove a second factor and end all sessions; without the session of the owner, this needs the scope admin"}, removeFactor)
	handleType(s, route{id: "replaceRecoveryCodes", method: "POST", path: typePrefix + "/entries/{uid}/recovery-codes", scopes: login, summary: "Replace the recovery codes; without the session of the owner, this needs the scope admin"}, replaceRecoveryCodes)
}

// A SecondStep holds a visitor's proof for the second step of a login.
type SecondStep struct {
	TOTP         string `json:"totp,omitempty" maxLength:"64" example:"123456" doc:"a code from an authenticator app"`
	RecoveryCode string `json:"recovery_code,omitempty" maxLength:"64" example:"0a1b2-c3d4e"`

	Passkey *PasskeyAnswer `json:"passkey,omitempty" doc:"the answer to a challenge for this step"`
}

// check returns an error if there is not exactly one proof, or if a passkey's answer is too long.
func (s SecondStep) check() error {
	n := 0
	for _, given := range []bool{s.TOTP != "", s.RecoveryCode != "", s.Passkey != nil} {
		if given {
			n++
		}
	}
	switch {
	case n != 1:
		return usageProblem("want exactly one of totp, recovery_code and passkey")
	case s.Passkey != nil:
		return s.Passkey.check()
	}
	return nil
}

// proof returns the proof. Call it after check.
func (s SecondStep) proof(c *call, t *userdb.Type) (userdb.Proof, error) {
	switch {
	case s.Passkey != nil:
		return s.Passkey.proof(c, t)
	case s.TOTP != "":
		return userdb.TOTP(s.TOTP), nil
	}
	return userdb.RecoveryCode(s.RecoveryCode), nil
}

type loginFactorInput struct {
	TypePath
	Body struct {
		Visitor
		SecondStep
		Ticket  string          `json:"ticket" maxLength:"1024" doc:"from the response to the first step, whose code is factor"`
		Session *SessionOptions `json:"session,omitempty" doc:"if present, a session of level 2 begins"`
	}
}

func logInFactor(ctx context.Context, c *call, in *loginFactorInput) (*signedOutput, error) {
	if err := in.Body.SecondStep.check(); err != nil {
		return nil, err
	}
	t, err := c.findType(ctx, in.Type)
	if err != nil {
		return nil, err
	}
	if _, err := in.Body.parseSession(in.Body.Session); err != nil {
		return nil, err
	}
	p, err := in.Body.proof(c, t)
	if err != nil {
		return nil, proofError(err)
	}
	e, err := t.Prove(ctx, in.Body.Ticket, p, in.Body.attempt())
	if errors.Is(err, userdb.ErrNotFound) {
		err = problem(userdb.CodeLogin, "the ticket has expired, was used, or had too many attempts: log in again")
	}
	if err != nil {
		return nil, proofError(err)
	}
	return signIn(ctx, t, e, in.Body.Visitor, in.Body.Session)
}

type raiseInput struct {
	Body struct {
		Visitor
		SecondStep
		SessionOptions
		Secret string `json:"secret" maxLength:"1024" doc:"of the session to replace"`
	}
}

func raiseSession(ctx context.Context, c *call, in *raiseInput) (*signedOutput, error) {
	if err := in.Body.SecondStep.check(); err != nil {
		return nil, err
	}
	o, err := in.Body.parseOptions(in.Body.SessionOptions)
	if err != nil {
		return nil, err
	}
	t, _, _, err := c.findSession(ctx, in.Body.Secret)
	if errors.Is(err, userdb.ErrNotFound) {
		err = errSessionEnded
	}
	if err != nil {
		return nil, err
	}
	p, err := in.Body.proof(c, t)
	if err != nil {
		return nil, proofError(err)
	}
	e, s, secret, err := t.RaiseSession(ctx, in.Body.Secret, p, o)
	if errors.Is(err, userdb.ErrNotFound) {
		err = errSessionEnded
	}
	if err != nil {
		return nil, proofError(err)
	}
	return &signedOutput{etagOf(e), SignedIn{Entry: entryOf(e), Session: &NewSession{secret, sessionOf(s)}}}, nil
}

var errSessionEnded = problem(userdb.CodeLogin, "the session has ended")

var errProof = problem(userdb.CodeLogin, "the code or the answer of the passkey is wrong or late, or was used before")

// proofError returns errProof if err means that a proof was refused. It returns other errors
// unchanged.
func proofError(err error) error {
	if _, is := errors.AsType[*Problem](err); !is && userdb.CodeOf(err) == userdb.CodeLogin {
		return errProof
	}
	return err
}

// Factor describes a second factor of an entry.
type Factor struct {
	ID     string    `json:"id"`
	Kind   string    `json:"kind" enum:"totp,recovery,passkey" doc:"totp is an authenticator app, recovery a set of recovery codes"`
	Name   string    `json:"name,omitempty"`
	Added  time.Time `json:"added"`
	Used   time.Time `json:"used" doc:"when a login last used it, or when it was added"`
	Unused *int      `json:"unused,omitempty" doc:"for recovery, how many codes can still be used"`
}

type factorsOutput struct {
	Body struct {
		Factors []Factor `json:"factors" doc:"the oldest first, recovery codes last"`
	}
}

func listFactors(ctx context.Context, c *call, t *userdb.Type, in *EntryPath) (*factorsOutput, error) {
	all, err := t.Factors(ctx, in.hint())
	if err != nil {
		return nil, asNotFound(err)
	}
	out := &factorsOutput{}
	out.Body.Factors = []Factor{}
	for _, f := range all {
		described := Factor{ID: f.ID, Kind: f.Method, Name: f.Name, Added: f.Added.UTC(), Used: f.Used.UTC()}
		if f.Method == "recovery" {
			described.Unused = &f.Left
		}
		out.Body.Factors = append(out.Body.Factors, described)
	}
	return out, nil
}

// checkOwnSession returns an error unless the secret belongs to a session of the entry in the path.
func checkOwnSession(ctx context.Context, t *userdb.Type, at EntryPath, secret string) error {
	e, _, err := t.Session(ctx, secret)
	switch {
	case err != nil && !errors.Is(err, userdb.ErrNotFound):
		return err
	case err != nil:
		return errSessionEnded
	}
	named, err := t.Find(ctx, at.hint())
	if err == nil && named.Key() != e.Key() {
		err = problem(userdb.CodeLogin, "the session is that of another entry")
	}
	return asNotFound(err)
}

type enrolInput struct {
	EntryPath
	Body struct {
		Kind    string `json:"kind" enum:"totp,passkey"`
		Name    string `json:"name,omitempty" maxLength:"64" example:"my phone" doc:"helps the owner to tell factors apart"`
		Issuer  string `json:"issuer,omitempty" maxLength:"256" example:"Example" doc:"for totp, the service, as the app shows it"`
		Account string `json:"account,omitempty" maxLength:"256" example:"ada@example.com" doc:"the user, as the app or the browser shows them; the UID if absent"`
		Session string `json:"session" maxLength:"1024" doc:"the secret of the owner's session, verified within ten minutes; on level 2 if the entry has a factor"`
	}
}

type enrolOutput struct {
	Body struct {
		ID     string `json:"id" doc:"the id for confirm, within an hour; always passkey for a passkey"`
		Secret string `json:"secret,omitempty" doc:"for totp, in base32, to be entered into the app"`
		URI    string `json:"uri,omitempty" example:"otpauth://totp/…" doc:"for totp, for a QR code"`
		Challenge
	}
}

func enrolFactor(ctx context.Context, c *call, t *userdb.Type, in *enrolInput) (*enrolOutput, error) {
	if err := checkOwnSession(ctx, t, in.EntryPath, in.Body.Session); err != nil {
		return nil, err
	}
	if in.Body.Kind == "passkey" {
		return beginPasskey(ctx, c, t, in)
	}
	e, err := t.EnrolTOTP(ctx, in.Body.Session, userdb.TOTPOptions{Name: in.Body.Name, Issuer: in.Body.Issuer, Account: in.Body.Account})
	if err != nil {
		return nil, err
	}
	out := &enrolOutput{}
	out.Body.ID, out.Body.Secret, out.Body.URI = e.ID, e.Secret, e.URI
	return out, nil
}

// FactorPath selects a second factor of an entry.
type FactorPath struct {
	EntryPath
	ID string `path:"id" maxLength:"64"`
}

type confirmInput struct {
	FactorPath
	Body struct {
		Visitor
		SessionOptions
		Code    string         `json:"code,omitempty" maxLength:"64" example:"123456" doc:"of the authenticator app"`
		Passkey *PasskeyAnswer `json:"passkey,omitempty" doc:"the new passkey"`
		Session string         `json:"session" maxLength:"1024" doc:"the secret of the owner's session"`
	}
}

type factorChangeOutput struct{ Body FactorChange }

// FactorChange holds the recovery codes and the session that the owner gets after a change of
// second factors.
type FactorChange struct {
	RecoveryCodes []string    `json:"recovery_codes,omitempty" doc:"new recovery codes, shown now and never again"`
	Session       *NewSession `json:"session,omitempty" doc:"present if all earlier sessions ended"`
}

func factorChangeOf(c userdb.FactorChange) *factorChangeOutput {
	out := &factorChangeOutput{FactorChange{RecoveryCodes: c.RecoveryCodes}}
	if c.Secret != "" {
		out.Body.Session = &NewSession{c.Secret, sessionOf(c.Session)}
	}
	return out
}

func confirmFactor(ctx context.Context, c *call, in *confirmInput) (*factorChangeOutput, error) {
	ctx = in.Body.withOrigin(ctx)
	switch {
	case (in.Body.Code == "") == (in.Body.Passkey == nil):
		return nil, usageProblem("want either code or passkey")
	case in.Body.Passkey != nil:
		if err := in.Body.Passkey.check(); err != nil {
			return nil, err
		}
	}
	t, err := c.findType(ctx, in.Type)
	if err != nil {
		return nil, err
	}
	o, err := in.Body.parseOptions(in.Body.SessionOptions)
	if err == nil {
		err = checkOwnSession(ctx, t, in.EntryPath, in.Body.Session)
	}
	if err != nil {
		return nil, err
	}
	var change userdb.FactorChange
	if in.Body.Passkey != nil {
		change, err = confirmPasskey(ctx, c, t, in, o)
	} else {
		change, err = t.ConfirmTOTP(ctx, in.Body.Session, in.ID, in.Body.Code, o)
	}
	if len(change.RecoveryCodes) > 0 {
		err = nil // the factor was added, and its owner sees the codes now or never
	}
	if err != nil {
		return nil, proofError(err)
	}
	return factorChangeOf(change), nil
}

// An OwnerBody holds the session of somebody who changes their own factors. Operators may leave it
// out.
type OwnerBody struct {
	Visitor
	SessionOptions
	Session string `json:"session,omitempty" maxLength:"1024" doc:"the secret of the owner's session; not needed with the scope admin"`
}

// byOperator reports whether a request acts for an operator. A request with a session, which must
// be one of the entry's, acts for the owner instead. byOperator returns an error if there is
// neither a session nor a key with the scope admin.
func (b *OwnerBody) byOperator(ctx context.Context, c *call, t *userdb.Type, at EntryPath) (bool, error) {
	switch {
	case b != nil && b.Session != "":
		return false, checkOwnSession(ctx, t, at, b.Session)
	case c.key.HasScope(admin.ScopeAdmin):
		return true, nil
	}
	return false, problem(userdb.CodeNotVerified, "without the scope admin, this needs the session of the owner")
}

type removeFactorInput struct {
	FactorPath
	Body *OwnerBody `required:"false"`
}

func removeFactor(ctx context.Context, c *call, t *userdb.Type, in *removeFactorInput) (*factorChangeOutput, error) {
	byOperator, err := in.Body.byOperator(ctx, c, t, in.EntryPath)
	if err != nil {
		return nil, err
	}
	if byOperator {
		if err := checkFactor(ctx, t, in.FactorPath); err != nil {
			return nil, err
		}
		_, err := t.ResetFactors(ctx, in.hint(), in.ID)
		return &factorChangeOutput{}, asNotFound(err)
	}
	o, err := in.Body.parseOptions(in.Body.SessionOptions)
	if err != nil {
		return nil, err
	}
	change, err := t.RemoveFactor(in.Body.withOrigin(ctx), in.Body.Session, in.ID, o)
	if err != nil {
		return nil, err
	}
	return factorChangeOf(change), nil
}

// checkFactor returns an error unless the entry has the factor in the path.
func checkFactor(ctx context.Context, t *userdb.Type, at FactorPath) error {
	e, err := t.Find(ctx, at.hint())
	if err == nil && !slices.Contains(e.FactorIDs(), at.ID) {
		err = problem(userdb.CodeNotFound, "the entry has no such factor")
	}
	return asNotFound(err)
}

type recoveryInput struct {
	EntryPath
	Body *OwnerBody `required:"false"`
}

func replaceRecoveryCodes(ctx context.Context, c *call, t *userdb.Type, in *recoveryInput) (*factorChangeOutput, error) {
	byOperator, err := in.Body.byOperator(ctx, c, t, in.EntryPath)
	if err != nil {
		return nil, err
	}
	var codes []string
	if byOperator {
		codes, err = t.ResetRecoveryCodes(ctx, in.hint())
	} else {
		codes, err = t.ReplaceRecoveryCodes(in.Body.withOrigin(ctx), in.Body.Session)
	}
	if err != nil {
		return nil, asNotFound(err)
	}
	return &factorChangeOutput{FactorChange{RecoveryCodes: codes}}, nil
}
