package validate

import "github.com/coffeenode/userdb/schema"

// rule is what one field wants of its values.
type rule struct {
	field string
	role  schema.Role
	name  string // of the kind
	kind  kind
	parts []part // all of them must take a value
	own   int    // so many of them are the kind's
}

func compile(t schema.Type, field string, f schema.Field) (*rule, error) {
	k, known := kindOf(f.Kind, t)
	if !known {
		return nil, refuseSchema(field, "kind", "no such kind")
	}
	parts, err := compileParts(f.Kind, k.phrases)
	if err != nil {
		return nil, err
	}
	r := &rule{field: field, role: f.Role, name: f.Kind, kind: k, parts: parts, own: len(parts)}
	if f.Pattern != "" {
		p, err := newPart("pattern", f.Pattern, "does not match "+shown(f.Pattern))
		if err != nil {
			return nil, refuseSchema(field, "pattern", "no regular expression")
		}
		r.parts = append(r.parts, p)
	}
	if err := r.reserve(t, f.Reserved); err != nil {
		return nil, refuseSchema(field, "reserved", "too long together")
	}
	return r, nil
}

func refuseSchema(field, member, reason string) error {
	return &schema.Error{Path: "fields." + field + "." + member, Reason: reason}
}

// reserve refuses these values. What can be no value anyway is left out.
func (r *rule) reserve(t schema.Type, values []string) error {
	reserved := make(map[string]bool)
	for _, value := range values {
		if form := t.Canonical(value); checkCrumb(r.field, form) == nil {
			reserved[form] = true
		}
	}
	if len(reserved) == 0 {
		return nil
	}
	p, err := newReserved(reserved, t.Canonical)
	r.parts = append(r.parts, p)
	return err
}

// check applies kind, pattern and reserved values.
func (r *rule) check(value string) error {
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
	return nil
}
