package check

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/internal/store/session"
	"github.com/coffeenode/userdb/internal/store/token"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// An otherForm is a type whose records use another version of the canonical form, together with its
// stored schema, which names the version.
type otherForm struct {
	t      *change.Type
	stored schema.Type
}

// requireStoredSchema returns an error unless the view can follow the stored schema, with which the
// records were written. The checker then follows it. With another schema, every record would seem
// damaged.
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
		case stored.ChangeUnderWay():
			return mismatchError(t, "a change of the schema is under way; finish it with 'userdb schema apply'")
		case stored.OtherForm() && !t.Schema.HasOtherForm(stored.Type):
			return mismatchError(t, t.Schema.Difference(stored.Type)+"; check with the stored schema ('userdb schema show')")
		case stored.OtherForm():
			others = append(others, otherForm{t, stored.Type})
		}
	}
	if len(others) > 0 {
		return c.reportOtherForms(ctx, others)
	}
	v, err := c.Follow(ctx, view.IgnoreExtension, names...)
	if err == nil {
		c.View = v
	}
	return err
}

func mismatchError(t *change.Type, reason string) error {
	return fmt.Errorf("%w: type %s: %s", store.ErrSchemaMismatch, records.Quoted(t.Name), reason)
}

// reportOtherForms always returns an error. If all records are checked and none are repaired, it
// first reports the entries of the given types that this program cannot find by a value they have.
// It checks nothing else: under this version of the canonical form everything would seem damaged,
// and the program does not know the other version.
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
		"; convert the records with 'userdb schema apply' while no other program writes: until then nothing else can be checked")
}

// checkForms compares the stored canonical values with those that this program makes (I1).
func (c *checker) checkForms(ctx context.Context, r *report, f otherForm, items []item) {
	for i, h := range read(ctx, r, c.Engine, rawKeys(items), store.Hashes) {
		e := store.Record{Key: items[i].key, Fields: h.Fields}
		if h.WrongType || !e.Live() {
			continue
		}
		for _, field := range f.t.Secondary {
			facet, has := e.Fields[field]
			if value := f.t.Schema.Canonical(facet); has && e.SKV(field) != value {
				r.add(i, formOther, e.Key, field+" "+e.Fields[store.FieldRev],
					records.Quoted(field), records.Quoted(e.SKV(field)), f.stored.Form, records.Quoted(value))
			}
		}
		for _, v := range store.FurtherIn(e.Fields, "") {
			if value := f.t.Schema.Canonical(v.Written); value != v.Canonical && slices.Contains(f.t.Secondary, v.Field) {
				r.add(i, formOther, e.Key, v.Name()+" "+e.Fields[store.FieldRev],
					records.Quoted(v.Field), records.Quoted(v.Canonical), f.stored.Form, records.Quoted(value))
			}
		}
	}
}

// Redis and Valkey keep a hash compact while it has at most compactFields fields and no name or
// value over compactBytes bytes. These are the defaults; a server can be configured otherwise.
const (
	compactFields = 512
	compactBytes  = 64
)

// defaultUID is the length in bytes of the UIDs that userdb makes if userdb.Options.NewUID is not
// set.
const defaultUID = 12

// NotCompact returns warnings about a schema under which Redis, with its default limits, does not
// keep entries compact. The warnings have the code entry_not_compact and the key ~/schema/TYPE.
// Most schemas give no warning; whether an entry is kept compact then depends on its values.
func NotCompact(s schema.Schema) (ps []Problem) {
	for _, name := range s.Names() {
		key, err := recordkey.Own("schema", name)
		if err != nil {
			continue // a validated schema has no such name
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
			add(store.FieldPRK, "%s of type %s has more than %d bytes with a UID of more than %d; generated UIDs have %d",
				store.FieldPRK, records.Quoted(name), compactBytes, max(room, 0), defaultUID)
		}
	}
	return ps
}

// fieldNames returns the names of the fields of an entry that has all its declared fields, sorted.
// The entry has more for further, verified, labeled and held values, and, on a cluster, may
// temporarily have one or two more.
func fieldNames(t schema.Type) []string {
	fields := []string{
		store.FieldType, store.FieldPRK, store.FieldRev, token.FieldTokens,
		store.FieldPassword, store.FieldChanged, store.FieldImported, store.FieldOnce, store.FieldDisabled,
		store.FieldUnproven, session.FieldEpoch, t.Primary,
	}
	if t.Factors {
		fields = append(fields, factor.FieldMark, factor.FieldHash)
	}
	fields = slices.AppendSeq(fields, maps.Keys(t.Fields))
	if t.Fold != schema.FoldExact {
		fields = append(fields, records.Map(t.Secondary(), store.FieldSKV)...)
	}
	slices.Sort(fields)
	return slices.Compact(fields)
}
