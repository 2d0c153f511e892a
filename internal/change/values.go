package change

import (
	"errors"
	"unicode/utf8"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/validate"
)

func checkSize(facets map[string]string) error {
	size := 0
	for f, w := range facets {
		size += len(f) + len(w)
	}
	if size > validate.MaxEntry {
		return Invalid("", "size", "an entry of over 1 MiB")
	}
	return nil
}

// Encode puts facets on the wire, each by the codec that its field declares, for an entry that has
// the fields was (nil for a new one). Only what changes is held to the rules, so that an entry older
// than a rule can still be changed elsewhere.
func (t *Type) Encode(facets schema.Facets, was map[string]string) (map[string]string, error) {
	wires := make(map[string]string, len(facets)+ownRoom)
	for field, v := range facets {
		if err := t.EncodeFacet(wires, field, v, was); err != nil {
			return nil, err
		}
	}
	return wires, nil
}

// ownRoom is how many fields of the store's own usually join the facets of an entry.
const ownRoom = 6

// EncodeFacet is Encode for one facet more.
func (t *Type) EncodeFacet(wires map[string]string, field string, v schema.Value, was map[string]string) error {
	if field == store.FieldPassword {
		return Invalid(field, "name", "a password is set by its own verb")
	}
	wire := v.Wire()
	if old, had := was[field]; !had || old != wire {
		if err := t.Rules.Facet(field, v); err != nil {
			return refused(err)
		}
	}
	wires[field] = wire
	return nil
}

// Decode reads the facets of a record, without the store's own fields and without the password. A
// facet that its codec cannot read is an ErrCorrupt that names the field.
func (t *Type) Decode(r store.Record) (schema.Facets, error) {
	facets := make(schema.Facets, len(r.Fields))
	for field, wire := range r.Fields {
		if store.OwnField(field) || field == store.FieldPassword {
			continue
		}
		v, err := schema.Decode(t.Schema.Codec(field), wire)
		if err != nil {
			return nil, unreadable(r, field, err)
		}
		facets[field] = v
	}
	return facets, nil
}

// Readable checks that Decode can read a record. It looks only at the fields that have a codec.
func (t *Type) Readable(r store.Record) error {
	for field, codec := range t.cast {
		if wire, has := r.Fields[field]; has {
			if _, err := schema.Decode(codec, wire); err != nil {
				return unreadable(r, field, err)
			}
		}
	}
	return nil
}

// unreadable names a facet that its codec cannot read.
func unreadable(r store.Record, field string, err error) error {
	if len(field) > 64 || !utf8.ValidString(field) {
		field = "of a long or binary name"
	}
	return &store.CorruptError{Key: r.Key.String(), Reason: "facet " + field + ": " + err.Error()}
}

// Bare is a record's facets on the wire, with the password and without the store's own fields.
func Bare(r store.Record) map[string]string {
	facets := make(map[string]string, len(r.Fields))
	for field, wire := range r.Fields {
		if !store.OwnField(field) {
			facets[field] = wire
		}
	}
	return facets
}

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

// refused turns the answer of a rule into an ErrInvalid.
func refused(err error) error {
	var rule *validate.Error
	if errors.As(err, &rule) {
		return Invalid(rule.Field, rule.Rule, rule.Reason)
	}
	return err
}
