package change

import (
	"encoding/binary"
	"math"
	"strings"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// An ordered index is a sorted set at ~/order/TYPE/FIELD, all of score 0, so that its members lie in the
// order of their bytes. A member, the place of an entry, is the value of the facet in a form whose bytes
// lie in the order of the values, an end that sorts before whatever could go on, and the relative PRK.
//
//	text         its canonical form, by code points, which is the order of UTF-8; where the facet is written
//	             otherwise, that and another end stand before the PRK: no two facets lead to one place
//	json         as it is
//	number       NaN, then by size
//	date         by time
//	boolean      null, false, true

// Where a value ends. A zero byte inside one is followed by 0xff.
const (
	placeEnd     = "\x00\x01"
	placeAfter   = "\x00\x02" // after all places of a value, before those of any other
	placeWritten = "\x00\x03" // how the value is written comes next
	zeroInside   = "\x00\xff"
)

// maxPlace is the greatest length of a value that has a place, in bytes: as of other values in keys.
const maxPlace = 1 << 10

// sortable is a facet in a form whose bytes lie in the order of the values; false for one that has no
// place: over 1 KiB, or not readable by the codec.
func (t *Type) sortable(field, wire string) (string, bool) {
	c := t.Schema.Codec(field)
	v, err := schema.Decode(c, wire)
	if err != nil || len(wire) > maxPlace {
		return "", false
	}
	number, isNumber := v.Number()
	at, isDate := v.Time()
	yes, _ := v.Bool()
	switch {
	case IsText(c):
		canonical := t.Schema.Canonical(wire)
		return canonical[:min(len(canonical), maxPlace)], true // one that grows is cut: how it is written comes after it
	case c == schema.CodecJSON:
		return wire, true
	case v.IsNull():
		return "0", true
	case isNumber && math.IsNaN(number):
		return "1", true
	case isNumber:
		return "2" + sortableNumber(number), true
	case isDate:
		return "2" + bigEndian(uint64(at.UnixMilli())^1<<63), true
	case yes:
		return "3", true
	}
	return "2", true
}

// IsText reports whether a codec writes texts, which have a canonical form.
func IsText(c schema.Codec) bool { return c == schema.CodecText || c == schema.CodecIdentity }

// sortableNumber turns the bits of a negative number around, and the sign of a positive one.
func sortableNumber(f float64) string {
	bits := math.Float64bits(f)
	if bits>>63 == 1 {
		bits = ^bits
	} else {
		bits |= 1 << 63
	}
	return bigEndian(bits)
}

func bigEndian(n uint64) string { return string(binary.BigEndian.AppendUint64(nil, n)) }

// escapeZero is a text as it stands in places.
func escapeZero(value string) string { return strings.ReplaceAll(value, "\x00", zeroInside) }

// OrderBound is where the places of a value begin in the ordered index of a field, or where they end; false for a value
// that has none.
func (t *Type) OrderBound(field, wire string, end bool) (string, bool) {
	value, ok := t.sortable(field, wire)
	if end {
		return escapeZero(value) + placeAfter, ok
	}
	return escapeZero(value) + placeEnd, ok
}

// OrderPrefix is what the places of texts begin with that begin with a text; false where the field has none. Space at
// its end, which the canonical form of a whole text has not, counts.
func (t *Type) OrderPrefix(field, begin string) (string, bool) {
	canonical, whole := strings.CutSuffix(t.Schema.Canonical(begin+"x"), "x")
	if !whole {
		canonical = t.Schema.Canonical(begin)
	}
	return escapeZero(canonical), IsText(t.Schema.Codec(field))
}

// Place is where an entry with a facet stands in the ordered index of the field.
func (t *Type) Place(prk recordkey.Key, field, wire string) (store.Ranked, bool) {
	value, ok := t.sortable(field, wire)
	if !ok {
		return store.Ranked{}, false
	}
	member := escapeZero(value) + placeEnd
	if IsText(t.Schema.Codec(field)) && value != wire {
		member += placeWritten + escapeZero(wire) + placeEnd
	}
	key, err := t.OrderKey(field)
	return store.Ranked{
		Key: key, Member: member + prk.In(recordkey.Namespace{}).String(),
		Facet: store.Facet{Field: field, Wire: wire},
	}, err == nil
}

// OrderKey is the key of the ordered index of a field.
func (t *Type) OrderKey(field string) (recordkey.Key, error) { return t.Own("order", field) }

// Places are where a live record stands in the ordered indexes of its type; without are the fields whose
// facets have no place.
func (t *Type) Places(r store.Record) (places []store.Ranked, without []string) {
	for _, field := range t.Ordered {
		wire, has := r.Fields[field]
		if !has {
			continue
		}
		if p, ok := t.Place(r.Key, field, wire); ok {
			places = append(places, p)
		} else {
			without = append(without, field)
		}
	}
	return places, without
}

// PlaceOwner is the relative PRK in a member of an ordered index, "" where it is no place.
func PlaceOwner(member string) string {
	_, rest, _ := strings.Cut(member, placeEnd)
	if strings.HasPrefix(rest, placeWritten) {
		_, rest, _ = strings.Cut(rest, placeEnd)
	}
	return rest
}
