package change

import (
	"encoding/binary"
	"math"
	"strings"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// An ordered index is a sorted set at ~/order/TYPE/FIELD. All members have score 0, so that Redis
// sorts them by their bytes. A member is called the position of an entry. It consists of the facet
// in a form whose bytes sort like the values, an end marker that sorts before anything that could
// continue the form, and the relative PRK. An entry that has no facet, or one without such a form,
// has a position before all others. Indexes that earlier versions stored leave such entries out.
//
//	text         the canonical form, which sorts by code point, as UTF-8 does; if the facet is
//	             written differently, its written form and another end marker precede the PRK, so
//	             that no two facets have the same position
//	json         as it is
//	number       NaN, then by size
//	date         by time
//	boolean      null, false, true

// The markers that end a value in a position. A zero byte inside a value is followed by 0xff.
const (
	positionEnd     = "\x00\x01"
	positionAfter   = "\x00\x02" // after all positions of a value, before those of any greater one
	positionWritten = "\x00\x03" // the value as it is written follows
	positionUnset   = "\x00\x00" // no value: the PRK follows; sorts before all values
	zeroInside      = "\x00\xff"
)

// maxPosition is the length in bytes of the longest value that has a position. The same limit
// applies to values in keys.
const maxPosition = 1 << 10

// sortableForm returns a facet in a form whose bytes sort like the values. It reports false for a
// facet that is longer than 1 KiB or that the codec cannot read.
func (t *Type) sortableForm(field, wire string) (string, bool) {
	c := t.Schema.Codec(field)
	v, err := schema.Decode(c, wire)
	if err != nil || len(wire) > maxPosition {
		return "", false
	}
	number, isNumber := v.Number()
	at, isDate := v.Time()
	yes, _ := v.Bool()
	switch {
	case IsText(c):
		canonical := t.Schema.Canonical(wire)
		// A canonical form longer than maxPosition is cut. Values with the same cut form still have
		// different positions, because the value as it is written follows.
		return canonical[:min(len(canonical), maxPosition)], true
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

// IsText reports whether the values of a codec are texts, which have a canonical form.
func IsText(c schema.Codec) bool { return c == schema.CodecText || c == schema.CodecIdentity }

// sortableNumber returns the bits of f in a form that sorts like the numbers: it inverts all bits
// of a negative number, and the sign bit of any other.
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

// escapeZeros returns a value as positions contain it, with its zero bytes escaped.
func escapeZeros(value string) string { return strings.ReplaceAll(value, "\x00", zeroInside) }

// OrderBound returns where the positions of a value begin in the ordered index of a field or, with
// end, where they end. It reports false for a value that has no position.
func (t *Type) OrderBound(field, wire string, end bool) (string, bool) {
	value, ok := t.sortableForm(field, wire)
	if end {
		return escapeZeros(value) + positionAfter, ok
	}
	return escapeZeros(value) + positionEnd, ok
}

// OrderPrefix returns the common prefix of the positions of all texts that start with begin. Space
// at the end of begin counts, although the canonical form of a whole text does not keep it.
// OrderPrefix reports false if the field holds no texts.
func (t *Type) OrderPrefix(field, begin string) (string, bool) {
	canonical, whole := strings.CutSuffix(t.Schema.Canonical(begin+"x"), "x")
	if !whole {
		canonical = t.Schema.Canonical(begin)
	}
	return escapeZeros(canonical), IsText(t.Schema.Codec(field))
}

// FirstValue is the lowest bound of an ordered index that excludes the entries without a value.
const FirstValue = positionEnd

// Position returns the position of a live entry in the ordered index of a field. It reports false
// if the entry has no value that can be ordered and the index does not list such entries.
func (t *Type) Position(r store.Record, field string) (store.Ranked, bool) {
	wire, has := r.Fields[field]
	member := positionUnset
	if value, ok := t.sortableForm(field, wire); has && ok {
		member = escapeZeros(value) + positionEnd
		if IsText(t.Schema.Codec(field)) && value != wire {
			member += positionWritten + escapeZeros(wire) + positionEnd
		}
	} else if !t.Schema.ListsUnset() {
		return store.Ranked{}, false
	}
	key, err := t.OrderKey(field)
	return store.Ranked{
		Key: key, Member: member + r.Key.In(recordkey.Namespace{}).String(),
		Facet: store.Facet{Field: field, Wire: wire}, Unset: !has,
	}, err == nil
}

// OrderKey returns the key of the ordered index of a field.
func (t *Type) OrderKey(field string) (recordkey.Key, error) {
	if k, has := t.orderKeys[field]; has {
		return k, nil
	}
	k, err := recordkey.Own("order", t.Name, field)
	return k.In(t.ns), err
}

// Positions returns the positions of a live entry in the ordered indexes of its type, and the
// fields whose facets cannot be ordered.
func (t *Type) Positions(r store.Record) (positions []store.Ranked, unordered []string) {
	for _, field := range t.Ordered {
		if wire, has := r.Fields[field]; has {
			if _, ok := t.sortableForm(field, wire); !ok {
				unordered = append(unordered, field)
			}
		}
		if p, ok := t.Position(r, field); ok {
			positions = append(positions, p)
		}
	}
	return positions, unordered
}

// diffPositions adds to a change the positions that the entry leaves and takes. It returns an error
// for a new facet that cannot be ordered.
func (t *Type) diffPositions(c *store.Change, old store.Record, facets map[string]string) error {
	for _, field := range t.Ordered {
		wire, has := facets[field]
		was, had := old.Fields[field]
		if len(old.Fields) > 0 {
			if has == had && wire == was {
				continue
			}
			if p, ok := t.Position(old, field); ok {
				c.Unrank = append(c.Unrank, p)
			}
		}
		if _, ok := t.sortableForm(field, wire); has && !ok {
			return Invalid(field, "key", "not a value that an ordered index can hold: it is over 1 KiB")
		}
		if p, ok := t.Position(store.Record{Key: old.Key, Fields: facets}, field); ok {
			c.Rank = append(c.Rank, p)
		}
	}
	return nil
}

// PositionOwner returns the relative PRK in a member of an ordered index, or "" if the member is
// not a position.
func PositionOwner(member string) string {
	if prk, ok := strings.CutPrefix(member, positionUnset); ok {
		return prk
	}
	_, rest, _ := strings.Cut(member, positionEnd)
	if strings.HasPrefix(rest, positionWritten) {
		_, rest, _ = strings.Cut(rest, positionEnd)
	}
	return rest
}
