package core

import (
	"errors"

	"github.com/coffeenode/userdb/validate"
)

// ErrInvalid is a value that a rule refuses.
var ErrInvalid = errors.New("invalid value")

// A FieldError names the field that ErrDuplicate or ErrInvalid is about, and for the latter the rule.
type FieldError struct {
	Err         error
	Field, Rule string
	Reason      string
}

func (e *FieldError) Error() string {
	s := e.Err.Error() + ": " + e.Field
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	return s
}

// Unwrap gives ErrDuplicate or ErrInvalid.
func (e *FieldError) Unwrap() error { return e.Err }

// Invalid makes an ErrInvalid.
func Invalid(field, rule, reason string) error {
	return &FieldError{Err: ErrInvalid, Field: field, Rule: rule, Reason: reason}
}

// refused makes an ErrInvalid of what a rule answered.
func refused(err error) error {
	var rule *validate.Error
	if errors.As(err, &rule) {
		return Invalid(rule.Field, rule.Rule, rule.Reason)
	}
	return err
}
