package password

import "errors"

var (
	// ErrPolicy is what every *PolicyError is: the password may not be set.
	ErrPolicy = errors.New("password refused")
	// ErrHash is what every *HashError is: nothing can be verified with what is stored.
	ErrHash = errors.New("stored hash is not usable")
	// ErrOptions: a cost or a pepper that New does not take.
	ErrOptions = errors.New("password options")
)

// What PolicyError.Rule can be, in the order in which the rules are tried.
const (
	ruleMax        = "max"
	ruleMin        = "min"
	ruleBlocklist  = "blocklist"
	ruleIdentifier = "identifier"
	ruleStrength   = "strength"
	ruleNUL        = "nul"
)

// PolicyError says why a password may not be set. It Is ErrPolicy.
type PolicyError struct {
	// Rule is "max": more bytes than can be hashed; "min": fewer code points than Policy.Min; "blocklist": a common
	// password; "identifier": one of its owner's; "strength": easier to guess than Policy.Strength allows; "nul":
	// bcrypt takes it for a shorter one.
	Rule   string
	Reason string // for people; never holds the password
}

// Error is "password refused" and the reason.
func (e *PolicyError) Error() string { return ErrPolicy.Error() + ": " + e.Reason }

// Is makes every PolicyError an ErrPolicy.
func (e *PolicyError) Is(target error) bool { return target == ErrPolicy }

// HashError says why a stored hash cannot be used. It Is ErrHash.
type HashError struct {
	Reason string // for operators; never holds the hash
}

// Error is "stored hash is not usable" and the reason.
func (e *HashError) Error() string { return ErrHash.Error() + ": " + e.Reason }

// Is makes every HashError an ErrHash.
func (e *HashError) Is(target error) bool { return target == ErrHash }
