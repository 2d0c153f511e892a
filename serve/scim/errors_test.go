package scim

import (
	"errors"
	"testing"

	"github.com/coffeenode/userdb/internal/coded"
	"github.com/coffeenode/userdb/password"
	"github.com/coffeenode/userdb/userdb"
)

// TestErrorsAgreeWithTheTable checks that a directory receives the status and scimType of the table
// of codes. Errors whose code has no scimType are left to the service.
func TestErrorsAgreeWithTheTable(t *testing.T) {
	for _, code := range userdb.Codes() {
		status, scimType := code.SCIM()
		e, own := errors.AsType[*Error](publicError(coded.New(code, "an error")))
		if own != (scimType != "") {
			t.Errorf("%s has a SCIM error: got %v, want %v", code, own, scimType != "")
		}
		if own && (e.Status != status || e.Type != scimType) {
			t.Errorf("%s has the status %d and the scimType %s, want %d %s", code, e.Status, e.Type, status, scimType)
		}
	}
	if e, ok := errors.AsType[*Error](publicError(&password.PolicyError{Rule: "min"})); !ok || e.Status != 400 || e.Type != invalidValue {
		t.Errorf("a password that the policy refuses causes %+v, want 400 %s", e, invalidValue)
	}
	err := errors.Join(userdb.ErrUnavailable, userdb.ErrDuplicate)
	if publicError(err) != err { //nolint:errorlint // must be err itself
		t.Error("an unavailable store is reported as a duplicate value")
	}
}
