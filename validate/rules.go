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

// MaxEntry is the maximum size of an entry in bytes: the wire form of its facets and further values
// with their names, without the password. Together with the values that repairs have removed from
// their fields, an entry may be 64 KiB larger.
const MaxEntry = 1 << 20

// Rules holds the rules of one type. It never changes and is safe for concurrent use. Compile
// returns it; the zero Rules is not usable.
type Rules struct {
	typ           schema.Type
	fields        map[string]*rule
	typed         []string // the secondary fields whose values people type, sorted
	disjointKinds bool     // the kinds exclude each other, so a value belongs to at most one field
}

// Compile returns the rules of t, which must be valid. The error is a *schema.Error if a kind is
// unknown or a pattern is not RE2.
func Compile(t schema.Type) (*Rules, error) {
	r := &Rules{typ: t, fields: make(map[string]*rule), typed: t.Typed()}
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

// Secondary checks a value of a secondary field and returns an *Error or nil. The value must be in
// canonical form; see schema.Type.Canonical. A field that is not secondary accepts no value. Under
// FoldCasefold, Secondary refuses code points that are unassigned in the program's Unicode tables,
// because their canonical form is not yet known.
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

// checkForm checks the rules that apply to the values of every secondary field.
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

// Facet checks a facet of an entry and returns an *Error or nil. It checks the name, the length,
// that the value can be read back unchanged, and the field's kind, pattern and reserved values.
//
// For a secondary field it checks the canonical form, as Secondary does. Except under FoldExact, it
// also checks that the wire form contains no line breaks, no control characters other than tabs
// and, if the field has a kind other than pattern, no invisible characters. The canonical form does
// not contain them, but they would get into mail and logs. For other fields Facet checks the wire
// form. Null has no value and satisfies every rule, unless the field is part of a key.
func (r *Rules) Facet(field string, v schema.Value) error {
	if err := checkName(field); err != nil {
		return err
	}
	rule := r.fields[field]
	if err := rule.checkWire(field, v, r.typ.Fold == schema.FoldExact); err != nil {
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
		return &Error{rule.field, "text", "not text"}
	}
	if r.typ.Fold != schema.FoldExact {
		if err := rule.checkVisible(v.Text()); err != nil {
			return err
		}
	}
	form, ok := r.typ.Identifier(v.Text())
	if !ok {
		return &Error{rule.field, "size", "longer than 1 KiB"} // the limit for the canonical form
	}
	return r.Secondary(rule.field, form)
}

// checkVisible refuses line separators, and control characters other than the tab. If the field's
// kind requires it, checkVisible also refuses invisible characters, except U+FE0F in an emoji in a
// nickname.
func (r *rule) checkVisible(text string) error {
	if strings.IndexFunc(text, func(char rune) bool { return char < ' ' || char > '~' }) < 0 {
		return nil
	}
	previous := rune(0)
	for _, char := range text {
		switch {
		case r.kind.emoji && char == emojiVariation && unicode.IsSymbol(previous):
		case unicode.IsControl(char) && char != '\t' || char == '\u2028' || char == '\u2029':
			return &Error{r.field, "control", fmt.Sprintf("a line break or control character (%U)", char)}
		// U+2800 is the Braille pattern without dots.
		case r.kind.visible && (schema.Invisible(string(char)) || char == '\u2800'):
			return &Error{r.field, "invisible", fmt.Sprintf("an invisible character (%U)", char)}
		}
		previous = char
	}
	return nil
}

// checkWire checks that v can be read back from the database unchanged. If exact is set, JavaScript
// must also be able to do that, because FoldExact is the fold of the original. A text field, or a
// field without a rule, accepts the wire form of any value.
func (r *rule) checkWire(field string, v schema.Value, exact bool) error {
	wire := v.Wire()
	switch {
	case len(wire) > schema.MaxFacet:
		return &Error{field, "size", "longer than 64 KiB"}
	case !utf8.ValidString(wire):
		return &Error{field, "text", "not UTF-8"}
	case exact && schema.LosesDigits(v):
		return &Error{field, "codec", "a whole number with more digits than the original of the store keeps"}
	case r == nil || r.codec == schema.CodecText || r.codec == schema.CodecIdentity:
		return nil
	}
	read, err := schema.Decode(r.codec, wire)
	if err != nil || read != v && !(read.IsNull() && v.IsNull()) {
		return &Error{field, "codec", "not a value of codec " + string(r.codec)}
	}
	return nil
}

// Candidates returns the typed secondary fields, sorted, that may contain a canonical value. If the
// kinds of the fields exclude each other, it returns the only field whose rule accepts the value.
// Otherwise, or if no rule accepts it, Candidates returns all typed secondary fields, because the
// value may have been written under other rules. Unlike Check, it does not use patterns to find out
// whether fields exclude each other.
func (r *Rules) Candidates(value string) []string {
	if r.disjointKinds && r.checkForm("", value) == nil {
		for _, field := range r.typed {
			if r.fields[field].check(r.typ, value) == nil {
				return []string{field}
			}
		}
	}
	return slices.Clone(r.typed)
}

// checkName refuses names that no facet can have. Names that begin with "~" belong to the store.
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

// checkCrumb checks the rules for a value that becomes part of a key.
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

// A rule holds the requirements of one field for its values.
type rule struct {
	field    string
	role     schema.Role
	codec    schema.Codec
	kindName string // the name of the kind
	kind     kind
	parts    []part          // a value must satisfy all of them
	reserved map[string]bool // canonical forms that no value may have
}

// A part is one expression of a rule. A value satisfies the part if it matches the expression. If
// not is true, a value satisfies the part if it does not match the expression. The prover uses the
// same expressions, so that its proofs cover all values.
type part struct {
	rule string
	phrase
	re *regexp.Regexp
}

// A phrase is a part that is not yet compiled.
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
		// A secondary field refuses a value that cannot be part of a key anyway.
		if form := t.Canonical(value); checkCrumb(field, form) == nil {
			r.reserved[form] = true
		}
	}
	return r, nil
}

func refuseSchema(field, member, reason string) error {
	return &schema.Error{Path: "fields." + field + "." + member, Reason: reason}
}

// check checks the kind, the pattern and the reserved values.
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
	if len(r.reserved) == 0 {
		return nil
	}
	form, ok := t.Identifier(value)
	switch {
	case !ok:
		return &Error{r.field, "size", "longer than 4 KiB"}
	case r.reserved[form]:
		return &Error{r.field, "reserved", "no entry may take this value"}
	}
	return nil
}
