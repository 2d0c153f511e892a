package embedded

import (
	"bytes"
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

// anyRecords draws records with sorted, distinct keys, like those of snapshot.
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

func TestEngineKeepsRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := anyRecords(t)
		e, err := newEngine(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer e.mini.Close()
		if _, err := e.restore(want); err != nil {
			t.Fatal(err)
		}
		got, _, err := e.snapshot()
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
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
		t.Errorf("lines 2 and 3 swapped: line %d, error %v", line, err)
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
				t.Fatalf("line %d of %q", line, file)
			}
			return
		}
		again, _, err := decode(encoded(t, records))
		if err != nil || len(again)+len(records) > 0 && !reflect.DeepEqual(again, records) {
			t.Fatalf("got %+v and %v, want %+v", again, err, records)
		}
	})
}

func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if got, err := readFile(path); got != nil || err != nil {
		t.Errorf("a missing file: got %v, %v; want no records and no error", got, err)
	}
	for _, test := range []struct{ file, want string }{
		{"x\n", path + ": line 1: the checksum is missing; the file was left as it is: put a backup in its place, or move it away to begin empty"},
		{string(withSums(`{"userdb":"embedded","version":2`)), path + ": embedded: the file was written by a newer userdb; update this one"},
	} {
		if err := os.WriteFile(path, []byte(test.file), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := readFile(path)
		if err == nil || strings.TrimPrefix(err.Error(), "embedded: ") != test.want {
			t.Errorf("got %v, want %q", err, test.want)
		}
		if errors.Is(err, ErrDamaged) == errors.Is(err, errNewer) {
			t.Errorf("%v: want either ErrDamaged or errNewer", err)
		}
	}
}

func TestReadFileTooLarge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, maxFile+1); err != nil { // sparse
		t.Skip("no sparse files: ", err)
	}
	_, err := readFile(path)
	if want := "reading the embedded store: " + path + ": larger than 1073741824 bytes"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestRecordIsText checks that text that is not UTF-8 puts the record into base64, wherever it is.
func TestRecordIsText(t *testing.T) {
	whole := record{Key: "k", String: text("s"), Hash: map[string]string{"f": "v"}, List: []string{"l"}, Set: []string{"m"}, ZSet: [][2]string{{"z", "1"}}}
	if !whole.isText() {
		t.Error("a record of UTF-8 is not text")
	}
	seen := 0
	for _, at := range strings.Split("ksfvlmz", "") {
		broken, err := whole.each(func(s string) (string, error) { return strings.ReplaceAll(s, at, "\xff"), nil })
		if err != nil || broken.isText() {
			t.Errorf("%s is broken: %+v, %v", at, broken, err)
		}
		seen++
	}
	if seen != 7 {
		t.Errorf("%d texts, want 7", seen)
	}
}
