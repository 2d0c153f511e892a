package transfer

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/schema"
)

func parseLine(text string) (r reading, err error) {
	r.own = map[string]string{}
	err = new(jsonLines).parse(&line{raw: text}, &r)
	return r, err
}

// checkParse reports whether a line is accepted. If it is, checkParse checks that the result is
// that of encoding/json. A line that is not JSON must be refused for that reason.
func checkParse(t *testing.T, text string) (accepted bool) {
	t.Helper()
	got, err := parseLine(text)
	bad := malformed(text)
	if (bad != nil || err != nil) && (err == nil || err == errNotObject && bad == nil || bad != nil && bad.Error() != err.Error()) {
		t.Fatalf("%q: got error %v, want %v", text, err, bad)
	}
	if err != nil {
		return false
	}
	var want struct {
		Type     string
		Facets   map[string]json.RawMessage
		Wire     map[string][]byte
		Tertiary map[string]tertiaryRecord
		Password string
		Clear    string `json:"clear_password"`
		Changed  string `json:"password_changed"`
		Disabled string
	}
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		t.Fatalf("%q was accepted, but is not JSON: %v", text, err)
	}
	texts := [...]string{got.own[columnType], got.own[columnHash], got.own[columnClear], got.own[columnChanged], got.own[columnDisabled]}
	if texts != [...]string{want.Type, want.Password, want.Clear, want.Changed, want.Disabled} || len(got.tertiary) != len(want.Tertiary) {
		t.Fatalf("%q\nis %+v\nwant %+v", text, got, want)
	}
	if len(got.facets) != len(want.Facets)+len(want.Wire) {
		t.Fatalf("%q\nhas %d facets\nwant %q and %q", text, len(got.facets), want.Facets, want.Wire)
	}
	for i, f := range got.facets {
		if i >= len(want.Facets) {
			if string(want.Wire[f.field]) != f.text {
				t.Fatalf("%q: %s is %q, want %q", text, f.field, f.text, want.Wire[f.field])
			}
			continue
		}
		if string(want.Facets[f.field]) != f.text {
			t.Fatalf("%q: %s is %q, want %q", text, f.field, f.text, want.Facets[f.field])
		}
		for _, c := range []schema.Codec{schema.CodecText, schema.CodecDate, schema.CodecNumber, schema.CodecJSON} {
			got, gotErr := f.parse(c, f.text)
			want, wantErr := schema.ParseJSON(c, json.RawMessage(f.text))
			if got != want || (gotErr == nil) != (wantErr == nil) {
				t.Fatalf("%s as %s is %v, %v; want %v, %v", f.text, c, got, gotErr, want, wantErr)
			}
		}
	}
	return true
}

func TestParseLine(t *testing.T) {
	for text, want := range map[string]bool{
		`{"type":"user","facets":{"uid":"1","name":"Ann","age":41,"ok":true,"x":null},"password":"$2a$10$x"}`:    true,
		` { "facets" : { "a" : -1.5e3 , "b":"ü🚀" } , "password_changed":"2026-11-20" ,"disabled":"x"} ` + "\r\n": true,
		`{"facets":{}}`:                          true,
		`{}`:                                     true,
		`{"clear_password":"secret"}`:            true,
		`{"facets":{"a":"b"},"password":"x"} {}`: false,
		`{"facets":{"a":"b"},"facets":{"c":"d"}}`:         false,
		`{"facets":{"a":"b","a":"c"}}`:                    false,
		`{"facets":{"a":"\n"}}`:                           true,
		"{\"facets\":{\"a\":\"\n\"}}":                     false,
		"{\"facets\":{\"a\":\"\xff\"}}":                   false,
		`{"facets":{"a":[1]}}`:                            true,
		`{"facets":{"a":01}}`:                             false,
		`{"facets":{"a":}}`:                               false,
		`{"facets":{"a":1,}}`:                             false,
		`{"facets":null}`:                                 true,
		`{"type":null}`:                                   true,
		`{"Type":"user"}`:                                 false,
		`{"type":"user","tertiary":{}}`:                   true,
		`{"type":"user"`:                                  false,
		`{"type":"user`:                                   false,
		`{"facets":{"a":{"b":[1,"}"]},"c\u0064":"\"\\"}}`: true,
		`{"facets":{"a":1,,"b":2}}`:                       false,
		`{"facets":{,"a":1}}`:                             false,
		`{"facets":{"a":1 "b":2}}`:                        false,
		`{"facets":{"a" 1}}`:                              false,
		`{"facets":{a:1}}`:                                false,
		`{"facets":{"a":tru}}`:                            false,
		`{"facets":{"a":[1}}`:                             false,
		"{}\x00":                                          false,
		`{"wire":{"a":"eA=="},"facets":{"a":1}}`:          true,
		`{"wire":{"a":1}}`:                                false,
		`{"~rejected":[{}]}`:                              true,
		`{"tertiary":{"a":{"kind":"set","value":[],"value64":null}}}`: true,
		`["type"]`: false,
		``:         false,
	} {
		if got := checkParse(t, text); got != want {
			t.Errorf("%q: accepted %v, want %v", text, got, want)
		}
	}
}

// TestParseLineRandom parses pseudo-random lines, the same ones in every run, and checks that
// neither too few nor too many of them are accepted.
func TestParseLineRandom(t *testing.T) {
	tokens := []string{
		"{", "}", ":", ",", " ", `"`, `\`, `"type"`, `"facets"`, `"password"`, `"wire"`, "null", "1", "[", "]", "\x00", "\xff", "ü",
		`"facets":{"a":"b"}`, `"type":"user"`, `"disabled":"2026-11-20"`, `,"a":-1`, `"facets":{"a":1,"b":"c"}`,
	}
	random, accepted := rand.New(rand.NewPCG(1, 1)), 0
	const lines = 50_000
	for range lines {
		inner := ""
		for i := range random.IntN(7) {
			if i > 0 && random.IntN(2) == 0 {
				inner += ","
			}
			inner += tokens[random.IntN(len(tokens))]
		}
		if checkParse(t, "{"+inner+"}") {
			accepted++
		}
	}
	if accepted < 1000 || accepted > lines/2 {
		t.Errorf("%d of %d lines were accepted, want between 1000 and half of them", accepted, lines)
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add(`{"type":"user","facets":{"uid":"1","name":"Ann","age":41},"password":"$2a$10$x"}`)
	f.Add(`{"facets":{"a":-1.5e3,"b":null,"c":true},"disabled":"2026-11-20"}`)
	f.Add(`{"facets":{"a":"\u0061","a":"b"}}`)
	f.Fuzz(func(t *testing.T, text string) { checkParse(t, text) })
}

// TestParseLineOfManyFacets checks that a line may have many facets, and that a duplicate among
// them is refused.
func TestParseLineOfManyFacets(t *testing.T) {
	var b strings.Builder
	const n = 50_000
	for i := range n {
		fmt.Fprintf(&b, `,"f%d":1`, i)
	}
	r, err := parseLine(`{"facets":{` + b.String()[1:] + `}}`)
	if err != nil || len(r.facets) != n {
		t.Errorf("read %d facets, %v; want %d", len(r.facets), err, n)
	}
	if _, err = parseLine(`{"facets":{` + b.String()[1:] + `,"f7":1}}`); err == nil || err.Error() != `"f7" appears twice` {
		t.Errorf("a duplicate facet: got %v, want an error that says that f7 appears twice", err)
	}
}

// TestParseLineErrors checks the errors for lines that are refused. Among other things, JSON names
// must match exactly and appear only once, at every level of a line.
func TestParseLineErrors(t *testing.T) {
	for text, want := range map[string]string{
		`{"facets":{"uid":"1"},"facets":{"uid":"2"}}`:                             `"facets" appears twice`,
		`{"password":"a","\u0070assword":"b"}`:                                    `"password" appears twice`,
		`{"Facets":{"uid":"1"}}`:                                                  `bad input: line 0: "Facets": no line of an export has such a key; did you mean "facets"?`,
		`{"facets":{"uid":"1"},"PASSWORD":"$2a$10$x"}`:                            `bad input: line 0: "PASSWORD": no line of an export has such a key; did you mean "password"?`,
		`{"facets":{"a":"1","\u0061":"2"}}`:                                       `"a" appears twice`,
		`{"facets":{"a\u009b":[1],"a\u009b":"2"}}`:                                `"a\u009b" appears twice`,
		`{"wire":{"a":"eA==","a":"eQ=="}}`:                                        `"a" appears twice`,
		`{"tertiary":{"tags":{"kind":"set"},"tags":{"kind":"set"}}}`:              `"tags" appears twice`,
		`{"tertiary":{"tags":{"kind":"set","kind":"list"}}}`:                      `"kind" appears twice`,
		`{"tertiary":{"tags":{"Kind":"set","value":[]}}}`:                         `unknown field "Kind"`,
		`{"~rejected":{},"~rejected":{}}`:                                         `"~rejected" appears twice`,
		`null`:                                                                    `not a JSON object as in an export`,
		`[]`:                                                                      `not a JSON object as in an export`,
		`{"facets":[]}`:                                                           `"facets": not a JSON object`,
		`{"facets":{"a":"1"},"tertiary":"x"}`:                                     `"tertiary": not a JSON object`,
		`{"tertiary":{"tags":["a","b"]}}`:                                         `tertiary record "tags": want a JSON object like {"kind":"set","value":["a"]}`,
		`{"type":1}`:                                                              `"type" has the wrong JSON type`,
		"{\"facets\":{\"a\":\"\xff\"}}":                                           `not UTF-8`,
		`{"facets":{"a":1}}x`:                                                     `there is more after the JSON object`,
		`{"tertiary":{"a":{"kind":"hash","value":{"x":"1","x":"2"}}}}`:            `tertiary record "a": its value is not of kind "hash"`,
		`{"tertiary":{"a":{"kind":"hash","value":{"x":null}}}}`:                   `tertiary record "a": its value is not of kind "hash"`,
		`{"tertiary":{"a":{"kind":"set","value":["x",null]}}}`:                    `tertiary record "a": its value is not of kind "set"`,
		`{"tertiary":{"a":{"kind":"string","value":null}}}`:                       `tertiary record "a": its value is not of kind "string"`,
		`{"tertiary":{"a":{"kind":"zset","value":[["x",1,2]]}}}`:                  `tertiary record "a": its value is not of kind "zset"`,
		`{"tertiary":{"a":{"kind":"set","value":["x"],"value64":["eA=="]}}}`:      `tertiary record "a": both value and value64`,
		`{"facets":{"a":"1","A":"2"},"tertiary":{"a":{"kind":"set"},"A":null}}`:   `tertiary record "A": its kind is ""; want hash, list, set, string or zset`,
		`{"type":null,"facets":null,"wire":null,"tertiary":null,"disabled":null}`: ``,
	} {
		r, err := parseLine(text)
		slices.SortFunc(r.tertiary, func(a, b tertiaryRecord) int { return strings.Compare(a.name, b.name) })
		for _, x := range r.tertiary {
			if err == nil {
				_, err = x.content(100)
			}
		}
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got error %q, want %q", text, got, want)
		}
	}
	if _, err := parseJSON(schema.CodecJSON, `{"a":[{"b":1,"b":2}]}`); err == nil {
		t.Error("parseJSON accepted a facet with a duplicate member")
	}
}

// TestScannerRandom checks that the scanner finds the same members as encoding/json, in objects
// that are pseudo-random but the same in every run.
func TestScannerRandom(t *testing.T) {
	tokens := []string{
		"{", "}", "[", "]", ":", ",", ` `, "\t", `"`, `\`, `"a"`, `"b\"}"`, `"\\"`, `"\u0061"`, `"]"`, "null", "true", "-1.5e3", "{}", "[]",
		`"x":1`, `"y":"}"`, `"z":[{"a":[]},2]`, `"w" : { "a" : "," } `, `"b\"}":null`, `"":""`,
	}
	random, valid, twice := rand.New(rand.NewPCG(2, 2)), 0, 0
	for range 100_000 {
		inner := ""
		for i := range random.IntN(6) {
			if i > 0 && random.IntN(4) > 0 {
				inner += ","
			}
			inner += tokens[random.IntN(len(tokens))]
		}
		raw := " {" + inner + "}\n"
		s, got := scanner{text: raw}, map[string]string{}
		s.object(func(name string) { got[name] = s.value() })
		if s.skipSpace(); malformed(raw) != nil {
			if s.err == nil && s.at == len(raw) {
				t.Fatalf("the scanner found the members %q in %s, but this is not JSON: %v", got, raw, malformed(raw))
			}
			continue
		}
		valid++
		var want map[string]json.RawMessage
		if err := json.Unmarshal([]byte(raw), &want); err != nil {
			t.Fatal(err)
		}
		if s.err != nil {
			if !strings.Contains(s.err.Error(), "twice") {
				t.Fatalf("%s: got %v, want none, or that a name appears twice", raw, s.err)
			}
			twice++
			continue
		}
		if !maps.EqualFunc(got, want, func(a string, b json.RawMessage) bool { return a == string(b) }) {
			t.Fatalf("the scanner found the members %q in %s, want %q", got, raw, want)
		}
	}
	if valid < 1000 || twice < 100 || twice > valid/2 {
		t.Errorf("%d valid objects, %d of them with a duplicate name; want at least 1000, and from 100 to half of them", valid, twice)
	}
}
