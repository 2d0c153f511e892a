package embedded

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func text(s string) *string { return &s }

// someRecords returns records of most types, some of them binary.
func someRecords() []record {
	return []record{
		{Key: "", String: text("")},
		{Key: "a\nb<&>\u2028", Hash: map[string]string{"~isa": "user", "": "x", "k": "\x00"}},
		{Key: "list", List: []string{"b", "a", "b", ""}},
		{Key: "set", Set: []string{"a", "\xff", "z"}},
		{Key: "zset", ZSet: [][2]string{{"a", "-0.1"}, {"b", "+Inf"}, {"c", "1e+300"}}, Until: 1 << 42},
		{Key: "\xff\x00", String: text("\xc3(")},
	}
}

func encoded(t testing.TB, records []record) []byte {
	t.Helper()
	data, err := encode(records)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestEncodeText(t *testing.T) {
	got := string(encoded(t, []record{
		{Key: "user/uid:17c0", Hash: map[string]string{"~isa": "user", "name": "Bob <b@x.org>"}},
		{Key: "\xff", List: []string{"", "a"}, Until: 1767225600000},
	}))
	want := `{"userdb":"embedded","version":1,"crc":"a8911698"}
{"key":"user/uid:17c0","hash":{"name":"Bob <b@x.org>","~isa":"user"},"crc":"edbb5434"}
{"base64":true,"key":"/w==","list":["","YQ=="],"until":1767225600000,"crc":"01039f35"}
{"records":2,"crc":"7cc9db37"}
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// anyRecords draws records with sorted, distinct keys.
func anyRecords(t *rapid.T) []record {
	anyText := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
	some := rapid.SliceOfNDistinct(anyText, 1, 5, rapid.ID)
	score := rapid.Map(rapid.Float64(), func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) })
	keys := rapid.SliceOfDistinct(anyText, rapid.ID).Draw(t, "keys")
	slices.Sort(keys)
	records := []record{}
	for _, key := range keys {
		r := record{Key: key}
		switch rapid.IntRange(0, 5).Draw(t, "type") {
		case 0:
			r.String = text(anyText.Draw(t, "string"))
		case 1:
			r.Hash = rapid.MapOfN(anyText, anyText, 1, 5).Draw(t, "hash")
		case 2:
			r.List = rapid.SliceOfN(anyText, 1, 5).Draw(t, "list")
		case 3:
			r.Set = slices.Sorted(slices.Values(some.Draw(t, "set")))
		case 4:
			for _, member := range slices.Sorted(slices.Values(some.Draw(t, "members"))) {
				r.ZSet = append(r.ZSet, [2]string{member, score.Draw(t, "score")})
			}
		case 5:
			for i, value := range some.Draw(t, "values") {
				r.Stream = append(r.Stream, []string{fmt.Sprintf("1-%d", i+1), "e", value})
			}
		}
		if rapid.Bool().Draw(t, "expires") {
			r.Until = time.Now().UnixMilli() + rapid.Int64Range(1e7, 1e12).Draw(t, "life")
		}
		records = append(records, r)
	}
	return records
}

func TestDecodeUndoesEncode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := anyRecords(t)
		data, err := encode(want)
		if err != nil {
			t.Fatal(err)
		}
		got, line, err := decode(data)
		if err != nil {
			t.Fatalf("line %d: %v", line, err)
		}
		if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

// TestDecodeFindsDamage checks that decode finds every flipped bit and every truncation, and that
// it reports the line. A newline belongs to the line that it ends.
func TestDecodeFindsDamage(t *testing.T) {
	file := encoded(t, someRecords())
	for at := range file {
		line := 1 + bytes.Count(file[:at], []byte("\n"))
		if _, got, err := decode(file[:at]); err == nil || got != line {
			t.Fatalf("cut after %d bytes: line %d, error %v; want line %d", at, got, err, line)
		}
		for bit := range 8 {
			damaged := bytes.Clone(file)
			damaged[at] ^= 1 << bit
			if _, got, err := decode(damaged); err == nil || got != line {
				t.Fatalf("bit %d of byte %d flipped: line %d, error %v; want line %d", bit, at, got, err, line)
			}
		}
	}
}

func TestDecodeFindsMovedLines(t *testing.T) {
	lines := bytes.SplitAfter(encoded(t, someRecords()), []byte("\n"))
	lines = lines[:len(lines)-1]
	for i := range lines {
		without := slices.Delete(slices.Clone(lines), i, i+1)
		if _, _, err := decode(bytes.Join(without, nil)); err == nil {
			t.Errorf("line %d left out: no error", i+1)
		}
		twice := slices.Insert(slices.Clone(lines), i, lines[i])
		if _, _, err := decode(bytes.Join(twice, nil)); err == nil {
			t.Errorf("line %d doubled: no error", i+1)
		}
	}
	lines[1], lines[2] = lines[2], lines[1]
	if _, line, err := decode(bytes.Join(lines, nil)); err == nil || line != 2 {
		t.Errorf("lines 2 and 3 swapped: line %d, error %v; want an error at line 2", line, err)
	}
}

// withSums returns a file of the given lines with correct sums. The lines lack their closing brace.
// Only a faulty program could write such files.
func withSums(bodies ...string) []byte {
	var running sum
	var out bytes.Buffer
	for _, body := range bodies {
		out.WriteString(body + running.add([]byte(body)) + "\n")
	}
	return out.Bytes()
}

func TestDecodeErrors(t *testing.T) {
	const head, key = `{"userdb":"embedded","version":1`, `{"key":"k"`
	tests := []struct {
		name, file string
		line       int
		want       string
	}{
		{"empty", "", 1, "the file ends too early"},
		{"not JSON", "hello\n", 1, "the checksum is missing"},
		{"other JSON", string(withSums(`{"a":1`)), 1, `json: unknown field "a"`},
		{"another program", string(withSums(`{"userdb":"x","version":1`)), 1, "not the header of an embedded store"},
		{"newer version", string(withSums(`{"userdb":"embedded","version":2`)), 1, errNewer.Error()},
		{"no last line", string(withSums(head)), 2, "the file ends too early"},
		{"wrong number of records", string(withSums(head, `{"records":1`)), 2, "0 records, want 1"},
		{"number of records is a text", string(withSums(head, `{"records":"1"`)), 2, "json: cannot unmarshal string into Go struct field trailer.records of type int"},
		{"line after the last", string(withSums(head, `{"records":0`, `{"records":0`)), 3, "text after the end"},
		{"no value", string(withSums(head, key)), 2, `record "k" does not have exactly one value`},
		{"empty value", string(withSums(head, key+`,"set":[]`)), 2, `record "k" does not have exactly one value`},
		{"two values", string(withSums(head, key+`,"string":"","list":["a"]`)), 2, `record "k" does not have exactly one value`},
		{"negative expiry time", string(withSums(head, key+`,"string":"","until":-1`)), 2, `record "k" expires at a negative time`},
		{"score is not a number", string(withSums(head, key+`,"zset":[["m","x"]]`)), 2, `record "k": "x" is not a score`},
		{"score is NaN", string(withSums(head, key+`,"zset":[["m","NaN"]]`)), 2, `record "k": "NaN" is not a score`},
		{"bad base64", string(withSums(head, `{"base64":true,"key":"*","string":""`)), 2, "illegal base64 data at input byte 0"},
		{"record appears twice", string(withSums(head, key+`,"string":""`, key+`,"string":"x"`)), 3, `record "k" appears twice`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, line, err := decode([]byte(test.file))
			if err == nil || err.Error() != test.want || line != test.line {
				t.Errorf("line %d, error %v; want line %d, %q", line, err, test.line, test.want)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encoded(f, someRecords()))
	f.Add(encoded(f, nil))
	// The sums are right, but a value is empty.
	f.Add(withSums(`{"userdb":"embedded","version":1`, `{"key":"k","set":[]`, `{"records":1`))
	f.Fuzz(func(t *testing.T, file []byte) {
		records, line, err := decode(file)
		if err != nil {
			if line < 1 || line > 1+bytes.Count(file, []byte("\n")) {
				t.Fatalf("got an error at line %d of %q, which has no such line", line, file)
			}
			return
		}
		again, _, err := decode(encoded(t, records))
		if err != nil || len(again)+len(records) > 0 && !reflect.DeepEqual(again, records) {
			t.Fatalf("got %+v and %v, want %+v", again, err, records)
		}
	})
}

// encode returns the file that holds records, which must be sorted by key.
func encode(records []record) ([]byte, error) {
	var out bytes.Buffer
	var running sum
	write := func(v any) error {
		start := out.Len()
		enc := json.NewEncoder(&out)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err != nil {
			return err
		}
		out.Truncate(out.Len() - len("}\n"))
		out.WriteString(running.add(out.Bytes()[start:]))
		out.WriteByte('\n')
		return nil
	}
	if err := write(header{formatName, formatVersion}); err != nil {
		return nil, err
	}
	for _, r := range records {
		r, err := r.wire()
		if err == nil {
			err = write(r)
		}
		if err != nil {
			return nil, fmt.Errorf("encoding record %q: %w", r.Key, err)
		}
	}
	err := write(trailer{len(records)})
	return out.Bytes(), err
}

// wire returns r as the file stores it: in base64 if JSON could not represent it.
func (r record) wire() (record, error) {
	if r.isText() {
		return r, nil
	}
	r.Base64 = true
	return r.each(func(s string) (string, error) { return base64.StdEncoding.EncodeToString([]byte(s)), nil })
}

// isText reports whether all text of r is UTF-8.
func (r *record) isText() bool {
	bad := func(s string) bool { return !utf8.ValidString(s) }
	if bad(r.Key) || r.String != nil && bad(*r.String) || slices.ContainsFunc(r.List, bad) || slices.ContainsFunc(r.Set, bad) {
		return false
	}
	for field, value := range r.Hash {
		if bad(field) || bad(value) {
			return false
		}
	}
	return !slices.ContainsFunc(r.ZSet, func(pair [2]string) bool { return bad(pair[0]) }) &&
		!slices.ContainsFunc(r.Stream, func(entry []string) bool { return slices.ContainsFunc(entry, bad) })
}

// legacyFile writes a file of JSON lines and returns its path and contents.
func legacyFile(t *testing.T) (path string, data []byte) {
	t.Helper()
	path, data = filepath.Join(t.TempDir(), "f"), encoded(t, someRecords())
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, data
}

// TestLegacyConverted checks that a file of JSON lines stays as it is until the first change, and
// then stays beside the new file until that is compacted.
func TestLegacyConverted(t *testing.T) {
	path, data := legacyFile(t)
	want := onDisk(t, path)
	if len(want) != len(someRecords()) {
		t.Fatalf("%d records, want %d", len(want), len(someRecords()))
	}
	s := open(t, path)
	do(t, s.Client(), "EXISTS x")
	closeStore(t, s)
	if got, err := os.ReadFile(path); !bytes.Equal(got, data) {
		t.Fatalf("after a read, the file is %q, %v; want it unchanged", got, err)
	}
	s = open(t, path)
	do(t, s.Client(), "SET new v", "DEL new")
	if got := onDisk(t, path); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, err := os.ReadFile(path + ".old"); !bytes.Equal(got, data) {
		t.Errorf("the old file is %q, %v; want it unchanged", got, err)
	}
	if file, err := os.ReadFile(path); err != nil {
		t.Error(err)
	} else if _, _, err := decode(file); !errors.Is(err, errNewer) {
		t.Errorf("an older program says %v, want errNewer", err)
	}
	result, err := s.Compact(t.Context())
	if err != nil || result.Removed != path+".old" {
		t.Errorf("Compact: got %+v, %v; want the old file removed", result, err)
	}
	if _, err := os.Stat(path + ".old"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old file: got %v, want os.ErrNotExist", err)
	}
	closeStore(t, s)
	if got := onDisk(t, path); !reflect.DeepEqual(got, want) {
		t.Errorf("compacted: got %v, want %v", got, want)
	}
}

// TestLegacyConvertedOnFaultyDisk checks that a file of JSON lines stays if it cannot be replaced,
// and is replaced later.
func TestLegacyConvertedOnFaultyDisk(t *testing.T) {
	for _, step := range []string{"create", "write", "sync", "link", "rename"} {
		t.Run(step, func(t *testing.T) {
			path, data := legacyFile(t)
			d := newFaultyDisk()
			s := openDisk(t, path, &d.testDisk)
			d.set(step)
			for range 2 {
				if err := s.Client().Set(t.Context(), "new", "v", 0).Err(); !errors.Is(err, ErrUnsaved) {
					t.Errorf("got %v, want ErrUnsaved", err)
				}
			}
			if got, err := os.ReadFile(path); !bytes.Equal(got, data) {
				t.Errorf("the file is now %q, %v; want it unchanged", got, err)
			}
			if _, err := os.Stat(path + ".tmp"); err == nil {
				t.Error("the temporary file was left")
			}
			d.set("")
			do(t, s.Client(), "SET newer v")
			if got := onDisk(t, path); len(got) != len(someRecords())+1 {
				t.Errorf("%d records, want %d", len(got), len(someRecords())+1)
			}
		})
	}
}

func TestLegacyErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	missing := path + ": line 1: the checksum is missing; the file was left as it is: put a backup in its place, or save what can still be read with 'userdb salvage NEW --store file:" + path + "'"
	newer := path + ": embedded: the file was written by a newer userdb; update this one"
	for _, test := range []struct {
		file string
		size int64 // with zeros at the end
		want string
	}{
		{"x\n", 2, missing},
		{"x\n", maxFile + 1, missing},
		{string(withSums(`{"userdb":"embedded","version":3`)), 100, newer},
		{string(withSums(`{"userdb":"embedded","version":3`)), maxFile + 1, newer},
	} {
		if err := errors.Join(os.WriteFile(path, []byte(test.file), 0o600), os.Truncate(path, test.size)); err != nil {
			t.Fatal(err)
		}
		_, err := Open(t.Context(), path)
		if err == nil || strings.TrimPrefix(err.Error(), "embedded: ") != test.want {
			t.Errorf("got %v, want %q", err, test.want)
		}
		if errors.Is(err, ErrDamaged) == errors.Is(err, errNewer) {
			t.Errorf("%v: want either ErrDamaged or errNewer", err)
		}
	}
	if err := errors.Join(os.WriteFile(path, encoded(t, nil), 0o600), os.Truncate(path, maxFile+1)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), path); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("got %v, want that the file is too large", err)
	}
}
