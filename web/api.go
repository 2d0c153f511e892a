package web

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/coffeenode/userdb/userdb"
)

// bearer returns the secret in the header Authorization of a request, if a accepts bearer tokens
// and one was sent.
func (a Auth) bearer(r *http.Request) (secret string, sent bool) {
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !a.Bearer || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return strings.TrimSpace(secret), true
}

// Token logs a program in for a visitor, and returns the secret of a session, to be sent in the
// header "Authorization: Bearer SECRET"; see Auth.Bearer. It sets no cookie. If Flows.Brief is set,
// the session is as Brief says, unless the form that was sent has the value stay. The errors are
// those of Login and StartSession. After a *userdb.FactorError, ProveToken takes the second step.
func (a Auth) Token(r *http.Request, identifier, password string) (secret string, s userdb.Session, err error) {
	r = withChoice(r)
	ctx, cancel := withTimeout(r)
	defer cancel()
	e, err := a.Users.Login(ctx, identifier, password, a.Attempt(r))
	if err == nil {
		s, secret, err = a.Users.StartSession(ctx, e, a.SessionOptions(r))
	}
	return secret, s, err
}

// ProveToken takes the second step for a program after Token has returned a *userdb.FactorError,
// which has the ticket. It returns the secret of a session of level 2, which lasts as long as that
// of Token. The errors are those of Type.Prove and StartSession; Problems says that the code is
// wrong, not the password.
func (a Auth) ProveToken(r *http.Request, ticket string, p userdb.Proof) (secret string, s userdb.Session, err error) {
	r = withChoice(r)
	ctx, cancel := withTimeout(r)
	defer cancel()
	e, err := a.prove(ctx, r, ticket, p)
	if err == nil {
		s, secret, err = a.Users.StartSession(ctx, e, a.SessionOptions(r))
	}
	return secret, s, err
}

// isProgram reports whether to answer a request with a problem and not with a page.
func (a Auth) isProgram(r *http.Request) bool {
	_, sent := a.bearer(r)
	return sent || fromScript(r) || a.Bearer && r.Header.Get("Sec-Fetch-Mode") == "" && !strings.Contains(r.Header.Get("Accept"), "text/html")
}

// WriteProblem answers a request of a program with a problem of RFC 9457, as 'userdb serve' does.
// Its status and code are those of [userdb.CodeOf]. Its member "errors" holds the Problems of
// fields, and "detail" says what is wrong with the request as a whole, or with a code. Their texts
// are in the language of the request's context (see Language) or, if it has none, in the one of
// Catalogues that suits the request best. After a *userdb.FactorError the problem also has the
// members "ticket" and "methods", or "done". A fault of the store is logged, and the answer does
// not show it.
func WriteProblem(w http.ResponseWriter, r *http.Request, err error) {
	code := userdb.CodeOf(err)
	body := newProblem(code)
	var fields []map[string]any
	language := requestLanguage(r)
	for _, p := range problemsIn(language, err) {
		if p.Field != "" {
			fields = append(fields, map[string]any{"field": p.Field, "rule": p.Rule, "params": p.Params, "detail": p.Text})
		}
		if p.Field == "" || p.Code != userdb.CodeInvalid && p.Code != userdb.CodeDuplicate {
			body["detail"] = p.Text
		}
	}
	if fields != nil {
		body["errors"] = fields
	}
	if refused, is := errors.AsType[*userdb.FactorError](err); is && refused.Ticket != "" {
		body["ticket"], body["methods"] = refused.Ticket, refused.Methods
	} else if is && refused.Done {
		body["done"] = true
	}
	setRetryAfter(w, err)
	setLanguage(w, language)
	if code.HTTPStatus() >= http.StatusInternalServerError {
		slog.WarnContext(r.Context(), "userdb: a request failed", slog.String("path", r.URL.Path), slog.Any("error", err))
	}
	sendProblem(w, body)
}

func newProblem(code userdb.Code) map[string]any {
	status := code.HTTPStatus()
	return map[string]any{"type": "urn:userdb:error:" + string(code), "title": http.StatusText(status), "status": status, "code": code}
}

func sendProblem(w http.ResponseWriter, body map[string]any) {
	status, _ := body["status"].(int)
	if status == http.StatusUnauthorized && w.Header().Get("WWW-Authenticate") == "" {
		w.Header().Set("WWW-Authenticate", `Bearer realm="userdb"`)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
