package schema

import (
	"maps"
	"slices"
)

// Names returns the names of the types, sorted.
func (s Schema) Names() []string { return sorted(s.Types) }

// Secondary returns the names of the secondary fields, sorted. Like the other
// lists of names it is made anew at each call: keep it where it is needed often.
func (t Type) Secondary() []string { return t.withRole(RoleSecondary) }

// Indexed returns the names of the indexed fields, sorted.
func (t Type) Indexed() []string { return t.withRole(RoleIndexed) }

// Ordered returns the names of the ordered fields, sorted.
func (t Type) Ordered() []string { return t.withRole(RoleOrdered) }

// TertiaryNames returns the names of the tertiary records, sorted.
func (t Type) TertiaryNames() []string { return sorted(t.Tertiary) }

// IndexedTertiary returns the names of the indexed tertiary records, sorted.
func (t Type) IndexedTertiary() []string {
	var names []string
	for name, r := range t.Tertiary {
		if r.Indexed {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Codec returns the codec of a field: CodecText where the schema names none, or
// does not name the field.
func (t Type) Codec(field string) Codec {
	if c := t.Fields[field].Codec; c != "" {
		return c
	}
	return CodecText
}

func (t Type) withRole(role Role) []string {
	var names []string
	for name, f := range t.Fields {
		if f.Role == role {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// sorted returns the keys of m in order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
