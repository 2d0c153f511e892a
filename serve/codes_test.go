package serve_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/internal/coded"
	"github.com/coffeenode/userdb/serve"
	"github.com/coffeenode/userdb/serve/internal/figures"
	"github.com/coffeenode/userdb/serve/scim"
	"github.com/coffeenode/userdb/userdb"
)

// TestProblemCodes checks the codes, the statuses and Retry-After of errors over HTTP. If a
// response hides the error itself, it must still say that earlier changes of the request remain.
func TestProblemCodes(t *testing.T) {
	for _, code := range userdb.Codes() {
		err := fmt.Errorf("wrapped: %w", coded.New(code, "an error"))
		if p := serve.ProblemOf(err); p.ErrorCode() != code || p.Status != code.HTTPStatus() || userdb.CodeOf(p) != code {
			t.Errorf("%s: got code %s and status %d, want status %d", code, p.Code, p.Status, code.HTTPStatus())
		}
	}
	for _, tt := range []struct {
		err    error
		code   userdb.Code
		status int
		retry  int64
	}{
		{userdb.ErrUnsuitable, "unavailable", 503, 0},
		{userdb.ErrFileFull, "unavailable", 503, 0},
		{userdb.ErrIndexBuilding, "unavailable", 503, 5},
		{userdb.ErrUnavailable, "unavailable", 503, 1},
		{userdb.ErrUnconfirmed, "unavailable", 503, 0},
		{userdb.ErrConflict, "conflict", 409, 1},
		{figures.ErrBusy, "unavailable", 503, 1},
		{&scim.Error{Status: 404, Detail: "there is no such resource"}, "not_found", 404, 0},
		{&scim.Error{Status: 413, Detail: "the body is too large"}, "usage", 413, 0},
		{userdb.ErrCorrupt, "corrupt", 500, 0},
		{errors.New("mine"), "other", 500, 0},
		{&userdb.FieldError{Err: userdb.ErrInvalid, Field: "idempotency", Rule: "once"}, "idempotency", 422, 0},
	} {
		p := serve.ProblemOf(tt.err)
		partial := serve.ProblemOf(fmt.Errorf("%w: %w", scim.ErrPartial, tt.err)).Detail
		_, fromSCIM := errors.AsType[*scim.Error](tt.err)
		if hidden := tt.code == "corrupt" || tt.code == "other" || fromSCIM; hidden && !strings.Contains(partial, "changes made so far remain") {
			t.Errorf("%v after some changes: got the detail %q, want it to mention them", tt.err, partial)
		}
		if p.ErrorCode() != tt.code || p.Status != tt.status || p.RetryAfter != tt.retry {
			t.Errorf("%v: got %s, %d and Retry-After %d; want %s, %d and %d", tt.err, p.Code, p.Status, p.RetryAfter, tt.code, tt.status, tt.retry)
		}
	}
}

// TestDetailOfUnconfirmed checks that the detail of a change that was made but not confirmed is
// true of every cause. It names both what a replica and what an index may lack, and no server.
func TestDetailOfUnconfirmed(t *testing.T) {
	for _, cause := range []string{"on 0 of 1 replicas after 1s", "a server refused work that follows it: NOPERM SADD", "the server no longer has the change"} {
		detail := serve.ProblemOf(fmt.Errorf("%w: %s", userdb.ErrUnconfirmed, cause)).Detail
		for _, want := range []string{"was made", "replicas", "index", "check --repair", "request_id"} {
			if !strings.Contains(detail, want) {
				t.Errorf("%s: got the detail %q, want it to contain %q", cause, detail, want)
			}
		}
		if strings.Contains(detail, cause) {
			t.Errorf("the detail %q contains the cause %q", detail, cause)
		}
	}
}
