package schema

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Schema declares every type that a store keeps, by name. Validate checks it; afterwards it must not be changed. The
// zero Schema has no types and is not valid.
type Schema struct {
	Types map[string]Type `json:"types"`
}

// Type declares the entries of one type.
type Type struct {
	// Primary is the name of the primary field. There is no default.
	Primary string `json:"primary"`
	// Fold is the canonical form of all secondary values. "" is FoldCasefold.
	Fold Fold `json:"fold,omitempty"`
	// Form is the version of the canonical form that the records of a stored type have; see FormVersion. A program
	// writes by its own, whatever it says here. "" is that.
	Form string `json:"canonical,omitempty"`
	// Fields are the declared fields other than the primary one, by name.
	Fields map[string]Field `json:"fields,omitempty"`
	// Open says that entries take facets of fields that are not declared, too, and keep them as text. A type that is not
	// open refuses them; what an entry already holds stays, and may be unset. Types of the original's options.json are open.
	Open bool `json:"open,omitempty"`
	// Tertiary are the tertiary records of an entry, by name.
	Tertiary map[string]Tertiary `json:"tertiary,omitempty"`
	// Password says what passwords entries of the type take. Nil stands for the policy of DefaultPassword; see Policy.
	Password *Password `json:"password,omitempty"`
	// Retired are names of fields and tertiary records that a change of the schema has removed. Only such a change brings
	// one back.
	Retired []string `json:"retired,omitempty"`
	// Building is what entries are being brought to, in a stored schema. In a program's it means nothing. Nil: nothing.
	Building *Building `json:"building,omitempty"`
}

// Building is what the entries of a type are being brought to while programs write them. Writers keep all of it, and no query
// answers by it until all entries are there.
type Building struct {
	// ID is another one whenever there is more to build.
	ID string `json:"id"`
	// What are roles, by the name of the field or the indexed tertiary record, and RequiredRule.
	What map[string][]string `json:"what"`
}

// Has reports whether a role of a field, or the index of a tertiary record, is being built. b may be nil.
func (b *Building) Has(name string, role Role) bool {
	return b != nil && slices.ContainsFunc(role.Names(), func(what string) bool { return slices.Contains(b.What[name], what) })
}

// Requires reports whether a field is to be required, and entries may lack it still. b may be nil.
func (b *Building) Requires(field string) bool {
	return b != nil && slices.Contains(b.What[field], RequiredRule)
}

// RequiredRule is the rule of a field that is required: no live entry is made without it, or loses it.
const RequiredRule = "required"

// Field declares one field. The zero Field is a text facet without a rule.
type Field struct {
	// Role is what the field is besides a facet: one role, or several (RoleSecondary | RoleOrdered). 0 is nothing. In JSON
	// it is a name, or a list of names.
	Role Role `json:"role,omitempty"`
	// Codec is how values are written; "" is CodecText.
	Codec Codec `json:"codec,omitempty"`
	// Kind names a rule for values: email, username, nickname, url, or pattern. "" means none.
	Kind string `json:"kind,omitempty"`
	// Pattern is a regular expression in RE2 syntax that values match, besides their Kind. "" means none. The kind pattern
	// needs one.
	Pattern string `json:"pattern,omitempty"`
	// Was is the name that the field had in the schema before: a change of the schema renames the facets. Apart from
	// that it means nothing. "" is a field of this name ever since.
	Was string `json:"was,omitempty"`
	// Required says that no live entry is made or left without the field.
	Required bool `json:"required,omitempty"`
	// Reserved are values that no entry may take, compared in canonical form.
	Reserved []string `json:"reserved,omitempty"`
}

// Tertiary declares one tertiary record of every entry of a type.
type Tertiary struct {
	// Kind is the Redis type: set, list, zset, hash or string. There is no default.
	Kind string `json:"kind"`
	// Indexed keeps, for each member, who has it. Only a set can be indexed.
	Indexed bool `json:"indexed,omitempty"`
}

// Password is the policy for new passwords of one type. Its zero value asks nothing of a password. (A nil *Password is
// not that: it is the default.)
type Password struct {
	// Cost is the bcrypt cost of new hashes, 4 to 15 (two seconds); 0 is that of DefaultPassword.
	Cost int `json:"cost"`
	// Min is the least length in code points, at most 72; 0 means none.
	Min int `json:"min"`
	// Strength is the least zxcvbn score, 0 to 4; 0 means none.
	Strength int `json:"strength"`
	// Blocklist refuses common passwords.
	Blocklist bool `json:"blocklist"`
}

// Role is what a field is besides a facet: a set of roles.
type Role uint8

// The roles.
const (
	// RoleSecondary makes the values of a field identifiers, unique over the type.
	RoleSecondary Role = 1 << iota
	// RoleIndexed keeps, for each value, who has it.
	RoleIndexed
	// RoleOrdered keeps an index by which entries are listed in the order of their values: texts by their canonical form.
	RoleOrdered
)

const allRoles = RoleSecondary | RoleIndexed | RoleOrdered

// roleNames are the roles as they are written, sorted by name.
var roleNames = []struct {
	role Role
	name string
}{{RoleIndexed, "indexed"}, {RoleOrdered, "ordered"}, {RoleSecondary, "secondary"}}

// Has reports whether one of some roles is among those of r.
func (r Role) Has(some Role) bool { return r&some != 0 }

// Names returns the names of the roles, sorted.
func (r Role) Names() (names []string) {
	for _, n := range roleNames {
		if r.Has(n.role) {
			names = append(names, n.name)
		}
	}
	return names
}

func (r Role) String() string { return strings.Join(r.Names(), ", ") }

// MarshalJSON writes one role as its name, and several as a list of names.
func (r Role) MarshalJSON() ([]byte, error) {
	if names := r.Names(); len(names) != 1 {
		return json.Marshal(names)
	}
	return json.Marshal(r.String())
}

// UnmarshalJSON reads what MarshalJSON writes.
func (r *Role) UnmarshalJSON(text []byte) error {
	names := make([]string, 1)
	if json.Unmarshal(text, &names[0]) != nil {
		if err := json.Unmarshal(text, &names); err != nil {
			return err
		}
	}
	*r = 0
	for _, name := range names {
		role, known := roleOf(name)
		if !known {
			return fmt.Errorf("schema: unknown role %q", name)
		}
		*r |= role
	}
	return nil
}

func roleOf(name string) (role Role, known bool) {
	for _, n := range roleNames {
		if n.name == name {
			return n.role, true
		}
	}
	return 0, name == ""
}

// Fold is a canonical form.
type Fold string

// The folds.
const (
	// FoldExact leaves values as they are, as the original does.
	FoldExact Fold = "exact"
	// FoldCasefold makes values equal that people take for the same; see Canonical.
	FoldCasefold Fold = "casefold"
)

// Codec is how a value is written to Redis.
type Codec string

// The codecs.
const (
	CodecText     Codec = "text"
	CodecDate     Codec = "date"
	CodecNumber   Codec = "number"
	CodecJSON     Codec = "json"
	CodecBoolean  Codec = "boolean"
	CodecNull     Codec = "null"
	CodecIdentity Codec = "identity"
)

// DefaultPassword returns the policy that stands where a schema gives none: cost 12, at least 8 code points, none of
// the common passwords.
func DefaultPassword() Password { return Password{Cost: 12, Min: 8, Blocklist: true} }

// Policy returns the policy in force for the passwords of t. Its Cost is never 0.
func (t Type) Policy() Password {
	if t.Password == nil {
		return DefaultPassword()
	}
	p := *t.Password
	p.Cost = cmp.Or(p.Cost, DefaultPassword().Cost)
	return p
}

// User returns the built-in schema: the type user, whose entries are found by uid, email and name. Each call returns a
// new value.
func User() Schema {
	return Schema{Types: map[string]Type{"user": {
		Primary: "uid",
		Fold:    FoldCasefold,
		Fields: map[string]Field{
			"email": {Role: RoleSecondary, Kind: "email"},
			"name":  {Role: RoleSecondary, Kind: "nickname"},
			"added": {Codec: CodecDate},
			"job":   {},
		},
		Tertiary: map[string]Tertiary{"tags": {Kind: "set", Indexed: true}},
		Password: new(DefaultPassword()),
	}}}
}

// Names returns the names of the types, sorted.
func (s Schema) Names() []string { return sorted(s.Types) }

// Secondary returns the names of the secondary fields, sorted. Like the other lists of names it is built anew at each
// call: keep it where it is needed often.
func (t Type) Secondary() []string { return t.withRole(RoleSecondary) }

// Indexed returns the names of the indexed fields, sorted.
func (t Type) Indexed() []string { return t.withRole(RoleIndexed) }

// Ordered returns the names of the ordered fields, sorted.
func (t Type) Ordered() []string { return t.withRole(RoleOrdered) }

// Required returns the names of the required fields, sorted.
func (t Type) Required() []string {
	return namesWhere(t.Fields, func(f Field) bool { return f.Required })
}

// TertiaryNames returns the names of the tertiary records, sorted.
func (t Type) TertiaryNames() []string { return sorted(t.Tertiary) }

// IndexedTertiary returns the names of the indexed tertiary records, sorted.
func (t Type) IndexedTertiary() []string {
	return namesWhere(t.Tertiary, func(r Tertiary) bool { return r.Indexed })
}

// Codec returns the codec of a field: CodecText where the schema names none, or does not name the field.
func (t Type) Codec(field string) Codec {
	return cmp.Or(t.Fields[field].Codec, CodecText)
}

func (t Type) withRole(role Role) []string {
	return namesWhere(t.Fields, func(f Field) bool { return f.Role.Has(role) })
}

// namesWhere returns the names of what has a property, sorted.
func namesWhere[V any](m map[string]V, has func(V) bool) (names []string) {
	for name, v := range m {
		if has(v) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// sorted returns the keys of m in order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
