package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/serve/admin"
	"github.com/coffeenode/userdb/serve/scim"
	"github.com/coffeenode/userdb/userdb"
)

// A Problem is an error response as in RFC 9457.
type Problem struct {
	Type       string         `json:"type" example:"urn:userdb:error:duplicate" doc:"urn:userdb:error: followed by the code"`
	Title      string         `json:"title" example:"Conflict"`
	Status     int            `json:"status" example:"409"`
	Detail     string         `json:"detail,omitempty" doc:"what is wrong, for people to read"`
	Code       Code           `json:"code" example:"duplicate" doc:"one of a few words that do not change: those of the command line, and key, scope, precondition and idempotency"`
	Field      string         `json:"field,omitempty" doc:"the field of the first error"`
	Rule       string         `json:"rule,omitempty" doc:"the rule of the first error"`
	RetryAfter int64          `json:"retry_after,omitempty" doc:"seconds to wait before trying again"`
	RequestID  string         `json:"request_id"`
	Ticket     string         `json:"ticket,omitempty" doc:"with code factor: a secret for the second step of a login, good for five minutes"`
	Methods    []string       `json:"methods,omitempty" doc:"with code factor: the methods of the second step, such as totp, recovery and passkey"`
	Done       bool           `json:"done,omitempty" doc:"with code factor: the change was made, but nobody was signed in"`
	Value      string         `json:"value,omitempty" doc:"with code factor: the value that was bound to the token, if one was redeemed"`
	Errors     []FieldProblem `json:"errors,omitempty" doc:"everything that is wrong with the request"`

	scimType string // for SCIM responses
}

// FieldProblem describes one thing that is wrong with a request.
type FieldProblem struct {
	Pointer string            `json:"pointer,omitempty" example:"/facets/email" doc:"a JSON pointer into the body, or the name of a parameter"`
	Field   string            `json:"field,omitempty" example:"email"`
	Rule    string            `json:"rule,omitempty" example:"taken"`
	Params  map[string]string `json:"params,omitempty" doc:"values for a message of your own"`
	Detail  string            `json:"detail,omitempty"`
	Reason  string            `json:"reason,omitempty" enum:"held,retired" doc:"why a value is taken although no entry has it: held if an entry gave it up and still holds it, retired if it is the UID of a deleted entry; only for keys with the scope read or write"`

	hidden string // the Reason, which only some keys may know
}

func (p *Problem) Error() string { return p.Detail }

// GetStatus implements [huma.StatusError].
func (p *Problem) GetStatus() int { return p.Status }

// ContentType implements [huma.ContentTypeFilter].
func (p *Problem) ContentType(string) string { return problemJSON }

// GetHeaders implements [huma.HeadersError].
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(p.RetryAfter, 10))
	}
	switch {
	case p.ErrorCode() == userdb.CodeKey && p.Status == http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="userdb"`)
	case p.Status == http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Password realm="userdb"`)
	}
	return h
}

// A Code identifies a kind of problem.
type Code userdb.Code

// Schema implements [huma.SchemaProvider].
func (Code) Schema(huma.Registry) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeString}
	for _, code := range userdb.Codes() {
		if code != userdb.CodeInterrupted { // only the command uses it
			s.Enum = append(s.Enum, string(code))
		}
	}
	slices.SortFunc(s.Enum, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
	return s
}

// problem returns a problem with the status of its code.
func problem(code userdb.Code, detail string) *Problem {
	p := &Problem{Type: "urn:userdb:error:" + string(code), Detail: detail, Code: Code(code)}
	return p.withStatus(code.HTTPStatus())
}

// withStatus sets a status that is more specific than the code's status, such as 410 instead of
// 404.
func (p *Problem) withStatus(status int) *Problem {
	p.Status, p.Title = status, http.StatusText(status)
	return p
}

// withRetryAfter sets how many seconds to wait before trying again.
func (p *Problem) withRetryAfter(seconds int64) *Problem {
	p.RetryAfter = seconds
	return p
}

// ErrorCode returns the code of the problem. [userdb.CodeOf] calls it.
func (p *Problem) ErrorCode() userdb.Code { return userdb.Code(p.Code) }

// usageProblem returns a problem with [userdb.CodeUsage].
func usageProblem(format string, args ...any) *Problem {
	return problem(userdb.CodeUsage, fmt.Sprintf(format, args...))
}

// queryProblem returns a problem that lists what is wrong with a query, or nil if all is empty.
func queryProblem(all []FieldProblem) error {
	if len(all) == 0 {
		return nil
	}
	p := usageProblem("invalid query: %s: %s", all[0].Pointer, all[0].Detail)
	p.Rule, p.Errors = "usage", all[:min(len(all), maxErrors)]
	return p
}

// paramProblem describes what is wrong with a parameter.
func paramProblem(name, format string, args ...any) FieldProblem {
	return FieldProblem{Pointer: name, Rule: "usage", Detail: fmt.Sprintf(format, args...)}
}

// problemOf returns the problem with which to respond to an error. Details about faults of the
// server go only to the log.
func problemOf(err error) *Problem {
	partial := errors.Is(err, scim.ErrPartial)
	if p, ok := errors.AsType[*Problem](err); ok {
		if partial {
			answer := *p
			answer.Detail += "; " + changesRemain
			p = &answer
		}
		return p
	}
	code := userdb.CodeOf(err)
	if e, ok := errors.AsType[*scim.Error](err); ok {
		p := problem(code, e.Detail).withStatus(e.Status)
		if p.scimType = e.Type; partial {
			p.Detail += "; " + changesRemain
		}
		return p
	}
	detail := strings.ReplaceAll(err.Error(), "\n", "; ")
	switch code {
	case userdb.CodeUnavailable:
		detail = unavailableDetail(err)
	case userdb.CodeCorrupt:
		detail = "the entry is damaged: see 'userdb check'"
	case userdb.CodeOther:
		detail = "internal error; the server's log has the details under this request_id"
	}
	if partial && (code == userdb.CodeCorrupt || code == userdb.CodeOther) {
		detail += "; " + changesRemain
	}
	p := problem(code, detail).withRetryAfter(retryAfter(code, err))
	if refused, ok := errors.AsType[*userdb.FactorError](err); ok {
		p.Ticket, p.Methods, p.Done = refused.Ticket, refused.Methods, refused.Done || partial
	}
	if code == userdb.CodeInvalid || code == userdb.CodeDuplicate {
		p.Errors = fieldProblems(err)
	}
	if len(p.Errors) > 0 {
		p.Field, p.Rule = p.Errors[0].Field, p.Errors[0].Rule
	}
	if p.Rule == "once" {
		p = problem(userdb.CodeIdempotency, "this Idempotency-Key belongs to a different request: use a new key")
	}
	return p
}

// withReasons returns p with the reasons why values that no entry has are taken. If the key may not
// know these reasons, the result has none of them.
func (p *Problem) withReasons(key admin.Key) *Problem {
	if !slices.ContainsFunc(p.Errors, func(e FieldProblem) bool { return e.hidden != "" }) {
		return p
	}
	answer := *p
	answer.Errors = slices.Clone(p.Errors)
	if !key.HasScope(admin.ScopeRead) && !key.HasScope(admin.ScopeWrite) {
		if p.ErrorCode() == userdb.CodeDuplicate {
			answer.Detail = "taken: " + p.Field
		}
		return &answer
	}
	for i := range answer.Errors {
		answer.Errors[i].Reason = answer.Errors[i].hidden
		switch e := &answer.Errors[i]; e.hidden {
		case "held":
			e.Detail = "another entry gave it up and holds it"
		case "retired":
			e.Detail = "it belonged to an entry that was deleted"
		}
	}
	return &answer
}

// retryAfter returns the number of seconds after which a request that failed with an error may
// succeed, or 0 if waiting does not help.
func retryAfter(code userdb.Code, err error) int64 {
	wait, throttled := errors.AsType[*userdb.WaitError](err)
	busy, isBusy := errors.AsType[*userdb.BusyError](err)
	switch {
	case throttled:
		return seconds(wait.Wait)
	case isBusy:
		return max(seconds(busy.Wait), 1)
	case errors.Is(err, userdb.ErrFileFull), errors.Is(err, userdb.ErrUnsuitable):
		return 0
	case errors.Is(err, userdb.ErrUnconfirmed): // trying again would make a second change
		return 0
	case errors.Is(err, userdb.ErrIndexBuilding):
		return 5
	case code == userdb.CodeUnavailable, code == userdb.CodeConflict:
		return 1
	}
	return 0
}

// seconds returns a duration in whole seconds, rounded up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// changesRemain is the end of a detail about a request that failed after some of its changes.
const changesRemain = "changes made so far remain"

// unavailableDetail returns a detail that says what is known about a change, and nothing about
// servers. A request that makes several changes may have made some of them.
func unavailableDetail(err error) string {
	_, busy := errors.AsType[*userdb.BusyError](err)
	switch {
	case busy:
		return "too many logins at once"
	case errors.Is(err, transfer.ErrLost):
		return "a server restarted, or a replica took over, during the import: imported lines may be missing; import again with on_duplicate=skip"
	case errors.Is(err, scim.ErrPartial):
		return "the store is not available: " + changesRemain
	case errors.Is(err, context.Canceled):
		return "the request was canceled by its client or because the service is shutting down: whether a change was made is not known"
	case errors.Is(err, userdb.ErrOutcomeUnknown):
		return "the store did not answer: whether the change was made is not known"
	case errors.Is(err, userdb.ErrUnconfirmed):
		return "the change was made, but not confirmed: it may be on fewer replicas than it should, or an index " +
			"may lack it until 'userdb check --repair' adds it; the server's log has the cause under this request_id"
	case errors.Is(err, userdb.ErrIndexBuilding):
		return "the index is being built: try again when 'userdb schema apply' has finished"
	case errors.Is(err, userdb.ErrFileFull):
		return "the store is full"
	}
	return "the store does not answer or is full; the server's log has the cause under this request_id"
}

// fieldProblems returns everything that an error says is wrong with the values of a request.
func fieldProblems(err error) (all []FieldProblem) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			all = append(all, fieldProblems(e)...)
		}
		return all
	}
	if policy, ok := errors.AsType[*password.PolicyError](err); ok {
		return []FieldProblem{{Pointer: "/password", Field: "password", Rule: policy.Rule, Params: map[string]string{"reason": policy.Reason}, Detail: policy.Reason}}
	}
	field, ok := errors.AsType[*userdb.FieldError](err)
	if !ok {
		return nil
	}
	one := FieldProblem{Pointer: pointerOf(field.Field), Field: field.Field, Rule: field.Rule, Detail: field.Reason}
	if errors.Is(field, userdb.ErrDuplicate) {
		one.Rule, one.Detail, one.hidden = "taken", "another entry has it", field.Rule
	} else {
		one.Params = map[string]string{"reason": field.Reason}
	}
	return []FieldProblem{one}
}

// bodyFields lists the members of bodies that are not facets.
var bodyFields = []string{"uid", "tags", "password", "purpose", "life", "idle", "value", "field", "session"}

// pointerOf returns the JSON pointer to a field in a request body.
func pointerOf(field string) string {
	escaped := escapePointer(field)
	switch {
	case field == "" || field == "factor" || field == "passkey": // no member of the body is wrong
		return ""
	case slices.Contains(bodyFields, field):
		return "/" + escaped
	}
	return "/facets/" + escaped
}

// escapePointer returns a name as a part of a JSON pointer.
func escapePointer(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// missingProperty matches huma's message about a required member that is absent.
var missingProperty = regexp.MustCompile(`^expected required property (\w+) to be present$`)

// maxErrors limits how many errors a response lists. It exceeds the number of facets and tags that
// a request may have. Without the limit, a body of 1 MiB could cause half a million errors.
const maxErrors = 2500

var toPointer = strings.NewReplacer(".", "/", "[", "/", "]", "")

// schemaProblem returns the problem for a request that does not match the schema of its operation.
// It omits values, which may be secrets.
func schemaProblem(m *huma.ErrorModel) *Problem {
	p := problem(userdb.CodeUsage, "invalid request").withStatus(m.Status)
	switch m.Status {
	case http.StatusRequestEntityTooLarge:
		p.Detail = "the body is too large"
	case http.StatusUnsupportedMediaType:
		p.Detail = "the body needs Content-Type: application/json"
	case http.StatusNotAcceptable, http.StatusRequestTimeout:
		p.Detail = m.Detail
	// 500 means that the body broke off.
	case http.StatusUnprocessableEntity, http.StatusInternalServerError:
		p.withStatus(http.StatusBadRequest)
	}
	for _, e := range m.Errors[:min(len(m.Errors), maxErrors)] {
		if e == nil {
			continue
		}
		pointer, inBody := strings.CutPrefix(e.Location, "body")
		if inBody {
			pointer = toPointer.Replace(pointer)
		} else {
			_, pointer, _ = strings.Cut(pointer, ".")
		}
		if m := missingProperty.FindStringSubmatch(e.Message); m != nil && inBody {
			pointer += "/" + m[1]
		}
		one := FieldProblem{Pointer: pointer, Rule: "usage", Detail: e.Message}
		isJSON := e.Message == errDuplicateMember.Error() || e.Message == errTooManyValues.Error()
		if e.Location == "body" && p.Status == http.StatusBadRequest && m.Status == http.StatusBadRequest && !isJSON {
			one.Detail = "not valid JSON"
		}
		p.Errors = append(p.Errors, one)
	}
	if len(m.Errors) == 0 && m.Status == http.StatusBadRequest {
		p.Detail += ": " + m.Detail // which says that the body is missing
	}
	if len(p.Errors) > 0 {
		p.Rule = "usage"
		p.Detail += ": " + strings.TrimPrefix(p.Errors[0].Pointer+": ", ": ") + p.Errors[0].Detail
	}
	return p
}
