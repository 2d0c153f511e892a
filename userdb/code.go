package userdb

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/validate"
)

// A Code says in one word what an error means to a program. The command's JSON, HTTP problems and
// logs use the same word. The words and their exit and HTTP statuses do not change. The zero Code
// means no error.
type Code string

// The codes in order of precedence: if several apply to an error, [CodeOf] returns the first.
// Problems with the store come first, then with the request, then with the stored data, then with
// logins.
const (
	CodeInterrupted    Code = "interrupted"     // a signal ended the command
	CodeUnavailable    Code = "unavailable"     // the store fails or is full, or time ran out
	CodeCorrupt        Code = "corrupt"         // a record or the file of the store is damaged
	CodeSchemaMismatch Code = "schema_mismatch" // the stored schema differs from the program's
	CodeKey            Code = "key"             // no valid API key; only over HTTP
	CodeScope          Code = "scope"           // the API key does not allow this; only over HTTP
	CodeUsage          Code = "usage"           // invalid arguments, options or request
	CodeHint           Code = "hint"            // an invalid hint or record key
	CodeSchema         Code = "schema"          // an invalid schema or undeclared name
	CodePrecondition   Code = "precondition"    // If-Match names another revision; only over HTTP
	CodeIdempotency    Code = "idempotency"     // Idempotency-Key of another call; only over HTTP
	CodeInvalid        Code = "invalid"         // a value or a password breaks a rule
	CodeDuplicate      Code = "duplicate"       // a value, name or namespace is taken
	CodeConflict       Code = "conflict"        // the entry has changed since it was read
	CodeNotFound       Code = "not_found"       // the entry, type or path does not exist
	CodeLogin          Code = "login"           // wrong identifier, password, token or session
	CodeFactor         Code = "factor"          // a second factor is required
	CodeNotVerified    Code = "not_verified"    // the owner of a session must be verified again
	CodeUnproven       Code = "unproven"        // the address of the entry is not verified yet
	CodeThrottled      Code = "throttled"       // too many attempts
	CodeOther          Code = "other"           // any other error
)

// codes maps codes to exit statuses and HTTP statuses, in order of precedence.
var codes = []struct {
	code     Code
	exit     int // 0 if the command never has such an error
	http     int
	scim     int    // the HTTP status in SCIM; 0 if it is the same as http
	scimType string // the scimType of RFC 7644, section 3.12, or ""
}{
	{CodeInterrupted, 130, http.StatusServiceUnavailable, 0, ""},
	{CodeUnavailable, 6, http.StatusServiceUnavailable, 0, ""},
	{CodeCorrupt, 1, http.StatusInternalServerError, 0, ""},
	{CodeSchemaMismatch, 2, http.StatusConflict, 0, ""},
	{CodeKey, 0, http.StatusUnauthorized, 0, ""},
	{CodeScope, 0, http.StatusForbidden, 0, ""},
	{CodeUsage, 2, http.StatusBadRequest, 0, ""},
	{CodeHint, 2, http.StatusBadRequest, 0, ""},
	{CodeSchema, 2, http.StatusBadRequest, 0, ""},
	{CodePrecondition, 0, http.StatusPreconditionFailed, 0, ""},
	{CodeIdempotency, 0, http.StatusUnprocessableEntity, 0, ""},
	{CodeInvalid, 2, http.StatusUnprocessableEntity, http.StatusBadRequest, "invalidValue"},
	{CodeDuplicate, 4, http.StatusConflict, 0, "uniqueness"},
	{CodeConflict, 4, http.StatusConflict, 0, ""},
	{CodeNotFound, 3, http.StatusNotFound, 0, ""},
	{CodeLogin, 5, http.StatusUnauthorized, 0, ""},
	{CodeFactor, 5, http.StatusUnauthorized, 0, ""},
	{CodeNotVerified, 5, http.StatusForbidden, 0, ""},
	{CodeUnproven, 5, http.StatusForbidden, 0, ""},
	{CodeThrottled, 8, http.StatusTooManyRequests, 0, ""},
	{CodeOther, 1, http.StatusInternalServerError, 0, ""},
}

// Codes returns all codes in order of precedence.
func Codes() []Code {
	all := make([]Code, len(codes))
	for i, c := range codes {
		all[i] = c.code
	}
	return all
}

// ExitStatus returns the exit status of the command for the code. It is 0 for the zero Code and 1
// for an unknown code or one that only occurs over HTTP.
func (c Code) ExitStatus() int {
	if c == "" {
		return 0
	}
	return cmp.Or(codes[c.index()].exit, 1)
}

// HTTPStatus returns the HTTP status for the code. It is 200 for the zero Code and 500 for an
// unknown code.
func (c Code) HTTPStatus() int {
	if c == "" {
		return http.StatusOK
	}
	return codes[c.index()].http
}

// SCIM returns the HTTP status and the scimType for the code in SCIM (RFC 7644, section 3.12). The
// status differs from HTTPStatus if the standard demands it. scimType is "" if the standard defines
// none.
func (c Code) SCIM() (status int, scimType string) {
	if c == "" {
		return http.StatusOK, ""
	}
	row := codes[c.index()]
	return cmp.Or(row.scim, row.http), row.scimType
}

// index returns the position of the code in codes, or that of CodeOther for an unknown code.
func (c Code) index() int {
	for i, row := range codes {
		if row.code == c {
			return i
		}
	}
	return len(codes) - 1
}

// errorCodes maps errors to codes and outcomes. The first row that matches an error decides, even
// if the error wraps or joins several. If the outcome is "", it is the same word as the code.
var errorCodes = []struct {
	err     error
	code    Code
	outcome Outcome
}{
	{errPanicked, CodeOther, "panicked"},
	{ErrFileDamaged, CodeCorrupt, ""}, // also wraps ErrUnavailable
	{ErrOutcomeUnknown, CodeUnavailable, "outcome_unknown"},
	{ErrUnconfirmed, CodeUnavailable, "unconfirmed"},
	{ErrFileFull, CodeUnavailable, "file_full"},
	{ErrFileExposed, CodeUnavailable, ""},
	{ErrFileLocked, CodeUnavailable, ""},
	{ErrUnavailable, CodeUnavailable, ""},
	{ErrUnsuitable, CodeUnavailable, "unsuitable"},
	{ErrIndexBuilding, CodeUnavailable, "index_building"},
	{context.Canceled, CodeUnavailable, "canceled"},
	{context.DeadlineExceeded, CodeUnavailable, "timeout"},
	{ErrCorrupt, CodeCorrupt, ""},
	{password.ErrHash, CodeCorrupt, ""},
	{ErrSchemaMismatch, CodeSchemaMismatch, ""},
	{ErrURL, CodeUsage, "invalid"},
	{ErrNoHistory, CodeUsage, "invalid"},
	{ErrCache, CodeUsage, "invalid"},
	{ErrCursor, CodeUsage, "invalid"},
	{password.ErrOptions, CodeUsage, "invalid"},
	{hints.ErrHint, CodeHint, ""},
	{recordkey.ErrSyntax, CodeHint, ""},
	{schema.ErrSchema, CodeSchema, "invalid"},
	{ErrInvalid, CodeInvalid, ""},
	{validate.ErrRule, CodeInvalid, ""},
	{schema.ErrValue, CodeInvalid, ""},
	{password.ErrPolicy, CodeInvalid, ""},
	{ErrDuplicate, CodeDuplicate, ""},
	{ErrConflict, CodeConflict, ""},
	{ErrNotFound, CodeNotFound, ""},
	{ErrLogin, CodeLogin, ""},
	{ErrFactor, CodeFactor, ""},
	{ErrNotVerified, CodeNotVerified, ""},
	{ErrUnproven, CodeUnproven, ""},
	{ErrTooManyAttempts, CodeThrottled, ""},
	{ErrUnmarshal, CodeOther, ""},
}

// CodeOf returns the code of err: "" for nil, and CodeOther for an unknown error. If err wraps or
// joins several errors, CodeOf returns the code that comes first in the order of precedence. The
// exception is ErrFileDamaged, which also wraps ErrUnavailable: its code is CodeCorrupt.
//
// An error of another package can choose its code with a method ErrorCode() Code.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	found := carriedCode(err)
	for _, row := range errorCodes {
		if errors.Is(err, row.err) {
			return earlier(row.code, found)
		}
	}
	return found
}

// carriedCode returns the first code in order of precedence that err or an error it wraps chooses
// with ErrorCode, or CodeOther if none does.
func carriedCode(err error) Code {
	found := CodeOther
	if carrier, ok := err.(interface{ ErrorCode() Code }); ok {
		found = carrier.ErrorCode()
	}
	switch err := err.(type) {
	case interface{ Unwrap() error }:
		found = earlier(found, carriedCode(err.Unwrap()))
	case interface{ Unwrap() []error }:
		for _, joined := range err.Unwrap() {
			found = earlier(found, carriedCode(joined))
		}
	}
	return found
}

// earlier returns the code that comes first in the order of precedence.
func earlier(a, b Code) Code {
	if b.index() < a.index() {
		return b
	}
	return a
}

// outcomeOf returns the Outcome of an error, which may be more specific than its code.
func outcomeOf(err error) Outcome {
	if err == nil {
		return "ok"
	}
	for _, row := range errorCodes {
		if errors.Is(err, row.err) {
			return cmp.Or(row.outcome, Outcome(row.code))
		}
	}
	return Outcome(CodeOther)
}
