package userdb

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
)

// foreignError is an error of another package with a code of its own.
type foreignError struct {
	code Code
	err  error
}

func (o *foreignError) Error() string   { return "foreign error" }
func (o *foreignError) ErrorCode() Code { return o.code }
func (o *foreignError) Unwrap() error   { return o.err }

// onlyHTTP holds the codes that only the HTTP service uses.
var onlyHTTP = []Code{CodeKey, CodeScope, CodePrecondition, CodeIdempotency}

// TestCodes checks that no code is in the table twice, that every code has an exit status and an
// HTTP status, and that some error has the code, unless only the command or the HTTP service uses
// it.
func TestCodes(t *testing.T) {
	for i, code := range Codes() {
		if code.index() != i || slices.Index(Codes(), code) != i {
			t.Errorf("%s is in the table twice", code)
		}
		if exit, status := code.ExitStatus(), code.HTTPStatus(); exit < 1 || exit > 255 || http.StatusText(status) == "" || status < 400 {
			t.Errorf("%s has exit status %d and HTTP status %d, want 1 to 255 and a known one from 400", code, exit, status)
		}
		if status, _ := code.SCIM(); http.StatusText(status) == "" || status < 400 {
			t.Errorf("%s has SCIM status %d, want a known one from 400", code, status)
		}
		reached := code == CodeInterrupted || slices.Contains(onlyHTTP, code)
		for _, row := range errorCodes {
			reached = reached || row.code == code
		}
		if !reached {
			t.Errorf("no error has the code %s", code)
		}
		if got := CodeOf(fmt.Errorf("wrapped: %w", &foreignError{code: code})); got != code {
			t.Errorf("an error with ErrorCode %s has code %s, want the same", code, got)
		}
	}
	if CodeOther.index() != len(codes)-1 {
		t.Error("CodeOther is not the last code")
	}
	if Code("").ExitStatus() != 0 || Code("").HTTPStatus() != http.StatusOK || CodeOf(nil) != "" {
		t.Error("the zero Code is a failure")
	}
	if unknown := Code("nosuch"); unknown.ExitStatus() != 1 || unknown.HTTPStatus() != http.StatusInternalServerError {
		t.Error("an unknown code is not treated like CodeOther")
	}
}

// TestCodeOf checks that each error in the table has the code of its row, wrapped or not, and that
// two joined errors have the code that comes first in the order of precedence, whichever error was
// joined first.
func TestCodeOf(t *testing.T) {
	for _, a := range errorCodes {
		if got := CodeOf(a.err); got != a.code {
			t.Errorf("code of %v: got %s, want %s", a.err, got, a.code)
		}
		if got := CodeOf(fmt.Errorf("wrapped: %w", &FieldError{Err: a.err, Field: "f"})); got != a.code {
			t.Errorf("code of %v, wrapped: got %s, want %s", a.err, got, a.code)
		}
		for _, b := range errorCodes {
			if errors.Is(a.err, ErrFileDamaged) || errors.Is(b.err, ErrFileDamaged) {
				continue // the exception that CodeOf documents
			}
			want := earlier(a.code, b.code)
			if a.err == errPanicked || b.err == errPanicked {
				continue // errPanicked is never joined
			}
			for _, err := range []error{
				errors.Join(a.err, b.err), fmt.Errorf("%w: %w", b.err, a.err), errors.Join(a.err, &foreignError{code: b.code}),
				&foreignError{b.code, a.err},
			} {
				if got := CodeOf(err); got != want {
					t.Errorf("code of %v with %v: got %s, want %s", a.err, b.err, got, want)
				}
			}
		}
	}
}

// TestCodeExamples checks the codes of errors that callers often get.
func TestCodeExamples(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want Code
	}{
		{fmt.Errorf("%w: %w", ErrUnavailable, ErrFileDamaged), CodeCorrupt},
		{fmt.Errorf("%w: %w", ErrUnavailable, ErrFileFull), CodeUnavailable},
		{fmt.Errorf("%w: %w", ErrUnavailable, context.DeadlineExceeded), CodeUnavailable},
		{&BusyError{}, CodeUnavailable},
		{&WaitError{}, CodeThrottled},
		{errors.Join(&FieldError{Err: ErrDuplicate, Field: "name"}, &FieldError{Err: ErrInvalid, Field: "email"}), CodeInvalid},
		{errors.Join(ErrNotFound, ErrCorrupt), CodeCorrupt},
		{errors.Join(errors.New("mine"), ErrNotFound), CodeNotFound},
		{errors.New("mine"), CodeOther},
		{errPanicked, CodeOther},
	} {
		if got := CodeOf(tt.err); got != tt.want {
			t.Errorf("code of %v: got %s, want %s", tt.err, got, tt.want)
		}
	}
}
