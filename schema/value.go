package schema

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Value is the value of one facet: a codec, and what it writes to Redis. Values are compared with ==, which compares
// what is written: the number that was read as 42.0 is not Number(42). The zero Value is the empty text.
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
func Bool(b bool) Value { return Value{CodecBoolean, strconv.FormatBool(b)} }

// Date returns t as a value, written in UTC and cut to milliseconds. A time before the year -271821 or after 275760,
// which JavaScript cannot tell, becomes the nearest that it can.
func Date(t time.Time) Value { return Value{CodecDate, printDate(t)} }

// JSON returns raw, which must be one JSON value, written as JavaScript's JSON.stringify does: compact, members in
// their order (names that are list indices first). Half a surrogate pair becomes U+FFFD. Two members of one name, and
// what would be longer than MaxFacet, are refused. The error is a *ValueError.
func JSON(raw json.RawMessage) (Value, error) {
	out, err := stringify(CodecJSON, raw)
	switch {
	case err != nil:
		return Value{}, err
	case len(out) > MaxFacet:
		return Value{}, tooLong(CodecJSON, out)
	}
	return Value{CodecJSON, out}, nil
}

// Null returns the value of a field that is present, but without a value.
func Null() Value { return Value{CodecNull, "null"} }

// Codec returns the codec that writes v.
func (v Value) Codec() Codec { return cmp.Or(v.codec, CodecText) }

// Wire returns v as it is written to Redis.
func (v Value) Wire() string { return v.wire }

// Text returns v for people: what is written, and nothing for Null. It never fails.
func (v Value) Text() string {
	if v.codec == CodecNull {
		return ""
	}
	return v.wire
}

// Number returns v as a number, and false if it has another codec. What is written may be no number at all, if another
// program wrote it: then it is read as JavaScript's parseFloat does, "42 years" as 42 and "many" as NaN.
func (v Value) Number() (float64, bool) {
	if v.codec != CodecNumber {
		return 0, false
	}
	return parseNumberPrefix(v.wire), true
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
	t, _ := parseDate(v.wire)
	return t, true
}

// JSON returns v as it is written, and false if it has another codec. The bytes are the caller's.
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

// MarshalJSON returns v as it stands in the JSON of an entry: a text, a number, any JSON, a date as ISO text. Numbers
// that JSON lacks become the texts NaN, Infinity and -Infinity. Bytes that are not UTF-8 become U+FFFD. It never fails.
func (v Value) MarshalJSON() ([]byte, error) {
	switch v.codec {
	case CodecNumber:
		f := parseNumberPrefix(v.wire)
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return quote(nil, printNumber(f)), nil
		}
		return []byte(printNumber(f)), nil
	case CodecDate:
		t, _ := parseDate(v.wire)
		return quote(nil, printDate(t)), nil
	case CodecJSON, CodecBoolean, CodecNull:
		return []byte(strings.ToValidUTF8(v.wire, "\ufffd")), nil
	default:
		return quote(make([]byte, 0, len(v.wire)+2), v.wire), nil
	}
}

// trimJSON cuts the white space that JSON allows around a value.
func trimJSON(s string) string { return strings.Trim(s, " \t\n\r") }

// Texts returns facets of texts, from pairs of a field and its value. Of two pairs with one field the later stands. A
// last field without a value has the empty text.
func Texts(pairs ...string) Facets {
	f := make(Facets, (len(pairs)+1)/2)
	for pair := range slices.Chunk(pairs, 2) {
		f[pair[0]] = Text(strings.Join(pair[1:], ""))
	}
	return f
}

// MaxFacet is the greatest length of a facet as it is written, in bytes.
const MaxFacet = 64 << 10

// maxQuoted is what MaxFacet bytes take at most as a JSON string.
const maxQuoted = 6*MaxFacet + 2

// Decode returns the value that codec c wrote as wire; c "" is CodecText. It reads what the original reads, and keeps
// it: Decode(c, wire) has that Wire. Any text is a number to the original (see Value.Number). A date must be an ISO
// date that names its zone or is only a day, a boolean true or false (null is Null), and a null null; the original does
// not look so closely. CodecIdentity gives a text. The error is a *ValueError.
func Decode(c Codec, wire string) (Value, error) {
	reason := ""
	switch c {
	case "", CodecText, CodecIdentity:
		return Text(wire), nil
	case CodecNumber:
	case CodecDate:
		_, reason = parseDate(wire)
	case CodecJSON:
		if !json.Valid([]byte(wire)) {
			reason = "not one JSON value"
		}
	case CodecBoolean:
		switch trimJSON(wire) {
		case "null":
			return Value{CodecNull, wire}, nil
		case "true", "false":
		default:
			reason = "neither true nor false"
		}
	case CodecNull:
		if trimJSON(wire) != "null" {
			reason = "not null"
		}
	default:
		reason = "unknown codec"
	}
	if reason != "" {
		return Value{}, refuse(c, wire, reason)
	}
	return Value{c, wire}, nil
}

// ParseText returns what a person means who types text for a field of codec c: a number like 42 or -1.5e3, true or
// false, an ISO date, any JSON, null. Unlike Decode it takes nothing that only begins like a number. The error is a
// *ValueError.
func ParseText(c Codec, text string) (Value, error) {
	if len(text) > MaxFacet {
		return Value{}, tooLong(c, text)
	}
	switch c {
	case CodecNumber:
		return parseNumber(text)
	case CodecBoolean:
		if text == "true" || text == "false" {
			return Bool(text == "true"), nil
		}
		return Value{}, refuse(c, text, "neither true nor false")
	case CodecDate:
		t, reason := parseDate(text)
		if reason != "" {
			return Value{}, refuse(c, text, reason)
		}
		return Date(t), nil
	case CodecJSON:
		return JSON(json.RawMessage(text))
	default:
		return Decode(c, text)
	}
}

// parseNumber reads a number and nothing else.
func parseNumber(text string) (Value, error) {
	if text == "NaN" {
		return Number(math.NaN()), nil
	}
	if text == "" || numeralPattern.FindString(text) != text {
		return Value{}, refuse(CodecNumber, text, "not a number")
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return Value{}, refuse(CodecNumber, text, "too large")
	}
	return Number(f), nil
}

// ParseJSON returns the value that stands as raw in the JSON of an entry, for a field of codec c: what
// Value.MarshalJSON writes. A JSON null is Null, or, for CodecJSON, the JSON null. The error is a *ValueError.
func ParseJSON(c Codec, raw json.RawMessage) (Value, error) {
	if c == CodecJSON {
		return JSON(raw)
	}
	if s, ok := withoutEscapes(raw); ok && (c == "" || c == CodecText || c == CodecDate) {
		return ParseText(c, s)
	}
	text, err := stringify(c, raw)
	if err != nil {
		return Value{}, err
	}
	begins := func(with string) bool { return strings.IndexByte(with, text[0]) >= 0 }
	switch {
	case text == "null":
		return Null(), nil
	case begins(`"`):
		return fromString(c, text)
	case c == CodecNumber && begins("-0123456789"), c == CodecBoolean && begins("tf"):
		return ParseText(c, text)
	}
	return Value{}, refuse(c, text, "wrong type of JSON value")
}

// withoutEscapes returns the text of a JSON string that has no escapes, and whether raw is one. Most are.
func withoutEscapes(raw json.RawMessage) (s string, ok bool) {
	n := len(raw) - 1
	if n < 1 || raw[0] != '"' || raw[n] != '"' {
		return "", false
	}
	for _, c := range raw[1:n] {
		if c < ' ' || c == '"' || c == '\\' {
			return "", false
		}
	}
	return string(raw[1:n]), utf8.Valid(raw)
}

// fromString returns what a JSON string is for codec c.
func fromString(c Codec, quoted string) (Value, error) {
	var s string
	if err := json.Unmarshal([]byte(quoted), &s); err != nil {
		return Value{}, refuse(c, quoted, "not a string")
	}
	number := slices.Contains([]string{"NaN", "Infinity", "-Infinity"}, s)
	if c == CodecBoolean || c == CodecNull || c == CodecNumber && !number {
		return Value{}, refuse(c, quoted, "a string")
	}
	return ParseText(c, s)
}
