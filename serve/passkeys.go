package serve

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/coffeenode/userdb/passkey"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/userdb"
)

func (s *Service) registerPasskeys() {
	login := []string{admin.ScopeLogin}
	handleType(s, route{id: "challengePasskey", method: "POST", path: typePrefix + "/login/passkey/challenge", scopes: login, summary: "Get a passkey challenge for signing in without a name or a password"}, challengePasskey)
	handle(s, route{id: "loginPasskey", method: "POST", path: typePrefix + "/login/passkey", scopes: login, summary: "Sign in with the answer of a passkey, and begin a session on request"}, logInPasskey)
	handleType(s, route{id: "challengeFactor", method: "POST", path: typePrefix + "/login/factor/challenge", scopes: login, summary: "Get a passkey challenge for the second step of a login"}, challengeFactor)
	handle(s, route{id: "challengeSession", method: "POST", path: "/v1/session/factor/challenge", scopes: login, summary: "Get a passkey challenge for replacing a session"}, challengeSession)
}

// passkeyEnrolment is the ID of every enrolment of a passkey. The store keeps nothing about these
// enrolments: the state of the challenge identifies one.
const passkeyEnrolment = "passkey"

func (c *call) passkeysOf(t *userdb.Type) (*passkey.Passkeys, error) {
	config := c.service.options.Passkeys
	if config == nil {
		return nil, problem(userdb.CodeInvalid, "this service has no passkeys: 'userdb serve' needs --passkey-rp and --passkey-origin")
	}
	keys, err := passkey.New(c.db, t.Name(), *config)
	return keys, passkeyError(err)
}

// passkeyError returns a problem that points to no member of the body if err means that a passkey
// is invalid or taken, because no single member is wrong then. It returns other errors unchanged.
func passkeyError(err error) error {
	code := userdb.CodeOf(err)
	if err == nil || code != userdb.CodeInvalid && code != userdb.CodeDuplicate {
		return err
	}
	p := problemOf(err)
	for i := range p.Errors {
		p.Errors[i].Pointer = ""
	}
	return p
}

// WebAuthnJSON holds an object that WebAuthn defines.
type WebAuthnJSON struct{ json.RawMessage }

// Schema implements [huma.SchemaProvider].
func (WebAuthnJSON) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: &huma.Schema{}}
}

// A PasskeyAnswer holds what a browser returned, and the state of the challenge.
type PasskeyAnswer struct {
	State  string       `json:"state" maxLength:"1024" doc:"from the response with the challenge"`
	Answer WebAuthnJSON `json:"answer" doc:"the credential that the browser returned, as its toJSON encodes it; at most 64 KiB"`
}

// check returns an error if the answer is too long.
func (a PasskeyAnswer) check() error {
	if len(a.Answer.RawMessage) > passkey.MaxAnswer {
		return problem(userdb.CodeUsage, "the answer of the passkey is too large").withStatus(http.StatusRequestEntityTooLarge)
	}
	return nil
}

// proof returns the answer as a proof.
func (a PasskeyAnswer) proof(c *call, t *userdb.Type) (userdb.Proof, error) {
	keys, err := c.passkeysOf(t)
	if err != nil {
		return userdb.Proof{}, err
	}
	return keys.Proof(a.State, a.Answer.RawMessage)
}

// Challenge holds what a browser needs to ask for a passkey.
type Challenge struct {
	PublicKey WebAuthnJSON `json:"publicKey,omitzero" doc:"the options for navigator.credentials, in JSON as WebAuthn defines it"`
	State     string       `json:"state,omitempty" doc:"must come back with the answer within five minutes; keep it in a cookie, so that only the browser that asked can answer"`
}

// challengeOf returns a challenge as the service sends it.
func challengeOf(c passkey.Challenge) (out Challenge, err error) {
	err = json.Unmarshal(c.Options, &out)
	out.State = c.State
	return out, err
}

type challengeOutput struct{ Body Challenge }

// answerChallenge returns the response with the challenge that begin makes.
func answerChallenge(c *call, t *userdb.Type, begin func(*passkey.Passkeys) (passkey.Challenge, error)) (*challengeOutput, error) {
	keys, err := c.passkeysOf(t)
	if err != nil {
		return nil, err
	}
	challenge, err := begin(keys)
	if err != nil {
		return nil, err
	}
	out := &challengeOutput{}
	out.Body, err = challengeOf(challenge)
	return out, err
}

func challengePasskey(ctx context.Context, c *call, t *userdb.Type, in *TypePath) (*challengeOutput, error) {
	return answerChallenge(c, t, (*passkey.Passkeys).Begin)
}

type challengeFactorInput struct {
	TypePath
	Body struct {
		Ticket string `json:"ticket" maxLength:"1024" doc:"from the response to the first step, whose code is factor"`
	}
}

func challengeFactor(ctx context.Context, c *call, t *userdb.Type, in *challengeFactorInput) (*challengeOutput, error) {
	return answerChallenge(c, t, func(keys *passkey.Passkeys) (passkey.Challenge, error) { return keys.BeginTicket(in.Body.Ticket) })
}

type challengeSessionInput struct {
	Body struct {
		Secret string `json:"secret" maxLength:"1024" doc:"of the session to replace"`
	}
}

func challengeSession(ctx context.Context, c *call, in *challengeSessionInput) (*challengeOutput, error) {
	t, _, _, err := c.findSession(ctx, in.Body.Secret)
	if errors.Is(err, userdb.ErrNotFound) {
		err = errSessionEnded
	}
	if err != nil {
		return nil, err
	}
	return answerChallenge(c, t, func(keys *passkey.Passkeys) (passkey.Challenge, error) { return keys.BeginSession(in.Body.Secret) })
}

type loginPasskeyInput struct {
	TypePath
	Body struct {
		Visitor
		Passkey PasskeyAnswer   `json:"passkey"`
		Session *SessionOptions `json:"session,omitempty" doc:"if present, a session of level 2 begins"`
	}
}

func logInPasskey(ctx context.Context, c *call, in *loginPasskeyInput) (*signedOutput, error) {
	if err := in.Body.Passkey.check(); err != nil {
		return nil, err
	}
	t, err := c.findType(ctx, in.Type)
	if err != nil {
		return nil, err
	}
	if _, err := in.Body.parseSession(in.Body.Session); err != nil {
		return nil, err
	}
	p, err := in.Body.Passkey.proof(c, t)
	if err != nil {
		return nil, proofError(err)
	}
	e, err := t.LoginPasskey(ctx, p, in.Body.attempt())
	if err != nil {
		return nil, proofError(passkeyError(err))
	}
	return signIn(ctx, t, e, in.Body.Visitor, in.Body.Session)
}

// beginPasskey answers a request to enrol a passkey with a challenge.
func beginPasskey(ctx context.Context, c *call, t *userdb.Type, in *enrolInput) (*enrolOutput, error) {
	keys, err := c.passkeysOf(t)
	if err != nil {
		return nil, err
	}
	challenge, err := keys.BeginRegistration(ctx, in.Body.Session, passkey.Registration{Account: in.Body.Account, Name: in.Body.Name})
	if err != nil {
		return nil, passkeyError(err)
	}
	out := &enrolOutput{}
	out.Body.ID = passkeyEnrolment
	out.Body.Challenge, err = challengeOf(challenge)
	return out, err
}

// confirmPasskey enrols the passkey in the answer of a browser.
func confirmPasskey(ctx context.Context, c *call, t *userdb.Type, in *confirmInput, o userdb.SessionOptions) (userdb.FactorChange, error) {
	if in.ID != passkeyEnrolment {
		return userdb.FactorChange{}, problem(userdb.CodeNotFound, "passkeys are confirmed under the id passkey")
	}
	keys, err := c.passkeysOf(t)
	if err != nil {
		return userdb.FactorChange{}, err
	}
	change, err := keys.Register(ctx, in.Body.Session, in.Body.Passkey.State, in.Body.Passkey.Answer.RawMessage, "", o)
	return change, passkeyError(err)
}
