package userdb_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"unicode/utf8"

	"github.com/coffeenode/userdb/schema"
)

// originalDir holds what the original program wrote and answered.
const originalDir = "../testdata/original"

// originalSchema is the original's own options.json.
func originalSchema(t *testing.T) schema.Schema {
	t.Helper()
	f, err := os.Open(filepath.Join(originalDir, "original_options.json"))
	must(t, err)
	defer f.Close()
	s, err := schema.Load(f)
	must(t, err)
	return s
}

// lines reads a file of JSON lines.
func lines[T any](t *testing.T, name string) []T {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(originalDir, name))
	must(t, err)
	var all []T
	scanner := bufio.NewScanner(bytes.NewReader(text))
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var one T
		if err := json.Unmarshal(scanner.Bytes(), &one); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, one)
	}
	must(t, scanner.Err())
	if len(all) == 0 {
		t.Fatalf("%s is empty", name)
	}
	return all
}

// A fixture is one record that the original wrote.
type fixture struct {
	Key, Type, From string
	Value           json.RawMessage
	Clear           json.RawMessage `json:"password_clear"`
}

// fields is the value of a hash.
func (f fixture) fields(t *testing.T) map[string]string {
	t.Helper()
	var fields map[string]string
	must(t, json.Unmarshal(f.Value, &fields))
	return fields
}

// clear is the password behind the hash, and whether it was a text.
func (f fixture) clear() (string, bool) {
	var text string
	if json.Unmarshal(f.Clear, &text) != nil {
		return string(f.Clear), false
	}
	return text, true
}

// loadOriginal puts the original's records into the store, past everything that checks them.
func (s *site) loadOriginal() map[string]fixture {
	s.t.Helper()
	ctx := s.t.Context()
	all := map[string]fixture{}
	for _, f := range lines[fixture](s.t, "original_fixture.jsonl") {
		all[f.Key] = f
		switch f.Type {
		case "hash":
			must(s.t, s.raw.HSet(ctx, f.Key, f.fields(s.t)).Err())
		case "string":
			var text string
			must(s.t, json.Unmarshal(f.Value, &text))
			must(s.t, s.raw.Set(ctx, f.Key, text, 0).Err())
		default:
			s.t.Fatalf("%s: a %s", f.Key, f.Type)
		}
	}
	return all
}

// answer is what the original gave: a value with its JavaScript types, or an error.
type answer struct {
	Result json.RawMessage
	Error  string
}

// plain makes of the original's encoding of JavaScript values what our JSON has.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if text, ok := single(v, "$date"); ok {
			return text
		}
		if text, ok := single(v, "$num"); ok {
			return text
		}
		out := map[string]any{}
		for k, x := range v {
			out[k] = plain(x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = plain(v[i])
		}
		return out
	}
	return v
}

func single(v map[string]any, name string) (any, bool) {
	x, ok := v[name]
	return x, ok && len(v) == 1
}

// decode reads JSON, numbers as they are spelled in Go.
func decode(t *testing.T, raw []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return v
}

// short is a name of a fixture for people.
func short(s string) string {
	if len(s) > 60 {
		s = strconv.Itoa(len(s)) + " bytes: " + s[:60]
	}
	if !utf8.ValidString(s) {
		return strconv.QuoteToASCII(s)
	}
	return s
}
