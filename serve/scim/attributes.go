package scim

import (
	"maps"
	"slices"
	"strings"

	filter "github.com/scim2/filter-parser/v2"
)

// An edit holds the changes that a request makes to a user. attributes maps each attribute, in
// lower case, to its new text, or to nil to remove it.
type edit struct {
	attributes map[string]*string
	active     *bool
	addresses  *addressEdit // changes to emails if requests may set several values, otherwise nil
}

// newEdit returns an empty edit. several means that requests may set several values of emails.
func newEdit(several bool) *edit {
	e := &edit{attributes: map[string]*string{}}
	if several {
		e.addresses = &addressEdit{}
	}
	return e
}

// set adds a step on one attribute to the edit.
func (e *edit) set(s step) error {
	if s.at.name == "emails" && e.addresses != nil {
		return e.addresses.add(s)
	}
	at, v := s.at, s.v
	if s.op == "remove" {
		v = nil
	}
	switch at.name {
	case "username", "externalid", "displayname":
		return e.setText(at, v)
	case "active":
		return e.setActive(at, v)
	case "name":
		return e.setName(at, v)
	case "emails":
		return e.setEmails(at, v)
	}
	if has(readOnly, at.name) {
		return badRequest(mutability, "%s is read-only", at.name)
	}
	return pathError(at.path)
}

func (e *edit) setText(at target, v any) error {
	if at.sub != "" || at.which != nil {
		return pathError(at.path)
	}
	return e.put(at.name, v)
}

func (e *edit) put(name string, v any) error {
	text, ok := v.(string)
	switch {
	case v != nil && !ok:
		return badRequest(invalidValue, "%s must be a string", name)
	case text == "" && name == "username":
		return badRequest(mutability, "userName cannot be removed")
	case text == "":
		e.attributes[name] = nil
	default:
		e.attributes[name] = &text
	}
	return nil
}

// setActive sets active. It accepts Booleans as text because Entra ID sends "False".
func (e *edit) setActive(at target, v any) error {
	if at.sub != "" || at.which != nil {
		return pathError(at.path)
	}
	if v == nil {
		return badRequest(mutability, "active cannot be removed")
	}
	active, ok := parseBool(v)
	if !ok {
		return badRequest(invalidValue, "active must be true or false")
	}
	e.active = &active
	return nil
}

// parseBool returns the truth value of v, which may also be the text "true" or "false" in any case.
func parseBool(v any) (value, ok bool) {
	if text, isText := v.(string); isText {
		return strings.EqualFold(text, "true"), strings.EqualFold(text, "true") || strings.EqualFold(text, "false")
	}
	value, ok = v.(bool)
	return value, ok
}

func (e *edit) setName(at target, v any) error {
	parts, ok := v.(map[string]any)
	switch {
	case at.which != nil || at.sub != "" && !has(lowerNameParts, at.sub):
		return pathError(at.path)
	case at.sub != "":
		return e.put("name."+at.sub, v)
	case v == nil:
		for _, part := range lowerNameParts {
			e.attributes["name."+part] = nil
		}
		return nil
	case !ok:
		return badRequest(invalidValue, "name must be an object")
	}
	for _, part := range slices.Sorted(maps.Keys(parts)) {
		if !has(lowerNameParts, strings.ToLower(part)) {
			return pathError("name." + part)
		}
		if err := e.put("name."+strings.ToLower(part), parts[part]); err != nil {
			return err
		}
	}
	return nil
}

// setEmails sets the only stored address to the primary address in v, or else to the one of type
// work, or else to the one without a type. It ignores other addresses.
func (e *edit) setEmails(at target, v any) error {
	switch work, supported := matchesWork(at.which); {
	case !supported:
		return badRequest(invalidFilter, "a filter on emails may only compare type with \"work\" and primary with a Boolean")
	case at.sub != "" && !has([]string{"value", "type", "primary", "display"}, at.sub):
		return pathError(at.path)
	case !work || at.sub != "" && at.sub != "value":
		return nil
	case v == nil || at.sub == "value":
		return e.put("emails", v)
	}
	all, ok := v.([]any)
	if !ok {
		all = []any{v}
	}
	best, rank := any(nil), -1
	for _, one := range all {
		m, ok := one.(map[string]any)
		if !ok {
			return badRequest(invalidValue, "emails must be objects")
		}
		primary, _ := parseBool(lookupFold(m, "primary"))
		kind, _ := lookupFold(m, "type").(string)
		n := 0
		switch work := strings.EqualFold(kind, "work"); {
		case primary:
			n = 2
		case at.which == nil && work:
			n = 1
		case at.which == nil && kind != "":
			continue
		}
		if n > rank {
			best, rank = lookupFold(m, "value"), n
		}
	}
	if len(all) > 0 && rank < 0 {
		return nil
	}
	if text, ok := best.(string); len(all) > 0 && (!ok || text == "") {
		return badRequest(invalidValue, "emails must have a value")
	}
	return e.put("emails", best)
}

// matchesWork reports whether a filter selects the stored address, and whether the filter is
// supported.
func matchesWork(which filter.Expression) (work, supported bool) {
	switch f := which.(type) {
	case nil:
		return true, true
	case *filter.LogicalExpression:
		left, leftOK := matchesWork(f.Left)
		right, rightOK := matchesWork(f.Right)
		return left && right, leftOK && rightOK && f.Operator == filter.AND
	case *filter.AttributeExpression:
		value, isBool := parseBool(f.CompareValue)
		kind, isText := f.CompareValue.(string)
		switch name := attributeName("", f.AttributePath); {
		case f.Operator != filter.EQ:
		case name == "type" && isText:
			return strings.EqualFold(kind, "work"), true
		case name == "primary" && isBool:
			return value, true
		}
	}
	return false, false
}

// lookupFold returns the value of a member of an object. The case of its name makes no difference.
func lookupFold(m map[string]any, name string) any {
	for key, v := range m {
		if strings.EqualFold(key, name) {
			return v
		}
	}
	return nil
}

// parseUser returns the edit that sets the attributes in the body of a request. It ignores those
// that are null, that are not stored, or that only the server sets. several means the same as for
// newEdit.
func parseUser(body map[string]any, several bool) (*edit, error) {
	e := newEdit(several)
	for _, key := range slices.Sorted(maps.Keys(body)) {
		name, v := strings.ToLower(key), body[key]
		if !has([]string{"username", "externalid", "displayname", "active", "name", "emails"}, name) || v == nil {
			continue
		}
		if parts, ok := v.(map[string]any); ok && name == "name" {
			maps.DeleteFunc(parts, func(part string, _ any) bool { return !has(lowerNameParts, strings.ToLower(part)) })
		}
		if err := e.set(step{op: "replace", at: target{name: name}, v: v}); err != nil {
			return nil, err
		}
	}
	if e.attributes["username"] == nil {
		return nil, badRequest(invalidValue, "userName is required")
	}
	return e, nil
}
