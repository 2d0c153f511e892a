package transfer

import (
	"encoding/json"
	"errors"
	"regexp"

	"github.com/coffeenode/userdb/schema"
)

var (
	plainInteger = regexp.MustCompile(`^-?[1-9][0-9]*$|^0$`)
	// extendedJSON matches an object by which MongoDB writes a value that JSON lacks.
	extendedJSON = regexp.MustCompile(`^\{\s*"\$(oid|date|numberLong|numberInt|uuid)"\s*:\s*("[^"\\]*"|-?\d+|\{\s*"\$numberLong"\s*:\s*("-?\d+")\s*\})\s*\}$`)
	// firestoreDate matches an object by which Firestore writes a date.
	firestoreDate = regexp.MustCompile(`^\{\s*"_?seconds"\s*:\s*(\d+)\s*,\s*"_?nanoseconds"\s*:\s*\d+\s*\}$`)
)

// unwrapExtended returns the value inside an object of MongoDB's Extended JSON, the seconds of a
// date of Firestore, and other JSON unchanged. A date in milliseconds becomes an ISO date.
func unwrapExtended(raw string) string {
	if len(raw) == 0 || raw[0] != '{' {
		return raw
	}
	if m := firestoreDate.FindStringSubmatch(raw); m != nil {
		return m[1]
	}
	m := extendedJSON.FindStringSubmatch(raw)
	if m == nil {
		return raw
	}
	inner := m[2]
	if m[3] != "" {
		inner = m[3]
	}
	if m[1] == "date" {
		a := account{"date": inner}
		a.convertMillis("date")
		return a["date"]
	}
	return inner
}

// isEmptyJSON reports whether a member of a flat object has no value: it is null or the empty text,
// like an empty cell of CSV.
func isEmptyJSON(raw string) bool { return raw == "null" || raw == `""` }

// parseFlat parses a member of a flat object, as databases and scripts write it. If the field holds
// text or dates, a whole number becomes its digits, and any other number is refused.
func parseFlat(c schema.Codec, raw string) (schema.Value, error) {
	raw = unwrapExtended(raw)
	isText := c == "" || c == schema.CodecText || c == schema.CodecIdentity || c == schema.CodecDate
	switch first := raw[0]; {
	case !isText || first != '-' && (first < '0' || first > '9'):
		return parseJSON(c, raw)
	case !plainInteger.MatchString(raw):
		return schema.Value{}, errors.New("a number that is not a whole number in plain digits; write it as a text")
	}
	return schema.ParseText(c, raw)
}

// textOf returns a string, number or boolean as text, or "" if the value is of another kind.
func textOf(raw string) string {
	raw = unwrapExtended(raw)
	if raw == "" || raw == "null" || raw[0] == '{' || raw[0] == '[' {
		return ""
	}
	if raw[0] != '"' {
		return raw
	}
	var text string
	_ = json.Unmarshal([]byte(raw), &text) // valid, since the scanner has read it
	return text
}
