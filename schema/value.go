package schema

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"
)

// Value is the value of one facet: a codec, and what it writes to Redis. Values
// are compared with ==, which compares what is written: the number that was
// read as 42.0 is not Number(42). The zero Value is the empty text.
type Value struct {
	codec Codec // "" is text, so that the zero Value is one
	wire  string
}

// Facets are the facets of an entry, by field.
type Facets map[string]Value

// Text returns s as a value, unchanged.
func Text(s string) Value { return Value{wire: s} }

// Number returns f as a value, written as JavaScript prints it: 42, 1e+21, NaN.
func Number(f float64) Value { return Value{CodecNumber, printNumber(f)} }

// Bool returns b as a value, written true or false.
func Bool(b bool) Value {
	if b {
		return Value{CodecBoolean, "true"}
	}
	return Value{CodecBoolean, "false"}
}

// Date returns t as a value, written in UTC and cut to milliseconds. A time
// before the year -271821 or after 275760, which JavaScript cannot tell, becomes
// the nearest that it can.
func Date(t time.Time) Value { return Value{CodecDate, printDate(t)} }

// JSON returns raw, which must be one JSON value, written as JavaScript's
// JSON.stringify does: compact, members in their order (names that are list
// indices first). Two members of one name, and what would be longer than
// MaxFacet, are refused. The error is a *ValueError.
func JSON(raw json.RawMessage) (Value, error) {
	out, err := stringify(CodecJSON, raw)
	if err != nil {
		return Value{}, err
	}
	if len(out) > MaxFacet {
		return Value{}, tooLong(CodecJSON, out)
	}
	return Value{CodecJSON, out}, nil
}

// Null returns the value of a field that is present, but without a value.
func Null() Value { return Value{CodecNull, "null"} }

// Codec returns the codec that writes v.
func (v Value) Codec() Codec {
	if v.codec == "" {
		return CodecText
	}
	return v.codec
}

// Wire returns v as it is written to Redis.
func (v Value) Wire() string { return v.wire }

// Text returns v for people: what is written, and nothing for Null. It never
// fails.
func (v Value) Text() string {
	if v.codec == CodecNull {
		return ""
	}
	return v.wire
}

// Number returns v as a number, and false if it has another codec. What is
// written may be no number at all, if another program wrote it: then it is read
// as JavaScript's parseFloat does, "42 years" as 42 and "many" as NaN.
func (v Value) Number() (float64, bool) {
	if v.codec != CodecNumber {
		return 0, false
	}
	return readNumber(v.wire), true
}

// Bool returns v as a truth value, and false if it has another codec.
func (v Value) Bool() (b, ok bool) {
	ok = v.codec == CodecBoolean
	return ok && trimJSON(v.wire) == "true", ok
}

// Time returns v as a time in UTC, and false if it has another codec.
func (v Value) Time() (time.Time, bool) {
	if v.codec != CodecDate {
		return time.Time{}, false
	}
	t, _ := readDate(v.wire)
	return t, true
}

// JSON returns v as it is written, and false if it has another codec. The bytes
// are the caller's.
func (v Value) JSON() (json.RawMessage, bool) {
	if v.codec != CodecJSON {
		return nil, false
	}
	return json.RawMessage(v.wire), true
}

// IsNull reports whether v is Null, or a JSON value that is null.
func (v Value) IsNull() bool {
	return v.codec == CodecNull || v.codec == CodecJSON && trimJSON(v.wire) == "null"
}

// MarshalJSON returns v as it stands in the JSON of an entry: a text, a number,
// any JSON, a date as ISO text. Numbers that JSON lacks become the texts NaN,
// Infinity and -Infinity. Bytes that are not UTF-8 become U+FFFD. It never fails.
func (v Value) MarshalJSON() ([]byte, error) {
	switch v.codec {
	case CodecNumber:
		f := readNumber(v.wire)
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return quoteText(printNumber(f)), nil
		}
		return []byte(printNumber(f)), nil
	case CodecDate:
		t, _ := readDate(v.wire)
		return quoteText(printDate(t)), nil
	case CodecJSON, CodecBoolean, CodecNull:
		return []byte(strings.ToValidUTF8(v.wire, "\ufffd")), nil
	default:
		return quoteText(v.wire), nil
	}
}

// quoteText writes s as a JSON string.
func quoteText(s string) []byte {
	out := append(make([]byte, 0, len(s)+2), '"')
	for _, r := range s {
		out = quoteRune(out, r)
	}
	return append(out, '"')
}

// trimJSON cuts the white space that JSON allows around a value.
func trimJSON(s string) string { return strings.Trim(s, " \t\n\r") }

// Texts returns facets of texts, from pairs of a field and its value. Of two
// pairs with one field the later stands. A last field without a value has the
// empty text.
func Texts(pairs ...string) Facets {
	f := make(Facets, (len(pairs)+1)/2)
	for pair := range slices.Chunk(pairs, 2) {
		f[pair[0]] = Text(strings.Join(pair[1:], ""))
	}
	return f
}
