package store

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/recordkey"
)

// A delete drops the tertiary records of every name that any program ever wrote under: programs whose schemas lay
// records out in the same way may declare others. ~/schema/TYPE has a field for each such name, which is there
// before the first record, or with it.

// fieldTertiary is what such a field begins with; the name follows, escaped.
const fieldTertiary = "tertiary:"

// Named are those fields for the names that the guard's own schema declares.
func (g Guard) Named() []string {
	fields := slices.Sorted(maps.Keys(g.Tertiary))
	for i, name := range fields {
		fields[i] = fieldTertiary + recordkey.Escape(name)
	}
	return fields
}

// Stored is what a delete must know of ~/schema/TYPE.
type Stored struct {
	JSON  string   // the schema as it is stored
	Named []string // fields of names
}

// StoredIn is what the fields of ~/schema/TYPE say.
func StoredIn(fields map[string]string) Stored {
	s := Stored{JSON: fields["schema"]}
	for field := range fields {
		if strings.HasPrefix(field, fieldTertiary) {
			s.Named = append(s.Named, field)
		}
	}
	return s
}

// Drops are the tertiary records of an entry that a delete must drop besides those of a change. None of them is indexed:
// in that, all who may write agree.
func (s Stored) Drops(c Change) []Container {
	var more []Container
	for _, name := range s.names() {
		key, err := c.Key.Tertiary(name)
		named := func(d Container) bool { return d.Key == key }
		if err == nil && !slices.ContainsFunc(c.Drop, named) && !slices.ContainsFunc(more, named) {
			more = append(more, Container{Key: key})
		}
	}
	return more
}

// names are those that the stored schema declares, as far as it can be read, and those that were written under.
func (s Stored) names() []string {
	var declared struct {
		Tertiary map[string]json.RawMessage `json:"tertiary"`
	}
	_ = json.Unmarshal([]byte(s.JSON), &declared)
	names := slices.Sorted(maps.Keys(declared.Tertiary))
	for _, field := range s.Named {
		if name, err := recordkey.Unescape(strings.TrimPrefix(field, fieldTertiary)); err == nil {
			names = append(names, name)
		}
	}
	return names
}
