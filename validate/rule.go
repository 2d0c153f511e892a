package validate

import (
	"regexp"

	"github.com/coffeenode/userdb/schema"
)

// rule is what one field wants of its values.
type rule struct {
	field    string
	role     schema.Role
	name     string // of the kind
	kind     kind
	parts    []part          // all of them must take a value
	own      int             // so many of them are the kind's
	reserved map[string]bool // canonical forms that no value may have
}

// part is one expression of a rule. A value satisfies it by matching, or where
// not is set by not matching. Values and the prover are held against the same
// expressions, so that no value lies outside what is proved.
type part struct {
	rule string
	phrase
	match func(value string) bool
}

// phrase is a part not compiled yet.
type phrase struct {
	expr, reason string
	not          bool
}

func newPart(rule string, ph phrase) (part, error) {
	re, err := regexp.Compile(ph.expr)
	if err != nil {
		return part{}, err
	}
	return part{rule, ph, re.MatchString}, nil
}

func (p part) takes(value string) bool { return p.match(value) != p.not }

func compile(t schema.Type, field string, f schema.Field) (*rule, error) {
	k, known := kindOf(f.Kind, t)
	if !known {
		return nil, refuseSchema(field, "kind", "no such kind")
	}
	r := &rule{field: field, role: f.Role, name: f.Kind, kind: k, own: len(k.phrases)}
	for _, ph := range k.phrases {
		p, err := newPart(f.Kind, ph)
		if err != nil {
			return nil, err
		}
		r.parts = append(r.parts, p)
	}
	if f.Pattern != "" {
		p, err := newPart("pattern", phrase{expr: f.Pattern, reason: "does not match " + shown(f.Pattern)})
		if err != nil {
			return nil, refuseSchema(field, "pattern", "no regular expression")
		}
		r.parts = append(r.parts, p)
	}
	r.reserve(t, f.Reserved)
	return r, nil
}

func refuseSchema(field, member, reason string) error {
	return &schema.Error{Path: "fields." + field + "." + member, Reason: reason}
}

// reserve refuses these values. What can be no value anyway is left out.
func (r *rule) reserve(t schema.Type, values []string) {
	r.reserved = make(map[string]bool)
	for _, value := range values {
		if form := t.Canonical(value); checkCrumb(r.field, form) == nil {
			r.reserved[form] = true
		}
	}
}

// check applies kind, pattern and reserved values.
func (r *rule) check(t schema.Type, value string) error {
	parts := r.parts
	if r.kind.usual != nil && r.kind.usual(value) {
		parts = parts[r.own:]
	} else if reason := r.kind.refuse(value); reason != "" {
		return &Error{r.field, r.name, reason}
	}
	for _, p := range parts {
		if !p.takes(value) {
			return &Error{r.field, p.rule, p.reason}
		}
	}
	if len(r.reserved) > 0 && r.reserved[t.Canonical(value)] {
		return &Error{r.field, "reserved", "no entry may take this value"}
	}
	return nil
}
