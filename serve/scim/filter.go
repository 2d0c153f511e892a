package scim

import (
	"encoding/json"
	"regexp"
	"strings"

	filter "github.com/scim2/filter-parser/v2"

	"github.com/coffeenode/userdb/internal/strictjson"
)

// A term is a condition that an attribute equals a value.
type term struct{ attribute, value string }

const maxFilter = 4096 // bytes

// filterable lists the attributes that a filter may name, in lower case, by the URN of the
// resource.
var filterable = map[string][]string{
	urnUser:  {"id", "externalid", "username", "emails.value"},
	urnGroup: {"id", "externalid", "displayname", "members", "members.value"},
}

// parseFilter returns the terms of a filter, of which a resource must match all. It returns at
// least one term, and at most one for each attribute.
func parseFilter(urn, text string) ([]term, error) {
	if len(text) > maxFilter {
		return nil, badRequest(invalidFilter, "the filter is too long")
	}
	e, err := filter.ParseFilter([]byte(moveIntoBrackets(strings.TrimSpace(text))))
	if err != nil {
		return nil, badRequest(invalidFilter, "the filter cannot be parsed")
	}
	all, err := terms(urn, e)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, t := range all {
		if seen[t.attribute] { // each takes a lookup for each resource
			return nil, badRequest(invalidFilter, "the filter names an attribute twice")
		}
		seen[t.attribute] = true
	}
	return all, nil
}

func terms(urn string, e filter.Expression) ([]term, error) {
	switch e := e.(type) {
	case *filter.LogicalExpression:
		left, err := terms(urn, e.Left)
		if err != nil || e.Operator != filter.AND {
			return nil, errFilter
		}
		right, err := terms(urn, e.Right)
		return append(left, right...), err
	case *filter.AttributeExpression:
		name, value, err := parseComparison(urn, e)
		if err != nil || !has(filterable[urn], name) {
			return nil, errFilter
		}
		return []term{{strings.TrimSuffix(name, ".value"), value}}, nil
	case *filter.ValuePath:
		name := attributeName(urn, e.AttributePath)
		value, err := parseValueFilter(e.ValueFilter)
		if err != nil || !has(filterable[urn], name+".value") {
			return nil, errFilter
		}
		return []term{{name, value}}, nil
	}
	return nil, errFilter
}

var errFilter = badRequest(invalidFilter, "a filter may only combine eq with and; it may name userName, externalId, id and emails.value of users, and displayName, externalId, id and members of groups")

// parseValueFilter parses the filter in the brackets of a multi-valued attribute. It must compare
// value, and may also compare type with "work".
func parseValueFilter(e filter.Expression) (value string, err error) {
	conditions := []filter.Expression{e}
	if l, ok := e.(*filter.LogicalExpression); ok && l.Operator == filter.AND {
		conditions = []filter.Expression{l.Left, l.Right}
	}
	found := false
	for _, e := range conditions {
		a, ok := e.(*filter.AttributeExpression)
		if !ok {
			return "", errFilter
		}
		name, text, err := parseComparison("", a)
		switch {
		case err != nil:
			return "", err
		case name == "value" && !found:
			value, found = text, true
		case name != "type" || !strings.EqualFold(text, "work"):
			return "", errFilter
		}
	}
	if !found {
		return "", errFilter
	}
	return value, nil
}

// parseComparison returns the attribute and the text of a comparison, whose operator must be eq.
func parseComparison(urn string, e *filter.AttributeExpression) (name, value string, err error) {
	raw, ok := e.CompareValue.(string)
	if text := []byte(`"` + raw + `"`); !ok || e.Operator != filter.EQ || !strictjson.Whole(text) || json.Unmarshal(text, &value) != nil {
		return "", "", errFilter
	}
	return attributeName(urn, e.AttributePath), value, nil
}

// attributeName returns the name of an attribute in lower case and without its URN. It returns ""
// if the path has another URN.
func attributeName(urn string, p filter.AttributePath) string {
	if p.URIPrefix != nil && !strings.EqualFold(*p.URIPrefix, urn) {
		return ""
	}
	name := strings.ToLower(p.AttributeName)
	if p.SubAttribute != nil {
		name += "." + strings.ToLower(*p.SubAttribute)
	}
	return name
}

var afterBracket = regexp.MustCompile(`^\]\.(\w+\s+\w+\s+"(?:[^"\\]|\\.)*")`)

// moveIntoBrackets rewrites emails[type eq "work"].value eq "x", which directories send although
// the RFC does not define it, as emails[type eq "work" and value eq "x"]. It leaves quoted text
// unchanged.
func moveIntoBrackets(text string) string {
	var out strings.Builder
	quoted := false
	for i := 0; i < len(text); i++ {
		switch m := afterBracket.FindStringSubmatch(text[i:]); {
		case quoted && text[i] == '\\' && i+1 < len(text):
			out.WriteByte(text[i])
			i++
		case text[i] == '"':
			quoted = !quoted
		case !quoted && m != nil:
			out.WriteString(" and " + m[1] + "]")
			i += len(m[0]) - 1
			continue
		}
		out.WriteByte(text[i])
	}
	return out.String()
}
