package schema

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxFacet is the greatest length of a facet as it is written, in bytes.
const MaxFacet = 64 << 10

// maxQuoted is what MaxFacet bytes take at most as a JSON string.
const maxQuoted = 6*MaxFacet + 2

// Decode returns the value that codec c wrote as wire; c "" is CodecText. It
// reads what the original reads, and keeps it: Decode(c, wire) has that Wire.
// Any text is a number to the original (see Value.Number). A date must be an ISO
// date that names its zone or is only a day, a boolean true or false (null is
// Null), and a null null; the original does not look so closely. CodecIdentity
// gives a text. The error is a *ValueError.
func Decode(c Codec, wire string) (Value, error) {
	if reason := unreadable(c, wire); reason != "" {
		return Value{}, refuse(c, wire, reason)
	}
	switch {
	case c == CodecText || c == CodecIdentity:
		return Text(wire), nil
	case c == CodecBoolean && trimJSON(wire) == "null":
		return Value{CodecNull, wire}, nil
	default:
		return Value{c, wire}, nil
	}
}

// unreadable says why codec c cannot have written wire.
func unreadable(c Codec, wire string) (reason string) {
	switch c {
	case "", CodecText, CodecIdentity, CodecNumber:
		return ""
	case CodecDate:
		if plainDate(wire) {
			return ""
		}
		_, reason = readDate(wire)
		return reason
	case CodecJSON:
		return reasonUnless(json.Valid([]byte(wire)), "not one JSON value")
	case CodecBoolean:
		return reasonUnless(oneOf(trimJSON(wire), "true", "false", "null"), "neither true nor false")
	case CodecNull:
		return reasonUnless(trimJSON(wire) == "null", "not null")
	default:
		return "unknown codec"
	}
}

// ParseText returns what a person means who types text for a field of codec c: a
// number like 42 or -1.5e3, true or false, an ISO date, any JSON, null. Unlike
// Decode it takes nothing that only begins like a number. The error is a
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
		if plainDate(text) {
			return Value{c, text}, nil
		}
		t, reason := readDate(text)
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
	if text == "" || numberLen(text) != len(text) {
		return Value{}, refuse(CodecNumber, text, "not a number")
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return Value{}, refuse(CodecNumber, text, "too large")
	}
	return Number(f), nil
}

// ParseJSON returns the value that stands as raw in the JSON of an entry, for a
// field of codec c: what Value.MarshalJSON writes. A JSON null is Null, or, for
// CodecJSON, the JSON null. The error is a *ValueError.
func ParseJSON(c Codec, raw json.RawMessage) (Value, error) {
	if c == CodecJSON {
		return JSON(raw)
	}
	if s, plain := plainString(raw); plain && (c == "" || c == CodecText || c == CodecDate) {
		return ParseText(c, s)
	}
	text, err := stringify(c, raw)
	switch {
	case err != nil:
		return Value{}, err
	case text == "null":
		return Null(), nil
	case text[0] == '"':
		return fromString(c, text)
	case !written(c, text):
		return Value{}, refuse(c, text, "another type of JSON value")
	}
	return ParseText(c, text)
}

// plainString returns what a JSON string says that stands there as it is, and whether raw is one.
func plainString(raw json.RawMessage) (s string, plain bool) {
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

// stringify returns raw as JSON.stringify writes it.
func stringify(c Codec, raw json.RawMessage) (string, error) {
	if len(raw) > maxQuoted {
		return "", tooLong(c, string(raw[:maxQuoted]))
	}
	out, reason := reprint(raw)
	if reason != "" {
		return "", refuse(c, string(raw), reason)
	}
	return string(out), nil
}

// written reports whether the JSON of codec c may begin as wire does, which is
// no string and not null.
func written(c Codec, wire string) bool {
	switch c {
	case CodecNumber:
		return strings.IndexByte("-0123456789", wire[0]) >= 0
	case CodecBoolean:
		return wire[0] == 't' || wire[0] == 'f'
	default:
		return false
	}
}

// fromString returns what a JSON string is for codec c.
func fromString(c Codec, quoted string) (Value, error) {
	var s string
	if err := json.Unmarshal([]byte(quoted), &s); err != nil {
		return Value{}, refuse(c, quoted, "not a string")
	}
	switch {
	case c == CodecBoolean || c == CodecNull:
		return Value{}, refuse(c, quoted, "a string")
	case c == CodecNumber && !oneOf(s, "NaN", "Infinity", "-Infinity"):
		return Value{}, refuse(c, quoted, "a string")
	default:
		return ParseText(c, s)
	}
}

func oneOf(s string, those ...string) bool {
	for _, t := range those {
		if s == t {
			return true
		}
	}
	return false
}

func reasonUnless(ok bool, reason string) string {
	if ok {
		return ""
	}
	return reason
}
