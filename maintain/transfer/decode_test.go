package transfer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/schema"
)

// typeWithLimit returns a type with a tertiary record of each kind that has at most limit members.
// The name of a record is its kind.
func typeWithLimit(limit int) *change.Type {
	records := map[string]schema.Tertiary{"string": {Kind: "string"}}
	for _, kind := range []string{"hash", "list", "set", "zset"} {
		records[kind] = schema.Tertiary{Kind: kind, Max: limit}
	}
	return &change.Type{Name: "user", Schema: schema.Type{Tertiary: records}}
}

// decodeLine parses a line and decodes its tertiary records, as an import does. It returns the
// number of their values.
func decodeLine(t *change.Type, text string) (values int, err error) {
	r, err := parseLine(text)
	for _, rec := range r.tertiary {
		if err == nil {
			var content change.Content
			content, err = rec.contentFor(t)
			values += len(content.Values)
		}
	}
	return values, err
}

// allocated returns the number of bytes that f allocates. If that is over limit, it calls f again
// and returns the lower number, because other goroutines may allocate meanwhile.
func allocated(limit int, f func()) (least int) {
	for try := range 2 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		n := int(after.TotalAlloc - before.TotalAlloc)
		if try == 0 || n < least {
			least = n
		}
		if least <= limit {
			break
		}
	}
	return least
}

// numbered returns copies of element, separated by commas, of about size bytes in total. In each
// copy, its number replaces %d.
func numbered(element string, size int) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, ","+element, i)
	}
	return b.String()[1:]
}

// TestLineIsNotDecodedBeyondLimits checks that lines of many members are refused before most of the
// members are decoded, which would take many times the memory of the line.
func TestLineIsNotDecodedBeyondLimits(t *testing.T) {
	const size = 4 << 20
	repeated := func(element string) string { return strings.Repeat(element+",", size/(len(element)+1)) + element }
	record := func(name, kind, value string) string {
		return fmt.Sprintf(`{"facets":{"uid":"x"},"tertiary":{%q:{"kind":%q,%s}}}`, name, kind, value)
	}
	typ := typeWithLimit(0)
	const tooMany, overLimit = "an object or array with too many members", "over 10000 members"
	for _, tt := range []struct{ name, line, want string }{
		{"pairs under a set", record("set", "zset", `"value":[`+repeated("[1]")+`]`), "the schema declares no zset of that name"},
		{"an undeclared record", record("other", "list", `"value":[`+repeated(`""`)+`]`), "the schema declares no list of that name"},
		{"an unknown kind", record("set", "sett", `"value":[`+repeated(`""`)+`]`), `its kind is "sett"; want hash, list, set, string or zset`},
		{"an unknown kind in base64", record("set", "sett", `"value64":[`+repeated(`""`)+`]`), `its kind is "sett"`},
		{"lists under a zset", record("zset", "zset", `"value":[`+repeated("[1]")+`]`), `its value is not of kind "zset"`},
		{"pairs", record("zset", "zset", `"value":[`+repeated(`["",1]`)+`]`), overLimit},
		{"a set", record("set", "set", `"value":[`+repeated(`""`)+`]`), overLimit},
		{"a list", record("list", "list", `"value":[`+repeated(`""`)+`]`), overLimit},
		{"a list with escapes", record("list", "list", `"value":[`+repeated(`"\n"`)+`]`), overLimit},
		{"a hash", record("hash", "hash", `"value":{`+numbered(`"%d":""`, size)+`}`), overLimit},
		{"a list under a string", record("string", "string", `"value":[`+repeated(`""`)+`]`), `its value is not of kind "string"`},
		{"a set in base64", record("set", "set", `"value64":[`+repeated(`""`)+`]`), overLimit},
		{"a list in base64", record("list", "list", `"value64":[`+repeated(`""`)+`]`), overLimit},
		{"a hash in base64", record("hash", "hash", `"value64":[`+repeated(`""`)+`]`), overLimit},
		{"pairs in base64", record("zset", "zset", `"value64":[`+repeated(`""`)+`]`), overLimit},
		{"a string in base64", record("string", "string", `"value64":[`+repeated(`""`)+`]`), `its value is not of kind "string"`},
		{"records", `{"tertiary":{` + numbered(`"%d":null`, size) + `}}`, tooMany},
		{"facets", `{"facets":{` + numbered(`"%d":""`, size) + `}}`, tooMany},
		{"facets in base64", `{"wire":{` + numbered(`"%d":""`, size) + `}}`, tooMany},
		{"verified facets", `{"verified":[` + repeated(`""`) + `]}`, tooMany},
	} {
		var err error
		limit := 8*len(tt.line) + 64<<20
		bytes := allocated(limit, func() { _, err = decodeLine(typ, tt.line) })
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got error %v, want %q", tt.name, err, tt.want)
		}
		if bytes > limit {
			t.Errorf("%s: decoding a line of %d bytes allocates %d bytes, want at most %d", tt.name, len(tt.line), bytes, limit)
		}
	}
}

// TestDecodedMembers decodes tertiary records with the largest number of members, and with one
// more.
func TestDecodedMembers(t *testing.T) {
	typ, limit := typeWithLimit(5), 5
	list := func(element string) func(n int) string {
		return func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]" }
	}
	twice := func(n int) string { return list(`"eA==","MQ=="`)(n) }
	for _, tt := range []struct {
		kind, key string
		limit     int
		text      func(n int) string
		perMember int // values of each member
	}{
		{"list", "value", limit, list(`"x"`), 1},
		{"hash", "value", limit, func(n int) string { return "{" + numbered(`"%d":"x"`, len(`,"0":"x"`)*n) + "}" }, 2},
		{"zset", "value", limit, list(`["x",1]`), 2},
		{"set", "value", maxMembers, list(`"x"`), 1}, // a change counts only distinct members
		{"list", "value64", limit, list(`"eA=="`), 1},
		{"hash", "value64", limit, twice, 2},
		{"zset", "value64", limit, twice, 2},
		{"set", "value64", maxMembers, list(`"eA=="`), 1},
	} {
		for over := range 2 {
			n := tt.limit + over
			line := fmt.Sprintf(`{"tertiary":{%q:{"kind":%q,%q:%s}}}`, tt.kind, tt.kind, tt.key, tt.text(n))
			got, err := decodeLine(typ, line)
			if over == 0 && (err != nil || got != n*tt.perMember) || over == 1 && (!errors.Is(err, change.ErrInvalid) || !strings.Contains(err.Error(), "over 5 members")) {
				t.Errorf("%s as %s with %d members: got %d values, %v; the limit is %d members", tt.kind, tt.key, n, got, err, tt.limit)
			}
		}
	}
	for over := range 2 {
		words := strings.Repeat("x ", maxMembers+over)
		content, err := cellContent(typ, "set", "set", words)
		if over == 0 && (err != nil || len(content.Values) != maxMembers) || over == 1 && !errors.Is(err, change.ErrInvalid) {
			t.Errorf("a cell of %d words: got %d values, %v; the limit is %d", maxMembers+over, len(content.Values), err, maxMembers)
		}
	}
}

// TestTertiaryErrors checks the errors for tertiary records of the wrong form, most of which are
// found only when the schema is known.
func TestTertiaryErrors(t *testing.T) {
	typ := typeWithLimit(0)
	for text, want := range map[string]string{
		`{"kind":"set","value64":["?"]}`:                  `tertiary record "set": "value64" has the wrong JSON type`,
		`{"kind":"set","value64":{}}`:                     `tertiary record "set": not a JSON array`,
		`{"kind":"set","value64":"eA=="}`:                 `tertiary record "set": not a JSON array`,
		`{"kind":"sett","value":["x"]}`:                   `tertiary record "set": its kind is "sett"; want hash, list, set, string or zset`,
		`{"value":["x"]}`:                                 `tertiary record "set": its kind is ""; want hash, list, set, string or zset`,
		`null`:                                            `tertiary record "set": its kind is ""; want hash, list, set, string or zset`,
		`{"kind":"list","value":["x"]}`:                   `schema: types.user.tertiary.set: the schema declares no list of that name`,
		`{"kind":"set","value":null,"value64":["eA=="]}`:  `tertiary record "set": both value and value64`,
		`{"kind":"set","value":["x"],"value64":null}`:     ``,
		`{"kind":"set","value64":[]}`:                     ``,
		`{"kind":"set","value":[]}`:                       ``,
		`{"kind":"set","value":["x",]}`:                   `not JSON: syntax error at byte 47`,
		`{"kind":"set","value":["x"],"value64":["eA=="]}`: `tertiary record "set": both value and value64`,
	} {
		got := ""
		if _, err := decodeLine(typ, `{"tertiary":{"set":`+text+`}}`); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got error %q, want %q", text, got, want)
		}
	}
}

// TestManyCells checks that a row of CSV with too many cells ends the input before the row is
// split, and that the limit is for each row and not for all rows together.
func TestManyCells(t *testing.T) {
	const good, quoted = "1,Ann\n", 499_000
	open := func(text string) (*csvRows, error) {
		return newCSVRows(bufio.NewReaderSize(strings.NewReader(text), 1<<20), csvOptions{delimiter: ','})
	}
	commas := strings.Repeat(",", maxImportLine-1)
	var last error
	text := "uid,name\n" + good + commas
	bytes := allocated(128<<20, func() {
		s, err := open(text)
		if err != nil {
			t.Fatal(err)
		}
		_, last = readAll(s)
	})
	var readErr *ReadError
	if !errors.As(last, &readErr) || readErr.Line != 3 || readErr.Offset != int64(len("uid,name\n"+good)) || !errors.Is(last, ErrInput) {
		t.Errorf("a row of commas: got error %v, want a ReadError at line 3", last)
	}
	if bytes > 128<<20 {
		t.Errorf("reading a row of commas allocates %d bytes, want at most %d", bytes, 128<<20)
	}
	if _, err := open(commas); !errors.As(err, &readErr) {
		t.Errorf("a header of commas: got error %v, want a ReadError", err)
	}
	row := `2,"` + strings.Repeat(",", quoted) + "\"\n"
	s, err := open("uid,name\n" + row + row + good)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{row, row, good} {
		var l line
		if more, err := s.next(&l); !more || err != nil || l.err != nil || l.raw != want || len(l.cells) != 2 {
			t.Errorf("row %d: got %v, %v and %d bytes in %d cells, error %v; want %d bytes in 2 cells", i, more, err, len(l.raw), len(l.cells), l.err, len(want))
		}
	}
}

// TestLongLineIsCopiedOnce checks that a line longer than its reader's buffer is copied only once,
// and not for each part.
func TestLongLineIsCopiedOnce(t *testing.T) {
	in := bytes.Repeat([]byte("x"), maxImportLine)
	for over := range 2 {
		var l line
		size := allocated(5*maxImportLine, func() {
			l = line{}
			r := bufio.NewReaderSize(bytes.NewReader(append(in, "x"[:over]...)), 64<<10)
			if more, err := (&jsonLines{r: r}).next(&l); !more || err != nil {
				t.Fatal(more, err)
			}
		})
		if (l.err != nil) != (over == 1) || over == 0 && len(l.raw) != maxImportLine || over == 1 && len(l.raw) != 100 {
			t.Errorf("a line of %d bytes: got %d bytes, error %v; want all of them, or the first 100 and an error if it is too long", maxImportLine+over, len(l.raw), l.err)
		}
		if size > 5*maxImportLine {
			t.Errorf("reading a line of %d bytes allocates %d bytes, want at most %d", maxImportLine+over, size, 5*maxImportLine)
		}
	}
}
