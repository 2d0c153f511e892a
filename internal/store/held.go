package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coffeenode/userdb/recordkey"
)

// If the schema says so, a value that an entry gives up is held for some time: no other entry can
// take it in any field in which it must be unique. The commit that gives up the value then writes,
// to the entry or its tombstone, the field
//
//	~held:FIELD:CANONICAL   END
//
// END is a time in milliseconds since 1970. The SRK of the value keeps naming the entry, so that
// everybody who wants the value asks that entry. The SRK expires a little later than END. Readers
// do not find the entry by it, because the entry no longer has the value.
const heldPrefix = "~held:"

// MaxHeld is the maximum number of values that edits of an entry leave held. If there are more, the
// one that would end first becomes free at once.
const MaxHeld = 16

// MaxHold exceeds the longest time for which a schema can hold a value.
const MaxHold = 20 * 365 * 24 * time.Hour

// HeldMargin is how long after END the SRK of a held value expires, because the clocks of servers
// may differ.
const HeldMargin = time.Minute

// FieldHeld returns the name of the field for a value that the entry has given up and holds.
func FieldHeld(field, canonical string) string { return heldPrefix + field + ":" + canonical }

// IsHeld reports whether own is the name of a field for a held value; see [FieldHeld].
func IsHeld(own string) bool { return strings.HasPrefix(own, heldPrefix) }

// A HeldValue describes a value that an entry has given up and that no other entry may take yet.
type HeldValue struct {
	Field     string
	Canonical string
	Until     time.Time
}

// ParseHeld parses the name of a field for a held value. It returns false for any other field.
func ParseHeld(own string) (h HeldValue, ok bool) {
	rest, ok := strings.CutPrefix(own, heldPrefix)
	h.Field, h.Canonical, _ = strings.Cut(rest, ":")
	return h, ok
}

// HeldIn returns the held values in the fields of an entry or its tombstone, sorted by their end.
// It includes those that have ended.
func HeldIn(fields map[string]string) (all []HeldValue) {
	for name, text := range fields {
		h, is := ParseHeld(name)
		if !is {
			continue
		}
		ms, _ := strconv.ParseInt(text, 10, 64) // 0 for an unreadable text, an end that has passed
		h.Until = time.UnixMilli(ms)
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b HeldValue) int {
		return cmp.Or(a.Until.Compare(b.Until), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Canonical, b.Canonical))
	})
	return all
}

// Holds reports whether an entry, or its tombstone, still holds a value at the time now.
func (r Record) Holds(field, canonical string, now time.Time) bool {
	return slices.ContainsFunc(HeldIn(r.Fields), func(h HeldValue) bool {
		return h.Field == field && h.Canonical == canonical && h.Until.After(now)
	})
}

// Name returns the name of the field that holds h.
func (h HeldValue) Name() string { return FieldHeld(h.Field, h.Canonical) }

// Text returns the text of the field that holds h.
func (h HeldValue) Text() string { return strconv.FormatInt(h.Until.UnixMilli(), 10) }

// A HeldKey is an SRK that expires at End, in milliseconds since 1970, because its value is held.
type HeldKey struct {
	Key recordkey.Key
	End int64
}

// HeldKeyOf returns the SRK of a value that is held until a time.
func HeldKeyOf(srk recordkey.Key, until time.Time) HeldKey {
	return HeldKey{Key: srk, End: until.Add(HeldMargin).UnixMilli()}
}

// A Holding describes a value that an entry, or a tombstone, should hold because it held the value
// in the store from which it is copied.
type Holding struct {
	Entry recordkey.Key
	HeldValue
	SRK    recordkey.Key
	Rivals []recordkey.Key // SRKs of the value under the other fields in which it must be unique
}

// maxHoldTries limits how often Hold tries again because others want the value.
const maxHoldTries = 8

// Hold makes an entry, or a tombstone, hold a value. It reports false if the entry has too many
// fields. The error is ErrDuplicate if another entry has or holds the value.
//
// Like a create, Hold first writes the records that others must find, and then reads those of
// others: the entry holds the value before the SRK names the entry, and the SRK names it before
// Hold reads the rivals. Of Hold and a create that claims the value in one of these fields, at
// least one therefore finds the other. If a rival names an entry that does not have the value yet,
// Hold removes the rival, and on a cluster fences that entry first, so that a create that has
// checked the SRK too early cannot commit.
func Hold(ctx context.Context, e Maintenance, h Holding) (bool, error) {
	kept, err := e.Repair(ctx, Preserve{Entry: h.Entry, Facet: Facet{Field: h.Name(), Wire: h.Text()}})
	if err != nil || !kept {
		return false, err
	}
	err = claimHeld(ctx, e, h)
	if errors.Is(err, ErrDuplicate) {
		if _, failed := e.Repair(ctx, MoveHeld{Entry: h.Entry, From: h.HeldValue, Seen: h.Text()}); failed != nil {
			err = failed
		}
	}
	return err == nil, err
}

// claimHeld makes the SRK of a value name the entry that holds it.
func claimHeld(ctx context.Context, e Maintenance, h Holding) error {
	for range maxHoldTries {
		named, err := e.Repair(ctx, RestoreHeld{Entry: h.Entry, SRK: h.SRK, Until: h.Until})
		if err != nil {
			return err
		}
		stale, err := staleSRKs(ctx, e, h)
		if err != nil || named && len(stale) == 0 {
			return err
		}
		for _, r := range stale {
			if _, err := e.Repair(ctx, r); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("%w: others want a value that is held", ErrConflict)
}

// CheckHold returns ErrDuplicate if another entry has or holds a value.
func CheckHold(ctx context.Context, e Maintenance, h Holding) error {
	_, err := staleSRKs(ctx, e, h)
	return err
}

// staleSRKs returns the steps that remove those SRKs of a value that do not name the entry of h. It
// returns ErrDuplicate if one of these SRKs names another entry that has or holds the value.
func staleSRKs(ctx context.Context, e Maintenance, h Holding) (stale []Remove, err error) {
	srks := append([]recordkey.Key{h.SRK}, h.Rivals...)
	raw := make([]string, len(srks))
	for i, srk := range srks {
		raw[i] = srk.String()
	}
	srvs, err := Texts(ctx, e, raw)
	if err != nil {
		return nil, err
	}
	for i, srk := range srks {
		remove := Remove{Key: raw[i], Seen: srvs[i].Text}
		owner, err := recordkey.Parse(h.Entry.Namespace().String() + Owner(srvs[i].Wire))
		switch {
		case !srvs[i].Exists || err == nil && owner == h.Entry:
			continue
		case err == nil && owner.Kind() == recordkey.KindPRK:
			if err := checkHolder(ctx, e, owner, srk, h.Field); err != nil {
				return nil, err
			}
			remove.Owner, remove.Field, remove.Value = owner.String(), srk.Field(), srk.Value()
		}
		stale = append(stale, remove)
	}
	return stale, nil
}

// checkHolder returns ErrDuplicate for a field if an entry has or holds the value of an SRK.
func checkHolder(ctx context.Context, e Maintenance, entry, srk recordkey.Key, field string) error {
	hashes, err := Hashes(ctx, e, []string{entry.String()})
	if err != nil {
		return err
	}
	r := Record{Key: entry, Fields: hashes[0].Fields}
	if r.Live() && r.HasValue(srk.Field(), srk.Value()) {
		return DuplicateField(field)
	}
	if r.Holds(srk.Field(), srk.Value(), time.Now()) {
		return &FieldError{Err: ErrDuplicate, Field: field, Rule: RuleHeld}
	}
	return nil
}
