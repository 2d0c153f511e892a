package check

import (
	"fmt"
	"slices"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

const codeEntryNotCompact = "entry_not_compact"

// Redis and Valkey keep a hash compact while it has at most so many fields, of which neither a name nor a value has more than so many bytes.
// A server can be told other limits.
const (
	compactFields = 512
	compactBytes  = 64
)

// usualUID is how many bytes the UIDs have that userdb.Options.NewUID makes if nobody sets it.
const usualUID = 12

// NotCompact returns what a schema alone tells of entries that Redis does not keep compact by its default limits:
// warnings with the code entry_not_compact and with ~/schema/TYPE as the key. Most schemas tell nothing: the values decide.
func NotCompact(s schema.Schema) []Problem {
	var ps []Problem
	for _, name := range s.Names() {
		key, err := recordkey.Own("schema", name)
		if err != nil {
			continue // no schema that was checked has such a name
		}
		tell := func(field, format string, args ...any) {
			ps = append(ps, Problem{
				Code: codeEntryNotCompact, Warning: true, Key: records.Relative(key), Field: field,
				Text: fmt.Sprintf(format, args...) + "; such entries are not kept compact, and take more memory (by the usual limits of Redis)",
			})
		}
		tellOfType(name, s.Types[name], tell)
	}
	return ps
}

func tellOfType(name string, t schema.Type, tell func(field, format string, args ...any)) {
	fields := kept(t)
	if n := len(fields); n > compactFields {
		tell("", "an entry of type %s with all its fields has %d, more than %d", records.Quoted(name), n, compactFields)
	}
	for _, field := range fields {
		if n := len(field); n > compactBytes {
			tell(field, "the name of the field %s has %d bytes, more than %d", records.Quoted(field), n, compactBytes)
		}
	}
	prk := len(recordkey.Escape(name)) + len("/") + len(recordkey.Escape(t.Primary)) + len(":")
	if room := compactBytes - prk; room < usualUID {
		tell(store.FieldPRK, "%s of type %s has more than %d bytes with a UID of more than %d; those that are made here have %d",
			store.FieldPRK, records.Quoted(name), compactBytes, max(room, 0), usualUID)
	}
}

// kept are the names of all fields that an entry can have by its schema, sorted; on a cluster there may be one
// or two more for some time.
func kept(t schema.Type) []string {
	fields := []string{
		store.FieldType, store.FieldPRK, store.FieldRev, store.FieldTokens,
		store.FieldPassword, store.FieldChanged, store.FieldDisabled, t.Primary,
	}
	for field := range t.Fields {
		fields = append(fields, field)
	}
	if t.Fold != schema.FoldExact {
		for _, field := range t.Secondary() {
			fields = append(fields, store.FieldSKV(field))
		}
	}
	slices.Sort(fields)
	return slices.Compact(fields)
}
