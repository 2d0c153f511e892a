package store

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coffeenode/userdb/recordkey"
)

// If the schema says so, a value that an entry gives up is held for some time: no other entry can
// take it, in any field. The entry, or its tombstone, then has the field
//
//	~held:FIELD:CANONICAL   END
//
// which the commit writes that gives the value up. END is a time in milliseconds since 1970. The
// SRK of the value goes on naming the entry, so that everybody who wants the value asks that entry.
// The SRK expires a little later than the field ends. Readers do not find the entry by it, because
// the entry does not have the value any more.
const heldPrefix = "~held:"

// MaxHeld is the maximum number of values that edits of an entry leave held. If there are more, the
// one that would end first is free at once.
const MaxHeld = 16

// MaxHold is longer than any schema holds a value.
const MaxHold = 20 * 365 * 24 * time.Hour

// HeldMargin is how much longer than its field the SRK of a held value lives. The clocks of servers
// may differ.
const HeldMargin = time.Minute

// FieldHeld returns the name of the field that holds a value which the entry has given up.
func FieldHeld(field, canonical string) string { return heldPrefix + field + ":" + canonical }

// IsHeld reports whether a field is one of [FieldHeld].
func IsHeld(own string) bool { return strings.HasPrefix(own, heldPrefix) }

// A Held is a value that an entry has given up and that no other entry may have yet.
type Held struct {
	Field     string
	Canonical string
	Until     time.Time
}

// ParseHeld returns the held value that the name of a field names. It returns false for any other
// field.
func ParseHeld(own string) (h Held, ok bool) {
	rest, ok := strings.CutPrefix(own, heldPrefix)
	h.Field, h.Canonical, _ = strings.Cut(rest, ":")
	return h, ok
}

// HeldIn returns the held values in the fields of an entry or its tombstone, the one that ends
// first first. It includes those that have ended.
func HeldIn(fields map[string]string) (all []Held) {
	for name, text := range fields {
		h, is := ParseHeld(name)
		if !is {
			continue
		}
		ms, _ := strconv.ParseInt(text, 10, 64) // the end of an unreadable one has passed
		h.Until = time.UnixMilli(ms)
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b Held) int {
		return cmp.Or(a.Until.Compare(b.Until), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Canonical, b.Canonical))
	})
	return all
}

// Name returns the name of the field that holds h.
func (h Held) Name() string { return FieldHeld(h.Field, h.Canonical) }

// Text returns the text of the field that holds h.
func (h Held) Text() string { return strconv.FormatInt(h.Until.UnixMilli(), 10) }

// A HeldKey is an SRK that expires at End, in milliseconds since 1970, because its value is held.
type HeldKey struct {
	Key recordkey.Key
	End int64
}

// HeldKeyOf returns the SRK of a value that is held until a time.
func HeldKeyOf(srk recordkey.Key, until time.Time) HeldKey {
	return HeldKey{Key: srk, End: until.Add(HeldMargin).UnixMilli()}
}
