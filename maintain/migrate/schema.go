package migrate

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/coded"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/storedschema"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

var (
	// ErrCollision is returned if two entries would have the same secondary value under a schema,
	// or if a schema requires a key that no record can have. Nothing was changed, or the change was
	// rolled back.
	ErrCollision = coded.New(userdb.CodeDuplicate, "the records do not fit the schema")
	// ErrNamespace is returned for a namespace that cannot be copied or dropped.
	ErrNamespace = coded.New(userdb.CodeUsage, "not a namespace to copy or drop")
	// ErrNotEmpty is returned if the namespace to copy to holds records.
	ErrNotEmpty = coded.New(userdb.CodeDuplicate, "the namespace holds records already")
)

// StoredSchema returns the schema in the database: the types with which entries of db's namespace
// were written. It has no types if nothing has been written yet, or if only CoffeeNode UserDB, the
// original program, has written. The error is userdb.ErrCorrupt if the schema cannot be read, for
// example because a newer version wrote it, or does not match its fingerprint.
func StoredSchema(ctx context.Context, db *userdb.DB) (schema.Schema, error) {
	v := view.Of(db)
	return storedschema.InForce(ctx, v.Engine, v.NS)
}

// PendingSchema returns the schema that an unfinished Apply is converting records to, with only the
// types that are not finished. Errors are those of StoredSchema.
func PendingSchema(ctx context.Context, db *userdb.DB) (schema.Schema, error) {
	v := view.Of(db)
	return storedschema.Pending(ctx, v.Engine, v.NS)
}

// A migration converts one type to its new schema.
type migration struct {
	*view.View
	progress func(done, about int64)
	guard    store.Guard  // of the new schema
	mu       sync.RWMutex // guards t, which changes while the migration is online
	// t is the type under the new schema. Unless the migration is online, its guard is that of the
	// schema change itself, under which nothing else writes.
	t      *change.Type
	fields map[string]string // fields of ~/schema/TYPE
	// from is the stored schema. If there is none, it holds the known part of the schema of
	// CoffeeNode UserDB, the original program.
	from    schema.Type
	stored  bool              // the database has a schema
	resumed bool              // an earlier Apply was interrupted
	online  bool              // others write meanwhile; see online.go
	renames map[string]string // maps old names to new ones

	newIndexes, newOrders          []string // fields and, for index sets, tertiary sets
	newUnset                       []string // orders that lack only the entries without a value
	newSRKs, newRequired           []string // fields
	newTyped, newUntyped           []string // fields whose values become typed, or no longer are
	moreValues, fewerValues        []string // fields that may have more values, or fewer
	oldSRKs, oldIndexes, oldOrders []string // only the old schema has these
}

// newMigration reads the stored schema for a type of the new schema.
func newMigration(ctx context.Context, v *view.View, name string, progress func(done, about int64)) (*migration, error) {
	t, err := v.Type(name)
	if err != nil {
		return nil, err
	}
	key := t.Guard.Key
	hashes, err := store.Hashes(ctx, v.Engine, []string{key.String()})
	if err != nil {
		return nil, err
	}
	s := &migration{
		View: v, progress: progress, fields: hashes[0].Fields, renames: map[string]string{},
		from: schema.Type{Primary: t.Schema.Primary, Fold: schema.FoldExact},
	}
	_, s.stored = s.fields[store.FieldFingerprint]
	if s.stored {
		if s.from, err = change.ParseType(name, s.fields[store.FieldSchema]); err != nil {
			return nil, records.Corrupt(key, err.Error())
		}
	}
	if s.from.Primary != t.Schema.Primary {
		return nil, &schema.Error{Path: "types." + name + ".primary", Reason: "a primary field cannot change; it was " + s.from.Primary}
	}
	s.t = t
	_, s.resumed = s.fields[change.FieldNext]
	return s, s.setTarget(t.Schema, removedNames(s.from, t.Schema))
}

// setTarget sets the schema to convert the type to, and the names to retire.
func (s *migration) setTarget(to schema.Type, retired []string) error {
	to.Building, to.Retired = nil, retired
	to = to.WithCurrentForm()
	text := change.StoredText(to)
	if s.resumed && s.fields[change.FieldNext] != text {
		next, err := change.ParseType(s.t.Name, s.fields[change.FieldNext])
		if err != nil || next.Form != "" || change.StoredText(next.WithCurrentForm()) != text {
			return fmt.Errorf("%w: type %s: a change to another schema is under way; finish it first with 'userdb schema apply' without --schema, or with that schema",
				store.ErrSchemaMismatch, records.Quoted(s.t.Name))
		}
		to = withRenames(to, next)
	}
	t, err := s.t.WithSchema(to, change.Generation(text), text)
	if err != nil {
		return err
	}
	s.guard = t.Guard
	s.compareSchemas(t.Schema, s.from.WithoutBuilding())
	if s.online = s.addsOnly(t.Schema); s.online {
		s.t = t
		return nil
	}
	exclusive := s.guard
	// The fingerprint is unique to this attempt, so a stalled earlier attempt cannot affect it.
	exclusive.Fingerprint, exclusive.MayStore = "~"+s.fields[store.FieldFingerprint]+">"+s.guard.Fingerprint+" "+rand.Text()[:12], false
	if s.resumed {
		exclusive.Fingerprint = s.fields[store.FieldFingerprint]
	}
	s.t = t.WithGuard(exclusive)
	return nil
}

// withRenames returns t with those fields of next that have a former name. next is the schema of a
// schema change that was interrupted.
func withRenames(t, next schema.Type) schema.Type {
	t.Fields = maps.Clone(t.Fields)
	for name, f := range next.Fields {
		if f.Was != "" {
			t.Fields[name] = f
		}
	}
	return t
}

// removedNames returns the names that the old schema has, or has retired, and that the new one
// lacks.
func removedNames(from, to schema.Type) (names []string) {
	for _, name := range slices.Concat(from.Retired, slices.Collect(maps.Keys(from.Fields)), slices.Collect(maps.Keys(from.Tertiary))) {
		_, field := to.Fields[name]
		_, tertiary := to.Tertiary[name]
		if !field && !tertiary && name != to.Primary {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// compareSchemas determines what the new schema adds to the old one and what it drops. whole is the
// schema to which all entries already conform, without additions that are still being built.
func (s *migration) compareSchemas(to, whole schema.Type) {
	clear(s.renames)
	for name, f := range to.Fields {
		if _, had := s.from.Fields[name]; f.Was != "" && !had {
			s.renames[f.Was] = name
		}
	}
	after := append(to.Indexed(), to.IndexedTertiary()...)
	s.newIndexes = difference(after, append(whole.Indexed(), whole.IndexedTertiary()...))
	s.oldIndexes = difference(append(s.from.Indexed(), s.from.IndexedTertiary()...), after)
	s.newSRKs = difference(to.Secondary(), whole.Secondary())
	s.newRequired = difference(to.Required(), whole.Required())
	s.newUnset, s.moreValues, s.fewerValues = nil, nil, nil
	s.newTyped, s.newUntyped = nil, nil
	for _, name := range to.Secondary() {
		before := s.nameBefore(name)
		switch now, was := to.Fields[name], whole.Fields[before]; {
		case !was.Role.Has(schema.RoleSecondary) || now.IsTyped() == was.IsTyped():
		case now.IsTyped():
			s.newTyped = append(s.newTyped, name)
		default:
			s.newUntyped = append(s.newUntyped, name)
		}
		switch now, was := to.Fields[name].MaxValues(), s.from.Fields[before].MaxValues(); {
		case now > was:
			s.moreValues = append(s.moreValues, name)
		case now < was:
			s.fewerValues = append(s.fewerValues, name)
		}
	}
	s.newOrders = slices.DeleteFunc(to.Ordered(), func(field string) bool {
		sameForm := whole.Fold == to.Fold && whole.Form == "" || !change.IsText(to.Codec(field))
		stays := whole.Fields[field].Role.Has(schema.RoleOrdered) && whole.Codec(field) == to.Codec(field) && sameForm
		if stays && to.ListsUnset() && !whole.ListsUnset() {
			s.newUnset = append(s.newUnset, field)
			return false
		}
		return stays
	})
	s.oldOrders = difference(s.from.Ordered(), to.Ordered())
	s.oldSRKs = difference(s.from.Secondary(), to.Secondary())
	for old := range s.renames {
		s.oldSRKs = append(s.oldSRKs, old)
	}
}

// nameBefore returns the name that a field of the new schema has in the stored one.
func (s *migration) nameBefore(name string) string {
	for old, now := range s.renames {
		if now == name {
			return old
		}
	}
	return name
}

// fieldBefore returns the declaration that a field of the new schema has in the stored one, without
// what is still being built.
func (s *migration) fieldBefore(name string) schema.Field {
	return s.from.WithoutBuilding().Fields[s.nameBefore(name)]
}

// addsOnly reports whether the new schema only adds to the stored one and entries have to be
// converted. Then no writer has to stop.
func (s *migration) addsOnly(to schema.Type) bool {
	relation, _ := s.from.Compare(to)
	sameForm := s.from.Fold == schema.FoldExact || s.from.Form == ""
	return s.stored && !s.resumed && len(s.renames) == 0 && relation <= schema.Lacks && sameForm && len(to.Additions(s.from.WithoutBuilding())) > 0
}

// difference returns the names in a that are not in b.
func difference(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

// changesRecords reports whether records have to change, and not only the stored schema.
func (s *migration) changesRecords() bool {
	to := s.t.Schema.Fingerprint()
	return s.resumed || to != s.from.Fingerprint() || to != s.from.WithoutBuilding().Fingerprint() ||
		len(s.renames)+len(s.newOrders)+len(s.newRequired)+len(s.newTyped) > 0
}

// stopsWriters reports whether nobody else may write during the schema change. That is so for
// changes of records, for the first Many of a field, because running programs may not know Many,
// and for a smaller Many, so that no entry gets more values meanwhile.
func (s *migration) stopsWriters() bool {
	first := func(name string) bool { return s.fieldBefore(name).MaxValues() == 1 }
	return s.changesRecords() || len(s.fewerValues) > 0 || slices.ContainsFunc(s.moreValues, first)
}

// needsApply reports whether there is anything to do.
func (s *migration) needsApply() bool {
	return s.changesRecords() || s.fields[store.FieldSchema] != s.guard.JSON
}
