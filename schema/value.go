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

// A Value is the value of one facet: a codec and the wire form that is stored in Redis. The
// operator == compares both exactly, so the number that was read as 42.0 is not equal to
// Number(42). The zero Value is the empty text.
type Value struct {
	codec Codec // "" is text, so that the zero Value is valid
	wire  string
}

// Facets holds the facets of an entry by field.
type Facets map[string]Value

// Text returns a text value with the wire form s.
func Text(s string) Value { return Value{wire: s} }

// Number returns a number value in JavaScript's notation: 42, 1e+21, NaN.
func Number(f float64) Value { return Value{CodecNumber, printNumber(f)} }

// Bool returns a boolean value with the wire form true or false.
func Bool(b bool) Value { return Value{CodecBoolean, strconv.FormatBool(b)} }

// Date returns t as a value in UTC, truncated to milliseconds. JavaScript cannot represent times
// before the year -271821 or after 275760; for these, Date returns the nearest time that it can.
func Date(t time.Time) Value { return Value{CodecDate, printDate(t)} }

// JSON returns raw, which must be one JSON value, in the form of JavaScript's JSON.stringify:
// compact, and with the members in their order, except that names that are array indices come
// first. Unlike JavaScript, it keeps all digits of whole numbers; see LosesDigits. An unpaired
// surrogate becomes U+FFFD. The error is a *ValueError if raw is not valid JSON, if an object has
// two members with the same name, or if the result is longer than MaxFacet.
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

// Null returns the value of a field that is present but has no value.
func Null() Value { return Value{CodecNull, "null"} }

// Codec returns the codec of v.
func (v Value) Codec() Codec { return cmp.Or(v.codec, CodecText) }

// Wire returns the form of v that is stored in Redis.
func (v Value) Wire() string { return v.wire }

// Text returns v for people: the wire form, or "" for Null. It never fails.
func (v Value) Text() string {
	if v.codec == CodecNull {
		return ""
	}
	return v.wire
}

// Number returns v as a number, and reports whether v is one. If another program stored text that
// is not a number, Number parses it like JavaScript's parseFloat: "42 years" as 42, and "many" as
// NaN.
func (v Value) Number() (float64, bool) {
	if v.codec != CodecNumber {
		return 0, false
	}
	return parseNumberPrefix(v.wire), true
}

// Bool returns v as a boolean, and reports whether v is one.
func (v Value) Bool() (b, ok bool) {
	ok = v.codec == CodecBoolean
	return ok && trimJSON(v.wire) == "true", ok
}

// Time returns v as a time in UTC, and reports whether v is a date.
func (v Value) Time() (time.Time, bool) {
	if v.codec != CodecDate {
		return time.Time{}, false
	}
	t, _ := parseDate(v.wire)
	return t, true
}

// JSON returns the wire form of v, and reports whether v is a JSON value. The caller may modify the
// bytes.
func (v Value) JSON() (json.RawMessage, bool) {
	if v.codec != CodecJSON {
		return nil, false
	}
	return json.RawMessage(v.wire), true
}

// IsNull reports whether v is Null or the JSON value null.
func (v Value) IsNull() bool {
	return v.codec == CodecNull || v.codec == CodecJSON && trimJSON(v.wire) == "null"
}

// MarshalJSON returns v as it appears in the JSON of an entry: a string, a number, any JSON value,
// or a date as an ISO string. The numbers NaN, Infinity and -Infinity become strings, because JSON
// lacks them. Bytes that are not UTF-8 become U+FFFD. MarshalJSON never fails.
func (v Value) MarshalJSON() ([]byte, error) {
	return v.appendJSON(make([]byte, 0, len(v.wire)+2)), nil
}

// appendJSON appends v to dst as MarshalJSON returns it.
func (v Value) appendJSON(dst []byte) []byte {
	switch v.codec {
	case CodecNumber:
		if isInteger(v.wire) {
			return append(dst, v.wire...)
		}
		f := parseNumberPrefix(v.wire)
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return quote(dst, printNumber(f))
		}
		return append(dst, printNumber(f)...)
	case CodecDate:
		t, _ := parseDate(v.wire)
		return quote(dst, printDate(t))
	case CodecJSON, CodecBoolean, CodecNull:
		return append(dst, strings.ToValidUTF8(v.wire, "\ufffd")...)
	default:
		return quote(dst, v.wire)
	}
}

// MarshalJSON returns f as an object with its members sorted, each as [Value.MarshalJSON] returns
// it. It returns null if f is nil, and never fails.
func (f Facets) MarshalJSON() ([]byte, error) {
	if f == nil {
		return []byte("null"), nil
	}
	fields, size := make([]string, 0, len(f)), 2
	for field, v := range f {
		fields = append(fields, field)
		size += len(field) + len(v.wire) + 6
	}
	slices.Sort(fields)
	text := append(make([]byte, 0, size), '{')
	for i, field := range fields {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(quote(text, field), ':')
		text = f[field].appendJSON(text)
	}
	return append(text, '}'), nil
}

// trimJSON trims the white space that JSON allows around a value.
func trimJSON(s string) string { return strings.Trim(s, " \t\n\r") }

// Texts returns text facets from pairs of a field and its value. If a field appears twice, the
// later pair wins. A last field without a value gets the empty text.
func Texts(pairs ...string) Facets {
	f := make(Facets, (len(pairs)+1)/2)
	for pair := range slices.Chunk(pairs, 2) {
		f[pair[0]] = Text(strings.Join(pair[1:], ""))
	}
	return f
}

// MaxFacet is the maximum length of the wire form of a facet in bytes.
const MaxFacet = 64 << 10

// maxQuoted is the maximum length of a facet as a JSON string. Each byte may become six there, such
// as \u0001.
const maxQuoted = 6*MaxFacet + 2

// Decode returns the value of codec c with the given wire form, which it keeps unchanged; c ""
// means CodecText. Except in three cases, it accepts every form that CoffeeNode UserDB, the
// original of this store, accepts: a date must be an ISO date with a time zone or without a time, a
// boolean must be true, false or null (null is Null), and a null must be null. For CodecNumber it
// accepts any text (see Value.Number), and for CodecIdentity it returns a text. The error is a
// *ValueError.
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
		return Value{}, valueError(c, wire, reason)
	}
	return Value{c, wire}, nil
}

// ParseText parses text that a person entered for a field of codec c: a number like 42 or -1.5e3,
// true or false, an ISO date, any JSON value, or null. Unlike Decode it refuses text that only
// begins like a number. The error is a *ValueError.
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
		return Value{}, valueError(c, text, "neither true nor false")
	case CodecDate:
		t, reason := parseDate(text)
		if reason != "" {
			return Value{}, valueError(c, text, reason)
		}
		return Date(t), nil
	case CodecJSON:
		return JSON(json.RawMessage(text))
	default:
		return Decode(c, text)
	}
}

// parseNumber parses a number and refuses any text after it.
func parseNumber(text string) (Value, error) {
	if text == "NaN" {
		return Number(math.NaN()), nil
	}
	if text == "" || numeralPattern.FindString(text) != text {
		return Value{}, valueError(CodecNumber, text, "not a number")
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return Value{}, valueError(CodecNumber, text, "too large")
	}
	if isInteger(text) {
		return Value{CodecNumber, text}, nil // with all its digits
	}
	return Number(f), nil
}

// ParseJSON parses the JSON form of a value of codec c, which Value.MarshalJSON writes. The JSON
// null is Null, except for CodecJSON, which keeps it as JSON. The error is a *ValueError.
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
	return Value{}, valueError(c, text, "wrong type of JSON value")
}

// withoutEscapes returns the text of a JSON string that contains no escapes, and reports whether
// raw is one. Most are.
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

// fromString returns the value that a JSON string represents for codec c.
func fromString(c Codec, quoted string) (Value, error) {
	var s string
	if err := json.Unmarshal([]byte(quoted), &s); err != nil {
		return Value{}, valueError(c, quoted, "not a string")
	}
	number := slices.Contains([]string{"NaN", "Infinity", "-Infinity"}, s)
	if c == CodecBoolean || c == CodecNull || c == CodecNumber && !number {
		return Value{}, valueError(c, quoted, "must not be a string")
	}
	return ParseText(c, s)
}
