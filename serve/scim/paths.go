package scim

import (
	"regexp"
	"slices"
	"strings"

	filter "github.com/scim2/filter-parser/v2"
)

// The URNs that the service uses.
const (
	urnCore       = "urn:ietf:params:scim:schemas:core:2.0:"
	urnUser       = urnCore + "User"
	urnGroup      = urnCore + "Group"
	urnEnterprise = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"
	urnList       = "urn:ietf:params:scim:api:messages:2.0:ListResponse"
	urnError      = "urn:ietf:params:scim:api:messages:2.0:Error"
	urnPatch      = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
	urnSearch     = "urn:ietf:params:scim:api:messages:2.0:SearchRequest"

	mediaType = "application/scim+json"
)

// Attributes of RFC 7643, in lower case.
var (
	readOnly = []string{"id", "meta", "schemas", "groups"}
	// Attributes of users that are not stored. Directories send them, so they are ignored.
	ignored = []string{
		"password", "nickname", "profileurl", "title", "usertype", "preferredlanguage", "locale", "timezone", "phonenumbers", "ims", "photos",
		"addresses", "entitlements", "roles", "x509certificates",
	}
	ignoredEnterprise = []string{"employeenumber", "costcenter", "organization", "division", "department", "manager"}
	partsOfName       = []string{"formatted", "familyname", "givenname", "middlename", "honorificprefix", "honorificsuffix"}
)

func has(all []string, name string) bool { return slices.Contains(all, name) }

// A target is the attribute that a path of a PATCH operation denotes.
type target struct {
	name, sub string            // in lower case
	which     filter.Expression // selects among several values; nil selects all
}

var wholeResource = target{} // denotes the resource itself

// simplePath matches the paths that directories usually send: a name, optionally followed by a
// comparison in brackets whose text has no escapes, and by the name of a sub-attribute.
var simplePath = func() *regexp.Regexp {
	const name = `(\$?[A-Za-z][A-Za-z0-9_-]*)`
	return regexp.MustCompile(`^` + name + `(?:\[` + name + ` +(?i:eq) +"([^"\\[:cntrl:]]*)"\])?(?:\.` + name + `)?$`)
}()

// parseSimplePath returns what [filter.ParsePath] returns for a path that matches simplePath, which
// may follow a URN. It reports whether the path has this form.
func parseSimplePath(urn, text string) (p filter.Path, ok bool) {
	for _, prefix := range []string{urn, urnEnterprise} {
		if n := len(prefix); len(text) > n && text[n] == ':' && strings.EqualFold(text[:n], prefix) {
			p.AttributePath.URIPrefix, text = &prefix, text[n+1:]
			break
		}
	}
	parts := simplePath.FindStringSubmatch(text)
	if parts == nil {
		return filter.Path{}, false
	}
	var sub *string
	if parts[4] != "" {
		sub = &parts[4]
	}
	p.AttributePath.AttributeName = parts[1]
	if parts[2] == "" {
		p.AttributePath.SubAttribute = sub
		return p, true
	}
	p.SubAttribute = sub
	p.ValueExpression = &filter.AttributeExpression{
		AttributePath: filter.AttributePath{AttributeName: parts[2]}, Operator: filter.EQ, CompareValue: parts[3],
	}
	return p, true
}

// split returns the parts of a path. Once too many paths of the request needed the parser, it
// refuses further ones.
func (r *patchReader) split(text string) (filter.Path, error) {
	if p, ok := parseSimplePath(r.urn, text); ok {
		return p, nil
	}
	r.parsed++
	r.parsedBytes += len(text)
	if r.parsed > maxParsed || r.parsedBytes > maxParsedBytes {
		return filter.Path{}, badRequest(invalidPath, "the request has too many complicated paths")
	}
	p, err := filter.ParsePath([]byte(text))
	if err != nil {
		return p, badRequest(invalidPath, "the path cannot be parsed")
	}
	return p, nil
}

// parsePath parses a path, or the name of a member that stands for one. It reports whether the
// attribute is unsupported, that is, not stored.
func (r *patchReader) parsePath(text string) (at target, unsupported bool, err error) {
	urn := r.urn
	if strings.EqualFold(text, urn) {
		return wholeResource, false, nil
	}
	if strings.EqualFold(text, urnEnterprise) && urn == urnUser {
		return wholeResource, true, nil
	}
	if len(text) > maxFilter {
		return at, false, badRequest(invalidPath, "the path is too long")
	}
	p, err := r.split(text)
	if err != nil {
		return at, false, err
	}
	enterprise := urn == urnUser && p.AttributePath.URIPrefix != nil && strings.EqualFold(*p.AttributePath.URIPrefix, urnEnterprise)
	if enterprise {
		urn = urnEnterprise
	}
	at.name, at.sub, _ = strings.Cut(attributeName(urn, p.AttributePath), ".")
	if p.SubAttribute != nil {
		at.sub = strings.ToLower(*p.SubAttribute)
	}
	at.which = p.ValueExpression
	switch {
	case enterprise && has(ignoredEnterprise, at.name), urn == urnUser && has(ignored, at.name):
		return at, true, nil
	case enterprise || at.name == "":
		return at, false, errPath
	}
	return at, false, nil
}

var errPath = badRequest(invalidPath, "there is no such attribute")
