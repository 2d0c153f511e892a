package serve

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/serve/scim"
	"github.com/coffeenode/userdb/userdb"
)

func (s *Service) registerTokens() {
	login := []string{admin.ScopeLogin}
	handleType(s, route{id: "issueToken", method: "POST", path: typePrefix + "/tokens", scopes: login, summary: "Create a token that can be used once"}, issueToken)
	handle(s, route{id: "peekToken", method: "POST", path: "/v1/tokens/peek", scopes: login, summary: "Get the entry and the value of a token, without spending it"}, peekToken)
	handle(s, route{id: "redeemToken", method: "POST", path: "/v1/tokens/redeem", scopes: login, summary: "Redeem a token"}, redeemToken)
	handle(s, route{id: "resetPassword", method: "POST", path: "/v1/password-resets", scopes: login, summary: "Redeem a token to set a new password"}, resetPassword)
	handleType(s, route{id: "invite", method: "POST", path: typePrefix + "/invitations", scopes: login, summary: "Invite the owner of an address to create an account"}, invite)
	handleType(s, route{id: "peekInvitation", method: "POST", path: typePrefix + "/invitations/peek", scopes: login, summary: "Get an invitation, without spending it"}, peekInvitation)
	handleType(s, route{id: "acceptInvitation", method: "POST", path: typePrefix + "/invitations/accept", scopes: login, summary: "Accept an invitation and create its account", status: http.StatusCreated}, acceptInvitation)
}

type issueInput struct {
	TypePath
	Body struct {
		Purpose    string   `json:"purpose" minLength:"1" maxLength:"256" doc:"a word of your own; redeeming a token for change:FIELD sets that facet to the value, and redeeming one for add:FIELD adds the value, verified, to a field that may have several"`
		UID        string   `json:"uid,omitempty" maxLength:"1024" doc:"the UID of the entry; give either this or identifier"`
		Identifier string   `json:"identifier,omitempty" maxLength:"4096" doc:"what a visitor entered; limits apply, and the work is the same whether an entry has it or not"`
		Field      string   `json:"field,omitempty" maxLength:"1024" doc:"the facet with the address that the token is sent to; the address is returned, and verified when the token is redeemed"`
		Value      string   `json:"value,omitempty" maxLength:"4096" doc:"a value that is bound to the token"`
		Life       Duration `json:"life,omitempty" maxLength:"32" example:"1h" doc:"1h if absent; at most 30d"`
		Origin     string   `json:"origin,omitempty" maxLength:"1024"`
	}
}

type issueOutput struct {
	Body struct {
		Secret  string `json:"secret"`
		Address string `json:"address,omitempty" doc:"where to send it: the address in the field, not what was entered"`
	}
}

func issueToken(ctx context.Context, c *call, t *userdb.Type, in *issueInput) (*issueOutput, error) {
	ctx = Visitor{Origin: in.Body.Origin}.withOrigin(ctx)
	tk := userdb.Token{Purpose: in.Body.Purpose, Value: in.Body.Value}
	changed := "" // the field that gets the value
	for _, prefix := range []string{userdb.PurposeChange, userdb.PurposeAdd} {
		if field, changes := strings.CutPrefix(tk.Purpose, prefix); changes {
			if err := c.checkReserved(field); err != nil {
				return nil, err
			}
			changed = field
		}
	}
	var err error
	if tk.Lifetime, err = in.Body.Life.parse("life"); err != nil {
		return nil, err
	}
	out := &issueOutput{}
	switch {
	case (in.Body.UID == "") == (in.Body.Identifier == ""):
		return nil, usageProblem("want either uid or identifier")
	case in.Body.Identifier != "" && in.Body.Field == "":
		return nil, usageProblem("identifier needs field, the facet with the address that the token is sent to")
	case in.Body.Identifier != "":
		out.Body.Secret, out.Body.Address, err = t.IssueForVisitor(ctx, in.Body.Field, in.Body.Identifier, tk, userdb.Attempt{Origin: in.Body.Origin})
	case in.Body.Field != "":
		out.Body.Secret, out.Body.Address, err = t.IssueFor(ctx, hints.UID(in.Body.UID), in.Body.Field, tk)
	default:
		out.Body.Secret, err = t.Issue(ctx, hints.UID(in.Body.UID), tk)
	}
	pointer := func(field string) string {
		switch field {
		case "":
			return ""
		case changed:
			return "/value"
		}
		return "/field"
	}
	return out, pointTo(asNotFound(err), pointer, changed, in.Body.Field)
}

type tokenInput struct {
	Body struct {
		Purpose string `json:"purpose" maxLength:"256"`
		Secret  string `json:"secret" maxLength:"1024"`
	}
}

type tokenOutput struct {
	Body struct {
		Entry   Entry       `json:"entry"`
		Value   string      `json:"value,omitempty" doc:"the value that was bound to the token"`
		Session *NewSession `json:"session,omitempty" doc:"present if one was requested"`
	}
}

// findToken returns the type and the entry of a token, and the token itself. The errors are those
// of search.
func (c *call) findToken(ctx context.Context, purpose, secret string) (t *userdb.Type, e userdb.Entry, tk userdb.Token, err error) {
	t, err = c.search(ctx, func(t *userdb.Type) (err error) {
		e, tk, err = t.Peek(ctx, purpose, secret)
		return err
	})
	return t, e, tk, err
}

func peekToken(ctx context.Context, c *call, in *tokenInput) (*tokenOutput, error) {
	_, e, tk, err := c.findToken(ctx, in.Body.Purpose, in.Body.Secret)
	if err != nil {
		return nil, err
	}
	out := &tokenOutput{}
	out.Body.Entry, out.Body.Value = entryOf(e), tk.Value
	return out, nil
}

type redeemInput struct {
	Body struct {
		Visitor
		Purpose string          `json:"purpose" maxLength:"256"`
		Secret  string          `json:"secret" maxLength:"1024"`
		Owner   string          `json:"owner_session,omitempty" maxLength:"1024" doc:"the secret of the session that the visitor has; if it is a session of the entry, a self-registered entry keeps its password and sessions. Not allowed together with session"`
		Session *SessionOptions `json:"session,omitempty" doc:"if present, a session begins"`
	}
}

func redeemToken(ctx context.Context, c *call, in *redeemInput) (*tokenOutput, error) {
	ctx = in.Body.withOrigin(ctx)
	options, err := in.Body.parseSession(in.Body.Session)
	if err == nil && in.Body.Owner != "" && in.Body.Session != nil {
		err = usageProblem("want either owner_session or session")
	}
	if err != nil {
		return nil, err
	}
	t, _, tk, err := c.findToken(ctx, in.Body.Purpose, in.Body.Secret)
	if err != nil {
		return nil, err
	}
	out := &tokenOutput{}
	if in.Body.Session == nil {
		e, tk, err := t.Redeem(ctx, in.Body.Purpose, in.Body.Secret, userdb.InSession(in.Body.Owner))
		if err != nil {
			return nil, withValue(err, tk)
		}
		out.Body.Entry, out.Body.Value = entryOf(e), tk.Value
		return out, nil
	}
	e, s, secret, err := t.RedeemSession(ctx, in.Body.Purpose, in.Body.Secret, options)
	if err != nil {
		return nil, withValue(err, tk)
	}
	out.Body.Entry, out.Body.Value, out.Body.Session = entryOf(e), tk.Value, &NewSession{secret, sessionOf(s)}
	return out, nil
}

// withValue returns err as a problem with the value of a token if err says that the token was
// redeemed but the entry has a second factor: nobody can read the value anymore. It returns other
// errors unchanged.
func withValue(err error, tk userdb.Token) error {
	if !errors.Is(err, userdb.ErrFactor) {
		return err
	}
	p := problemOf(err)
	p.Value = tk.Value
	return p
}

type resetInput struct {
	Body struct {
		Visitor
		Purpose  string          `json:"purpose" maxLength:"256"`
		Secret   string          `json:"secret" maxLength:"1024"`
		Password string          `json:"password" maxLength:"4096"`
		Session  *SessionOptions `json:"session,omitempty" doc:"if present, a session begins; all others end"`
	}
}

func resetPassword(ctx context.Context, c *call, in *resetInput) (*signedOutput, error) {
	ctx = in.Body.withOrigin(ctx)
	if _, err := in.Body.parseSession(in.Body.Session); err != nil {
		return nil, err
	}
	t, _, _, err := c.findToken(ctx, in.Body.Purpose, in.Body.Secret)
	if err != nil {
		return nil, err
	}
	e, err := t.ResetPassword(ctx, in.Body.Purpose, in.Body.Secret, in.Body.Password)
	if err != nil {
		return nil, err
	}
	return signInAfterChange(ctx, t, e, in.Body.Visitor, in.Body.Session)
}

type inviteInput struct {
	TypePath
	Body struct {
		Field   string   `json:"field" maxLength:"1024" example:"email" doc:"the facet that will hold the address"`
		Address string   `json:"address" maxLength:"4096" doc:"as a visitor entered it"`
		Value   string   `json:"value,omitempty" maxLength:"2048" doc:"a value that peeking at the invitation returns"`
		Life    Duration `json:"life,omitempty" maxLength:"32" example:"1d"`
		Origin  string   `json:"origin,omitempty" maxLength:"1024"`
	}
}

// An Invitation describes a mail to send.
type Invitation struct {
	Field   string `json:"field"`
	Address string `json:"address" doc:"where to send it"`
	Value   string `json:"value,omitempty"`
	Secret  string `json:"secret,omitempty"`
	Known   bool   `json:"known" doc:"somebody has the address already: say so in the mail, unless the address is held, and show the visitor no difference"`
	Held    bool   `json:"held,omitempty" doc:"an account gave up the address and holds it: send no mail, because another person may read the mailbox by now"`
}

type invitationOutput struct{ Body Invitation }

func invite(ctx context.Context, c *call, t *userdb.Type, in *inviteInput) (*invitationOutput, error) {
	if err := c.checkReserved(in.Body.Field); err != nil {
		return nil, err
	}
	life, err := in.Body.Life.parse("life")
	if err != nil {
		return nil, err
	}
	tk := userdb.Token{Value: in.Body.Value, Lifetime: life}
	i, err := t.Invite(ctx, in.Body.Field, in.Body.Address, tk, userdb.Attempt{Origin: in.Body.Origin})
	// Invite derives the purpose from the field, so it is the field that is wrong.
	if bad, ok := errors.AsType[*userdb.FieldError](err); ok && bad.Field == "purpose" {
		err = &userdb.FieldError{Err: bad.Err, Field: "field", Rule: bad.Rule, Reason: bad.Reason}
	}
	return &invitationOutput{Invitation{i.Field, i.Address, i.Value, i.Secret, i.Registered || i.Held, i.Held}},
		pointTo(err, func(string) string { return "/address" }, in.Body.Field)
}

type peekInvitationInput struct {
	TypePath
	Body struct {
		Secret string `json:"secret" maxLength:"1024"`
	}
}

func peekInvitation(ctx context.Context, c *call, t *userdb.Type, in *peekInvitationInput) (*invitationOutput, error) {
	i, err := t.PeekInvitation(ctx, in.Body.Secret)
	return &invitationOutput{Invitation{Field: i.Field, Address: i.Address, Value: i.Value, Known: i.Registered}}, err
}

type acceptInput struct {
	TypePath
	Body struct {
		Visitor
		Secret   string                     `json:"secret" maxLength:"1024"`
		Facets   map[string]json.RawMessage `json:"facets,omitempty" maxProperties:"1000" doc:"all facets except the address; externalId, added and the fields that a directory maps require the scope write"`
		Tags     []string                   `json:"tags,omitempty" maxItems:"1000" doc:"these require the scope write"`
		Password *string                    `json:"password,omitempty" maxLength:"4096" doc:"if absent, nobody can log in with a password"`
		Session  *SessionOptions            `json:"session,omitempty" doc:"if present, a session begins"`
	}
}

type acceptedOutput struct {
	ETag     string `header:"ETag"`
	Location string `header:"Location"`
	Body     SignedIn
}

// checkReserved returns an error if one of the fields is reserved and the key does not have the
// scope write. A key with only the scope login could otherwise set facets that directories rely on.
func (c *call) checkReserved(fields ...string) error {
	if c.key.HasScope(admin.ScopeWrite) {
		return nil
	}
	var o scim.Options
	if c.service.options.SCIM != nil {
		o = *c.service.options.SCIM
	}
	for _, field := range fields {
		if o.Reserves(field) {
			return problem(userdb.CodeScope, "the key does not have the scope write, which the facet "+field+" requires")
		}
	}
	return nil
}

func acceptInvitation(ctx context.Context, c *call, t *userdb.Type, in *acceptInput) (*acceptedOutput, error) {
	ctx = in.Body.withOrigin(ctx)
	if _, err := in.Body.parseSession(in.Body.Session); err != nil {
		return nil, err
	}
	if len(in.Body.Tags) > 0 && !c.key.HasScope(admin.ScopeWrite) {
		return nil, problem(userdb.CodeScope, "the key does not have the scope write, which tags require")
	}
	if err := c.checkReserved(slices.Sorted(maps.Keys(in.Body.Facets))...); err != nil {
		return nil, err
	}
	n, err := c.parseNewEntry(in.Type, in.Body.Facets, in.Body.Tags, in.Body.Password)
	if err != nil {
		return nil, err
	}
	e, err := t.AcceptInvitation(ctx, in.Body.Secret, n)
	if err != nil {
		return nil, err
	}
	out, err := signInAfterChange(ctx, t, e, in.Body.Visitor, in.Body.Session)
	if err != nil {
		return nil, err
	}
	return &acceptedOutput{out.ETag, locationOf(e), out.Body}, nil
}
