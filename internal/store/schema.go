package store

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/recordkey"
)

// Fields of the record that keeps a schema, ~/schema/TYPE.
const (
	FieldFingerprint = "fingerprint"
	FieldSchema      = "schema"
)

// A Guard is compared with what ~/schema/TYPE says, in every change.
type Guard struct {
	Key         recordkey.Key
	Types       recordkey.Key // the set of types that have a schema stored
	Fingerprint string
	JSON        string          // the schema itself, stored beside the fingerprint by the first change
	Tertiary    map[string]bool // names of the tertiary records that the schema declares; true for indexed ones
	Exact       bool            // may be stored where entries exist that no fingerprint describes
	Entries     string          // the SCAN pattern of such entries
}

// NoEntries answers a MismatchError where entries match the pattern of a Guard: entries that no stored
// schema describes.
func NoEntries(ctx context.Context, e Engine, pattern string) error {
	for cursor := ""; ; {
		keys, next, err := e.Scan(ctx, Scan{Pattern: pattern, Cursor: cursor, Count: 1000})
		if err != nil {
			return err
		}
		for _, k := range keys {
			key, err := recordkey.Parse(k)
			if err == nil && key.Kind() != recordkey.KindPRK {
				continue
			}
			return &MismatchError{}
		}
		if cursor = next; cursor == "" {
			return nil
		}
	}
}

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
