package scim

import (
	"encoding/json"
	"regexp"
	"strings"

	filter "github.com/scim2/filter-parser/v2"

	"github.com/coffeenode/userdb/internal/jsonline"
)

// A term is one attribute that must have a value.
type term struct{ attribute, value string }

const mostFilter = 4096 // bytes

// filterable are the attributes that a filter may name, by the kind of resource, in lower case.
var filterable = map[string][]string{
	urnUser:  {"id", "externalid", "username", "emails.value"},
	urnGroup: {"id", "externalid", "displayname", "members", "members.value"},
}

// parseFilter reads a filter. All of the terms must hold; there is one at least.
func parseFilter(urn, text string) ([]term, error) {
	if len(text) > mostFilter {
		return nil, refuse(invalidFilter, "the filter is too long")
	}
	e, err := filter.ParseFilter([]byte(inBrackets(strings.TrimSpace(text))))
	if err != nil {
		return nil, refuse(invalidFilter, "the filter cannot be read")
	}
	return terms(urn, e)
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
		name, value, err := equality(urn, e)
		if err != nil || !has(filterable[urn], name) {
			return nil, errFilter
		}
		return []term{{strings.TrimSuffix(name, ".value"), value}}, nil
	case *filter.ValuePath:
		name := nameOf(urn, e.AttributePath)
		value, err := ofValues(e.ValueFilter)
		if err != nil || !has(filterable[urn], name+".value") {
			return nil, errFilter
		}
		return []term{{name, value}}, nil
	}
	return nil, errFilter
}

var errFilter = refuse(invalidFilter, "only eq and and are known, on userName, externalId, id, emails.value; of groups on displayName, externalId, id, members")

// ofValues reads what must hold for one of several values: that it is one, and perhaps that its type is work.
func ofValues(e filter.Expression) (value string, err error) {
	both := []filter.Expression{e}
	if l, is := e.(*filter.LogicalExpression); is && l.Operator == filter.AND {
		both = []filter.Expression{l.Left, l.Right}
	}
	found := false
	for _, e := range both {
		a, is := e.(*filter.AttributeExpression)
		if !is {
			return "", errFilter
		}
		name, text, err := equality("", a)
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

// equality reads an attribute and the text that it must have.
func equality(urn string, e *filter.AttributeExpression) (name, value string, err error) {
	raw, is := e.CompareValue.(string)
	if text := []byte(`"` + raw + `"`); !is || e.Operator != filter.EQ || !jsonline.Whole(text) || json.Unmarshal(text, &value) != nil {
		return "", "", errFilter
	}
	return nameOf(urn, e.AttributePath), value, nil
}

// nameOf is an attribute in lower case, without its URN; "" where that is another one.
func nameOf(urn string, p filter.AttributePath) string {
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

// inBrackets writes emails[type eq "work"].value eq "x", which directories send and the RFC does not have, as
// emails[type eq "work" and value eq "x"]. What stands between quotes stays as it is.
func inBrackets(text string) string {
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
