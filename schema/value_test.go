package schema_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/schema"
)

var codecs = []schema.Codec{
	schema.CodecText, schema.CodecIdentity, schema.CodecDate, schema.CodecNumber,
	schema.CodecJSON, schema.CodecBoolean, schema.CodecNull,
}

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		panic(err)
	}
	return t
}

func mustJSON(raw string) schema.Value {
	v, err := schema.JSON(json.RawMessage(raw))
	if err != nil {
		panic(err)
	}
	return v
}

// TestValues checks the wire form, the text for people and the JSON of each constructor's value.
func TestValues(t *testing.T) {
	tests := []struct {
		give                    schema.Value
		codec                   schema.Codec
		wire, people, inEntries string
	}{
		{schema.Value{}, "text", "", "", `""`},
		{schema.Text("a \"q\" <&> \u2028 \xff"), "text", "a \"q\" <&> \u2028 \xff", "a \"q\" <&> \u2028 \xff", `"a \"q\" <&> ` + "\u2028 \ufffd" + `"`},
		{schema.Number(42), "number", "42", "42", `42`},
		{schema.Number(math.Copysign(0, -1)), "number", "0", "0", `0`},
		{schema.Number(1e21), "number", "1e+21", "1e+21", `1e+21`},
		{schema.Number(math.NaN()), "number", "NaN", "NaN", `"NaN"`},
		{schema.Number(math.Inf(-1)), "number", "-Infinity", "-Infinity", `"-Infinity"`},
		{schema.Bool(true), "boolean", "true", "true", `true`},
		{schema.Bool(false), "boolean", "false", "false", `false`},
		{schema.Null(), "null", "null", "", `null`},
		{schema.Date(at("2026-11-20T09:02:40.5129999+01:00")), "date", "2026-11-20T08:02:40.512Z", "2026-11-20T08:02:40.512Z", `"2026-11-20T08:02:40.512Z"`},
		{schema.Date(time.Time{}), "date", "0001-01-01T00:00:00.000Z", "0001-01-01T00:00:00.000Z", `"0001-01-01T00:00:00.000Z"`},
		{schema.Date(time.Unix(0, -1)), "date", "1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.999Z", `"1969-12-31T23:59:59.999Z"`},
		{schema.Date(time.Unix(math.MaxInt64/2, 0)), "date", "+275760-09-13T00:00:00.000Z", "+275760-09-13T00:00:00.000Z", `"+275760-09-13T00:00:00.000Z"`},
		{schema.Date(time.Unix(math.MinInt64/2, 0)), "date", "-271821-04-20T00:00:00.000Z", "-271821-04-20T00:00:00.000Z", `"-271821-04-20T00:00:00.000Z"`},
		{mustJSON(` {"b" : "<&>", "a":[1.0, null]} `), "json", `{"b":"<&>","a":[1,null]}`, `{"b":"<&>","a":[1,null]}`, `{"b":"<&>","a":[1,null]}`},
	}
	for _, test := range tests {
		v := test.give
		inJSON, err := v.MarshalJSON()
		if v.Codec() != test.codec || v.Wire() != test.wire || v.Text() != test.people || string(inJSON) != test.inEntries || err != nil {
			t.Errorf("got %s %q %q %s, %v, want %s %q %q %s",
				v.Codec(), v.Wire(), v.Text(), inJSON, err, test.codec, test.wire, test.people, test.inEntries)
		}
		if !json.Valid(inJSON) {
			t.Errorf("%s is not JSON", inJSON)
		}
	}
}

// TestAccessors calls every accessor on a value of each codec. Only the one for that codec may
// succeed.
func TestAccessors(t *testing.T) {
	now := at("2026-11-20T08:02:40.512Z")
	for _, v := range []schema.Value{
		schema.Text("true"), schema.Number(1.5), schema.Bool(true), schema.Date(now), mustJSON(`[1]`), schema.Null(),
	} {
		c := v.Codec()
		f, isNumber := v.Number()
		b, isBool := v.Bool()
		when, isTime := v.Time()
		raw, isJSON := v.JSON()
		if isNumber != (c == schema.CodecNumber) || isNumber && f != 1.5 || !isNumber && f != 0 {
			t.Errorf("%s: Number returns %g, %t; want 1.5, true for a number, otherwise 0, false", c, f, isNumber)
		}
		if isBool != (c == schema.CodecBoolean) || b != isBool {
			t.Errorf("%s: Bool returns %t, %t; want true, true for a boolean, otherwise false, false", c, b, isBool)
		}
		if isTime != (c == schema.CodecDate) || isTime && when != now || !isTime && !when.IsZero() {
			t.Errorf("%s: Time returns %s, %t; want %s, true for a date, otherwise the zero time, false", c, when, isTime, now)
		}
		if isJSON != (c == schema.CodecJSON) || isJSON && string(raw) != `[1]` || !isJSON && raw != nil {
			t.Errorf("%s: JSON returns %s, %t; want [1], true for JSON, otherwise nil, false", c, raw, isJSON)
		}
		if v.IsNull() != (c == schema.CodecNull) {
			t.Errorf("%s: IsNull returns %t, want %t", c, v.IsNull(), !v.IsNull())
		}
	}
	if !mustJSON(" null ").IsNull() {
		t.Error("IsNull returns false for the JSON value null, want true")
	}
}

// TestDecode checks errors, and wire forms that no constructor writes. TestReadsOfOriginal and
// TestJavaScript cover the rest.
func TestDecode(t *testing.T) {
	tests := []struct {
		codec   schema.Codec
		wire    string
		inJSON  string // "" if an error is expected
		problem string
	}{
		{"", "x", `"x"`, ""},
		{"identity", "x", `"x"`, ""},
		{"number", "42 years", `42`, ""},
		{"number", "many", `"NaN"`, ""},
		{"number", "", `"NaN"`, ""},
		{"boolean", " true\n", `true`, ""},
		{"boolean", "null", `null`, ""},
		{"boolean", "True", "", `schema: boolean value "True": neither true nor false`},
		{"boolean", "1", "", `schema: boolean value "1": neither true nor false`},
		{"null", "null", `null`, ""},
		{"null", "", "", `schema: null value "": not null`},
		{"json", " [ 1.0 ] ", `[ 1.0 ]`, ""},
		{"json", "undefined", "", `schema: json value "undefined": not one JSON value`},
		{"json", "1 2", "", `schema: json value "1 2": not one JSON value`},
		{"json", "\"\xff\"", "\"\ufffd\"", ""},
		{"date", "2026-11-20", `"2026-11-20T00:00:00.000Z"`, ""},
		{"date", "2026-11-20T08:02:40+00:30", `"2026-11-20T07:32:40.000Z"`, ""},
		{"date", "2026-11-20T08:02:40", "", `schema: date value "2026-11-20T08:02:40": not a date like 2026-11-20 or 2026-11-20T08:02:40.512Z`},
		{"date", "2026-02-30", "", `schema: date value "2026-02-30": no such day`},
		{"date", "2026-02-28T24:00Z", "", `schema: date value "2026-02-28T24:00Z": no such time of day`},
		{"date", "2026-02-28T23:00+25:00", "", `schema: date value "2026-02-28T23:00+25:00": no such time zone`},
		{"date", "+999999-01-01", "", `schema: date value "+999999-01-01": outside the range of JavaScript dates`},
		{"date", strings.Repeat("é", 100), "", `schema: date value "` + strings.Repeat("é", 32) + `…": not a date like 2026-11-20 or 2026-11-20T08:02:40.512Z`},
		{"dates", "2026-11-20", "", `schema: dates value "2026-11-20": unknown codec`},
	}
	for _, test := range tests {
		v, err := schema.Decode(test.codec, test.wire)
		checkValue(t, string(test.codec)+" "+test.wire, v, err, test.inJSON, test.problem)
		if err == nil && v.Wire() != test.wire {
			t.Errorf("%s %q: the wire form becomes %q, want it unchanged", test.codec, test.wire, v.Wire())
		}
	}
	if v, _ := schema.Decode("boolean", "null"); v != schema.Null() {
		t.Errorf("a boolean null is read as %v, want null", v)
	}
	if v, _ := schema.Decode("identity", "x"); v != schema.Text("x") {
		t.Errorf("a value of codec identity is read as %v, want a text", v)
	}
}

// checkValue checks that v has the given JSON, or that err has the text problem if that is not "".
func checkValue(t *testing.T, given string, v schema.Value, err error, inJSON, problem string) {
	t.Helper()
	var bad *schema.ValueError
	if problem != "" {
		if !errors.As(err, &bad) || err.Error() != problem || v != (schema.Value{}) {
			t.Errorf("%q: got %v, %v, want %s", given, v, err, problem)
		}
		return
	}
	if err != nil {
		t.Errorf("%q: %v", given, err)
		return
	}
	got, _ := v.MarshalJSON()
	if strings.TrimSpace(string(got)) != inJSON {
		t.Errorf("%q: got %s, want %s", given, got, inJSON)
	}
}

func TestParseText(t *testing.T) {
	long := strings.Repeat("x", schema.MaxFacet+1)
	tests := []struct {
		codec           schema.Codec
		text            string
		inJSON, problem string
	}{
		{"text", "", `""`, ""},
		{"text", long[1:], `"` + long[1:] + `"`, ""},
		{"text", long, "", `schema: text value "` + long[:64] + `…": longer than 65536 bytes`},
		{"number", "-1.50e3", `-1500`, ""},
		{"number", "Infinity", `"Infinity"`, ""},
		{"number", "NaN", `"NaN"`, ""},
		{"number", "abc", "", `schema: number value "abc": not a number`},
		{"number", "42 years", "", `schema: number value "42 years": not a number`},
		{"number", "", "", `schema: number value "": not a number`},
		{"number", " 42", "", `schema: number value " 42": not a number`},
		{"number", "0x10", "", `schema: number value "0x10": not a number`},
		{"number", "1e400", "", `schema: number value "1e400": too large`},
		{"boolean", "true", `true`, ""},
		{"boolean", "false", `false`, ""},
		{"boolean", "yes", "", `schema: boolean value "yes": neither true nor false`},
		{"boolean", "null", "", `schema: boolean value "null": neither true nor false`},
		{"null", "null", `null`, ""},
		{"null", "", "", `schema: null value "": not null`},
		{"date", "2026-11-20T09:02:40.512+01:00", `"2026-11-20T08:02:40.512Z"`, ""},
		{"date", "yesterday", "", `schema: date value "yesterday": not a date like 2026-11-20 or 2026-11-20T08:02:40.512Z`},
		{"json", `{ "stars": 5.0 }`, `{"stars":5}`, ""},
		{"json", `{stars: 5}`, "", `schema: json value "{stars: 5}": not one JSON value`},
		{"json", "\"\xff\"", "", `schema: json value "\"\xff\"": not UTF-8`},
		{"json", "1e999", "", `schema: json value "1e999": a number is too large`},
		{"json", strings.Repeat("[", 501) + strings.Repeat("]", 501), "", `schema: json value "` + strings.Repeat("[", 64) + `…": nested too deeply`},
		{"json", `"\"` + strings.Repeat("[", 501) + `"`, `"\"` + strings.Repeat("[", 501) + `"`, ""},
		{"json", "[" + strings.Repeat("1e20,", 4000) + "0]", "", `schema: json value "[100000000000000000000,100000000000000000000,1000000000000000000…": longer than 65536 bytes`},
		{"number, text", "1", "", `schema: number, text value "1": unknown codec`},
	}
	for _, test := range tests {
		v, err := schema.ParseText(test.codec, test.text)
		checkValue(t, string(test.codec)+" "+test.text, v, err, test.inJSON, test.problem)
	}
}

func TestParseJSON(t *testing.T) {
	tests := []struct {
		codec                schema.Codec
		raw, inJSON, problem string
	}{
		{"text", `"a\u0062"`, `"ab"`, ""},
		{"text", `42`, "", `schema: text value "42": wrong type of JSON value`},
		{"text", `{}`, "", `schema: text value "{}": wrong type of JSON value`},
		{"text", `null`, `null`, ""},
		{"identity", `"x"`, `"x"`, ""},
		{"", `"x"`, `"x"`, ""},
		{"number", ` 42.0 `, `42`, ""},
		{"number", `"NaN"`, `"NaN"`, ""},
		{"number", `"-Infinity"`, `"-Infinity"`, ""},
		{"number", `"42"`, "", `schema: number value "\"42\"": must not be a string`},
		{"number", `true`, "", `schema: number value "true": wrong type of JSON value`},
		{"number", `[1]`, "", `schema: number value "[1]": wrong type of JSON value`},
		{"boolean", `true`, `true`, ""},
		{"boolean", `"true"`, "", `schema: boolean value "\"true\"": must not be a string`},
		{"boolean", `0`, "", `schema: boolean value "0": wrong type of JSON value`},
		{"null", `null`, `null`, ""},
		{"null", `"null"`, "", `schema: null value "\"null\"": must not be a string`},
		{"date", `"2026-11-20"`, `"2026-11-20T00:00:00.000Z"`, ""},
		{"date", `1795132800000`, "", `schema: date value "1795132800000": wrong type of JSON value`},
		{"json", `"x"`, `"x"`, ""},
		{"json", `null`, `null`, ""},
		{"text", `"x`, "", `schema: text value "\"x": not one JSON value`},
		{"text", ``, "", `schema: text value "": not one JSON value`},
		{"txt", `"x"`, "", `schema: txt value "x": unknown codec`},
		{"text", `"` + strings.Repeat(`\u0001`, schema.MaxFacet) + `"`, `"` + strings.Repeat(`\u0001`, schema.MaxFacet) + `"`, ""},
		{"text", strings.Repeat(" ", 6*schema.MaxFacet+1) + `""`, "", `schema: text value "` + strings.Repeat(" ", 64) + `…": longer than 65536 bytes`},
	}
	for _, test := range tests {
		v, err := schema.ParseJSON(test.codec, json.RawMessage(test.raw))
		checkValue(t, string(test.codec)+" "+test.raw, v, err, test.inJSON, test.problem)
	}
	if v, _ := schema.ParseJSON("text", json.RawMessage(`null`)); v != schema.Null() {
		t.Errorf("null as a text is %v, want null", v)
	}
	if v, _ := schema.ParseJSON("json", json.RawMessage(`null`)); v.Codec() != schema.CodecJSON {
		t.Errorf("null as JSON is %v, want a JSON value", v)
	}
}

// anyValue generates results of the constructors, with texts in UTF-8.
func anyValue() *rapid.Generator[schema.Value] {
	return rapid.OneOf(
		rapid.Map(rapid.String(), schema.Text),
		rapid.Map(rapid.Float64(), schema.Number),
		rapid.Map(rapid.Bool(), schema.Bool),
		rapid.Map(rapid.Int64(), func(ms int64) schema.Value { return schema.Date(time.UnixMilli(ms)) }),
		rapid.Map(rapid.String(), func(s string) schema.Value {
			quoted, _ := json.Marshal(map[string][]string{s: {s}})
			return mustJSON(string(quoted))
		}),
		rapid.Just(schema.Null()),
	)
}

// TestValueRoundTrip checks that values can be read back from their wire form, as entered text, and
// from the JSON of an entry.
func TestValueRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := anyValue().Draw(t, "value")
		if got, err := schema.Decode(v.Codec(), v.Wire()); got != v || err != nil {
			t.Fatalf("Decode(%q) = %v, %v; want %v", v.Wire(), got, err, v)
		}
		if got, err := schema.ParseText(v.Codec(), v.Wire()); got != v || err != nil {
			t.Fatalf("ParseText(%q) = %v, %v; want %v", v.Wire(), got, err, v)
		}
		inJSON, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := schema.ParseJSON(v.Codec(), inJSON); got != v || err != nil {
			t.Fatalf("ParseJSON(%s) = %v, %v; want %v", inJSON, got, err, v)
		}
	})
}

func TestTexts(t *testing.T) {
	got := schema.Texts("email", "bob@x.org", "name", "Bob", "name", "Bobby")
	if len(got) != 2 || got["email"] != schema.Text("bob@x.org") || got["name"] != schema.Text("Bobby") {
		t.Errorf("Texts with a repeated name: got %v, want its last value", got)
	}
	if got := schema.Texts(); got == nil || len(got) != 0 {
		t.Errorf("Texts of nothing: got %v, want an empty map", got)
	}
	odd := []string{"name", "Bob", "email"}
	got = schema.Texts(odd...)
	if v, ok := got["email"]; len(got) != 2 || !ok || v != (schema.Value{}) {
		t.Errorf("Texts of three strings: got %v, want a zero Value for email", got)
	}
}

// FuzzDecode decodes arbitrary text with every codec. A decoded value must keep its wire form, and
// its JSON must be valid and pass readAgain.
func FuzzDecode(f *testing.F) {
	for _, wire := range []string{
		"", "42 years", "-1e-7", "Infinity", "true", " null", "undefined", "2026-11-20T08:02:40.512Z", "-000001-02-29",
		`{"a":["\ud800\u0041",1e400],"1":{},"a":-0}`, "\xff\u2028", `"\\\"`, "[[[[[[[[[[",
	} {
		f.Add(wire)
	}
	f.Fuzz(func(t *testing.T, wire string) {
		for _, c := range codecs {
			v, err := schema.Decode(c, wire)
			if err != nil {
				if len(err.Error()) > 500 {
					t.Errorf("%s: an error of %d bytes, want at most 500", c, len(err.Error()))
				}
				continue
			}
			inJSON, err := v.MarshalJSON()
			if err != nil || !json.Valid(inJSON) || v.Wire() != wire {
				t.Errorf("%s %q: got the wire form %q and the JSON %s, %v; want the same wire form and valid JSON", c, wire, v.Wire(), inJSON, err)
			}
			readAgain(t, v, inJSON)
		}
	})
}

// readAgain parses inJSON, the JSON of v, and checks that the result has the same JSON. If v has
// the codec json, another program may have written it: parsing may then change the JSON, or refuse
// it, for example because a number in it is too large. JSON of MaxFacet bytes or more may also be
// refused.
func readAgain(t *testing.T, v schema.Value, inJSON []byte) {
	again, err := schema.ParseJSON(v.Codec(), inJSON)
	if err != nil {
		if v.Codec() != schema.CodecJSON && len(inJSON) < schema.MaxFacet {
			t.Errorf("%s %q: %v", v.Codec(), v.Wire(), err)
		}
		return
	}
	b, err := again.MarshalJSON()
	if err != nil || v.Codec() != schema.CodecJSON && strings.TrimSpace(string(inJSON)) != string(b) {
		t.Errorf("%s %q: the JSON %s is parsed and written as %s, %v; want it unchanged", v.Codec(), v.Wire(), inJSON, b, err)
	}
}

// escaped returns s as a JSON string in which every character is escaped.
func escaped(s string) json.RawMessage {
	var b strings.Builder
	for _, unit := range utf16.Encode([]rune(s)) {
		fmt.Fprintf(&b, `\u%04x`, unit)
	}
	return json.RawMessage(`"` + b.String() + `"`)
}

// TestParseJSONWithAndWithoutEscapes checks that a JSON string means the same with and without
// escapes.
func TestParseJSONWithAndWithoutEscapes(t *testing.T) {
	values := rapid.OneOf(
		rapid.StringMatching(`[0-9]{4}-[01][0-9]-[0-3][0-9](T[0-2][0-9]:[0-6][0-9]:[0-6][0-9]\.[0-9]{3}Z)?`),
		rapid.SampledFrom([]string{"", "null", "true", "NaN", "42", "\u2028", "ü", "🚀", "\u007f"}),
		rapid.String(),
	)
	rapid.Check(t, func(t *rapid.T) {
		s, codec := values.Draw(t, "s"), rapid.SampledFrom(codecs).Draw(t, "codec")
		raw, err := json.Marshal(s)
		if err != nil || strings.ToValidUTF8(s, "") != s {
			t.Skip()
		}
		got, gotErr := schema.ParseJSON(codec, raw)
		want, wantErr := schema.ParseJSON(codec, escaped(s))
		if got != want || (gotErr == nil) != (wantErr == nil) {
			t.Fatalf("%s: %s is %v, %v; escaped %v, %v", codec, raw, got, gotErr, want, wantErr)
		}
	})
}

// TestFacetsJSON checks that facets have the same JSON as a plain map of their values, and that
// encoding many of them takes only a few allocations.
func TestFacetsJSON(t *testing.T) {
	for _, f := range []schema.Facets{
		nil,
		{},
		schema.Texts("b", "2", "a", "\x00\t\"\\\x7f\xff<é\u2028👍", "a\"b", ""),
		{"n": schema.Number(-0.5), "nan": schema.Number(math.NaN()), "yes": schema.Bool(true), "none": schema.Null(), "at": schema.Date(time.UnixMilli(1)), "any": mustJSON(`{"b":[1,"é"],"a":null}`)},
	} {
		got, err := json.Marshal(f)
		want, _ := json.Marshal(map[string]schema.Value(f))
		if err != nil || string(got) != string(want) {
			t.Errorf("got %s, %v; want %s and no error", got, err, want)
		}
	}
	const most = 4.0
	f := schema.Facets{}
	for i := range 100 {
		f[strconv.Itoa(i)] = schema.Text("a value")
	}
	if got := testing.AllocsPerRun(100, func() { _, _ = f.MarshalJSON() }); got > most {
		t.Errorf("encoding 100 facets allocates %v times, want at most %v", got, most)
	}
}
