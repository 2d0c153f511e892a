package migrate

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// convertHolds converts the holds of all entries and tombstones to the new schema, so that nobody
// gets a held value early. Holds of fields that are no longer secondary end. It runs after the
// entries were converted: a value that an entry has needs no hold. Nobody else writes meanwhile.
func (s *migration) convertHolds(ctx context.Context) error {
	var mu sync.Mutex // two entries may hold values that become one
	return s.forEachEntry(ctx, func(ctx context.Context, prk recordkey.Key) error {
		r, err := s.read(ctx, prk)
		if err != nil {
			return err
		}
		for _, h := range store.HeldIn(r.Fields) {
			mu.Lock()
			err := s.convertHold(ctx, r, h)
			mu.Unlock()
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// read returns the record of an entry or a tombstone. It has no fields if there is none.
func (s *migration) read(ctx context.Context, prk recordkey.Key) (store.Record, error) {
	hashes, err := store.Hashes(ctx, s.Engine, []string{prk.String()})
	if err != nil {
		return store.Record{}, err
	}
	return store.Record{Key: prk, Fields: hashes[0].Fields}, nil
}

// convertHold converts one hold of an entry or a tombstone.
func (s *migration) convertHold(ctx context.Context, r store.Record, h store.HeldValue) error {
	t, next := s.currentType(), h
	if name, renamed := s.renames[h.Field]; renamed {
		next.Field = name
	}
	next.Canonical = t.Schema.Canonical(h.Canonical)
	srk, ok := t.SRK(next.Field, next.Canonical)
	ok = ok && slices.Contains(t.Secondary, next.Field)
	if ok && next == h {
		return nil
	}
	for _, own := range store.HeldIn(r.Fields) {
		if own.Name() == next.Name() && own.Until.After(next.Until) {
			next.Until = own.Until
		}
	}
	if ok = ok && next.Until.After(time.Now()); ok {
		var err error
		if ok, err = s.freeSRK(ctx, r, next, srk); err != nil {
			return err
		}
	}
	if !ok {
		return s.moveHold(ctx, r.Key, h, store.HeldValue{})
	}
	if err := s.moveHold(ctx, r.Key, h, next); err != nil {
		return err
	}
	return s.applyStep(ctx, store.RestoreHeld{Entry: r.Key, SRK: srk, Until: next.Until})
}

// freeSRK removes the SRK by which an entry is to hold a value, so that it can be stored again. It
// returns false if an entry has the value, or another entry holds it for at least as long. A
// shorter hold of another entry ends.
func (s *migration) freeSRK(ctx context.Context, r store.Record, h store.HeldValue, srk recordkey.Key) (free bool, err error) {
	srvs, err := store.Texts(ctx, s.Engine, []string{srk.String()})
	if err != nil || !srvs[0].Exists {
		return true, err
	}
	key, err := recordkey.Parse(s.NS.String() + store.Owner(srvs[0].Wire))
	if err != nil {
		return true, s.removeGuarded(ctx, store.Remove{Key: srk.String(), Seen: srvs[0].Text})
	}
	owner, err := s.read(ctx, key)
	if err != nil || owner.Live() && s.currentType().HasCanonical(owner.Fields, h.Field, h.Canonical) {
		return false, err
	}
	for _, other := range store.HeldIn(owner.Fields) {
		switch {
		case key == r.Key || other.Name() != h.Name():
		case !other.Until.Before(h.Until):
			return false, nil
		default:
			if err := s.moveHold(ctx, key, other, store.HeldValue{}); err != nil {
				return false, err
			}
		}
	}
	return true, s.removeGuarded(ctx, store.Remove{Key: srk.String(), Seen: srvs[0].Text})
}

// moveHold replaces the hold h of an entry with replacement, or ends it if replacement is the zero
// value. It removes the SRK by which the entry held h, unless the entry has the value.
func (s *migration) moveHold(ctx context.Context, prk recordkey.Key, h, replacement store.HeldValue) error {
	if err := s.applyStep(ctx, store.MoveHeld{Entry: prk, From: h, To: replacement}); err != nil {
		return err
	}
	srk, err := recordkey.SRK(prk.Type(), h.Field, h.Canonical)
	if err != nil {
		return nil // no SRK has such a value
	}
	raw := srk.In(s.NS).String()
	srvs, err := store.Texts(ctx, s.Engine, []string{raw})
	if err != nil || !srvs[0].Exists || store.Owner(srvs[0].Wire) != records.Relative(prk) {
		return err
	}
	r, err := s.read(ctx, prk)
	if err != nil || r.Live() && r.HasValue(h.Field, h.Canonical) {
		return err
	}
	return s.removeGuarded(ctx, store.Remove{Key: raw, Seen: srvs[0].Text})
}

// endRivalHolds ends other entries' holds of the values that an entry has under the new schema, in
// fields that were secondary before: the entry had a right to these values, perhaps in another
// form. It reports whether it ended any.
func (s *migration) endRivalHolds(ctx context.Context, prk recordkey.Key) (ended bool, err error) {
	r, err := s.read(ctx, prk)
	if err != nil {
		return false, err
	}
	t := s.currentType()
	var srks []recordkey.Key
	for _, own := range t.SRKs(s.renamedFacets(r)) {
		if !s.fieldBefore(own.Field()).Role.Has(schema.RoleSecondary) {
			continue // the entry had no right to the value
		}
		for _, field := range t.Rivals(own.Field()) {
			if srk, ok := t.SRK(field, own.Value()); ok {
				srks = append(srks, srk)
			}
		}
	}
	srvs, err := store.Texts(ctx, s.Engine, records.Map(srks, recordkey.Key.String))
	for i, srk := range srks {
		key, bad := recordkey.Parse(s.NS.String() + store.Owner(srvs[i].Wire))
		if err != nil || !srvs[i].Exists || bad != nil || key == prk {
			continue
		}
		var owner store.Record
		if owner, err = s.read(ctx, key); err != nil {
			break
		}
		for _, h := range store.HeldIn(owner.Fields) {
			if h.Field != srk.Field() || h.Canonical != srk.Value() || owner.Live() && owner.HasValue(h.Field, h.Canonical) {
				continue
			}
			ended, err = true, s.moveHold(ctx, key, h, store.HeldValue{})
		}
	}
	return ended, err
}
