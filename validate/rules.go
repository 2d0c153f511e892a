package validate

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// MaxEntry is the greatest length of an entry in bytes: its facets as they are written, with their names.
const MaxEntry = 1 << 20

// Rules are the rules of one type. They are made by Compile, never change, and are safe for concurrent use. The zero
// Rules is not usable.
type Rules struct {
	typ           schema.Type
	fields        map[string]*rule
	secondary     []string // sorted
	disjointKinds bool     // their kinds alone tell that no value belongs to two of them
}

// Compile returns the rules of t, which must be valid: an unknown kind and a pattern that is no RE2 are refused as a
// *schema.Error.
func Compile(t schema.Type) (*Rules, error) {
	r := &Rules{typ: t, fields: make(map[string]*rule), secondary: t.Secondary()}
	for name, f := range t.Fields {
		compiled, err := compile(t, name, f)
		if err != nil {
			return nil, err
		}
		r.fields[name] = compiled
	}
	r.disjointKinds = disjointKinds(t)
	return r, nil
}

// Secondary returns what is wrong with a value of a secondary field, as an *Error, or nil. The value is canonical, as
// schema.Type.Canonical gives it. A field that is not secondary has no such values. Under FoldCasefold a code point
// that the Unicode tables do not know is refused: how it is compared is not decided yet.
func (r *Rules) Secondary(field, value string) error {
	rule := r.fields[field]
	if rule == nil || !rule.role.Has(schema.RoleSecondary) {
		return &Error{field, "secondary", "not a secondary field"}
	}
	if err := r.checkForm(field, value); err != nil {
		return err
	}
	return rule.check(r.typ, value)
}

// checkForm checks what is wanted of a value of any secondary field.
func (r *Rules) checkForm(field, value string) error {
	if err := checkCrumb(field, value); err != nil {
		return err
	}
	if r.typ.Canonical(value) != value {
		return &Error{field, "canonical", "not in canonical form"}
	}
	if r.typ.Fold != schema.FoldExact && schema.Unassigned(value) {
		return &Error{field, "unassigned", "a character that is not in Unicode " + unicode.Version}
	}
	return nil
}

// Facet returns what is wrong with a facet of an entry, as an *Error, or nil: its name, its length, whether it can be
// read back as it is, and the field's kind, pattern and reserved values. Of a secondary field the canonical form is
// checked as Secondary does it, and v as it is written for line breaks, control characters and, where there is a kind,
// invisible ones: the canonical form has none, but mail and logs would have them. Of other fields v is checked as it is
// written. Null has no value, and no rule looks at it, unless the field is part of a key.
func (r *Rules) Facet(field string, v schema.Value) error {
	if err := checkName(field); err != nil {
		return err
	}
	rule := r.fields[field]
	if err := rule.checkWire(field, v); err != nil {
		return err
	}
	switch {
	case rule != nil && rule.role.Has(schema.RoleSecondary):
		return r.secondaryFacet(rule, v)
	case field == r.typ.Primary || rule != nil && rule.role.Has(schema.RoleIndexed):
		if err := checkCrumb(field, v.Wire()); err != nil {
			return err
		}
	}
	if rule == nil || v.IsNull() {
		return nil
	}
	return rule.check(r.typ, v.Wire())
}

func (r *Rules) secondaryFacet(rule *rule, v schema.Value) error {
	if v.Codec() != schema.CodecText {
		return &Error{rule.field, "text", "not a text"}
	}
	if r.typ.Fold != schema.FoldExact {
		if err := rule.checkVisible(v.Text()); err != nil {
			return err
		}
	}
	return r.Secondary(rule.field, r.typ.Canonical(v.Text()))
}

// checkVisible refuses characters that the canonical form does not have, and that nobody would see.
func (r *rule) checkVisible(text string) error {
	if strings.IndexFunc(text, func(char rune) bool { return char < ' ' || char > '~' }) < 0 {
		return nil
	}
	for _, char := range text {
		switch {
		case unicode.IsControl(char) && char != '\t' || char == '\u2028' || char == '\u2029':
			return &Error{r.field, "control", fmt.Sprintf("a line break or control character (%U)", char)}
		case r.kind.visible && (schema.Invisible(string(char)) || char == '\u2800'): // which is Braille without a dot
			return &Error{r.field, "invisible", fmt.Sprintf("an invisible character (%U)", char)}
		}
	}
	return nil
}

// checkWire wants a value that is read back from the database as it was given. In a text field that is the text of any
// value; so is one without a rule.
func (r *rule) checkWire(field string, v schema.Value) error {
	wire := v.Wire()
	switch {
	case len(wire) > schema.MaxFacet:
		return &Error{field, "size", "longer than 64 KiB"}
	case !utf8.ValidString(wire):
		return &Error{field, "text", "not UTF-8"}
	case r == nil || r.codec == schema.CodecText || r.codec == schema.CodecIdentity:
		return nil
	}
	read, err := schema.Decode(r.codec, wire)
	if err != nil || read != v && !(read.IsNull() && v.IsNull()) {
		return &Error{field, "codec", "not a value of codec " + string(r.codec)}
	}
	return nil
}

// Candidates returns the secondary fields, sorted, in which a canonical value can be. Where the kinds of the fields
// exclude each other, that is the field whose rule takes the value; all where no rule does (for what was written under
// other rules). Of patterns only the prover of Check could tell, and it is not asked here: a lookup in a type that has
// them is never narrowed.
func (r *Rules) Candidates(value string) []string {
	if r.disjointKinds && r.checkForm("", value) == nil {
		for _, field := range r.secondary {
			if r.fields[field].check(r.typ, value) == nil {
				return []string{field}
			}
		}
	}
	return slices.Clone(r.secondary)
}

// checkName refuses names that no facet has. Those of the store begin with "~".
func checkName(field string) error {
	switch {
	case field == "":
		return &Error{field, "name", "a field without a name"}
	case strings.HasPrefix(field, "~"):
		return &Error{field, "name", "names that begin with ~ are reserved for the store"}
	case len(field) > recordkey.MaxCrumb:
		return &Error{field, "name", "longer than 1 KiB"}
	case !utf8.ValidString(field):
		return &Error{field, "name", "not UTF-8"}
	}
	return nil
}

// checkCrumb checks what is wanted of a value that becomes part of a key.
func checkCrumb(field, value string) error {
	switch {
	case value == "":
		return &Error{field, "non-empty", "empty"}
	case len(value) > recordkey.MaxCrumb:
		return &Error{field, "size", "longer than 1 KiB"}
	case !utf8.ValidString(value):
		return &Error{field, "text", "not UTF-8"}
	}
	return nil
}

// rule is what one field wants of its values.
type rule struct {
	field    string
	role     schema.Role
	codec    schema.Codec
	kindName string // of the kind
	kind     kind
	parts    []part          // all of them must take a value
	reserved map[string]bool // canonical forms that no value may have
}

// part is one expression of a rule. A value satisfies it by matching, or where not is set by not matching. Values and
// the prover are held against the same expressions, so that no value lies outside what is proved.
type part struct {
	rule string
	phrase
	re *regexp.Regexp
}

// phrase is a part not compiled yet.
type phrase struct {
	expr, reason string
	not          bool
}

func (p part) accepts(value string) bool { return p.re.MatchString(value) != p.not }

func compile(t schema.Type, field string, f schema.Field) (*rule, error) {
	k, known := kindOf(f.Kind, t)
	if !known {
		return nil, refuseSchema(field, "kind", "unknown kind")
	}
	r := &rule{field: field, role: f.Role, codec: t.Codec(field), kindName: f.Kind, kind: k, reserved: make(map[string]bool)}
	for _, ph := range k.phrases {
		r.parts = append(r.parts, part{f.Kind, ph, regexp.MustCompile(ph.expr)})
	}
	if f.Pattern != "" {
		re, err := regexp.Compile(f.Pattern)
		if err != nil {
			return nil, refuseSchema(field, "pattern", "not a regular expression")
		}
		r.parts = append(r.parts, part{"pattern", phrase{expr: f.Pattern, reason: "does not match " + quoteIfUnclear(f.Pattern)}, re})
	}
	for _, value := range f.Reserved {
		if form := t.Canonical(value); checkCrumb(field, form) == nil { // else it is no value anyway
			r.reserved[form] = true
		}
	}
	return r, nil
}

func refuseSchema(field, member, reason string) error {
	return &schema.Error{Path: "fields." + field + "." + member, Reason: reason}
}

// check applies kind, pattern and reserved values.
func (r *rule) check(t schema.Type, value string) error {
	parts := r.parts
	if r.kind.acceptsQuickly(value) {
		parts = parts[len(r.kind.phrases):]
	} else if reason := r.kind.refuse(value); reason != "" {
		return &Error{r.field, r.kindName, reason}
	}
	for _, p := range parts {
		if !p.accepts(value) {
			return &Error{r.field, p.rule, p.reason}
		}
	}
	if len(r.reserved) > 0 && r.reserved[t.Canonical(value)] {
		return &Error{r.field, "reserved", "no entry may take this value"}
	}
	return nil
}
