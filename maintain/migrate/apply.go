package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
)

const (
	concurrentRewrites = 16  // number of records processed at once
	concurrentRemovals = 3   // number of batches of keys processed at once
	memberBatch        = 500 // approximate number of members read from a set at a time
)

// Apply makes the change. If values collide, it changes nothing and returns ErrCollision. Apply can
// be stopped at any moment; the same Plan and Apply then continue where it stopped. progress, which
// may be nil, is called with the number of records processed and the approximate total. It starts
// again at zero for each pass.
//
// If TypeChange.Stops is set, nobody else can write the entries of the type until Apply has
// finished: other writers get ErrSchemaMismatch. Readers with the old schema find all entries until
// the last one is converted, and readers with the new schema find each entry as soon as it is
// converted. The stored fingerprint changes last.
func (ch Change) Apply(ctx context.Context, progress func(done, about int64)) error {
	for _, tc := range ch.Types {
		if err := tc.collisionError(); err != nil {
			return err
		}
	}
	for _, tc := range ch.Types {
		s, err := newMigration(ctx, view.Of(ch.db), tc.Type, progress)
		if err != nil {
			return err
		}
		if to := mergeStored(s.from, s.currentType().Schema); tc.Online && !s.resumed {
			if err = checkOnlyAdds(s.from, to); err == nil {
				err = s.setTarget(to, removedNames(s.from, to))
			}
		}
		if err == nil && s.needsApply() {
			err = s.apply(ctx)
		}
		if err != nil {
			return fmt.Errorf("changing the schema of type %s: %w", records.Quoted(tc.Type), err)
		}
	}
	return nil
}

func (tc TypeChange) collisionError() error {
	if len(tc.Collisions) > 0 {
		return fmt.Errorf("%w: type %s: %s", ErrCollision, records.Quoted(tc.Type), tc.Collisions[0].Reason)
	}
	return nil
}

func (s *migration) apply(ctx context.Context) error {
	if s.online {
		return s.applyOnline(ctx)
	}
	err := s.applyExclusive(ctx)
	// Another process may have made the same schema change first.
	if errors.Is(err, store.ErrConflict) || view.IsSchemaChanged(err) {
		stored, failed := s.readStored(ctx)
		if failed == nil && stored.Generation == s.guard.Fingerprint {
			return nil
		}
	}
	return err
}

// applyExclusive converts the entries to the new schema while nobody else writes. If no record has
// to change, it only stores the new schema, and stops writers only if stopsWriters says so.
func (s *migration) applyExclusive(ctx context.Context) error {
	seen := s.fields[store.FieldFingerprint]
	if s.stopsWriters() {
		if err := s.stopWriters(ctx); err != nil {
			return err
		}
		seen = s.currentType().Guard.Fingerprint
	}
	if s.changesRecords() {
		if err := s.runPasses(ctx, s.removeStale, s.convertEntries, s.convertHolds, s.removeOldKeys, s.removeObsolete); err != nil {
			return err
		}
	}
	return s.replaceStored(ctx, seen, s.guard.Fingerprint, s.guard.JSON, "")
}

// runPasses runs each step as one pass over the records.
func (s *migration) runPasses(ctx context.Context, steps ...func(context.Context) error) error {
	for _, pass := range steps {
		bulk, end := s.Engine.Bulk(ctx)
		if err := cmp.Or(pass(bulk), end(context.WithoutCancel(ctx))); err != nil {
			return err
		}
	}
	return nil
}

// replaceStored replaces the stored schema if its fingerprint still equals seen.
func (s *migration) replaceStored(ctx context.Context, seen, fingerprint, stored, next string) error {
	state := []store.Facet{{Field: store.FieldFingerprint, Wire: fingerprint}, {Field: store.FieldSchema, Wire: stored}}
	state = append(state, store.Facet{Field: change.FieldNext, Wire: next})
	state = slices.DeleteFunc(state, func(f store.Facet) bool { return f.Wire == "" })
	replaced, err := s.Engine.Repair(ctx, store.ReplaceSchema{Guard: s.guard, Seen: seen, Fields: state})
	if err == nil && !replaced {
		err = store.ErrConflict
	}
	return err
}

// stopWriters stops all other writers and then checks that nothing collides. If something does and
// nothing was changed yet, it lets the other writers continue.
func (s *migration) stopWriters(ctx context.Context) error {
	before, schema := s.fields[store.FieldFingerprint], s.fields[store.FieldSchema]
	exclusive := s.currentType().Guard.Fingerprint // only this migration writes under it
	if !s.resumed {
		from := schema
		if !s.stored {
			from = change.StoredText(s.from)
		}
		if err := s.replaceStored(ctx, before, exclusive, from, change.NextText(s.currentType().Schema)); err != nil {
			return err
		}
	}
	if err := s.applyStep(ctx, store.AwaitSchema{}); err != nil {
		return err
	}
	tc, err := s.survey(ctx)
	if err != nil {
		return err
	}
	collision := tc.collisionError()
	if collision == nil || s.resumed {
		return collision
	}
	return errors.Join(collision, s.replaceStored(ctx, exclusive, before, schema, ""))
}

func (s *migration) applyStep(ctx context.Context, step store.RepairStep) error {
	_, err := s.Engine.Repair(ctx, step)
	return err
}

// convertEntries converts all entries and keeps the keys by which they were found before. If an
// entry gets a value that another entry has under the old schema only, it is converted after that
// entry. If another entry holds the new value, the hold ends, because the converted entry already
// had the value in another form; an online migration fails instead.
func (s *migration) convertEntries(ctx context.Context) error {
	var mu sync.Mutex
	var postponed []recordkey.Key
	var reason error
	convert := func(ctx context.Context, prk recordkey.Key) error {
		err := s.convertEntry(ctx, prk)
		if errors.Is(err, store.ErrDuplicate) {
			mu.Lock()
			defer mu.Unlock()
			postponed, reason, err = append(postponed, prk), err, nil
		}
		return err
	}
	err := s.forEachEntry(ctx, convert)
	for err == nil && len(postponed) > 0 {
		previous := postponed
		postponed = nil
		for _, prk := range previous {
			if err = convert(ctx, prk); err != nil {
				return err
			}
		}
		if len(postponed) < len(previous) {
			continue
		}
		endedAny := false
		for _, prk := range postponed {
			if s.online {
				break
			}
			ended, err := s.endRivalHolds(ctx, prk)
			if endedAny = endedAny || ended; err != nil {
				return err
			}
		}
		if !endedAny {
			return reason
		}
	}
	return err
}

// convertEntry converts one entry and adds it to the new indexes.
func (s *migration) convertEntry(ctx context.Context, prk recordkey.Key) error {
	facets, err := s.rewrite(ctx, prk, func(t *change.Type, r store.Record) (store.Change, bool, error) {
		if s.online && len(s.newSRKs) == 0 {
			return store.Change{}, false, nil
		}
		owned, err := s.ownedSRKs(ctx, r)
		c, due := t.Reshape(r, s.renames, func(srk recordkey.Key) bool { return slices.Contains(owned, srk) })
		return c, due && r.Live(), err
	})
	r := store.Record{Key: prk, Fields: facets}
	if err != nil || !r.Live() {
		return err
	}
	for _, name := range s.newIndexes {
		if s.currentType().Schema.Tertiary[name].Indexed {
			if err := s.indexMembers(ctx, prk, name); err != nil {
				return err
			}
		}
	}
	for _, v := range s.currentType().IndexedValues(r.Fields) {
		if !slices.Contains(s.newIndexes, v.Field) {
			continue
		}
		if err := s.addToIndex(ctx, prk, v.Field, store.Align{At: store.Ranked{Facet: v}}); err != nil {
			return err
		}
	}
	positions, _ := s.currentType().Positions(r) // check reports facets that cannot be ordered
	for _, position := range positions {
		if slices.Contains(s.newOrders, position.Facet.Field) {
			if err := s.applyStep(ctx, store.Align{Entry: prk, At: position}); err != nil {
				return err
			}
		}
	}
	return nil
}

// ownedSRKs returns the SRKs of an entry's values under the new schema that already name the entry.
func (s *migration) ownedSRKs(ctx context.Context, r store.Record) ([]recordkey.Key, error) {
	srks := s.currentType().SRKs(s.renamedFacets(r))
	srvs, err := store.Texts(ctx, s.Engine, records.Map(srks, recordkey.Key.String))
	var owned []recordkey.Key
	for i, srv := range srvs {
		if srv.Exists && store.Owner(srv.Wire) == records.Relative(r.Key) {
			owned = append(owned, srks[i])
		}
	}
	return owned, err
}

func (s *migration) addToIndex(ctx context.Context, prk recordkey.Key, name string, m store.Align) error {
	index, ok := s.currentType().IndexKey(name, m.At.Facet.Wire)
	if !ok {
		return nil // check reports it
	}
	m.Entry, m.At.Key, m.At.Member = prk, index, records.Relative(prk)
	return s.applyStep(ctx, m)
}

// indexMembers adds an entry to the index sets of all members of one of its sets.
func (s *migration) indexMembers(ctx context.Context, prk recordkey.Key, name string) error {
	set, err := prk.Tertiary(name)
	if err != nil {
		return err
	}
	for members, err := range s.Engine.ScanAll(ctx, store.Scan{Index: set, Count: memberBatch}) {
		if store.IsEntryError(err) {
			return nil // another Redis type, which check reports
		}
		if err != nil {
			return err
		}
		for _, m := range members {
			if err := s.addToIndex(ctx, prk, name, store.Align{Set: set, At: store.Ranked{Facet: store.Facet{Wire: m}}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeOldKeys removes the keys by which entries were found before.
func (s *migration) removeOldKeys(ctx context.Context) error {
	return s.forEachEntry(ctx, func(ctx context.Context, prk recordkey.Key) error {
		_, err := s.rewrite(ctx, prk, func(t *change.Type, r store.Record) (store.Change, bool, error) {
			c, due := t.RemoveOldForms(r, s.renames)
			return c, due && r.Live(), nil
		})
		return err
	})
}

// forEachEntry calls f for each entry, several at once.
func (s *migration) forEachEntry(ctx context.Context, f func(context.Context, recordkey.Key) error) error {
	w := records.Walk{Pattern: s.currentType().Guard.Entries, Size: 1, AtOnce: concurrentRewrites, Progress: s.progress}
	return w.Each(ctx, s.View, func(ctx context.Context, keys []string) error {
		for _, prk := range s.PRKs(s.currentType(), keys) {
			if err := f(ctx, prk); err != nil {
				return err
			}
		}
		return nil
	})
}

// removeGuarded removes something that the new schema does not have, but only while the stored
// schema is unchanged. Otherwise another process may have finished the schema change, and somebody
// may have added the record again.
func (s *migration) removeGuarded(ctx context.Context, r store.Remove) error {
	r.Schema = s.currentType().Guard
	return s.applyStep(ctx, r)
}

// removeObsolete removes the SRKs and indexes that the old schema had and the new one does not.
func (s *migration) removeObsolete(ctx context.Context) error {
	for _, field := range s.oldOrders {
		key, err := s.currentType().OrderKey(field)
		if err == nil {
			err = s.removeGuarded(ctx, store.Remove{Key: key.String()})
		}
		if err != nil {
			return err
		}
	}
	pattern := recordkey.Glob(s.NS.String()+recordkey.Escape(s.currentType().Name)+"/") + "*"
	w := records.Walk{Pattern: pattern, Size: records.LookBatch, AtOnce: concurrentRemovals, Progress: s.progress}
	return w.Each(ctx, s.View, s.removeObsoleteAmong)
}

// removeObsoleteAmong removes obsolete records among keys of the type: index sets, SRKs of fields
// that are no longer secondary, and SRKs that name an entry without the value under the new schema.
func (s *migration) removeObsoleteAmong(ctx context.Context, keys []string) error {
	var srks []recordkey.Key
	for _, raw := range keys {
		k, _ := recordkey.Parse(raw) // a key that does not parse has no kind
		switch {
		case k.Kind() == recordkey.KindSRK:
			srks = append(srks, k)
		case k.Kind() == recordkey.KindIndex && slices.Contains(s.oldIndexes, k.Field()):
			if err := s.removeGuarded(ctx, store.Remove{Key: raw}); err != nil {
				return err
			}
		}
	}
	srvs, err := store.Texts(ctx, s.Engine, records.Map(srks, recordkey.Key.String))
	if err != nil {
		return err
	}
	var named []store.Remove
	var owners []string
	for i, srk := range srks {
		remove := store.Remove{Key: srk.String(), Seen: srvs[i].Text}
		owner, err := recordkey.Parse(s.NS.String() + store.Owner(srvs[i].Wire))
		switch {
		case !srvs[i].Exists:
		case slices.Contains(s.oldSRKs, srk.Field()):
			if err := s.removeGuarded(ctx, remove); err != nil {
				return err
			}
		case err == nil && owner.Kind() == recordkey.KindPRK && owner.Type() == s.currentType().Name && slices.Contains(s.currentType().Secondary, srk.Field()):
			remove.Owner, remove.Field, remove.Value = owner.String(), srk.Field(), srk.Value()
			named, owners = append(named, remove), append(owners, remove.Owner)
		}
	}
	hashes, err := store.Hashes(ctx, s.Engine, owners)
	for i, h := range hashes {
		if h.WrongType || records.Gone(h.Fields) || s.currentType().HasCanonical(h.Fields, named[i].Field, named[i].Value) {
			continue
		}
		if err := s.applyStep(ctx, named[i]); err != nil {
			return err
		}
	}
	return err
}
