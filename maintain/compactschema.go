package maintain

import (
	"fmt"
	"slices"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// usualUID is how many bytes the UIDs have that userdb.Options.NewUID makes if nobody sets it.
const usualUID = 12

// NotCompact says what a schema alone tells of entries that Redis does not keep compact by its usual limits, as
// Check says it of those that there are: all with the code entry_not_compact, and with ~/schema/TYPE as
// the key. Most schemas tell nothing: it is the values that decide.
func NotCompact(s schema.Schema) []Problem {
	var ps []Problem
	for _, name := range s.Names() {
		key, err := recordkey.Own("schema", name)
		if err != nil {
			continue // no schema that was checked has such a name
		}
		tell := func(field, format string, args ...any) {
			ps = append(ps, notCompact(relative(key), field, fmt.Sprintf(format, args...)+"; "+costly+" (by the usual limits of Redis)"))
		}
		tellOfType(name, s.Types[name], tell)
	}
	return ps
}

func tellOfType(name string, t schema.Type, tell func(field, format string, args ...any)) {
	most := store.UsualLimits
	fields := kept(t)
	if n := int64(len(fields)); n > most.Fields {
		tell("", "an entry of type %s with all its fields has %d, more than %d", quoted(name), n, most.Fields)
	}
	for _, field := range fields {
		if n := int64(len(field)); n > most.Bytes {
			tell(field, "the name of the field %s has %d bytes, more than %d", quoted(field), n, most.Bytes)
		}
	}
	prk := len(recordkey.Escape(name)) + len("/") + len(recordkey.Escape(t.Primary)) + len(":")
	if room := most.Bytes - int64(prk); room < usualUID {
		tell(store.FieldPRK, "%s of type %s has more than %d bytes with a UID of more than %d; those that are made here have %d",
			store.FieldPRK, quoted(name), most.Bytes, max(room, 0), usualUID)
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
