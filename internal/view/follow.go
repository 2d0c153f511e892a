package view

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/schema"
)

// The schema that a program declares is a claim about the stored one, which is in force for
// everybody. To follow a schema means to use the stored one, and to extend it by everything that
// the claim adds without changing records.
//
// A schema change reaches running programs as follows: the store refuses a write that was built
// under an older schema (IsSchemaChanged), the program follows the stored schema, and tries again.

// OnSchema has the values of userdb.OnSchema.
type OnSchema int

// Values of OnSchema. They say what to do if a program declares more than is stored.
const (
	Extend OnSchema = iota // extend the stored schema
	Refuse                 // return ErrSchemaMismatch
	Later                  // extend the stored schema at the first write
)

// Extension says what Follow does with declarations that are not in the stored schema and that
// require no change of records.
type Extension int

const (
	StoreExtension  Extension = iota // store it, as Config.OnSchema says
	KeepExtension                    // add it to the view; the first write stores it
	IgnoreExtension                  // return a view of the stored schema only
)

// maxExtensions is how many times followType tries to extend a schema that others keep changing.
const maxExtensions = 16

// Follow returns a view under the stored schemas of the named types, or v if nothing has changed. A
// type without a stored schema stays as it is. While a schema change stops all other writers, a
// type also stays as it is, except that queries stop using the affected indexes. The error is
// ErrSchemaMismatch if the program's claim contradicts a stored schema.
func (v *View) Follow(ctx context.Context, extension Extension, names ...string) (*View, error) {
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = v.ByName[name].Guard.Key.String()
	}
	hashes, err := store.Hashes(ctx, v.Engine, keys)
	if err != nil {
		return nil, err
	}
	var others []*change.Type
	for i, name := range names {
		t, err := v.followType(ctx, extension, v.ByName[name], hashes[i])
		if err != nil {
			return nil, err
		}
		if t != v.ByName[name] {
			others = append(others, t)
		}
	}
	if len(others) == 0 {
		return v, nil
	}
	next := *v
	next.Types = v.Types.Replacing(others...)
	return &next, nil
}

// followType returns t under the stored schema. record holds the stored schema.
func (v *View) followType(ctx context.Context, extension Extension, t *change.Type, record store.Raw) (*change.Type, error) {
	for range maxExtensions {
		if record.Fields[store.FieldFingerprint] == t.Guard.Fingerprint && !t.ChangeUnderWay {
			t.SetCompared()
			return t, nil
		}
		stored, err := parseStored(t, record)
		if err != nil {
			return t, err
		}
		if stored.ChangeUnderWay() {
			return typeWhileChanging(t, stored)
		}
		if stored.Generation == "" {
			t.SetCompared()
			return t, nil
		}
		if next, err := v.reconcile(ctx, extension, t, stored); next != nil || err != nil {
			return next, err
		}
		again, err := store.Hashes(ctx, v.Engine, []string{t.Guard.Key.String()})
		if err != nil {
			return nil, err
		}
		record = again[0]
	}
	return nil, store.ErrConflict
}

// typeWhileChanging returns a type to use while a schema change stops all other writers. Queries of
// that type use no index that is being built or removed. A lookup finds an entry only after the
// schema change has converted it.
func typeWhileChanging(t *change.Type, stored change.Stored) (*change.Type, error) {
	next, err := change.ParseType(t.Name, stored.Next)
	if err != nil {
		return nil, &store.CorruptError{Key: t.Guard.Key.String(), Reason: err.Error()}
	}
	changing := changingIndexes(t, stored.Type, next)
	waiting, err := withoutIndexes(t, changing)
	if err == nil && waiting != t {
		waiting.ChangeUnderWay = true
	}
	return waiting, err
}

// withoutIndexes returns t with the given roles of its fields marked as being built, so that
// queries do not use their indexes. It returns t itself if no roles are given.
func withoutIndexes(t *change.Type, roles map[string]schema.Role) (*change.Type, error) {
	if len(roles) == 0 {
		return t, nil
	}
	limited := t.Schema
	limited.Building = &schema.Building{What: map[string][]string{}}
	for name, roles := range roles {
		limited.Building.What[name] = roles.Names()
	}
	return t.WithSchema(limited, t.Guard.Fingerprint, t.Guard.JSON)
}

// changingIndexes returns, by field of t, the roles whose indexes a schema change builds, removes
// or sorts anew.
func changingIndexes(t *change.Type, from, to schema.Type) map[string]schema.Role {
	changing := map[string]schema.Role{}
	for _, other := range []schema.Type{from.WithoutBuilding(), to} {
		for name, more := range t.Schema.Additions(other) {
			for _, role := range []schema.Role{schema.RoleIndexed, schema.RoleOrdered} {
				if slices.Contains(more, role.String()) {
					changing[name] |= role
				}
			}
		}
	}
	refolds := from.Fold != to.Fold || from.Form != to.Form
	for _, field := range t.Ordered {
		if refolds || from.Codec(field) != to.Codec(field) {
			changing[field] |= schema.RoleOrdered
		}
	}
	return changing
}

// LackedIndexes returns a named type for a program whose declaration contradicts the stored schema.
// Queries of this type return ErrIndexBuilding if they need an index, or an identifier, that the
// stored schema lacks or keeps in another form.
func (v *View) LackedIndexes(ctx context.Context, name string) (*change.Type, error) {
	t := v.ByName[name]
	hashes, err := store.Hashes(ctx, v.Engine, []string{t.Guard.Key.String()})
	if err != nil {
		return nil, err
	}
	stored, err := parseStored(t, hashes[0])
	if err != nil {
		return nil, err
	}
	if stored.ChangeUnderWay() {
		return typeWhileChanging(t, stored)
	}
	kept := stored.Type.WithoutBuilding()
	lacked := changingIndexes(t, t.Schema, kept)
	for _, field := range t.Secondary {
		if kept.Fold != t.Schema.Fold || !kept.Fields[field].Role.Has(schema.RoleSecondary) {
			lacked[field] |= schema.RoleSecondary
		}
	}
	return withoutIndexes(t, lacked)
}

// parseStored parses the record that holds a type's schema.
func parseStored(t *change.Type, record store.Raw) (change.Stored, error) {
	corrupt := func(reason string) error { return &store.CorruptError{Key: t.Guard.Key.String(), Reason: reason} }
	if record.WrongType {
		return change.Stored{}, corrupt("not a hash")
	}
	stored, err := change.ParseStored(t.Name, record.Fields)
	if err != nil {
		return stored, corrupt(err.Error())
	}
	return stored, nil
}

// reconcile returns a type under a stored schema. If necessary, it first extends the stored schema.
// It returns nil if another program changed that schema in the meantime.
func (v *View) reconcile(ctx context.Context, extension Extension, t *change.Type, stored change.Stored) (*change.Type, error) {
	if v.Config.Builtin {
		var err error
		if t, err = t.Adopting(stored.Type); err != nil {
			return nil, err
		}
	}
	claim := t.Declared()
	relation, difference := stored.Compare(claim)
	switch {
	case stored.OtherForm(): // the program can still read; see query.Reader.FindMany
		return t, nil
	case relation == schema.Differs || relation == schema.Builds || relation == schema.Adds && extension != IgnoreExtension && v.Config.OnSchema == Refuse:
		return nil, mismatchError(t, difference, relation)
	case relation != schema.Adds || extension == IgnoreExtension:
		return t.WithSchema(stored.Type, stored.Generation, stored.Text)
	}
	union := claim.Merge(stored.Type)
	if err := (schema.Schema{Types: map[string]schema.Type{t.Name: union}}).Validate(); err != nil {
		return nil, fmt.Errorf("%w: type %s: combined with the stored schema: %w", store.ErrSchemaMismatch, t.Name, err)
	}
	text := change.StoredText(union.WithCurrentForm())
	if extension == KeepExtension {
		return t.WithSchema(union, change.Generation(text), text)
	}
	generation := change.Generation(text)
	state := []store.Facet{{Field: store.FieldFingerprint, Wire: generation}, {Field: store.FieldSchema, Wire: text}}
	replaced, err := v.Engine.Repair(ctx, store.ReplaceSchema{Guard: t.Guard, Seen: stored.Generation, Fields: state})
	if err != nil || !replaced {
		return nil, err
	}
	return t.WithSchema(union, generation, text)
}

// mismatchError returns an error that says how a program's schema differs from the stored one, and
// what to do about it.
func mismatchError(t *change.Type, difference string, relation schema.Relation) error {
	remedy := "use the stored schema ('userdb schema show'), or convert the records with 'userdb schema apply'"
	if relation == schema.Builds {
		remedy = "convert the records with 'userdb schema apply'"
	}
	return fmt.Errorf("%w: type %s: %s; %s", store.ErrSchemaMismatch, t.Name, difference, remedy)
}

// IsSchemaChanged reports whether a write was refused because it was built under another schema
// than the stored one.
func IsSchemaChanged(err error) bool {
	mismatch, ok := errors.AsType[*store.MismatchError](err)
	return ok && mismatch.Stored != ""
}
