package userdb

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/recordkey"
)

// A HeldValue describes a value that an entry has given up and that no other entry may take yet;
// see schema.Field.Hold.
type HeldValue struct {
	UID   string // of the entry, which may have been deleted
	Field string
	Value string // in canonical form
	Until time.Time
}

// HeldValues returns the values that the entry has given up and that no other entry may take yet,
// sorted by the time at which they become free.
func (e Entry) HeldValues() (all []HeldValue) {
	for _, h := range store.HeldIn(e.fields) {
		if h.Until.After(time.Now()) {
			all = append(all, HeldValue{UID: e.UID(), Field: h.Field, Value: h.Canonical, Until: h.Until})
		}
	}
	return all
}

// FindHeld returns the held value of a field that matches text. The error is ErrNotFound if the
// value is not held, for example because an entry has it.
func (t *Type) FindHeld(ctx context.Context, field, text string) (h HeldValue, err error) {
	ctx, v := t.db.begin(ctx, "FindHeld", &err)
	defer v.end(&err)
	h, _, _, err = t.current().findHeld(ctx, field, text)
	return h, publicError(err)
}

// findHeld returns a held value, the entry or the tombstone that holds it, and its SRK as stored.
// It takes two round trips whether the value is held or not.
func (t *Type) findHeld(ctx context.Context, field, text string) (h HeldValue, r store.Record, stored store.Raw, err error) {
	canonical := t.declared.Schema.Canonical(text)
	srk, ok := t.declared.SRK(field, canonical)
	if !slices.Contains(t.declared.Secondary, field) || !ok {
		return h, r, stored, ErrNotFound
	}
	raws, err := t.view.Engine.ReadRaw(ctx, []store.RawRead{{Key: srk.String(), As: store.RawText}})
	if err != nil {
		return h, r, stored, err
	}
	owner, err := recordkey.Parse(store.Owner(raws[0].Wire))
	if err != nil || owner.Kind() != recordkey.KindPRK || owner.Type() != t.Name() {
		decoy, err := t.decoyRecord()
		if err != nil {
			return h, r, stored, err
		}
		owner = decoy.Key
	}
	owner = owner.In(t.view.NS)
	hashes, err := store.Hashes(ctx, t.view.Engine, []string{owner.String()})
	if err != nil {
		return h, r, stored, err
	}
	r = store.Record{Key: owner, Fields: hashes[0].Fields}
	for _, held := range store.HeldIn(r.Fields) {
		if held.Field == field && held.Canonical == canonical && held.Until.After(t.view.Now()) && !(r.Live() && r.HasValue(field, canonical)) {
			return HeldValue{UID: owner.Value(), Field: field, Value: canonical, Until: held.Until}, r, raws[0], nil
		}
	}
	return h, r, stored, ErrNotFound
}

// ReleaseHeld makes a held value free for other entries. The error is ErrNotFound if the value is
// not held.
func (t *Type) ReleaseHeld(ctx context.Context, field, text string) (err error) {
	ctx, v := t.db.begin(ctx, "ReleaseHeld", &err)
	defer v.end(&err)
	return publicError(t.retryOnSchemaChange(ctx, func(t *Type) error { return t.releaseHeld(ctx, field, text) }))
}

func (t *Type) releaseHeld(ctx context.Context, field, text string) error {
	return retryOnConflict(ctx, func() (again bool, err error) {
		h, r, stored, err := t.findHeld(ctx, field, text)
		if err == nil {
			err = t.freeHeld(ctx, h, r, stored)
			// Another caller released it, or the entry was deleted or created again.
			again = errors.Is(err, ErrNotFound)
		}
		return again, err
	})
}

// freeHeld releases a value that findHeld has found. The error is ErrNotFound if r has changed and
// the value must be looked up again.
func (t *Type) freeHeld(ctx context.Context, h HeldValue, r store.Record, stored store.Raw) error {
	if r.Live() {
		_, err := t.rewriteRead(ctx, r, func(current store.Record) (c store.Change, due bool, err error) {
			c, due, err = t.declared.FreeHold(current, h.Field, h.Value)
			if !due && err == nil {
				err = ErrNotFound
			}
			return c, due, err
		})
		return err
	}
	freed, err := t.view.Engine.Repair(ctx, store.ForgetHeld{Entry: r.Key, Field: h.Field, Value: h.Value})
	if err == nil && !freed {
		err = ErrNotFound
	}
	if err != nil {
		return err
	}
	t.noteRelease(ctx, r.Key, h.Field)
	// The value is free now, and its SRK means nothing. If the SRK cannot be removed, it expires or
	// is replaced by the next entry that takes the value.
	_, _ = t.view.Engine.Repair(ctx, store.Remove{Key: stored.Key, Seen: stored.Text, Owner: r.Key.String(), Field: h.Field, Value: h.Value})
	return nil
}

// noteRelease records in the feed that the UID of a deleted entry, or a value that it held, is
// free. The history of the entry is gone.
func (t *Type) noteRelease(ctx context.Context, prk recordkey.Key, field string) {
	if !t.view.Config.History {
		return
	}
	n := t.view.Note(ctx, EventRelease, "", field)
	if err := t.view.Engine.AppendFeed(ctx, t.view.NS, view.FeedOf(EventRelease, view.ActorOf(ctx)), prk, n); err != nil {
		t.view.WarnMissing(ctx, EventRelease, err)
	}
}

// Former returns the live entry that has given up a value and still holds it, for redirects from
// former names. The error is ErrNotFound if there is none. Find, lookups of any field, Login and
// tokens never use former values.
func (t *Type) Former(ctx context.Context, field, text string) (e Entry, err error) {
	ctx, v := t.db.begin(ctx, "Former", &err)
	defer v.end(&err)
	t = t.current()
	_, r, _, err := t.findHeld(ctx, field, text)
	if err == nil && !r.Live() {
		err = ErrNotFound
	}
	return t.entry(r, publicError(err))
}

// isHeld reports whether a value is held in some field. It does the same work whether or not it is.
func (t *Type) isHeld(ctx context.Context, text string) (held bool, err error) {
	for _, field := range t.declared.Secondary {
		if t.declared.Schema.Fields[field].Hold == 0 {
			continue
		}
		_, _, _, err := t.findHeld(ctx, field, text)
		if held = held || err == nil; err != nil && !errors.Is(err, ErrNotFound) {
			return false, err
		}
	}
	return held, nil
}

// heldByOthers reports for each lookup whether an entry other than own holds one of its SRKs. It
// takes two round trips whether values are held or not, so that the time does not reveal whether
// they are. If the store does not answer, it reports false for all.
func (t *Type) heldByOthers(ctx context.Context, own recordkey.Key, lookups []store.Lookup) []bool {
	held := make([]bool, len(lookups))
	holding := func(field string) bool { return t.declared.Schema.Fields[field].Hold > 0 }
	decoy, err := t.decoyRecord()
	if err != nil || !slices.ContainsFunc(t.declared.Secondary, holding) {
		return held
	}
	var srks []recordkey.Key
	var of []int // the index of the lookup of each SRK
	var reads []store.RawRead
	for i, l := range lookups {
		for _, srk := range l.SRKs {
			srks, of, reads = append(srks, srk), append(of, i), append(reads, store.RawRead{Key: srk.String(), As: store.RawText})
		}
	}
	raws, err := t.view.Engine.ReadRaw(ctx, reads)
	if err != nil || len(raws) == 0 {
		return held
	}
	owners, keys := make([]recordkey.Key, len(raws)), make([]string, len(raws))
	for i, raw := range raws {
		owner, err := recordkey.Parse(store.Owner(raw.Wire))
		if err != nil || owner.Kind() != recordkey.KindPRK || owner.Type() != t.Name() {
			owner = decoy.Key
		}
		owners[i] = owner.In(t.view.NS)
		keys[i] = owners[i].String()
	}
	hashes, err := store.Hashes(ctx, t.view.Engine, keys)
	for i, h := range hashes {
		r := store.Record{Key: owners[i], Fields: h.Fields}
		held[of[i]] = held[of[i]] || err == nil && owners[i] != own && r.Holds(srks[i].Field(), srks[i].Value(), t.view.Now())
	}
	return held
}
