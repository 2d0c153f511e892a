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

// lines reads a file with one JSON value on each line.
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

// TestReadsOfOriginal decodes every facet that CoffeeNode UserDB, the original of this store,
// wrote. It compares each with what the original read back. There are no exceptions: what the
// original cannot read, we cannot read.
func TestReadsOfOriginal(t *testing.T) {
	user := originalSchema(t).Types["user"]
	wires := hashes(t)
	reads := lines[struct {
		Key     json.RawMessage
		GetUser struct {
			Result map[string]json.RawMessage
			Error  string
		} `json:"get_user"`
	}](t, "../test/testdata/original/original_reads.jsonl")
	facets := 0
	for _, read := range reads {
		hash := wires[string(read.Key)]
		if e := read.GetUser.Error; e != "" {
			if _, err := schema.Decode(user.Codec("rating"), hash["rating"]); err == nil {
				t.Errorf("%s: no error, but the original says %s", read.Key, e)
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
		t.Errorf("got %d entries with %d facets, want at least 70 with 500", len(reads), facets)
	}
}

// hashes returns the hashes of entries by the JSON of their key.
func hashes(t *testing.T) map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, record := range lines[struct {
		Key, Value json.RawMessage
		Type       string
	}](t, "../test/testdata/original/original_fixture.jsonl") {
		if record.Type != "hash" {
			continue
		}
		var hash map[string]json.RawMessage
		if err := json.Unmarshal(record.Value, &hash); err != nil {
			t.Fatal(err)
		}
		facets := map[string]string{}
		for field, raw := range hash {
			facets[field] = unquoted(raw)
		}
		all[string(record.Key)] = facets
	}
	return all
}

// A special is a number or a date that JSON cannot express, in the notation of the test files.
type special struct {
	Num  string    `json:"$num"`
	Date time.Time `json:"$date"`
}

// unquoted returns the text of a JSON string. It returns any other JSON value unchanged.
func unquoted(raw json.RawMessage) (s string) {
	if json.Unmarshal(raw, &s) != nil {
		return string(raw)
	}
	return s
}

// sameAsOriginal reports whether v equals the value that the original read.
func sameAsOriginal(v schema.Value, want json.RawMessage) bool {
	var s special
	_ = json.Unmarshal(want, &s) // most values are not special
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
		return v.Text() == unquoted(want)
	}
}

func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// deviatingWrites lists values that the original accepts but the codec of the field does not have.
// For age we refuse them. Those for rating are skipped, because no JSON input can express them.
var deviatingWrites = map[string]string{
	`age: "42 years"`:       "a text is not a number; the original does not check",
	`age: true`:             "a boolean is not a number; the original does not check",
	`rating: "«NaN»"`:       "JSON has no NaN; JSON.stringify silently writes null",
	`rating: "«undefined»"`: "undefined becomes the text undefined, which nobody can read",
}

// TestWritesOfOriginal parses the values that were given to the original and compares the results
// with what the original wrote.
func TestWritesOfOriginal(t *testing.T) {
	user := originalSchema(t).Types["user"]
	seen := 0
	for _, call := range lines[struct {
		Entry   map[string]json.RawMessage
		Outcome struct{ Record map[string]json.RawMessage }
	}](t, "../test/testdata/original/original_creates.jsonl") {
		for _, field := range []string{"age", "rating"} {
			input, ok := call.Entry[field]
			if !ok {
				continue
			}
			seen++
			v, err := schema.ParseJSON(user.Codec(field), withoutMarks(input))
			if _, deviates := deviatingWrites[field+": "+string(input)]; deviates {
				if field == "age" && err == nil {
					t.Errorf("age: %s is accepted, want an error", input)
				}
				continue
			}
			if want := unquoted(call.Outcome.Record[field]); err != nil || v.Wire() != want {
				t.Errorf("%s: %s: got %q, %v, the original %q", field, input, v.Wire(), err, want)
			}
		}
	}
	if seen != 14 {
		t.Errorf("got %d values, want 14", seen)
	}
}

// withoutMarks removes the marks that the file puts around a value that JSON lacks, as in «NaN».
func withoutMarks(raw json.RawMessage) json.RawMessage {
	return bytes.ReplaceAll(bytes.ReplaceAll(raw, []byte("«"), nil), []byte("»"), nil)
}
