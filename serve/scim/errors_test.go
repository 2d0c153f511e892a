package scim

import (
	"errors"
	"testing"

	"github.com/coffeenode/userdb/internal/coded"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/userdb"
)

// TestErrorsAgreeWithTheTable checks that a directory receives the status and scimType that the
// table of codes has for an error. The service answers all other errors itself.
func TestErrorsAgreeWithTheTable(t *testing.T) {
	for _, code := range userdb.Codes() {
		status, scimType := code.SCIM()
		e, own := errors.AsType[*Error](public(coded.New(code, "an error")))
		if own != (scimType != "") {
			t.Errorf("%s is put in words of SCIM: %v", code, own)
		}
		if own && (e.Status != status || e.Type != scimType) {
			t.Errorf("%s is answered with %d %s, want %d %s", code, e.Status, e.Type, status, scimType)
		}
	}
	if e, is := errors.AsType[*Error](public(&password.PolicyError{Rule: "min"})); !is || e.Status != 400 || e.Type != invalidValue {
		t.Errorf("a password that the policy refuses: %+v, want 400 %s", e, invalidValue)
	}
	if err := errors.Join(userdb.ErrUnavailable, userdb.ErrDuplicate); public(err) != err { //nolint:errorlint // err itself
		t.Error("a store that went away is told as a value that is taken")
	}
}
