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

// A Code says in one word what an error means to a program: the word of the command's JSON, of a
// problem over HTTP and of the logs. The words, exit statuses and HTTP statuses of codes do not
// change. The zero Code is that of a nil error.
type Code string

// The codes, in order of precedence: [CodeOf] an error that is several things is the first of them.
// What stands in the way of everything comes first, then the store, then what was asked for, then
// what is stored, then logins.
const (
	CodeInterrupted    Code = "interrupted"     // a signal ended the command
	CodeUnavailable    Code = "unavailable"     // the store does not answer, refuses or is full; or time is up
	CodeCorrupt        Code = "corrupt"         // a record, or the file of the store, is damaged
	CodeSchemaMismatch Code = "schema_mismatch" // the stored schema differs from the program's
	CodeKey            Code = "key"             // no API key that is good; only over HTTP
	CodeScope          Code = "scope"           // the API key may not do this; only over HTTP
	CodeUsage          Code = "usage"           // arguments, options or a request that mean nothing
	CodeHint           Code = "hint"            // a hint or record key that means nothing
	CodeSchema         Code = "schema"          // a bad schema, or a name that it does not have
	CodePrecondition   Code = "precondition"    // the entry has another revision than If-Match says; only over HTTP
	CodeIdempotency    Code = "idempotency"     // an Idempotency-Key was used for another request; only over HTTP
	CodeInvalid        Code = "invalid"         // a rule refuses a value or a password
	CodeDuplicate      Code = "duplicate"       // a value, a name or a place is taken
	CodeConflict       Code = "conflict"        // the entry changed meanwhile
	CodeNotFound       Code = "not_found"       // nothing is there
	CodeLogin          Code = "login"           // wrong identifier, password, token or session
	CodeThrottled      Code = "throttled"       // too many attempts
	CodeOther          Code = "other"           // any other error
)

// codes is the table of what codes mean to shells and to HTTP clients, in order of precedence.
var codes = []struct {
	code     Code
	exit     int // 0: the command has no such error
	http     int
	scim     int    // the status for directories; 0: that of http
	scimType string // the word of RFC 7644, 3.12; "": none
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
	{CodeThrottled, 8, http.StatusTooManyRequests, 0, ""},
	{CodeOther, 1, http.StatusInternalServerError, 0, ""},
}

// Codes returns all codes, in order of precedence.
func Codes() []Code {
	all := make([]Code, len(codes))
	for i, c := range codes {
		all[i] = c.code
	}
	return all
}

// ExitStatus returns the exit status of the command: 0 for the zero Code, and 1 for a code that
// only HTTP has, or that is not in the table.
func (c Code) ExitStatus() int {
	if c == "" {
		return 0
	}
	return cmp.Or(codes[c.index()].exit, 1)
}

// HTTPStatus returns the status of an answer over HTTP: 200 for the zero Code, and 500 for a code
// that is not in the table.
func (c Code) HTTPStatus() int {
	if c == "" {
		return http.StatusOK
	}
	return codes[c.index()].http
}

// SCIM returns the status and the scimType of an answer to a directory (RFC 7644, 3.12), which
// differs from HTTPStatus where that standard says so. scimType is "" where it has no word.
func (c Code) SCIM() (status int, scimType string) {
	if c == "" {
		return http.StatusOK, ""
	}
	row := codes[c.index()]
	return cmp.Or(row.scim, row.http), row.scimType
}

// index returns the place of a code in the table; that of CodeOther for one that is not in it.
func (c Code) index() int {
	for i, row := range codes {
		if row.code == c {
			return i
		}
	}
	return len(codes) - 1
}

// errorCodes is the table of errors with their codes, tried from the first to the last: also of an
// error that wraps or joins several. An outcome of "" is the word of the code.
var errorCodes = []struct {
	err     error
	code    Code
	outcome Outcome
}{
	{errPanicked, CodeOther, "panicked"},
	{ErrFileDamaged, CodeCorrupt, ""}, // it is also ErrUnavailable
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
	{ErrTooManyAttempts, CodeThrottled, ""},
	{ErrUnmarshal, CodeOther, ""},
}

// CodeOf returns the code of an error: "" for nil, and CodeOther for one that it does not know. An
// error that wraps or joins several has the code that comes first in the order of codes; but
// ErrFileDamaged, which comes with ErrUnavailable, is CodeCorrupt.
//
// An error of another package says its code by a method ErrorCode() Code, and counts as others do.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	found := carriedCode(err)
	for _, row := range errorCodes {
		if errors.Is(err, row.err) {
			return first(row.code, found)
		}
	}
	return found
}

// carriedCode returns the first of the codes that an error and all that it wraps say themselves;
// CodeOther for none.
func carriedCode(err error) Code {
	found := CodeOther
	if carrier, is := err.(interface{ ErrorCode() Code }); is {
		found = carrier.ErrorCode()
	}
	switch err := err.(type) {
	case interface{ Unwrap() error }:
		found = first(found, carriedCode(err.Unwrap()))
	case interface{ Unwrap() []error }:
		for _, one := range err.Unwrap() {
			found = first(found, carriedCode(one))
		}
	}
	return found
}

// first returns the one of two codes that comes first in the order of codes.
func first(a, b Code) Code {
	if b.index() < a.index() {
		return b
	}
	return a
}

// outcomeOf returns the word for observers: finer than the code where they want to know more.
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
