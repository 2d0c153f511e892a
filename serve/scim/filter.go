package scim

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	filter "github.com/scim2/filter-parser/v2"

	"github.com/coffeenode/userdb/internal/strictjson"
)

// A term is a condition that an attribute equals a value.
type term struct {
	attribute, value string
	kind             *string // the type of an address that matches; nil for any
}

// addressType is the attribute of a term that compares only the type of an address.
const addressType = "emails.type"

// hasIndex reports whether resources can be looked up with the term.
func (t term) hasIndex() bool { return t.attribute != addressType }

func (t term) isAddress() bool { return t.attribute == "emails" || t.attribute == addressType }

// Limits of a filter. Without maxBrackets the parser would take half a second for 4,000
// parentheses.
const (
	maxFilter   = 4096 // bytes
	maxBrackets = 10   // parentheses and brackets
)

// countBrackets counts the parentheses and brackets that open outside quoted text.
func countBrackets(filter string) (n int) {
	quoted := false
	for i := 0; i < len(filter); i++ {
		switch c := filter[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == '(' || c == '['):
			n++
		}
	}
	return n
}

// filterable lists the attributes that a filter may name, in lower case, by the URN of the
// resource.
var filterable = map[string][]string{
	urnUser:  {"id", "externalid", "username", "emails.value"},
	urnGroup: {"id", "externalid", "displayname", "members", "members.value"},
}

// parseFilter returns the terms of a filter. A resource must match all of them. It returns at least
// one term, and at most one for each attribute. several means that emails may have several values.
func parseFilter(urn, text string, several bool) ([]term, error) {
	if len(text) > maxFilter {
		return nil, badRequest(invalidFilter, "the filter is too long")
	}
	if countBrackets(text) > maxBrackets {
		return nil, badRequest(invalidFilter, "the filter has more than %d parentheses and brackets", maxBrackets)
	}
	e, err := filter.ParseFilter([]byte(upperEscapes(moveIntoBrackets(strings.TrimSpace(text)))))
	if err != nil {
		return nil, badRequest(invalidFilter, "the filter cannot be parsed")
	}
	all, err := terms(urn, e, several)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(all, term.hasIndex) {
		return nil, errFilter
	}
	seen := map[string]bool{}
	for _, t := range all {
		if seen[t.attribute] { // each term costs a lookup for each resource
			return nil, badRequest(invalidFilter, "the filter names an attribute twice")
		}
		seen[t.attribute] = true
	}
	return all, nil
}

func terms(urn string, e filter.Expression, several bool) ([]term, error) {
	several = several && urn == urnUser
	switch e := e.(type) {
	case *filter.LogicalExpression:
		left, err := terms(urn, e.Left, several)
		if err != nil || e.Operator != filter.AND {
			return nil, errFilter
		}
		right, err := terms(urn, e.Right, several)
		return append(left, right...), err
	case *filter.AttributeExpression:
		name, value, err := parseComparison(urn, e)
		if err == nil && several && name == addressType {
			return []term{{attribute: name, kind: &value}}, nil
		}
		if err == nil && several && name == "emails" { // RFC 7644, section 3.4.2.2
			name = "emails.value"
		}
		if err != nil || !has(filterable[urn], name) {
			return nil, errFilter
		}
		return []term{{attribute: strings.TrimSuffix(name, ".value"), value: value}}, nil
	case *filter.ValuePath:
		name := attributeName(urn, e.AttributePath)
		t, err := parseValueFilter(e.ValueFilter, several)
		if err != nil || !has(filterable[urn], name+".value") {
			return nil, errFilter
		}
		t.attribute = cmp.Or(t.attribute, name)
		return []term{t}, nil
	}
	return nil, errFilter
}

var errFilter = badRequest(invalidFilter, `a filter may only compare with "eq" and combine comparisons with "and"; it may name userName, externalId, id and emails.value of users, and displayName, externalId, id and members of groups`)

// parseValueFilter parses the filter in the brackets of a multi-valued attribute. The filter must
// compare value, and may also compare type with "work". If emails may have several values, it may
// compare value, type, or both.
func parseValueFilter(e filter.Expression, several bool) (t term, err error) {
	conditions := []filter.Expression{e}
	if l, ok := e.(*filter.LogicalExpression); ok && l.Operator == filter.AND {
		conditions = []filter.Expression{l.Left, l.Right}
	}
	found := false
	for _, e := range conditions {
		a, ok := e.(*filter.AttributeExpression)
		if !ok {
			return t, errFilter
		}
		name, text, err := parseComparison("", a)
		switch {
		case err != nil:
			return t, err
		case name == "value" && !found:
			t.value, found = text, true
		case name == "type" && several && t.kind == nil:
			t.kind = &text
		case name != "type" || several || !strings.EqualFold(text, workKind):
			return t, errFilter
		}
	}
	switch {
	case !found && t.kind == nil:
		return t, errFilter
	case !found:
		t.attribute = addressType
	}
	return t, nil
}

// parseComparison returns the attribute and the text of a comparison. The operator must be eq.
func parseComparison(urn string, e *filter.AttributeExpression) (name, value string, err error) {
	raw, ok := e.CompareValue.(string)
	if text := []byte(`"` + raw + `"`); !ok || e.Operator != filter.EQ || !strictjson.ValidUnicode(text) || json.Unmarshal(text, &value) != nil {
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

// escape matches a backslash and the character after it or, after \u, four digits.
var escape = regexp.MustCompile(`\\(?:u[0-9A-Fa-f]{4}|.)`)

// upperEscapes returns the text with the digits of its \u escapes in upper case. JSON allows both
// cases, but the parser takes only upper case.
func upperEscapes(text string) string {
	return escape.ReplaceAllStringFunc(text, func(e string) string {
		if len(e) == len(`\u0000`) {
			return `\u` + strings.ToUpper(e[2:])
		}
		return e
	})
}

var afterBracket = regexp.MustCompile(`^\]\.(\w+\s+\w+\s+"(?:[^"\\]|\\.)*")`)

// moveIntoBrackets rewrites emails[type eq "work"].value eq "x" as emails[type eq "work" and value
// eq "x"]. Directories send the first form although the RFC does not define it. It leaves quoted
// text unchanged.
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
