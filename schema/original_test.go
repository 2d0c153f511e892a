package schema_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"math"
	"os"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/coffeenode/userdb/schema"
)

// lines reads a file of one JSON value a line.
func lines[V any](t *testing.T, path string) (all []V) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := bufio.NewScanner(bytes.NewReader(data)); line.Scan(); {
		var v V
		if err := json.Unmarshal(line.Bytes(), &v); err != nil {
			t.Fatalf("%s: %v", line.Bytes(), err)
		}
		all = append(all, v)
	}
	return all
}

// TestReadsOfOriginal decodes every facet that the original wrote, and compares
// with what the original itself read. There are no deviations: what it cannot
// read, we cannot.
func TestReadsOfOriginal(t *testing.T) {
	user := originalSchema(t).Types["user"]
	wires := hashes(t)
	reads := lines[struct {
		Key     json.RawMessage
		GetUser struct {
			Result map[string]json.RawMessage
			Error  string
		} `json:"get_user"`
	}](t, "../testdata/original/original_reads.jsonl")
	facets := 0
	for _, read := range reads {
		hash := wires[string(read.Key)]
		if e := read.GetUser.Error; e != "" {
			if _, err := schema.Decode(user.Codec("rating"), hash["rating"]); err == nil {
				t.Errorf("%s: read, but the original says %s", read.Key, e)
			}
			continue
		}
		for field, want := range read.GetUser.Result {
			facets++
			v, err := schema.Decode(user.Codec(field), hash[field])
			if err != nil || v.Wire() != hash[field] || !sameAsOriginal(v, want) {
				t.Errorf("%s: %s: got %q, %v, the original %s", read.Key, field, v.Wire(), err, want)
			}
		}
	}
	if len(reads) < 70 || facets < 500 {
		t.Errorf("only %d entries with %d facets", len(reads), facets)
	}
}

// hashes are the records of entries, by the JSON of their key.
func hashes(t *testing.T) map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, record := range lines[struct {
		Key, Value json.RawMessage
		Type       string
	}](t, "../testdata/original/original_fixture.jsonl") {
		if record.Type != "hash" {
			continue
		}
		var hash map[string]json.RawMessage
		if err := json.Unmarshal(record.Value, &hash); err != nil {
			t.Fatal(err)
		}
		facets := map[string]string{}
		for field, raw := range hash {
			facets[field] = unpacked(raw)
		}
		all[string(record.Key)] = facets
	}
	return all
}

// special is how the files write what JSON lacks.
type special struct {
	Num  string    `json:"$num"`
	Date time.Time `json:"$date"`
}

// unpacked is a string as it stands in Redis, which here is always UTF-8.
func unpacked(raw json.RawMessage) (s string) {
	if json.Unmarshal(raw, &s) != nil {
		return string(raw)
	}
	return s
}

// sameAsOriginal compares a value with what the original read.
func sameAsOriginal(v schema.Value, want json.RawMessage) bool {
	var s special
	_ = json.Unmarshal(want, &s) // most are none
	switch v.Codec() {
	case schema.CodecNumber:
		f, ok := v.Number()
		text := s.Num
		if text == "" {
			text = string(want)
		}
		w, err := strconv.ParseFloat(text, 64)
		return ok && err == nil && (f == w || math.IsNaN(f) && math.IsNaN(w))
	case schema.CodecDate:
		at, ok := v.Time()
		return ok && at.Equal(s.Date)
	case schema.CodecJSON:
		raw, ok := v.JSON()
		return ok && sameJSON(raw, want)
	default:
		return v.Text() == unpacked(want)
	}
}

func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// deviatingWrites are values that the original takes and we do not: no Value exists
// for them for a field of that codec.
var deviatingWrites = map[string]string{
	`age: "42 years"`:       "a text is no number; the original does not look",
	`age: true`:             "nor is a truth value",
	`rating: "«NaN»"`:       "JSON has no NaN; JSON.stringify writes null without a word",
	`rating: "«undefined»"`: "undefined becomes the text undefined, which nobody can read",
}

// TestWritesOfOriginal makes values of what was given to the original, and
// compares with what it wrote.
func TestWritesOfOriginal(t *testing.T) {
	user := originalSchema(t).Types["user"]
	seen := 0
	for _, call := range lines[struct {
		Entry   map[string]json.RawMessage
		Outcome struct{ Record map[string]json.RawMessage }
	}](t, "../testdata/original/original_creates.jsonl") {
		for _, field := range []string{"age", "rating"} {
			given, ok := call.Entry[field]
			if !ok {
				continue
			}
			seen++
			v, err := schema.ParseJSON(user.Codec(field), withoutMarks(given))
			if _, deviates := deviatingWrites[field+": "+string(given)]; deviates {
				if field == "age" && err == nil {
					t.Errorf("age: %s is accepted", given)
				}
				continue
			}
			if want := unpacked(call.Outcome.Record[field]); err != nil || v.Wire() != want {
				t.Errorf("%s: %s: got %q, %v, the original %q", field, given, v.Wire(), err, want)
			}
		}
	}
	if seen != 14 {
		t.Errorf("%d values", seen)
	}
}

// withoutMarks is the text NaN for «NaN», as the file of calls writes it.
func withoutMarks(raw json.RawMessage) json.RawMessage {
	return bytes.ReplaceAll(bytes.ReplaceAll(raw, []byte("«"), nil), []byte("»"), nil)
}
