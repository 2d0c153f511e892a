package password

import "errors"

var (
	// ErrPolicy matches every *PolicyError: a new password is refused.
	ErrPolicy = errors.New("password refused")
	// ErrHash matches every *HashError: the stored text cannot be used to verify a password.
	ErrHash = errors.New("stored hash is not usable")
	// ErrOptions matches the errors of New about a cost or a pepper, and those of Prepared.
	ErrOptions = errors.New("password options")
)

// The values of PolicyError.Rule.
const (
	ruleMax        = "max"
	ruleMin        = "min"
	ruleBlocklist  = "blocklist"
	ruleIdentifier = "identifier"
	ruleStrength   = "strength"
	ruleNUL        = "nul"
)

// PolicyError says why a password must not be set. It matches ErrPolicy.
type PolicyError struct {
	// Rule is one of: "max", more bytes than can be hashed; "min", fewer code points than
	// Policy.Min; "blocklist", a common password; "identifier", an identifier of the owner;
	// "strength", easier to guess than Policy.Strength allows; "nul", bcrypt cannot distinguish it
	// from a shorter one.
	Rule   string
	Reason string // for people; never contains the password
	Min    int    // for "min", Policy.Min, or 1 if that is 0 and the password is empty
}

// Error returns "password refused" and the reason.
func (e *PolicyError) Error() string { return ErrPolicy.Error() + ": " + e.Reason }

// Is reports whether target is ErrPolicy.
func (e *PolicyError) Is(target error) bool { return target == ErrPolicy }

// HashError says why a stored hash cannot be used. It matches ErrHash.
type HashError struct {
	Reason string // for operators; never contains the hash
}

// Error returns "stored hash is not usable" and the reason.
func (e *HashError) Error() string { return ErrHash.Error() + ": " + e.Reason }

// Is reports whether target is ErrHash.
func (e *HashError) Is(target error) bool { return target == ErrHash }
