package transfer

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/schema"
)

// checkScan wants that a line which is read the short way is read as encoding/json reads it.
func checkScan(t *testing.T, text string) (usual bool) {
	var short, long reading
	if !scanLine(text, &short) {
		return false
	}
	if err := readLine(text, &long); err != nil {
		t.Fatalf("%q is read the short way, but: %v", text, err)
	}
	if short.kind != long.kind || short.secrets != long.secrets || len(long.wire)+len(long.tertiary) > 0 {
		t.Fatalf("%q\nis %+v\nwant %+v", text, short, long)
	}
	if a, b := raws(short), raws(long); !maps.Equal(a, b) || len(short.facets) != len(b) {
		t.Fatalf("%q\nhas facets %q\nwant %q", text, a, b)
	}
	for _, f := range short.facets {
		for _, c := range []schema.Codec{schema.CodecText, schema.CodecDate, schema.CodecNumber, schema.CodecJSON} {
			got, gotErr := f.value(c)
			want, wantErr := schema.ParseJSON(c, json.RawMessage(f.raw))
			if got != want || (gotErr == nil) != (wantErr == nil) {
				t.Fatalf("%s as %s is %v, %v; want %v, %v", f.raw, c, got, gotErr, want, wantErr)
			}
		}
	}
	return true
}

func raws(r reading) map[string]string {
	m := map[string]string{}
	for _, f := range r.facets {
		m[f.field] = f.raw
	}
	return m
}

func TestScanLine(t *testing.T) {
	for text, usual := range map[string]bool{
		`{"type":"user","facets":{"uid":"1","name":"Ann","age":41,"ok":true,"x":null},"password":"$2a$10$x"}`:    true,
		` { "facets" : { "a" : -1.5e3 , "b":"ü🚀" } , "password_changed":"2026-11-20" ,"disabled":"x"} ` + "\r\n": true,
		`{"facets":{}}`:                          true,
		`{}`:                                     true,
		`{"clear_password":"secret"}`:            true,
		`{"facets":{"a":"b"},"password":"x"} {}`: false,
		`{"facets":{"a":"b"},"facets":{"c":"d"}}`: false,
		`{"facets":{"a":"b","a":"c"}}`:            false,
		`{"facets":{"a":"\n"}}`:                   false,
		"{\"facets\":{\"a\":\"\n\"}}":             false,
		"{\"facets\":{\"a\":\"\xff\"}}":           false,
		`{"facets":{"a":[1]}}`:                    false,
		`{"facets":{"a":01}}`:                     false,
		`{"facets":{"a":}}`:                       false,
		`{"facets":{"a":1,}}`:                     false,
		`{"facets":null}`:                         false,
		`{"type":null}`:                           false,
		`{"Type":"user"}`:                         false,
		`{"type":"user","tertiary":{}}`:           false,
		`{"type":"user"`:                          false,
		`{"type":"user`:                           false,
		`["type"]`:                                false,
		``:                                        false,
	} {
		if got := checkScan(t, text); got != usual {
			t.Errorf("%q: usual %v, want %v", text, got, usual)
		}
	}
}

// The lines are the same in every run, so that among them are always some of each kind.
func TestScanLineOfAnything(t *testing.T) {
	tokens := []string{
		"{", "}", ":", ",", " ", `"`, `\`, `"type"`, `"facets"`, `"password"`, `"wire"`, "null", "1", "[", "]", "\x00", "\xff", "ü",
		`"facets":{"a":"b"}`, `"type":"user"`, `"disabled":"2026-11-20"`, `,"a":-1`, `"facets":{"a":1,"b":"c"}`,
	}
	random, usual := rand.New(rand.NewPCG(1, 1)), 0
	const lines = 50_000
	for range lines {
		inner := ""
		for i := range random.IntN(7) {
			if i > 0 && random.IntN(2) == 0 {
				inner += ","
			}
			inner += tokens[random.IntN(len(tokens))]
		}
		if checkScan(t, "{"+inner+"}") {
			usual++
		}
	}
	if usual < 1000 || usual > lines/2 {
		t.Errorf("%d of %d lines are read the short way: too few of a kind", usual, lines)
	}
}

func FuzzScanLine(f *testing.F) {
	f.Add(`{"type":"user","facets":{"uid":"1","name":"Ann","age":41},"password":"$2a$10$x"}`)
	f.Add(`{"facets":{"a":-1.5e3,"b":null,"c":true},"disabled":"2026-11-20"}`)
	f.Add(`{"facets":{"a":"\u0061","a":"b"}}`)
	f.Fuzz(func(t *testing.T, text string) { checkScan(t, text) })
}

// A line of many facets is left to the long way: to tell whether one is there twice, each is compared with all.
func TestScanLineOfManyFacets(t *testing.T) {
	for n, want := range map[int]bool{mostScanned: true, mostScanned + 1: false, 50_000: false} {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"f%d":1`, i)
		}
		text := `{"facets":{` + b.String()[1:] + `}}`
		var r reading
		if got := scanLine(text, &r); got != want || len(r.facets) != n {
			t.Errorf("%d facets: %v, and %d were read", n, got, len(r.facets))
		}
	}
}

// Names in JSON are exact and stand there once, wherever in a line; texts are texts.
func TestReadLineIsExact(t *testing.T) {
	for text, want := range map[string]string{
		`{"facets":{"uid":"1"},"facets":{"uid":"2"}}`:                             `"facets" stands there twice`,
		`{"password":"a","\u0070assword":"b"}`:                                    `"password" stands there twice`,
		`{"Facets":{"uid":"1"}}`:                                                  `unknown field "Facets"`,
		`{"facets":{"uid":"1"},"PASSWORD":"$2a$10$x"}`:                            `unknown field "PASSWORD"`,
		`{"facets":{"a":"1","\u0061":"2"}}`:                                       `"a" stands there twice`,
		`{"facets":{"a\u009b":[1],"a\u009b":"2"}}`:                                `"a\u009b" stands there twice`,
		`{"wire":{"a":"eA==","a":"eQ=="}}`:                                        `"a" stands there twice`,
		`{"tertiary":{"tags":{"kind":"set"},"tags":{"kind":"set"}}}`:              `"tags" stands there twice`,
		`{"tertiary":{"tags":{"kind":"set","kind":"list"}}}`:                      `"kind" stands there twice`,
		`{"tertiary":{"tags":{"Kind":"set","value":[]}}}`:                         `unknown field "Kind"`,
		`{"~rejected":{},"~rejected":{}}`:                                         `"~rejected" stands there twice`,
		`null`:                                                                    `no JSON object as an export has it`,
		`[]`:                                                                      `no JSON object as an export has it`,
		`{"facets":[]}`:                                                           `no JSON object where one is wanted`,
		`{"type":1}`:                                                              `"type" is of another JSON type`,
		"{\"facets\":{\"a\":\"\xff\"}}":                                           `not UTF-8`,
		`{"facets":{"a":1}}x`:                                                     `there is more behind the JSON object`,
		`{"tertiary":{"a":{"kind":"hash","value":{"x":"1","x":"2"}}}}`:            `tertiary record "a": its value is none of kind "hash"`,
		`{"tertiary":{"a":{"kind":"hash","value":{"x":null}}}}`:                   `tertiary record "a": its value is none of kind "hash"`,
		`{"tertiary":{"a":{"kind":"set","value":["x",null]}}}`:                    `tertiary record "a": its value is none of kind "set"`,
		`{"tertiary":{"a":{"kind":"string","value":null}}}`:                       `tertiary record "a": its value is none of kind "string"`,
		`{"tertiary":{"a":{"kind":"zset","value":[["x",1,2]]}}}`:                  `tertiary record "a": its value is none of kind "zset"`,
		`{"tertiary":{"a":{"kind":"set","value":["x"],"value64":["eA=="]}}}`:      `tertiary record "a": both value and value64`,
		`{"facets":{"a":"1","A":"2"},"tertiary":{"a":{"kind":"set"},"A":null}}`:   `tertiary record "A": its value is none of kind ""`,
		`{"type":null,"facets":null,"wire":null,"tertiary":null,"disabled":null}`: ``,
	} {
		var r reading
		err := readLine(text, &r)
		if err == nil {
			_, err = r.contents()
		}
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	if _, err := (facetText{raw: `{"a":[{"b":1,"b":2}]}`}).value(schema.CodecJSON); err == nil {
		t.Error("a member in a facet stands there twice")
	}
}

// Members are those that encoding/json finds, in any object. The objects are the same in every run.
func TestMembersOfAnything(t *testing.T) {
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
		raw, err := object(" {" + inner + "}\n")
		if err != nil {
			continue
		}
		valid++
		var want map[string]json.RawMessage
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		got := map[string]json.RawMessage{}
		err = members(raw, func(name string, value json.RawMessage) error { got[name] = value; return nil })
		if err != nil {
			twice++
			continue
		}
		if !maps.EqualFunc(got, want, func(a, b json.RawMessage) bool { return string(a) == string(b) }) {
			t.Fatalf("%s has %q, want %q", raw, got, want)
		}
	}
	if valid < 1000 || twice < 100 || twice > valid/2 {
		t.Errorf("%d objects, %d of them with a name twice: too few of a kind", valid, twice)
	}
}
