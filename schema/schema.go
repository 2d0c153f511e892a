package schema

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Schema declares every type of a store by name. It must not be changed after Validate accepted
// it. The zero Schema has no types and is not valid.
type Schema struct {
	Types map[string]Type `json:"types"`
}

// A Type declares the entries of one type.
type Type struct {
	// Primary is the name of the primary field. It is required.
	Primary string `json:"primary"`
	// Fold is the canonical form of all secondary values. "" means FoldCasefold.
	Fold Fold `json:"fold,omitempty"`
	// Form is the version of the canonical form in the records of a stored type; see FormVersion. A
	// program always writes its own version, whatever Form says. "" means the program's version.
	Form string `json:"canonical,omitempty"`
	// Orders is the version of the ordered indexes of a stored type: in those of the first version,
	// entries without a value are missing; see ListsUnset. A program always writes its own version,
	// whatever Orders says. "" means the program's version.
	Orders string `json:"orders,omitempty"`
	// Fields holds the declared fields by name. The primary field may be left out.
	Fields map[string]Field `json:"fields,omitempty"`
	// Open allows entries to have undeclared facets, which are stored as text. Types that are not
	// open refuse new ones, but entries keep the undeclared facets that they already have. Types
	// that Load reads from the options.json of CoffeeNode UserDB are open.
	Open bool `json:"open,omitempty"`
	// Tertiary holds the tertiary records of an entry by name.
	Tertiary map[string]Tertiary `json:"tertiary,omitempty"`
	// Password is the policy for passwords of the type's entries. Nil means DefaultPassword; see
	// Policy.
	Password *Password `json:"password,omitempty"`
	// Retire says that the UID of a deleted entry is not given to another one. It applies at the
	// time of the delete: UIDs of entries that were deleted earlier are free.
	Retire bool `json:"retire,omitempty"`
	// Factors allows entries to enrol a second factor. Entries that have one keep it, and need it
	// to sign in, whether or not Factors is set.
	Factors bool `json:"factors,omitempty"`
	// Retired lists the names of fields and tertiary records that a change of the schema removed.
	// Only another such schema change can declare one of them again.
	Retired []string `json:"retired,omitempty"`
	// Building describes a migration of the entries of a stored type that is not finished. It has
	// no meaning in a program's schema. Nil means that no migration is under way.
	Building *Building `json:"building,omitempty"`
}

// A Building describes a migration of the entries of a type during which programs keep writing.
// Writers already maintain the roles and rules in it. Queries use them only after all entries have
// been migrated.
type Building struct {
	// ID changes whenever something is added to the migration.
	ID string `json:"id"`
	// What lists roles, RequiredRule, TypedRule, ManyRule and UnsetRule by the name of a field or
	// an indexed tertiary record.
	What map[string][]string `json:"what"`
}

// Has reports whether a role of a field, or the index of a tertiary record, is still being built. b
// may be nil.
func (b *Building) Has(name string, role Role) bool {
	return b != nil && slices.ContainsFunc(role.Names(), func(what string) bool { return slices.Contains(b.What[name], what) })
}

// Requires reports whether a field is becoming required while entries may still lack it. b may be
// nil.
func (b *Building) Requires(field string) bool {
	return b != nil && slices.Contains(b.What[field], RequiredRule)
}

// BecomesTyped reports whether the values of a field are becoming typed: writers already compare
// them with the values of other fields, but a search in any field does not find them yet. b may be
// nil.
func (b *Building) BecomesTyped(field string) bool {
	return b != nil && slices.Contains(b.What[field], TypedRule)
}

// BecomesMany reports whether a field is getting its first Many. Entries may not have several
// values in the field yet, because there may still be writers that do not know such values. b may
// be nil.
func (b *Building) BecomesMany(field string) bool {
	return b != nil && slices.Contains(b.What[field], ManyRule)
}

// PlacesUnset reports whether entries without a value are still being added to the ordered index of
// a field. b may be nil.
func (b *Building) PlacesUnset(field string) bool {
	return b != nil && slices.Contains(b.What[field], UnsetRule)
}

// Names of rules of fields.
const (
	// RequiredRule is the rule of a required field: every live entry must have the field.
	RequiredRule = "required"
	// TypedRule is the rule of a typed secondary field: another entry cannot have the same value in
	// this or another typed field.
	TypedRule = "typed"
	// ManyRule is the rule of a secondary field that may have several values.
	ManyRule = "many"
	// UnsetRule is the rule of an ordered field whose index also has the entries without a value.
	UnsetRule = "unset"
)

// A Field declares one field. The zero Field is a text facet without rules.
type Field struct {
	// Role is the set of the field's roles, such as RoleSecondary | RoleOrdered. Zero means a facet
	// and nothing more. In JSON it is a name or a list of names.
	Role Role `json:"role,omitempty"`
	// Codec says how values are written. "" means CodecText.
	Codec Codec `json:"codec,omitempty"`
	// Kind names a rule for values: email, email-dots, username, nickname, url or pattern. "" means
	// no rule. email-dots also accepts the mailboxes of carriers that have dots at any position
	// before the @, such as a..b.@docomo.ne.jp.
	Kind string `json:"kind,omitempty"`
	// Pattern is a regular expression in RE2 syntax that values must match in addition to their
	// Kind. "" means no pattern. The kind pattern requires one.
	Pattern string `json:"pattern,omitempty"`
	// Was is the previous name of the field. A change of the schema renames the facets of all
	// entries; afterwards Was is ignored. "" means that the field was not renamed.
	Was string `json:"was,omitempty"`
	// Required says that every live entry must have the field.
	Required bool `json:"required,omitempty"`
	// Reserved lists values that no entry may take. They are compared in canonical form.
	Reserved []string `json:"reserved,omitempty"`
	// Hold is how long no other entry can take a value of a secondary field that an entry has given
	// up, at most ten years. A mail address is held only if it was verified. 0 means that the value
	// is free at once.
	Hold Period `json:"hold,omitempty"`
	// Many is the maximum number of values that an entry may have in a secondary field, from 1 to
	// 100. All of them are identifiers. The first one is the facet. 0 means 1.
	Many int `json:"many,omitempty"`
	// Typed points to false in a secondary field whose values nobody types, such as the external
	// IDs of a directory: only a search in the field itself finds an entry by them, and each value
	// is unique within the field alone. Nil means true.
	Typed *bool `json:"typed,omitempty"`
}

// MaxValues returns the maximum number of values of an entry in the field: Many, or 1.
func (f Field) MaxValues() int { return max(f.Many, 1) }

// IsTyped reports whether people type the values of the field, if it is secondary: a search in any
// field finds them, and two entries never have the same value in such fields.
func (f Field) IsTyped() bool { return f.Typed == nil || *f.Typed }

// BecomesTyped reports whether f is a typed secondary field, and before was an untyped one.
func (f Field) BecomesTyped(before Field) bool {
	return f.Role.Has(RoleSecondary) && before.Role.Has(RoleSecondary) && f.IsTyped() && !before.IsTyped()
}

// HasAddresses reports whether the values of the field are mail addresses.
func (f Field) HasAddresses() bool { return f.Kind == "email" || f.Kind == "email-dots" }

// A Tertiary declares one tertiary record of every entry of a type.
type Tertiary struct {
	// Kind is the Redis type: set, list, zset, hash or string. It is required.
	Kind string `json:"kind"`
	// Indexed adds an index that lists the entries with each member. Only a set can be indexed.
	Indexed bool `json:"indexed,omitempty"`
	// Max is the maximum number of members, at most 100,000. 0 means DefaultMax; a string has no
	// members. A record that already holds more can be read, shrunk and deleted, but nothing can be
	// added until it holds fewer.
	Max int `json:"max,omitempty"`
}

// DefaultMax is the maximum number of members of a tertiary record whose Max is 0.
const DefaultMax = 10_000

// Limit returns the maximum number of members of r: Max or DefaultMax, and 0 for a string, which
// has no members.
func (r Tertiary) Limit() int {
	if r.Kind == "string" {
		return 0
	}
	return cmp.Or(r.Max, DefaultMax)
}

// A Password is the policy for new passwords of one type. The zero Password accepts any password.
// (A nil *Password means the default policy instead.)
type Password struct {
	// Cost is the bcrypt cost of new hashes, from 4 to 15; a hash of cost 15 takes about two
	// seconds. 0 means the cost of DefaultPassword.
	Cost int `json:"cost"`
	// Min is the minimum length in code points, at most 72. 0 means no minimum.
	Min int `json:"min"`
	// Strength is the minimum zxcvbn score, from 0 to 4. 0 means no minimum.
	Strength int `json:"strength"`
	// Blocklist refuses common passwords.
	Blocklist bool `json:"blocklist"`
}

// A Role is a set of roles of a field.
type Role uint8

const (
	// RoleSecondary makes the values of a field identifiers, which are unique within the type.
	RoleSecondary Role = 1 << iota
	// RoleIndexed adds an index that lists the entries with each value.
	RoleIndexed
	// RoleOrdered adds an index that lists all entries: first those without a value, then the
	// others in the order of their values. Texts are ordered by their canonical form.
	RoleOrdered
)

const allRoles = RoleSecondary | RoleIndexed | RoleOrdered

// roleNames lists the roles and their names, sorted by name.
var roleNames = []struct {
	role Role
	name string
}{{RoleIndexed, "indexed"}, {RoleOrdered, "ordered"}, {RoleSecondary, "secondary"}}

// Has reports whether r contains at least one of the given roles.
func (r Role) Has(roles Role) bool { return r&roles != 0 }

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

// MarshalJSON writes a single role as its name and several roles as a list of names.
func (r Role) MarshalJSON() ([]byte, error) {
	if names := r.Names(); len(names) != 1 {
		return json.Marshal(names)
	}
	return json.Marshal(r.String())
}

// UnmarshalJSON reads the output of MarshalJSON.
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

// roleOf returns the role with a name. RoleSecondary has two names: secondary, which MarshalJSON
// writes, and identifier. The empty name is known and means no role.
func roleOf(name string) (role Role, known bool) {
	if name == "identifier" {
		return RoleSecondary, true
	}
	for _, n := range roleNames {
		if n.name == name {
			return n.role, true
		}
	}
	return 0, name == ""
}

// A Fold names a canonical form.
type Fold string

const (
	// FoldExact leaves values unchanged, as CoffeeNode UserDB does.
	FoldExact Fold = "exact"
	// FoldCasefold makes values equal that people consider equal; see Canonical.
	FoldCasefold Fold = "casefold"
)

// A Codec names how a value is written to Redis.
type Codec string

// The codecs; see the table in the package documentation.
const (
	CodecText     Codec = "text"
	CodecDate     Codec = "date"
	CodecNumber   Codec = "number"
	CodecJSON     Codec = "json"
	CodecBoolean  Codec = "boolean"
	CodecNull     Codec = "null"
	CodecIdentity Codec = "identity"
)

// DefaultPassword returns the policy for types without one: cost 12, at least 8 code points, and no
// common passwords.
func DefaultPassword() Password { return Password{Cost: 12, Min: 8, Blocklist: true} }

// Policy returns the policy for the passwords of t. Its Cost is never 0.
func (t Type) Policy() Password {
	if t.Password == nil {
		return DefaultPassword()
	}
	p := *t.Password
	p.Cost = cmp.Or(p.Cost, DefaultPassword().Cost)
	return p
}

// User returns the built-in schema: the type user, whose entries are identified by uid, email and
// name, and listed in order of email, name and added. Each call returns a new value.
func User() Schema {
	return Schema{Types: map[string]Type{"user": {
		Primary: "uid",
		Fold:    FoldCasefold,
		Fields: map[string]Field{
			"email": {Role: RoleSecondary | RoleOrdered, Kind: "email"},
			"name":  {Role: RoleSecondary | RoleOrdered, Kind: "nickname"},
			"added": {Role: RoleOrdered, Codec: CodecDate},
			"job":   {},
		},
		Tertiary: map[string]Tertiary{"tags": {Kind: "set", Indexed: true}},
		Password: new(DefaultPassword()),
	}}}
}

// Names returns the names of the types, sorted.
func (s Schema) Names() []string { return sorted(s.Types) }

// Secondary returns the names of the secondary fields, sorted. Like the other methods that list
// names, it builds a new slice on each call, so keep the result if you need it often.
func (t Type) Secondary() []string { return t.withRole(RoleSecondary) }

// Typed returns the names of the secondary fields whose values people type, sorted.
func (t Type) Typed() []string {
	return namesWhere(t.Fields, func(f Field) bool { return f.Role.Has(RoleSecondary) && f.IsTyped() })
}

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

// Codec returns the codec of a field. It returns CodecText for a field without a codec or without a
// declaration.
func (t Type) Codec(field string) Codec {
	return cmp.Or(t.Fields[field].Codec, CodecText)
}

func (t Type) withRole(role Role) []string {
	return namesWhere(t.Fields, func(f Field) bool { return f.Role.Has(role) })
}

// namesWhere returns the keys of m whose values match, sorted.
func namesWhere[V any](m map[string]V, match func(V) bool) (names []string) {
	for name, v := range m {
		if match(v) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// sorted returns the keys of m, sorted.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
