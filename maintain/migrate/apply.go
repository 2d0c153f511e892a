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
	concurrentRewrites = 16  // how many records are worked on at once
	concurrentRemovals = 3   // how many batches of keys are gone through at once
	memberBatch        = 500 // how many members of a set are read at a time, about
)

// Apply makes the change. Where values collide, nothing is changed: that is an ErrCollision. It may be
// stopped at any moment; the same Plan and Apply go on where it was. progress, which may be nil, is told how many
// records were gone through of how many about, anew for each pass.
//
// From its first to its last step nobody else can write entries of a type that changes: ErrSchemaMismatch. Those who look
// for entries find them as by the old schema until all were brought over, then as by the new one; by the new one they find
// each as soon as it was brought over. The stored fingerprint changes last.
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
	if errors.Is(err, store.ErrConflict) || view.Followable(err) { // another process makes the same change, and is there first
		stored, failed := s.readStored(ctx)
		if failed == nil && stored.Generation == s.guard.Fingerprint {
			return nil
		}
	}
	return err
}

// applyAlone brings the entries to the new schema while nobody else writes.
func (s *migration) applyExclusive(ctx context.Context) error {
	seen := s.fields[store.FieldFingerprint]
	if s.changesRecords() {
		if err := s.stopWriters(ctx); err != nil {
			return err
		}
		if err := s.runPasses(ctx, s.removeStale, s.convertEntries, s.removeOldKeys, s.removeObsolete); err != nil {
			return err
		}
		seen = s.currentType().Guard.Fingerprint
	}
	return s.replaceStored(ctx, seen, s.guard.Fingerprint, s.guard.JSON, "")
}

// pass goes over the records, once for each step.
func (s *migration) runPasses(ctx context.Context, steps ...func(context.Context) error) error {
	for _, pass := range steps {
		bulk, end := s.Engine.Bulk(ctx)
		if err := cmp.Or(pass(bulk), end(context.WithoutCancel(ctx))); err != nil {
			return err
		}
	}
	return nil
}

// restate replaces what is stored of the schema, if its fingerprint is still the one seen.
func (s *migration) replaceStored(ctx context.Context, seen, fingerprint, stored, next string) error {
	state := []store.Facet{{Field: store.FieldFingerprint, Wire: fingerprint}, {Field: store.FieldSchema, Wire: stored}}
	state = append(state, store.Facet{Field: change.FieldNext, Wire: next})
	state = slices.DeleteFunc(state, func(f store.Facet) bool { return f.Wire == "" })
	is, err := s.Engine.Mend(ctx, store.Restate{Guard: s.guard, Seen: seen, State: state})
	if err == nil && !is {
		err = store.ErrConflict
	}
	return err
}

// begin stops all other writers, and then makes sure that nothing collides. If something does, and
// nothing was changed, they may go on.
func (s *migration) stopWriters(ctx context.Context) error {
	before, schema := s.fields[store.FieldFingerprint], s.fields[store.FieldSchema]
	under := s.currentType().Guard.Fingerprint
	if !s.resumed {
		from := schema
		if !s.stored {
			from = change.StoredText(s.from)
		}
		if err := s.replaceStored(ctx, before, under, from, s.guard.JSON); err != nil {
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
	return errors.Join(collision, s.replaceStored(ctx, under, before, schema, ""))
}

func (s *migration) applyStep(ctx context.Context, m store.Step) error {
	_, err := s.Engine.Mend(ctx, m)
	return err
}

// build brings all entries over; what they were found by before stays. An entry that gets a value which another one has by
// the old schema and not by the new one can be brought over only after that one.
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
		if len(postponed) == len(previous) {
			return reason
		}
	}
	return err
}

// reshape brings one entry over, and puts it into the indexes that are new.
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
		wire, has := r.Fields[name]
		switch {
		case s.currentType().Schema.Tertiary[name].Indexed:
			err = s.indexMembers(ctx, prk, name)
		case has:
			err = s.addToIndex(ctx, prk, name, store.Align{At: store.Ranked{Facet: store.Facet{Field: name, Wire: wire}}})
		}
		if err != nil {
			return err
		}
	}
	places, _ := s.currentType().Places(r) // check tells of entries that have none
	for _, place := range places {
		if slices.Contains(s.newOrders, place.Facet.Field) {
			if err := s.applyStep(ctx, store.Align{Entry: prk, At: place}); err != nil {
				return err
			}
		}
	}
	return nil
}

// held are the SRKs of an entry's values by the new schema that name it already.
func (s *migration) ownedSRKs(ctx context.Context, r store.Record) ([]recordkey.Key, error) {
	srks := s.currentType().Secondaries(s.renamedFacets(r))
	srvs, err := store.Texts(ctx, s.Engine, records.Map(srks, recordkey.Key.String))
	var owned []recordkey.Key
	for i, srv := range srvs {
		if srv.Is && store.Owner(srv.Wire) == records.Relative(r.Key) {
			owned = append(owned, srks[i])
		}
	}
	return owned, err
}

func (s *migration) addToIndex(ctx context.Context, prk recordkey.Key, name string, m store.Align) error {
	index, ok := s.currentType().Index(name, m.At.Facet.Wire)
	if !ok {
		return nil // check says so
	}
	m.Entry, m.At.Key, m.At.Member = prk, index, records.Relative(prk)
	return s.applyStep(ctx, m)
}

// indexMembers puts an entry into the index sets of all members of one of its sets.
func (s *migration) indexMembers(ctx context.Context, prk recordkey.Key, name string) error {
	set, err := prk.Tertiary(name)
	if err != nil {
		return err
	}
	for members, err := range store.ScanAll(ctx, s.Engine, store.Scan{Index: set, Count: memberBatch}) {
		if store.IsEntryError(err) {
			return nil // another Redis type: check says so
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

// tidy removes from the entries what they were found by before.
func (s *migration) removeOldKeys(ctx context.Context) error {
	return s.forEachEntry(ctx, func(ctx context.Context, prk recordkey.Key) error {
		_, err := s.rewrite(ctx, prk, func(t *change.Type, r store.Record) (store.Change, bool, error) {
			c, due := t.Tidy(r)
			return c, due && r.Live(), nil
		})
		return err
	})
}

// eachEntry calls f for each entry, several at once.
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

// discard removes what the new schema does not have any more, while nobody has changed what is stored of the schema: another
// process may have finished the change, and what goes here may have come back since.
func (s *migration) removeGuarded(ctx context.Context, r store.Remove) error {
	r.Schema = s.currentType().Guard
	return s.applyStep(ctx, r)
}

// removeObsolete removes the SRKs and the indexes that the old schema had and the new one has not.
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

// removeAmong removes the index sets that are obsolete among some keys of the type, and of the SRKs those of fields that are
// no keys any more, and those that by the new schema name an entry without the value.
func (s *migration) removeObsoleteAmong(ctx context.Context, keys []string) error {
	var srks []recordkey.Key
	for _, raw := range keys {
		k, _ := recordkey.Parse(raw) // what does not parse is of no kind
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
		case !srvs[i].Is:
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
		facet, has := h.Fields[named[i].Field]
		if h.Other || records.Gone(h.Fields) || has && s.currentType().Schema.Canonical(facet) == named[i].Value {
			continue
		}
		if err := s.applyStep(ctx, named[i]); err != nil {
			return err
		}
	}
	return err
}
