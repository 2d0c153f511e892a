package check

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// An otherForm is a type whose records follow another version of the canonical form, and its stored schema, which tells which.
type otherForm struct {
	t      *change.Type
	stored schema.Type
}

// inForce refuses a schema by which the records were not written: all would seem damaged.
func (c *checker) requireStoredSchema(ctx context.Context) error {
	var others []otherForm
	names := c.Schema.Names()
	hashes, err := store.Hashes(ctx, c.Engine, c.schemaKeys(names))
	if err != nil {
		return err
	}
	for i, name := range names {
		t := c.ByName[name]
		stored, err := change.ParseStored(name, hashes[i].Fields)
		switch {
		case err != nil:
			return mismatchError(t, err.Error())
		case stored.UnderWay():
			return mismatchError(t, "a change of the schema is under way; finish it with 'userdb schema apply'")
		case stored.OtherForm() && !t.Schema.OtherForm(stored.Type):
			return mismatchError(t, t.Schema.Difference(stored.Type)+"; check with the stored schema ('userdb schema show')")
		case stored.OtherForm():
			others = append(others, otherForm{t, stored.Type})
		}
	}
	if len(others) > 0 {
		return c.reportOtherForms(ctx, others)
	}
	v, err := c.Follow(ctx, view.Leave, names...)
	if err == nil {
		c.View = v
	}
	return err
}

func mismatchError(t *change.Type, reason string) error {
	return fmt.Errorf("%w: type %s: %s", store.ErrSchemaMismatch, records.Quoted(t.Name), reason)
}

// otherForms reports the entries of such types that this program does not find by a value they have, and
// ends in an error. Nothing else is looked at: by this form it would all seem damaged, and another one
// the program does not know.
func (c *checker) reportOtherForms(ctx context.Context, others []otherForm) error {
	for _, f := range others {
		if c.o.Repair || !c.checksAll {
			break
		}
		check := func(ctx context.Context, r *report, items []item) { c.checkForms(ctx, r, f, items) }
		err := c.forEachBatch(ctx, f.t.Guard.Entries, func(ctx context.Context, keys []string) error {
			return c.examine(ctx, check, c.classify(keys).entries)
		})
		if err != nil {
			return err
		}
	}
	f := others[0]
	return mismatchError(f.t, f.t.Schema.Difference(f.stored)+
		"; bring the records over with 'userdb schema apply' while no other program writes: until then nothing else can be checked")
}

// lookAtForms compares the canonical values that are kept with those that this program makes (I1).
func (c *checker) checkForms(ctx context.Context, r *report, f otherForm, items []item) {
	for i, h := range read(ctx, r, c.Engine, rawKeys(items), store.Hashes) {
		e := store.Record{Key: items[i].key, Fields: h.Fields}
		if h.Other || !e.Live() {
			continue
		}
		for _, field := range f.t.Secondary {
			facet, has := e.Fields[field]
			if value := f.t.Schema.Canonical(facet); has && e.SKV(field) != value {
				r.add(i, formOther, e.Key, field+" "+e.Fields[store.FieldRev],
					records.Quoted(field), records.Quoted(e.SKV(field)), f.stored.Form, records.Quoted(value))
			}
		}
	}
}

// Redis and Valkey keep a hash compact while it has at most so many fields, of which neither a name nor a value has more than
// so many bytes. A server can be told other limits.
const (
	compactFields = 512
	compactBytes  = 64
)

// defaultUID is how many bytes the UIDs have that userdb makes if userdb.Options.NewUID is not set.
const defaultUID = 12

// NotCompact returns what a schema alone tells of entries that Redis does not keep compact by its default limits:
// warnings with the code entry_not_compact and with ~/schema/TYPE as the key. Most schemas tell nothing: the values decide.
func NotCompact(s schema.Schema) (ps []Problem) {
	for _, name := range s.Names() {
		key, err := recordkey.Own("schema", name)
		if err != nil {
			continue // no schema that was checked has such a name
		}
		add := func(field, format string, args ...any) {
			p := entryNotCompact.newProblem(key.String(), fmt.Sprintf(format, args...))
			p.Field = field
			ps = append(ps, p)
		}
		t := s.Types[name]
		fields := fieldNames(t)
		if n := len(fields); n > compactFields {
			add("", "an entry of type %s with all its fields has %d, more than %d", records.Quoted(name), n, compactFields)
		}
		for _, field := range fields {
			if n := len(field); n > compactBytes {
				add(field, "the name of the field %s has %d bytes, more than %d", records.Quoted(field), n, compactBytes)
			}
		}
		prk := len(recordkey.Escape(name)) + len("/") + len(recordkey.Escape(t.Primary)) + len(":")
		if room := compactBytes - prk; room < defaultUID {
			add(store.FieldPRK, "%s of type %s has more than %d bytes with a UID of more than %d; those that are made here have %d",
				store.FieldPRK, records.Quoted(name), compactBytes, max(room, 0), defaultUID)
		}
	}
	return ps
}

// kept are the names of all fields that an entry can have by its schema, sorted; on a cluster there may be one
// or two more for some time.
func fieldNames(t schema.Type) []string {
	fields := []string{
		store.FieldType, store.FieldPRK, store.FieldRev, store.FieldTokens,
		store.FieldPassword, store.FieldChanged, store.FieldDisabled, store.FieldEpoch, t.Primary,
	}
	fields = slices.AppendSeq(fields, maps.Keys(t.Fields))
	if t.Fold != schema.FoldExact {
		fields = append(fields, records.Map(t.Secondary(), store.FieldSKV)...)
	}
	slices.Sort(fields)
	return slices.Compact(fields)
}
