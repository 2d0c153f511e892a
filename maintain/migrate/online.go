package migrate

import (
	"context"
	"crypto/rand"
	"errors"
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

// If a schema only adds to the stored one, entries are converted while others write them. The
// addition is first stored as being built, and from then on writers maintain it. Once nobody uses
// the schema stored before, all entries are converted, and then the addition is stored as complete.
// The ID of what is being built shows whether the entries were converted to exactly that: it
// changes when anybody rolls back, or starts to build more.

// maxRetries limits how often the stored schema is read again because others have changed it.
const maxRetries = 100

var errContention = errors.New("others keep changing the stored schema")

// applyOnline converts the entries to the new schema. Any number of processes may run it at once,
// and continue where others were stopped.
func (s *migration) applyOnline(ctx context.Context) error {
	for range maxRetries {
		building, err := s.startBuilding(ctx)
		if err != nil || building == nil {
			return err
		}
		if err := s.convertAll(ctx); err != nil {
			return err
		}
		finished, err := s.finishBuilding(ctx, building.ID)
		if err != nil || finished {
			return err
		}
	}
	return errContention
}

// startBuilding stores the addition as being built and uses that schema from then on. It returns
// nil if the addition is already complete.
func (s *migration) startBuilding(ctx context.Context) (*schema.Building, error) {
	for range maxRetries {
		stored, err := s.readStored(ctx)
		if err != nil {
			return nil, err
		}
		next := mergeStored(stored.Type, s.currentType().Schema)
		if err := checkOnlyAdds(stored.Type, next); err != nil {
			return nil, err
		}
		more := next.Additions(stored.Type.WithoutBuilding())
		// A field that is being built as untyped may become typed.
		changes := len(next.Additions(stored.Type)) > 0
		if next.Building = stored.Type.Building; len(more) > 0 && (changes || !sameBuilding(next.Building, more)) {
			next.Building = newBuilding(more)
		}
		if next.Building == nil && change.StoredText(next.WithCurrentForm()) == stored.Text {
			return nil, nil
		}
		replaced, err := s.storeType(ctx, stored, next)
		// Other processes may have begun to build more than this migration adds. Then this
		// migration also converts the entries to their additions.
		if replaced {
			s.compareSchemas(s.currentType().Schema, stored.Type.WithoutBuilding())
		}
		if err != nil || replaced {
			return next.Building, err
		}
	}
	return nil, errContention
}

// newBuilding describes additions that begin to be built.
func newBuilding(additions map[string][]string) *schema.Building {
	return &schema.Building{ID: rand.Text()[:12], What: additions}
}

// mergeStored returns the new schema, target, extended with everything that only the stored schema
// has, since others may have added to the stored schema.
func mergeStored(stored, target schema.Type) schema.Type {
	next := target
	next.Open, next.Building, next.Retired = target.Open || stored.Open, stored.Building, nil
	next.Fields, next.Tertiary = maps.Clone(stored.Fields), maps.Clone(stored.Tertiary)
	for name, f := range target.Fields {
		if next.Fields == nil {
			next.Fields = map[string]schema.Field{}
		}
		f.Role |= stored.Fields[name].Role
		f.Required = f.Required || stored.Fields[name].Required
		f.Many = max(f.Many, stored.Fields[name].Many)
		if was := stored.Fields[name]; was.Role.Has(schema.RoleSecondary) && (was.IsTyped() || !target.Fields[name].Role.Has(schema.RoleSecondary)) {
			f.Typed = was.Typed
		}
		next.Fields[name] = f
	}
	for name, r := range target.Tertiary {
		if next.Tertiary == nil {
			next.Tertiary = map[string]schema.Tertiary{}
		}
		r.Indexed = r.Indexed || stored.Tertiary[name].Indexed
		next.Tertiary[name] = r
	}
	for _, name := range stored.Retired {
		_, field := next.Fields[name]
		_, tertiary := next.Tertiary[name]
		if !field && !tertiary {
			next.Retired = append(next.Retired, name)
		}
	}
	return next
}

// checkOnlyAdds returns ErrConflict unless the new schema, target, only adds to the stored one.
// That was so when the schema change was planned, but others may have changed the stored schema
// since.
func checkOnlyAdds(stored, target schema.Type) error {
	relation, difference := stored.Compare(target)
	if relation <= schema.Lacks {
		return nil
	}
	return fmt.Errorf("%w: the stored schema was changed meanwhile: %s", store.ErrConflict, difference)
}

// sameBuilding reports whether b, which may be nil, describes the given additions.
func sameBuilding(b *schema.Building, additions map[string][]string) bool {
	return b != nil && maps.EqualFunc(b.What, additions, slices.Equal)
}

// readStored reads the stored schema of the type.
func (s *migration) readStored(ctx context.Context) (change.Stored, error) {
	hashes, err := store.Hashes(ctx, s.Engine, []string{s.guard.Key.String()})
	if err != nil {
		return change.Stored{}, err
	}
	stored, err := change.ParseStored(s.currentType().Name, hashes[0].Fields)
	switch {
	case hashes[0].WrongType || err != nil:
		return stored, records.Corrupt(s.guard.Key, "not a readable schema")
	case stored.ChangeUnderWay() || stored.Generation == "":
		return stored, store.ErrConflict
	}
	return stored, nil
}

// storeType replaces the stored schema and uses the new one. It returns false if others have
// changed the stored schema.
func (s *migration) storeType(ctx context.Context, stored change.Stored, next schema.Type) (bool, error) {
	text := change.StoredText(next.WithCurrentForm())
	if text != stored.Text {
		state := []store.Facet{{Field: store.FieldFingerprint, Wire: change.Generation(text)}, {Field: store.FieldSchema, Wire: text}}
		replaced, err := s.Engine.Repair(ctx, store.ReplaceSchema{Guard: s.guard, Seen: stored.Generation, Fields: state})
		if err != nil || !replaced {
			return false, err
		}
		stored.Generation, stored.Text = change.Generation(text), text
	}
	return true, s.use(next, stored)
}

// use makes the migration write under typ, which is the stored schema now.
func (s *migration) use(typ schema.Type, stored change.Stored) error {
	t, err := s.currentType().WithSchema(typ, stored.Generation, stored.Text)
	if err == nil {
		s.mu.Lock()
		s.t = t
		s.mu.Unlock()
	}
	return err
}

// currentType returns the type under which the migration currently writes.
func (s *migration) currentType() *change.Type {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.t
}

// rewrite changes an entry. If others have added to the stored schema meanwhile, it retries under
// the extended schema.
func (s *migration) rewrite(
	ctx context.Context, prk recordkey.Key, how func(*change.Type, store.Record) (c store.Change, due bool, err error),
) (facets map[string]string, err error) {
	for range maxRetries {
		t := s.currentType()
		facets, err = records.Rewrite(ctx, s.View, t, prk, func(r store.Record) (store.Change, bool, error) { return how(t, r) })
		switch {
		case s.online && errors.Is(err, store.ErrNotFound): // it was deleted meanwhile
			return nil, nil
		case !s.online || !view.IsSchemaChanged(err):
			return facets, err
		}
		stored, failed := s.readStored(ctx)
		// Compare stored with t, not with s.currentType: another goroutine may have found a schema
		// that is newer than stored.
		if failed == nil && len(t.Schema.Additions(stored.Type)) > 0 {
			failed = err // others have rolled back what this migration adds
		}
		if failed == nil {
			failed = s.use(stored.Type, stored)
		}
		if failed != nil {
			return nil, failed
		}
	}
	return nil, errContention
}

// convertAll waits until every writer uses the schema with the addition, and then converts all
// entries, if the addition concerns them. If values collide, it rolls back.
func (s *migration) convertAll(ctx context.Context) error {
	if err := s.applyStep(ctx, store.AwaitSchema{}); err != nil {
		return err
	}
	if len(s.newSRKs)+len(s.newIndexes)+len(s.newOrders)+len(s.newRequired)+len(s.newTyped) == 0 {
		return nil
	}
	tc, err := s.survey(ctx)
	if err == nil {
		err = tc.collisionError()
	}
	if err == nil {
		err = s.runPasses(ctx, s.removeStale, s.convertEntries)
	}
	if err == nil && len(s.newSRKs) > 0 {
		err = s.runPasses(ctx, s.removeOldKeys, s.removeObsolete)
	}
	if errors.Is(err, ErrCollision) || errors.Is(err, store.ErrDuplicate) {
		return errors.Join(err, s.rollBack(ctx))
	}
	return err
}

// rollBack converts the entries back to the schema without the addition. Other writers are stopped
// meanwhile.
func (s *migration) rollBack(ctx context.Context) error {
	stored, err := s.readStored(ctx)
	if err != nil || stored.Type.Building == nil {
		return err
	}
	before := stored.Type.WithoutBuilding()
	for name := range stored.Type.Building.What {
		if _, had := s.from.Fields[name]; !had {
			delete(before.Fields, name)
		}
		if _, had := s.from.Tertiary[name]; !had {
			delete(before.Tertiary, name)
		}
	}
	c := s.Config
	c.Schema = schema.Schema{Types: map[string]schema.Type{s.currentType().Name: before}}
	v, err := view.New(c)
	if err != nil {
		return err
	}
	back, err := newMigration(ctx, v, s.currentType().Name, s.progress)
	if err != nil {
		return err
	}
	if err := back.setTarget(before, stored.Type.Retired); err != nil {
		return err
	}
	return back.apply(ctx)
}

// finishBuilding stores the addition as complete and returns true. If id is no longer the ID of
// what is being built, it returns false, because the entries may not fit what is being built now.
func (s *migration) finishBuilding(ctx context.Context, id string) (bool, error) {
	for range maxRetries {
		stored, err := s.readStored(ctx)
		if err != nil {
			return false, err
		}
		if stored.Type.Building == nil || stored.Type.Building.ID != id {
			return false, nil
		}
		next := stored.Type
		next.Building = nil
		if replaced, err := s.storeType(ctx, stored, next); err != nil || replaced {
			return replaced, err
		}
	}
	return false, errContention
}

// removeStale removes wrong members from the new indexes. An entry may have lost a value while some
// writers did not yet maintain the indexes, and another schema may have added members to them.
func (s *migration) removeStale(ctx context.Context) error {
	for _, field := range s.newOrders {
		if err := s.removeStalePositions(ctx, field); err != nil {
			return err
		}
	}
	for _, name := range s.newIndexes {
		pattern := recordkey.Pattern{Namespace: s.NS, Kind: recordkey.KindIndex, Type: s.currentType().Name, Field: name}
		w := records.Walk{Pattern: pattern.String(), Size: 1, AtOnce: concurrentRewrites, Progress: s.progress}
		if err := w.Each(ctx, s.View, func(ctx context.Context, keys []string) error { return s.removeStaleMembers(ctx, name, keys[0]) }); err != nil {
			return err
		}
	}
	return nil
}

// removeStaleMembers removes wrong members from one index set.
func (s *migration) removeStaleMembers(ctx context.Context, name, raw string) error {
	index, err := recordkey.Parse(raw)
	if err != nil || index.Kind() != recordkey.KindIndex || index.Field() != name || index.Type() != s.currentType().Name {
		return nil
	}
	for members, err := range s.Engine.ScanAll(ctx, store.Scan{Index: index, Count: memberBatch}) {
		if store.IsEntryError(err) {
			return nil // another Redis type, which check reports
		}
		if err != nil {
			return err
		}
		for _, m := range members {
			entry, err := recordkey.Parse(s.NS.String() + m)
			if err != nil || entry.Kind() != recordkey.KindPRK {
				continue // check reports it
			}
			a := store.Align{Entry: entry, At: store.Ranked{Key: index, Member: m, Facet: store.Facet{Field: name, Wire: index.Value()}}}
			if s.currentType().Schema.Tertiary[name].Indexed {
				a.At.Facet.Field = ""
				a.Set, _ = entry.Tertiary(name)
			}
			if err := s.applyStep(ctx, a); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeStalePositions removes wrong positions from the ordered index of one field.
func (s *migration) removeStalePositions(ctx context.Context, field string) error {
	key, err := s.currentType().OrderKey(field)
	if err == nil {
		err = s.applyStep(ctx, store.Remove{Key: key.String(), Kind: "zset"})
	}
	if err != nil {
		return err
	}
	for o := (store.Order{Key: key, Count: records.LookBatch}); ; {
		members, err := s.Engine.Order(ctx, o)
		if err != nil {
			return err
		}
		prks := records.Map(members, func(m string) string { return s.NS.String() + change.PositionOwner(m) })
		hashes, err := store.Hashes(ctx, s.Engine, prks)
		if err != nil {
			return err
		}
		for i, m := range members {
			entry, err := recordkey.Parse(prks[i])
			if err != nil || entry.Kind() != recordkey.KindPRK {
				continue // check reports it
			}
			r := store.Record{Key: entry, Fields: hashes[i].Fields}
			if position, ok := s.currentType().Position(r, field); ok && r.Live() && position.Member == m {
				continue
			}
			wire, has := r.Fields[field]
			at := store.Ranked{Key: key, Member: m, Facet: store.Facet{Field: field, Wire: wire}, Unset: !has}
			if err := s.applyStep(ctx, store.Align{Entry: entry, At: at, Vacate: true}); err != nil {
				return err
			}
		}
		if len(members) < o.Count {
			return nil
		}
		o.Min = store.Bound{At: members[len(members)-1], Exclusive: true, Set: true}
	}
}
