package scim

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	filter "github.com/scim2/filter-parser/v2"
)

// The URNs that the service uses.
const (
	urnCore   = "urn:ietf:params:scim:schemas:core:2.0:"
	urnUser   = urnCore + "User"
	urnGroup  = urnCore + "Group"
	urnList   = "urn:ietf:params:scim:api:messages:2.0:ListResponse"
	urnError  = "urn:ietf:params:scim:api:messages:2.0:Error"
	urnPatch  = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
	urnSearch = "urn:ietf:params:scim:api:messages:2.0:SearchRequest"

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
	lowerNameParts = []string{"formatted", "familyname", "givenname", "middlename", "honorificprefix", "honorificsuffix"}
)

func has(all []string, name string) bool { return slices.Contains(all, name) }

// A target is the attribute that a path of a PATCH operation denotes.
type target struct {
	name, sub string            // in lower case
	which     filter.Expression // selects among several values; nil selects all
	path      string            // as in the request, for errors
}

var wholeResource = target{} // denotes the resource itself

// simplePath matches the paths that directories usually send: a name, optionally followed by a
// comparison in brackets whose text has no escapes, and by the name of a sub-attribute.
var simplePath = func() *regexp.Regexp {
	const name = `(\$?[A-Za-z][A-Za-z0-9_-]*)`
	return regexp.MustCompile(`^` + name + `(?:\[` + name + ` +(?i:eq) +"([^"\\[:cntrl:]]*)"\])?(?:\.` + name + `)?$`)
}()

// parseSimplePath returns the result of [filter.ParsePath] for a path that matches simplePath, with
// or without a URN before it. It reports whether the path has this form.
func parseSimplePath(urn, text string) (p filter.Path, ok bool) {
	if n := len(urn); len(text) > n && text[n] == ':' && strings.EqualFold(text[:n], urn) {
		p.AttributePath.URIPrefix, text = &urn, text[n+1:]
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

// split returns the parts of a path. If too many paths of the request need the parser, it refuses
// the rest.
func (r *patchReader) split(text string) (filter.Path, error) {
	if p, ok := parseSimplePath(r.urn, text); ok {
		return p, nil
	}
	r.parsed++
	r.parsedBytes += len(text)
	if r.parsed > maxParsed || r.parsedBytes > maxParsedBytes {
		return filter.Path{}, badRequest(invalidPath, "the request has too many complicated paths; %s is the first over the limit", quoted(text))
	}
	p, err := filter.ParsePath([]byte(upperEscapes(text)))
	if err != nil {
		return p, badRequest(invalidPath, "the path %s cannot be parsed", quoted(text))
	}
	return p, nil
}

// parsePath parses a path, or the name of a member that stands for one. It reports whether the
// attribute is unsupported, that is, not stored.
func (r *patchReader) parsePath(text string) (at target, unsupported bool, err error) {
	urn := r.urn
	text = strings.TrimSpace(text)
	if strings.EqualFold(text, urn) {
		return wholeResource, false, nil
	}
	if len(text) > maxFilter {
		return at, false, badRequest(invalidPath, "the path %s is too long", quoted(text))
	}
	if isExtension(text) {
		return at, true, nil
	}
	p, err := r.split(text)
	if err != nil {
		return at, false, err
	}
	at.name, at.sub, _ = strings.Cut(attributeName(urn, p.AttributePath), ".")
	if p.SubAttribute != nil {
		at.sub = strings.ToLower(*p.SubAttribute)
	}
	at.which, at.path = p.ValueExpression, text
	switch {
	case urn == urnUser && has(ignored, at.name):
		return at, true, nil
	case at.name == "":
		return at, false, pathError(text)
	}
	return at, false, nil
}

// isExtension reports whether a path begins with the URN of a schema that extends users or groups.
// The attributes of such schemas are not stored.
func isExtension(path string) bool {
	under := func(prefix string) bool {
		return len(path) >= len(prefix) && strings.EqualFold(path[:len(prefix)], prefix)
	}
	return under("urn:") && !under(urnCore)
}

// pathError returns the error for a path that denotes no attribute.
func pathError(path string) error {
	return badRequest(invalidPath, "there is no attribute %s", quoted(path))
}

// maxQuoted limits the bytes of a request that an error repeats.
const maxQuoted = 100

// quoted returns text of a request for an error: quoted, and cut after maxQuoted bytes.
func quoted(text string) string {
	if len(text) > maxQuoted {
		return strconv.Quote(strings.ToValidUTF8(text[:maxQuoted], "")) + "…"
	}
	return strconv.Quote(text)
}
