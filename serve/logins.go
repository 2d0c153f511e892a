package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/serve/scim"
	"github.com/coffeenode/userdb/userdb"
)

func (s *Service) registerLogins() {
	login := []string{admin.ScopeLogin}
	handleType(s, route{id: "login", method: "POST", path: typePrefix + "/login", scopes: login, summary: "Check an identifier and a password, and begin a session on request"}, logIn)
	handleType(s, route{id: "setPassword", method: "PUT", path: typePrefix + "/entries/{uid}/password", scopes: []string{admin.ScopeWrite, admin.ScopeLogin}, summary: "Set a password; with only the scope login, this needs the current one"}, setPassword)
	handleType(s, route{id: "startSession", method: "POST", path: typePrefix + "/entries/{uid}/sessions", scopes: login, summary: "Begin a session for somebody who was authenticated elsewhere", status: http.StatusCreated}, startSession)
	handleType(s, route{id: "listSessions", method: "GET", path: typePrefix + "/entries/{uid}/sessions", scopes: []string{admin.ScopeRead}, summary: "List the sessions of an entry"}, listSessions)
	handleType(s, route{id: "endSessions", method: "DELETE", path: typePrefix + "/entries/{uid}/sessions", scopes: login, summary: "End all sessions of an entry", status: http.StatusNoContent}, endSessions)
	handleType(s, route{id: "endSessionByID", method: "DELETE", path: typePrefix + "/entries/{uid}/sessions/{id}", scopes: login, summary: "End one session of an entry", status: http.StatusNoContent}, endSessionByID)
	handle(s, route{id: "session", method: "POST", path: "/v1/session", scopes: login, summary: "Get the session with a secret, and its entry"}, getSession)
	handle(s, route{id: "endSession", method: "POST", path: "/v1/session/end", scopes: login, summary: "End a session by its secret", status: http.StatusNoContent}, endSession)
	handle(s, route{id: "verifySession", method: "POST", path: "/v1/session/verify", scopes: login, summary: "Check the password again, and record that in the session"}, verifySession)
	handle(s, route{id: "checkSession", method: "GET", path: sessionCheckPath, scopes: login, summary: "Check the session cookie of a visitor, for a proxy", status: http.StatusNoContent, badKeyStatus: http.StatusForbidden, ignoresQuery: true}, checkSession)
}

// A Duration is a length of time as people write it: 90s, 10m, 30d.
type Duration string

// parse returns the duration, or 0 if d is empty. Its errors name field.
func (d Duration) parse(field string) (time.Duration, error) {
	if d == "" {
		return 0, nil
	}
	days, rest := "0", string(d)
	if before, after, has := strings.Cut(rest, "d"); has {
		if days, rest = before, after; rest == "" {
			rest = "0s"
		}
	}
	n, err := strconv.ParseUint(days, 10, 16)
	t, restErr := time.ParseDuration(rest)
	if err != nil || restErr != nil || t < 0 || n == 0 && t == 0 {
		return 0, &userdb.FieldError{Err: userdb.ErrInvalid, Field: field, Rule: "duration", Reason: "want a duration such as 90s, 10m or 30d"}
	}
	return time.Duration(n)*24*time.Hour + t, nil
}

// SessionOptions describes how long a new session lasts.
type SessionOptions struct {
	Life Duration `json:"life,omitempty" maxLength:"32" example:"30d" doc:"30d if absent; at most 400d"`
	Idle Duration `json:"idle,omitempty" maxLength:"32" example:"7d" doc:"time without use after which the session ends; if absent, 7d or life, whichever is shorter"`
}

// A Visitor describes the visitor for whom the caller acts.
type Visitor struct {
	Origin string `json:"origin,omitempty" maxLength:"1024" doc:"the address of the visitor, which the caller vouches for"`
	Agent  string `json:"agent,omitempty" maxLength:"4096" doc:"the visitor's User-Agent"`
}

// withOrigin returns a context for calls on behalf of the visitor's origin.
func (v Visitor) withOrigin(ctx context.Context) context.Context {
	return userdb.WithActor(ctx, userdb.Actor{Origin: v.Origin})
}

// parseSession returns the options in the member session of a body. Handlers call it before they
// change anything, so that nothing changes if the options are invalid.
func (v Visitor) parseSession(o *SessionOptions) (out userdb.SessionOptions, err error) {
	if o == nil {
		return out, nil
	}
	if out, err = v.parseOptions(*o); err == nil {
		return out, nil
	}
	p := problemOf(err)
	for i := range p.Errors {
		p.Errors[i].Pointer = "/session" + p.Errors[i].Pointer
	}
	return out, p
}

// parseOptions returns the options of a session that the visitor begins.
func (v Visitor) parseOptions(o SessionOptions) (out userdb.SessionOptions, err error) {
	life, err := o.Life.parse("life")
	idle, idleErr := o.Idle.parse("idle")
	out = userdb.SessionOptions{Lifetime: life, IdleTimeout: idle, Origin: v.Origin, Agent: v.Agent}
	if err = errors.Join(err, idleErr); err == nil {
		err = out.Check()
	}
	return out, err
}

func (v Visitor) attempt() userdb.Attempt { return userdb.Attempt{Origin: v.Origin} }

// A Session describes one device on which an entry is logged in.
type Session struct {
	ID       string    `json:"id"`
	Begun    time.Time `json:"begun"`
	Seen     time.Time `json:"seen" doc:"accurate to the minute"`
	Verified time.Time `json:"verified" doc:"when the owner last took the first step of a login, such as the password"`
	Level    int       `json:"level" enum:"1,2" doc:"2 if the owner took two steps of a login, otherwise 1"`
	Raised   time.Time `json:"raised,omitzero" doc:"for level 2, when the owner last took two steps"`
	Expires  time.Time `json:"expires"`
	Origin   string    `json:"origin,omitempty"`
	Agent    string    `json:"agent,omitempty"`
}

func sessionOf(s userdb.Session) Session {
	return Session{s.ID, s.Started, s.LastSeen, s.Verified, s.Level(), s.VerifiedLevel2, s.Expires, s.Origin, s.Agent}
}

// A NewSession is a session that has just begun, together with its secret.
type NewSession struct {
	Secret string `json:"secret" doc:"shown when the session begins, and never again"`
	Session
}

// SignedIn holds an entry, and its new session if one began.
type SignedIn struct {
	Entry   Entry       `json:"entry"`
	Session *NewSession `json:"session,omitempty" doc:"present if one was requested"`
}

type signedOutput struct {
	ETag string `header:"ETag"`
	Body SignedIn
}

// signIn begins a session of an entry if o is not nil, and returns the response.
func signIn(ctx context.Context, t *userdb.Type, e userdb.Entry, v Visitor, o *SessionOptions) (*signedOutput, error) {
	return signInLevel(ctx, t, e, v, o, 0)
}

// signInLevel does what signIn does. A level of 2 says that the caller of the service has made sure
// of the second step.
func signInLevel(ctx context.Context, t *userdb.Type, e userdb.Entry, v Visitor, o *SessionOptions, level int) (*signedOutput, error) {
	out := &signedOutput{etagOf(e), SignedIn{Entry: entryOf(e)}}
	if o == nil {
		return out, nil
	}
	options, err := v.parseSession(o)
	if err != nil {
		return nil, err
	}
	options.Level = level
	s, secret, err := t.StartSession(ctx, e, options)
	if errors.Is(err, userdb.ErrNotFound) { // disabled or deleted in the meantime
		err = userdb.ErrConflict
	}
	if err != nil {
		return nil, err
	}
	out.Body.Session = &NewSession{secret, sessionOf(s)}
	return out, nil
}

// signInAfterChange does what signIn does, for an entry that has just been changed. Its errors say
// that the change was made.
func signInAfterChange(ctx context.Context, t *userdb.Type, e userdb.Entry, v Visitor, o *SessionOptions) (*signedOutput, error) {
	out, err := signIn(ctx, t, e, v, o)
	if err != nil {
		err = fmt.Errorf("%w: %w", scim.ErrPartial, err)
	}
	return out, err
}

type loginInput struct {
	TypePath
	Body struct {
		Visitor
		Identifier string          `json:"identifier" maxLength:"4096"`
		Password   string          `json:"password" maxLength:"4096"`
		Session    *SessionOptions `json:"session,omitempty" doc:"if present, a session begins"`
	}
}

// loginAttempts is how often a login is tried if a password change keeps interfering.
const loginAttempts = 3

func logIn(ctx context.Context, c *call, t *userdb.Type, in *loginInput) (out *signedOutput, err error) {
	if _, err := in.Body.parseSession(in.Body.Session); err != nil {
		return nil, err
	}
	for range loginAttempts {
		var e userdb.Entry
		if e, err = t.Login(ctx, in.Body.Identifier, in.Body.Password, in.Body.attempt()); err != nil {
			return nil, err
		}
		if out, err = signIn(ctx, t, e, in.Body.Visitor, in.Body.Session); !errors.Is(err, userdb.ErrConflict) {
			return out, err
		}
	}
	return nil, err
}

type passwordInput struct {
	EntryPath
	Body struct {
		Visitor
		Password string          `json:"password" maxLength:"4096"`
		Current  OptionalText    `json:"current,omitzero" doc:"the current password; it is checked even if it is empty, and counts as a login"`
		Owner    string          `json:"owner_session,omitempty" maxLength:"1024" doc:"with current, the secret of the owner's session; an entry with a second factor needs one that was verified on level 2 within ten minutes"`
		Session  *SessionOptions `json:"session,omitempty" doc:"if present, a session begins; all others end"`
	}
}

func setPassword(ctx context.Context, c *call, t *userdb.Type, in *passwordInput) (*signedOutput, error) {
	ctx = in.Body.withOrigin(ctx)
	if !in.Body.Current.present && !c.key.HasScope(admin.ScopeWrite) {
		return nil, problem(userdb.CodeScope, "without the scope write, setting a password requires the current one")
	}
	if _, err := in.Body.parseSession(in.Body.Session); err != nil {
		return nil, err
	}
	if in.Body.Owner != "" {
		if err := checkOwnSession(ctx, t, in.EntryPath, in.Body.Owner); err != nil {
			return nil, err
		}
	}
	var e userdb.Entry
	var err error
	if in.Body.Current.present {
		a := in.Body.attempt()
		a.Session = in.Body.Owner
		e, err = t.ChangePassword(ctx, in.hint(), in.Body.Current.text, in.Body.Password, a)
	} else {
		e, err = t.SetPassword(ctx, in.hint(), in.Body.Password)
	}
	if err != nil {
		return nil, asNotFound(err)
	}
	return signInAfterChange(ctx, t, e, in.Body.Visitor, in.Body.Session)
}

type startInput struct {
	EntryPath
	IfMatch string `header:"If-Match"`
	Body    struct {
		Visitor
		SessionOptions
		Level int `json:"level,omitempty" enum:"1,2" doc:"2 if the caller has made sure that the owner took two steps; an entry with a second factor needs it"`
	}
}

// StartedSession holds an entry and its new session.
type StartedSession struct {
	Entry   Entry      `json:"entry"`
	Session NewSession `json:"session"`
}

type startedOutput struct {
	ETag string `header:"ETag"`
	Body StartedSession
}

func startSession(ctx context.Context, c *call, t *userdb.Type, in *startInput) (*startedOutput, error) {
	if _, err := in.Body.parseOptions(in.Body.SessionOptions); err != nil {
		return nil, err
	}
	e, err := t.Find(ctx, in.hint())
	switch {
	case err != nil:
		return nil, asNotFound(err)
	case in.IfMatch != "" && !matchesETag(in.IfMatch, e):
		return nil, errPrecondition
	case e.Disabled():
		return nil, problem(userdb.CodeConflict, "the entry is disabled")
	case in.Body.Level < 2 && len(e.FactorMethods()) > 0:
		return nil, problem(userdb.CodeConflict, "the entry has a second factor: make sure that the owner took that step, and set level to 2")
	}
	out, err := signInLevel(ctx, t, e, in.Body.Visitor, &in.Body.SessionOptions, in.Body.Level)
	if err != nil {
		return nil, err
	}
	return &startedOutput{out.ETag, StartedSession{out.Body.Entry, *out.Body.Session}}, nil
}

type sessionsOutput struct {
	Body struct {
		Sessions []Session `json:"sessions" doc:"most recently seen first"`
	}
}

func listSessions(ctx context.Context, c *call, t *userdb.Type, in *EntryPath) (*sessionsOutput, error) {
	out := &sessionsOutput{}
	out.Body.Sessions = []Session{}
	for s, err := range t.Sessions(ctx, in.hint()) {
		if err != nil {
			return nil, asNotFound(err)
		}
		out.Body.Sessions = append(out.Body.Sessions, sessionOf(s))
	}
	return out, nil
}

func endSessions(ctx context.Context, c *call, t *userdb.Type, in *EntryPath) (*empty, error) {
	_, err := t.EndSessions(ctx, in.hint())
	return &empty{}, asNotFound(err)
}

type sessionIDInput struct {
	EntryPath
	ID string `path:"id"`
}

func endSessionByID(ctx context.Context, c *call, t *userdb.Type, in *sessionIDInput) (*empty, error) {
	return &empty{}, asNotFound(t.EndSessionID(ctx, in.hint(), in.ID))
}

// A secretInput holds the secret of a session, which does not reveal the type of its entry.
type secretInput struct {
	Body struct {
		Secret string `json:"secret" maxLength:"1024"`
	}
}

// SessionStatus holds an entry and its session, or says that the session is not active.
type SessionStatus struct {
	Active  bool     `json:"active"`
	Entry   *Entry   `json:"entry,omitempty"`
	Session *Session `json:"session,omitempty"`
}

// Schema implements [huma.SchemaProvider]. The other members are present only if active is true.
func (SessionStatus) Schema(r huma.Registry) *huma.Schema {
	active := func(value bool) *huma.Schema { return &huma.Schema{Type: huma.TypeBoolean, Enum: []any{value}} }
	return &huma.Schema{OneOf: []*huma.Schema{{
		Type: huma.TypeObject, Required: []string{"active", "entry", "session"}, Properties: map[string]*huma.Schema{
			"active": active(true), "entry": r.Schema(reflect.TypeFor[Entry](), true, "Entry"), "session": r.Schema(reflect.TypeFor[Session](), true, "Session"),
		},
	}, {Type: huma.TypeObject, Required: []string{"active"}, Properties: map[string]*huma.Schema{"active": active(false)}}}}
}

type activeOutput struct{ Body SessionStatus }

func activeResponse(e userdb.Entry, s userdb.Session) *activeOutput {
	return &activeOutput{SessionStatus{true, ptr(entryOf(e)), ptr(sessionOf(s))}}
}

// findSession returns the session with a secret, and its entry and type. The errors are those of
// search.
func (c *call) findSession(ctx context.Context, secret string) (t *userdb.Type, e userdb.Entry, s userdb.Session, err error) {
	t, err = c.search(ctx, func(t *userdb.Type) (err error) {
		e, s, err = t.Session(ctx, secret)
		return err
	})
	return t, e, s, err
}

// search returns the type for which find returns no error. It tries all types that the key may see,
// because secrets do not name their type. It goes on after [userdb.ErrCorrupt], because the damaged
// record may be that of another entry with the same UID. If find succeeds for no type, the error is
// ErrCorrupt if a record is damaged, and otherwise [userdb.ErrNotFound].
func (c *call) search(ctx context.Context, find func(*userdb.Type) error) (*userdb.Type, error) {
	failure := userdb.ErrNotFound
	for t := range c.visibleTypes(ctx) {
		switch err := find(t); {
		case err == nil:
			return t, nil
		case errors.Is(err, userdb.ErrCorrupt):
			failure = err
		case !errors.Is(err, userdb.ErrNotFound):
			return t, err
		}
	}
	return nil, failure
}

func getSession(ctx context.Context, c *call, in *secretInput) (*activeOutput, error) {
	_, e, s, err := c.findSession(ctx, in.Body.Secret)
	if errors.Is(err, userdb.ErrNotFound) {
		return &activeOutput{}, nil
	}
	if err != nil {
		return nil, err
	}
	return activeResponse(e, s), nil
}

func endSession(ctx context.Context, c *call, in *secretInput) (*empty, error) {
	for t := range c.visibleTypes(ctx) {
		if err := t.EndSession(ctx, in.Body.Secret); err != nil {
			return nil, err
		}
	}
	return &empty{}, nil
}

type verifyInput struct {
	Body struct {
		Visitor
		Secret   string `json:"secret" maxLength:"1024"`
		Password string `json:"password" maxLength:"4096"`
	}
}

func verifySession(ctx context.Context, c *call, in *verifyInput) (*activeOutput, error) {
	t, _, _, err := c.findSession(ctx, in.Body.Secret)
	if errors.Is(err, userdb.ErrNotFound) {
		return &activeOutput{}, nil
	}
	if err != nil {
		return nil, err
	}
	e, s, err := t.VerifySession(ctx, in.Body.Secret, in.Body.Password, in.Body.attempt())
	if errors.Is(err, userdb.ErrNotFound) {
		return &activeOutput{}, nil
	}
	if err != nil {
		return nil, err
	}
	return activeResponse(e, s), nil
}

type checkOutput struct {
	UID string `header:"Userdb-Uid" doc:"percent-encoded: % itself and every byte that is not a visible ASCII character"`
}

// escapeUID escapes a UID for a header. Otherwise, surrounding spaces and bytes outside ASCII could
// be changed on the way and turn it into another UID.
func escapeUID(uid string) string {
	var b strings.Builder
	for i := range len(uid) {
		if c := uid[i]; c <= ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// sessionCheckPath is where a proxy asks about the session of a visitor.
const sessionCheckPath = "/v1/session/check"

var errNoSession = problem(userdb.CodeLogin, "the request has no cookie of a valid session")

func checkSession(ctx context.Context, c *call, _ *empty) (*checkOutput, error) {
	cookie, err := c.request.Cookie(c.service.options.SessionCookie)
	if err != nil {
		return nil, errNoSession
	}
	_, e, _, err := c.findSession(ctx, cookie.Value)
	if errors.Is(err, userdb.ErrNotFound) {
		return nil, errNoSession
	}
	return &checkOutput{escapeUID(e.UID())}, err
}
