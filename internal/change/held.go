package change

import (
	"slices"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// Hold changes c so that values that the entry gives up are held, if the schema says so. old is the
// entry as it was read. Unless c is a delete, Hold also removes holds that have ended, those of
// values that the entry takes back and, if more than store.MaxHeld are left, those that end first.
// Repairs and changes of the schema do not call it.
func (t *Type) Hold(c *store.Change, old store.Record, now time.Time) {
	if !t.mayHold && !hasHeld(old.Fields) {
		return
	}
	var held []store.HeldValue
	released := c.Release
	c.Release = nil
	if !c.Delete { // a tombstone keeps its holds
		held = t.dropHolds(c, old, now)
	}
	for _, srk := range released {
		if !t.holds(*c, old, srk, released) {
			t.releaseUnlessHeld(c, old, srk)
			continue
		}
		h := store.HeldValue{Field: srk.Field(), Canonical: srk.Value(), Until: now.Add(time.Duration(t.Schema.Fields[srk.Field()].Hold))}
		held = append(held, h)
		c.Set = append(c.Set, store.Facet{Field: h.Name(), Wire: h.Text()})
		c.Hold = append(c.Hold, store.HeldKeyOf(srk, h.Until))
	}
	if !c.Delete && len(held) > store.MaxHeld {
		slices.SortStableFunc(held, func(a, b store.HeldValue) int { return a.Until.Compare(b.Until) })
		for _, h := range held[:len(held)-store.MaxHeld] {
			t.freeHold(c, old, h)
		}
	}
	c.Unset = slices.DeleteFunc(c.Unset, func(name string) bool { // a hold that begins again
		return store.IsHeld(name) && c.Sets(name)
	})
}

// hasHeld reports whether fields contain a held value.
func hasHeld(fields map[string]string) bool {
	for name := range fields {
		if store.IsHeld(name) {
			return true
		}
	}
	return false
}

// releaseUnlessHeld releases a value, unless c is a delete and old has a hold of the value: an
// earlier entry at the same UID gave the value up, and this one took it back. The tombstone then
// holds it until that hold ends.
func (t *Type) releaseUnlessHeld(c *store.Change, old store.Record, srk recordkey.Key) {
	if c.Delete {
		for _, h := range store.HeldIn(old.Fields) {
			if h.Field == srk.Field() && h.Canonical == srk.Value() {
				c.Hold = append(c.Hold, store.HeldKeyOf(srk, h.Until))
				return
			}
		}
	}
	c.Release = append(c.Release, srk)
}

// holds reports whether a value that c releases should be held: the schema holds values of its
// field, the entry does not keep it in another field and, if it is a mail address, it is verified.
func (t *Type) holds(c store.Change, old store.Record, srk recordkey.Key, released []recordkey.Key) bool {
	field := t.Schema.Fields[srk.Field()]
	if field.Hold == 0 || field.HasAddresses() && !t.verified(old, srk.Field(), srk.Value()) {
		return false
	}
	rivals := t.Rivals(srk.Field())
	has := func(other recordkey.Key) bool {
		return other.Value() == srk.Value() && other.Field() != srk.Field() && slices.Contains(rivals, other.Field())
	}
	if slices.ContainsFunc(c.Claim, has) {
		return false
	}
	for _, v := range appendOwned(nil, t.Secondary, old, store.FurtherIn(old.Fields, "")) {
		other, ok := t.SRK(v.field, v.value)
		if ok && has(other) && !slices.Contains(released, other) {
			return false
		}
	}
	return true
}

// verified reports whether the value of an entry with this canonical form is verified.
func (t *Type) verified(r store.Record, field, canonical string) bool {
	if r.SKV(field) == canonical {
		return r.Fields[store.FieldVerified(field)] == store.Verified(r.Fields[field])
	}
	f, _ := r.FurtherValue(field, canonical)
	return f.Verified > 0
}

// dropHolds removes the holds that have ended, and those of values that c claims or the entry has.
// It returns the others.
func (t *Type) dropHolds(c *store.Change, old store.Record, now time.Time) (kept []store.HeldValue) {
	for _, h := range store.HeldIn(old.Fields) {
		srk, ok := t.SRK(h.Field, h.Canonical)
		switch {
		// An entry that was created again over its tombstone may have the value.
		case ok && slices.Contains(c.Claim, srk), old.HasValue(h.Field, h.Canonical):
			c.Unset = append(c.Unset, h.Name())
		case !ok || !h.Until.After(now):
			t.freeHold(c, old, h)
		default:
			kept = append(kept, h)
		}
	}
	return kept
}

// freeHold removes a hold of the entry, or one that c makes. It releases the value unless the entry
// has it.
func (t *Type) freeHold(c *store.Change, old store.Record, h store.HeldValue) {
	srk, ok := t.SRK(h.Field, h.Canonical)
	if _, had := old.Fields[h.Name()]; had {
		c.Unset = append(c.Unset, h.Name())
	}
	c.Set = slices.DeleteFunc(c.Set, func(f store.Facet) bool { return f.Field == h.Name() })
	c.Hold = slices.DeleteFunc(c.Hold, func(k store.HeldKey) bool { return k.Key == srk })
	if ok && !slices.Contains(c.Release, srk) && !old.HasValue(h.Field, h.Canonical) {
		c.Release = append(c.Release, srk)
	}
}

// FreeHold returns the change that removes a held value from a live entry. It reports false if the
// entry does not hold the value.
func (t *Type) FreeHold(old store.Record, field, canonical string) (store.Change, bool, error) {
	h := store.HeldValue{Field: field, Canonical: canonical}
	if _, has := old.Fields[h.Name()]; !has {
		return store.Change{}, false, nil
	}
	c, _, err := t.Update(old, Facets(old), nil)
	if err == nil {
		t.freeHold(&c, old, h)
	}
	return c, err == nil, err
}
