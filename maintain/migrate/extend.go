package migrate

import (
	"context"
	"fmt"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// errOtherChange reports that the schema was not extended because of somebody else's change.
var errOtherChange = fmt.Errorf("%w: another change of the schema is under way", store.ErrIndexBuilding)

// Extend adds indexes and orders to the stored schema of a type, while others write, and returns
// the extended type. extend returns the stored type with what to add. Unlike [Change.Apply], Extend
// takes no part in changes that others make. It returns userdb.ErrIndexBuilding if one is under
// way, if other indexes are being built, or if the stored schema is no longer the one that extend
// was called with. If exactly the same indexes are being built, Extend finishes that.
func Extend(ctx context.Context, db *userdb.DB, typ string, extend func(schema.Type) (schema.Type, error)) (schema.Type, error) {
	v := view.Of(db)
	key, err := change.SchemaKey(v.NS, typ)
	if err != nil {
		return schema.Type{}, err
	}
	hashes, err := store.Hashes(ctx, v.Engine, []string{key.String()})
	if err != nil {
		return schema.Type{}, err
	}
	stored, err := change.ParseStored(typ, hashes[0].Fields)
	switch {
	case err != nil || hashes[0].WrongType:
		return schema.Type{}, records.Corrupt(key, "not a readable schema")
	case stored.Generation == "":
		return schema.Type{}, fmt.Errorf("%w: no schema is stored", store.ErrSchemaMismatch)
	case stored.ChangeUnderWay():
		return schema.Type{}, errOtherChange
	}
	whole := stored.Type.WithoutBuilding()
	to, err := extend(whole)
	if err != nil {
		return schema.Type{}, err
	}
	if b := stored.Type.Building; b != nil && !sameBuilding(b, to.Additions(whole)) {
		return schema.Type{}, errOtherChange
	}
	next, err := db.With(schema.Schema{Types: map[string]schema.Type{typ: to}})
	if err != nil {
		return schema.Type{}, err
	}
	s, err := newMigration(ctx, view.Of(next), typ, nil)
	switch {
	case err != nil:
		return schema.Type{}, err
	case s.resumed:
		return schema.Type{}, errOtherChange
	case !s.needsApply():
		return to, nil
	case !s.online || len(s.newSRKs)+len(s.newRequired)+len(s.newTyped)+len(s.moreValues) > 0:
		return schema.Type{}, fmt.Errorf("%w: type %s: more than indexes would have to be added; run 'userdb schema apply'", store.ErrSchemaMismatch, records.Quoted(typ))
	}
	return to, s.extendOnline(ctx, stored) // refused if the stored schema is another one by now
}

// extendOnline adds to the stored schema, which is given, what only the new one has. It returns
// errOtherChange if somebody else changes the stored schema meanwhile.
func (s *migration) extendOnline(ctx context.Context, stored change.Stored) error {
	next := mergeStored(stored.Type, s.currentType().Schema)
	if next.Building == nil {
		next.Building = newBuilding(next.Additions(stored.Type))
	}
	replaced, err := s.storeType(ctx, stored, next)
	if err == nil && !replaced {
		err = errOtherChange
	}
	if err == nil {
		err = s.convertAll(ctx)
	}
	if err != nil {
		return err
	}
	finished, err := s.finishBuilding(ctx, next.Building.ID)
	if err == nil && !finished {
		err = s.checkExtended(ctx)
	}
	return err
}

// checkExtended returns errOtherChange unless the stored schema has what the new one adds, because
// another process has finished the same addition.
func (s *migration) checkExtended(ctx context.Context) error {
	stored, err := s.readStored(ctx)
	if err == nil && (stored.Type.Building != nil || len(s.currentType().Schema.Additions(stored.Type)) > 0) {
		err = errOtherChange
	}
	return err
}
