package scim

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// The fields of users that SCIM needs in addition to the mapped ones, and the tertiary record that
// holds the tags of a user.
const (
	externalField = "externalId"
	addedField    = "added"
	tagsName      = "tags"
)

// A groupKey identifies a group by the namespace and the type of its users, and by its id or name.
type groupKey struct{ namespace, typ, idOrName string }

// withName returns g with the given id or name, case-folded.
func (g groupKey) withName(idOrName string) groupKey {
	g.idOrName = schema.Type{Fold: schema.FoldCasefold}.Canonical(idOrName)
	return g
}

// isID reports whether a text has the form of a group's id.
var isID = regexp.MustCompile(`^[a-z2-7]{26}$`).MatchString

// tagsByGroup returns the tags in Tags by the groups that its keys name.
func (o Options) tagsByGroup() (map[groupKey]string, error) {
	type tagUse struct{ namespace, typ, tag string }
	tags, used := map[groupKey]string{}, map[tagUse]bool{}
	for text, tag := range o.Tags {
		name := text
		g := groupKey{namespace: o.Namespace, typ: UserType}
		if scoped, ok := strings.CutPrefix(text, "@"); ok {
			var path string // TYPE or NAMESPACE/TYPE
			path, name, _ = strings.Cut(scoped, ":")
			if at := strings.LastIndex(path, "/"); at >= 0 {
				g.namespace, path = path[:at], path[at+1:]
			}
			g.typ = path
		}
		ns, err := recordkey.ParseNamespace(g.namespace)
		if err != nil || g.typ == "" || name == "" {
			return nil, fmt.Errorf("%w: cannot map %q to a tag: want GROUP, @TYPE:GROUP or @NAMESPACE/TYPE:GROUP", ErrOptions, text)
		}
		g.namespace = ns.Path()
		use := tagUse{g.namespace, g.typ, tag} // a tag may be used once for each namespace and type
		g = g.withName(name)
		switch {
		case tag == "" || strings.HasPrefix(tag, tagPrefix):
			return nil, fmt.Errorf("%w: a group cannot be mapped to the tag %q", ErrOptions, tag)
		case used[use]:
			return nil, fmt.Errorf("%w: two groups cannot share the tag %q", ErrOptions, tag)
		case tags[g] != "":
			return nil, fmt.Errorf("%w: the group %q is mapped twice; the case of names makes no difference", ErrOptions, text)
		}
		tags[g], used[use] = tag, true
	}
	return tags, nil
}

// A Mapping maps attributes to the fields that store them. The attributes are emails, displayname,
// name.givenname and the other parts of name, all in lower case.
type Mapping map[string]string

// ErrOptions reports that SCIM cannot be set up with its options or for the schema in force.
var ErrOptions = errors.New("SCIM cannot be set up")

const maxMapping = 1 << 16 // bytes

// ReadMapping reads a Mapping from JSON such as {"emails": "mail", "name.givenName": "first"}.
func ReadMapping(r io.Reader) (Mapping, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxMapping))
	if err != nil {
		return nil, fmt.Errorf("%w: the mapping cannot be read: %w", ErrOptions, err)
	}
	var given map[string]string
	if json.Unmarshal(text, &given) != nil {
		return nil, fmt.Errorf("%w: the mapping is not an object of strings such as {\"emails\": \"mail\"}", ErrOptions)
	}
	m := Mapping{}
	for attribute, field := range given {
		name := strings.ToLower(attribute)
		part, ofName := strings.CutPrefix(name, "name.")
		switch {
		case name != "emails" && name != "displayname" && !(ofName && has(lowerNameParts, part)):
			return nil, fmt.Errorf("%w: the mapping contains %q; it may contain emails, displayName, and parts of name such as name.givenName", ErrOptions, attribute)
		case m.contains(field):
			return nil, fmt.Errorf("%w: the mapping contains the field %q twice", ErrOptions, field)
		}
		m[name] = field
	}
	return m, nil
}

func (m Mapping) contains(field string) bool {
	for _, f := range m {
		if f == field {
			return true
		}
	}
	return false
}

// mapsEmails reports whether the mapping names a field for emails, even if it is the field of
// userName.
func (o Options) mapsEmails() bool { return o.Mapping["emails"] != "" }

// fields returns, for each attribute, the field of a type that stores it. If the field of userName
// holds addresses and the mapping does not contain emails, emails shows that field.
func (o Options) fields(t schema.Type) (Mapping, error) {
	m := Mapping{"username": o.UserName, "externalid": externalField}
	if !t.Fields[o.UserName].Role.Has(schema.RoleSecondary) {
		return nil, fmt.Errorf("%w: userName cannot be %q, which is not an identifying field; the identifying fields are %s", ErrOptions, o.UserName, strings.Join(t.Secondary(), ", "))
	}
	if t.Fields[o.UserName].HasAddresses() {
		m["emails"] = o.UserName
	}
	for attribute, field := range o.Mapping {
		f, declared := t.Fields[field]
		name := cmp.Or(attributeNames[attribute], attribute) // as SCIM writes it
		switch {
		case field == o.UserName && attribute == "emails":
		case field == t.Primary || field == externalField || field == addedField || f.Role.Has(schema.RoleSecondary):
			return nil, fmt.Errorf("%w: the field %q identifies accounts or is reserved; map %s to another field", ErrOptions, field, name)
		case !declared && !t.Open:
			return nil, fmt.Errorf("%w: the schema has no field %q for %s", ErrOptions, field, name)
		case t.Codec(field) != schema.CodecText:
			return nil, fmt.Errorf("%w: the field %q for %s does not hold text", ErrOptions, field, name)
		}
		m[attribute] = field
	}
	return m, nil
}

// Reserves reports whether the server or directories rely on a field: externalId, added, or a field
// of the mapping. The field of userName is not among them, because visitors sign up with it.
func (o Options) Reserves(field string) bool {
	switch field {
	case externalField, addedField:
		return true
	case cmp.Or(o.UserName, defaultUserName):
		return false
	}
	return o.Mapping.contains(field)
}

// withSCIM returns a copy of a type with the indexes and orders that SCIM needs to find and list
// users.
func withSCIM(t schema.Type, m Mapping) (schema.Type, error) {
	fields, tertiary := map[string]schema.Field{}, map[string]schema.Tertiary{}
	for name, f := range t.Fields {
		fields[name] = f
	}
	for name, r := range t.Tertiary {
		tertiary[name] = r
	}
	addRole := func(name string, role schema.Role, codec schema.Codec) error {
		f, declared := fields[name]
		if declared && t.Codec(name) != codec {
			return fmt.Errorf("%w: the field %q has the codec %s, but SCIM requires %s", ErrOptions, name, t.Codec(name), codec)
		}
		if f.Role |= role; !declared && codec != schema.CodecText {
			f.Codec = codec
		}
		fields[name] = f
		return nil
	}
	external := schema.RoleIndexed
	if fields[externalField].Role.Has(schema.RoleSecondary) {
		external = 0 // users are found by it without an index
	}
	err := errors.Join(addRole(externalField, external, schema.CodecText), addRole(addedField, schema.RoleOrdered, schema.CodecDate))
	if mail, has := m["emails"]; has && mail != m["username"] {
		err = errors.Join(err, addRole(mail, schema.RoleOrdered, schema.CodecText))
	}
	if tags, has := tertiary[tagsName]; has && tags.Kind != "set" {
		err = errors.Join(err, fmt.Errorf("%w: %q is not a set", ErrOptions, tagsName))
	}
	tertiary[tagsName] = schema.Tertiary{Kind: "set", Indexed: true, Max: tertiary[tagsName].Max}
	t.Fields, t.Tertiary = fields, tertiary
	t.Retired = slices.DeleteFunc(slices.Clone(t.Retired), func(name string) bool { _, ok := fields[name]; return ok || name == tagsName })
	return t, err
}

// blocksWriters reports whether a schema change would stop other programs from writing while it
// runs. A change that is not online is harmless if there are no entries.
func blocksWriters(c migrate.Change) bool {
	return slices.ContainsFunc(c.Types, func(tc migrate.TypeChange) bool { return !tc.Online && tc.Entries > 0 })
}
