package admin

import (
	"context"
	"errors"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/coded"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// EnrolLinkLife is how long a link to enrol a second factor is valid.
const EnrolLinkLife = time.Hour

// purposeEnrol is the purpose of the tokens in these links.
const purposeEnrol = "enrol"

// ErrHasFactor means that no link is made for an operator who has a second factor.
var ErrHasFactor = coded.New(userdb.CodeConflict, "the operator has a second factor already")

// FactorsAllowed reports whether operators may enrol second factors under the stored schema, and
// whether passkeys are among these. In a store that an earlier version made, AllowFactors allows
// factors other than passkeys, and IssueEnrolLink also allows passkeys.
func FactorsAllowed(ctx context.Context, db *userdb.DB) (allowed, passkeys bool, err error) {
	adminDB, err := Open(db)
	if err != nil {
		return false, false, err
	}
	stored, err := migrate.StoredSchema(ctx, adminDB)
	t, isStored := stored.Types[operatorType]
	_, passkeys = t.Fields[PasskeyField]
	return !isStored || t.Factors, !isStored || t.Factors && passkeys, err
}

// AllowFactors lets operators enrol second factors, even in a store that an earlier version made.
// After that, processes of earlier versions can no longer change operators.
func AllowFactors(ctx context.Context, db *userdb.DB) error {
	return allowFactors(ctx, db, func(t schema.Type) schema.Type { return t })
}

// allowFactors does the work of AllowFactors, and also applies extend to the stored type.
func allowFactors(ctx context.Context, db *userdb.DB, extend func(schema.Type) schema.Type) error {
	adminDB, err := Open(db)
	if err != nil {
		return err
	}
	stored, err := migrate.StoredSchema(ctx, adminDB)
	if err != nil {
		return err
	}
	t, isStored := stored.Types[operatorType]
	if !isStored {
		return nil
	}
	next := extend(t)
	if t.Factors && len(next.Fields) == len(t.Fields) {
		return nil
	}
	next.Factors = true
	plan, err := migrate.Plan(ctx, adminDB, schema.Schema{Types: map[string]schema.Type{operatorType: next}})
	if err != nil {
		return err
	}
	return plan.Apply(ctx, nil)
}

// IssueEnrolLink lets operators enrol second factors, including passkeys, and returns the token of
// a link with which the given operator enrols one. The operator also needs the password. The error
// is ErrHasFactor if the operator has a second factor already, and ErrNotFound if the operator does
// not exist or is disabled.
func IssueEnrolLink(ctx context.Context, db *userdb.DB, operator hints.Hint) (secret string, err error) {
	if err := allowFactors(ctx, db, withPasskeys); err != nil {
		return "", err
	}
	operators, err := Operators(db)
	if err != nil {
		return "", err
	}
	e, err := operators.Find(ctx, operator)
	if err != nil {
		return "", err
	}
	if len(e.FactorMethods()) > 0 {
		return "", ErrHasFactor
	}
	return operators.Issue(ctx, operator, userdb.Token{Purpose: purposeEnrol, Lifetime: EnrolLinkLife})
}

// EnrolLinkOwner returns the operator that a link is for. The error is ErrNotFound if the link was
// used, has expired or never existed, or if the operator has a second factor.
func EnrolLinkOwner(ctx context.Context, operators *userdb.Type, secret string) (userdb.Entry, error) {
	e, _, err := operators.Peek(ctx, purposeEnrol, secret)
	if err == nil && len(e.FactorMethods()) > 0 {
		err = userdb.ErrNotFound
	}
	return e, err
}

// SpendEnrolLink makes a link invalid, after its operator has enrolled a second factor.
func SpendEnrolLink(ctx context.Context, operators *userdb.Type, secret string) error {
	_, _, err := operators.Redeem(ctx, purposeEnrol, secret)
	if errors.Is(err, userdb.ErrFactor) || errors.Is(err, userdb.ErrNotFound) {
		err = nil // the link is spent
	}
	return err
}
