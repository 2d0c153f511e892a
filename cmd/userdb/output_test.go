package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/strictjson"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestSecretWithoutWarning checks that secrets are printed even if the warning that others may read
// them cannot be written.
func TestSecretWithoutWarning(t *testing.T) {
	useFile(t)
	if got := runCommand(nil, "correct horse battery\n", "create", "uid=a", "email=a@example.com", "--password-stdin"); got.code != 0 {
		t.Fatalf("create: %+v, want exit 0", got)
	}
	for _, line := range []string{
		"apikey create web --scope read", "apikey create nightly --scope read --json", "token issue uid=a --purpose reset",
		"login --session --password-stdin --json -- a@example.com", "get uid=a --reveal", "export --secrets",
	} {
		path := filepath.Join(t.TempDir(), "secret")
		out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		code := run(strings.Fields(line), stdio{in: strings.NewReader("correct horse battery\n"), out: out, err: &brokenWriter{err: syscall.EBADF}})
		text, err := os.ReadFile(path)
		if err != nil || code != 0 || len(text) < 20 {
			t.Errorf("%s: exit code %d, printed %q, %v; want exit 0 and the secret", line, code, text, err)
		}
		if err := out.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestTextAfterBooleanFlag checks that no message repeats the value given to a flag without values,
// because the value may be a password.
func TestTextAfterBooleanFlag(t *testing.T) {
	useFile(t)
	for _, line := range []string{
		"login --password-stdin=hunter2 -- a", "login --help=hunter2 -- a", "passwd --change=hunter2 -- a", "list --json=hunter2", "list --disabled=hunter2", "--version=hunter2",
	} {
		if got := runCommand(nil, "", strings.Fields(line)...); got.code != 2 || strings.Contains(got.out+got.err, "hunter2") {
			t.Errorf("%s: %+v, want exit 2 without the text", line, got)
		}
	}
}

func TestFormatEntry(t *testing.T) {
	got := formatEntry(schema.Facets{
		"~isa": schema.Text("user"), "~prk": schema.Text("user/uid:a1"), "~rev": schema.Text("r"),
		"名前": schema.Text("x"), "age": schema.Number(42), "none": schema.Null(), "": schema.Text(""), "a=b": schema.Text("c\td"),
	})
	want := `user/uid:a1
  ""    ""
  a=b   "c\td"
  age   42
  none  null
  ~rev  r
  名前    x`
	if got != want {
		t.Errorf("formatEntry:\n%s\nwant:\n%s", got, want)
	}
}

func TestFormatFacet(t *testing.T) {
	for _, tt := range []struct{ name, value, want string }{
		{"name", "Alice", "name=Alice"},
		{"name", "Just A. User", "name=Just A. User"},
		{"name", "Alice  job=admin", `name="Alice  job=admin"`},
		{"name", "", `name=""`},
		{"", "x", `""=x`},
		{"a b", "x\n", `a b="x\n"`},
	} {
		if got := formatFacet(tt.name, tt.value); got != tt.want {
			t.Errorf("formatFacet(%q, %q) = %s, want %s", tt.name, tt.value, got, tt.want)
		}
	}
}

func TestParseFacets(t *testing.T) {
	typ := schema.Type{Primary: "uid", Fields: map[string]schema.Field{
		"age": {Codec: schema.CodecNumber}, "on": {Codec: schema.CodecBoolean}, "more": {Codec: schema.CodecJSON},
		"at": {Codec: schema.CodecDate}, "no": {Codec: schema.CodecNull},
	}}
	got, err := parseFacets(typ, []string{"age=4.20e1", "on=true", `more={"a": [1]}`, "at=2026-01-02", "no=null", "name=a=b", "empty="})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"age": "42", "on": "true", "more": `{"a":[1]}`, "at": "2026-01-02T00:00:00.000Z", "no": "null", "name": "a=b", "empty": "",
	} {
		if wire := got[name].Wire(); wire != want {
			t.Errorf("%s is %q, want %q", name, wire, want)
		}
	}
	for _, tt := range []struct{ text, want string }{
		{"age=abc", "invalid value: age: not a number"},
		{"age=", "invalid value: age: not a number"},
		{"on=yes", "invalid value: on: neither true nor false"},
		{"more={", "invalid value: more: not one JSON value"},
		{"no=x", "invalid value: no: not null"},
		{"name=" + strings.Repeat("x", schema.MaxFacet+1), "invalid value: name: longer than "},
	} {
		_, err := parseFacets(typ, []string{tt.text})
		var named *userdb.FieldError
		if !errors.As(err, &named) || !errors.Is(err, userdb.ErrInvalid) || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("parseFacets(%.20s) fails with %v, want %s", tt.text, err, tt.want)
		}
	}
}

func TestFailures(t *testing.T) {
	gone := userdb.ErrNotFound
	for _, tt := range []struct {
		texts []string
		want  string
	}{
		{nil, "<nil>"},
		{[]string{"a"}, "a: not found"},
		{[]string{"a\n"}, `"a\n": not found`},
		{[]string{"a", "b"}, "not found (2 of 9: a, b)"},
		{[]string{"a", "b", "c", "d", "e", "f"}, "not found (6 of 9: a, b, c, d, e, …)"},
	} {
		f := failures{asked: 9}
		for _, text := range tt.texts {
			if !f.add(text, gone) {
				t.Errorf("add(%q, %v) = false, want true", text, gone)
			}
		}
		got := "<nil>"
		if err := f.err(); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("failures of %q: %s, want %s", tt.texts, got, tt.want)
		}
	}
	f := failures{}
	if f.add("a", userdb.ErrUnavailable) || f.add("", userdb.ErrConflict) {
		t.Error("add accepted an error that is not about one entry")
	}
}

// A brokenWriter accepts left bytes and then fails with err.
type brokenWriter struct {
	left int
	err  error
}

func (w *brokenWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, w.err
	}
	return len(p), nil
}

func TestOutput(t *testing.T) {
	full := errors.New("full")
	o := &output{w: bufio.NewWriter(&brokenWriter{3, full}), live: true}
	if err := o.print(nil, "ab"); err != nil {
		t.Errorf("print of the first line: got the error %v, want none", err)
	}
	if err := o.print(nil, "cd"); !errors.Is(err, full) || err.Error() != "writing the output: full" || brokenPipe(err) {
		t.Errorf("print of the second line: got the error %v, want writing the output: full", err)
	}
	o = &output{w: bufio.NewWriter(&brokenWriter{0, syscall.EPIPE}), json: true}
	if err := o.print("x", ""); err != nil {
		t.Errorf("print of a buffered line: got the error %v, want none", err)
	}
	if err := o.flush(); !brokenPipe(err) {
		t.Errorf("flush to a closed pipe: got the error %v, want a broken pipe", err)
	}
}

func TestPrintable(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"Alice", "Alice"},
		{"Just A. User", "Just A. User"},
		{"Zoë 名前 😀", "Zoë 名前 😀"},
		{"", `""`},
		{" x", `" x"`},
		{"x ", `"x "`},
		{`"x"`, `"\"x\""`},
		{`x"`, `x"`},
		{"a\nb", `"a\nb"`},
		{"\x1b[31m", `"\x1b[31m"`},
		{"\u009b31m", `"\u009b31m"`},
		{"a\u202eb", `"a\u202eb"`},
		{"a\u00a0b", `"a\u00a0b"`},
		{"\xff", `"\xff"`},
		{"👩\u200d👧", "👩\u200d👧"},
		{"❤\ufe0f\u200d🔥", "❤\ufe0f\u200d🔥"},
		{"👩🏽\u200d🚀", "👩🏽\u200d🚀"},
		{"می\u200cخواهم", "می\u200cخواهم"},
		{"क्\u200dष", "क्\u200dष"},
		{"Al\u200dice", `"Al\u200dice"`},
		{"Al\u200cice", `"Al\u200cice"`},
		{"\u200cب", `"\u200cب"`},
		{"ب\u200c", `"ب\u200c"`},
		{"ب\u200c\u200cب", `"ب\u200c\u200cب"`},
		{"😀\u200cx", `"😀\u200cx"`},
	} {
		if got := printable(tt.text); got != tt.want {
			t.Errorf("printable(%q) = %s, want %s", tt.text, got, tt.want)
		}
	}
}

func TestPlural(t *testing.T) {
	for want, got := range map[string]string{
		"0 entries": plural(0, "entry"), "1 entry": plural(1, "entry"), "2 entries": plural(2, "entry"),
		"1 error": plural(1, "error"), "0 errors": plural(0, "error"),
	} {
		if got != want {
			t.Errorf("plural = %q, want %q", got, want)
		}
	}
}

// controlsTerminal reports whether a line contains a character that could control a terminal. The
// joiners in emoji and in Arabic and Indic words cannot.
func controlsTerminal(line string) bool {
	return !utf8.ValidString(line) || strings.ContainsFunc(line, func(r rune) bool {
		return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) && r != zeroWidthJoiner && r != zeroWidthNonJoiner || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r)
	})
}

func TestNothingDrivesATerminal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "text")
		for what, got := range map[string]string{"printable": printable(text), "oneLine": oneLine(text), "formatFacet": formatFacet(text, text)} {
			if controlsTerminal(got) {
				t.Errorf("%s(%q) = %q, which controls a terminal", what, text, got)
			}
		}
		if got := printable(text); got != text {
			if back, err := strconv.Unquote(got); err != nil || back != text {
				t.Errorf("printable(%q) = %s, which unquotes to %q, %v; want the text", text, got, back, err)
			}
		}
		line, err := strictjson.Marshal([]string{text})
		if err != nil {
			t.Fatal(err)
		}
		if body, ok := strings.CutSuffix(string(line), "\n"); !ok || controlsTerminal(body) {
			t.Errorf("JSON of %q is %q: not one line, or it controls a terminal", text, line)
		}
		var back []string
		if err := json.Unmarshal(line, &back); err != nil || back[0] != strings.ToValidUTF8(text, "\ufffd") && utf8.ValidString(text) {
			t.Errorf("JSON of %q is read as %q, %v; want the text", text, back, err)
		}
	})
}

func TestJSONLine(t *testing.T) {
	for _, tt := range []struct {
		v    any
		want string
	}{
		{"<a&b>", `"<a&b>"`},
		{"\u007f\u009b\u202e\u2028\U000e0001", `"\u007f\u009b\u202e\u2028\udb40\udc01"`},
		{[]string{"é😀"}, `["é😀"]`},
		{3, "3"},
	} {
		got, err := strictjson.Marshal(tt.v)
		if err != nil || string(got) != tt.want+"\n" {
			t.Errorf("JSON of %q = %s, %v; want %s", tt.v, got, err, tt.want)
		}
	}
}

// controlChars contains a character of every kind that can control a terminal: C0 and C1 control
// characters, DEL, marks that change the direction of writing, and Unicode line separators.
const controlChars = "a\x00\a\b\t\x1b[31m\x7f\u0085\u009b31m\u009d\u061c\u200e\u200f\u202a\u202e\u2066\u2069\u2028\u2029\ufeff\U000e0001z"

// firstControl returns the first character of an output, other than a line feed, that could control
// a terminal.
func firstControl(output string) (rune, bool) {
	for _, r := range output {
		if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r) && r != zeroWidthJoiner && r != zeroWidthNonJoiner || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r)) {
			return r, true
		}
	}
	return 0, false
}

// controlCharsStore fills a store with controlChars in every place that takes a text. It returns
// the path of the schema and its folder. The schema's pattern for the field alias also contains
// such characters.
func controlCharsStore(t *testing.T) (schemaFile string, dir string) {
	t.Helper()
	useFile(t)
	dir = t.TempDir()
	quoted, err := json.Marshal(controlChars)
	if err != nil {
		t.Fatal(err)
	}
	q := string(quoted)
	schemaFile = filepath.Join(dir, "schema.json")
	files := map[string]string{
		schemaFile: `{"types":{"user":{"primary":"uid","fold":"exact","open":true,"fields":{"name":{"role":"secondary"},"more":{"codec":"json"},` +
			`"job":{"role":"indexed"},"alias":{"role":"secondary","pattern":"x\u009b\u202e"}},"tertiary":{"tags":{"kind":"set","indexed":true},` +
			`"notes":{"kind":"list"},"ranks":{"kind":"zset"},"settings":{"kind":"hash"},"bio":{"kind":"string"}}}}}`,
		filepath.Join(dir, "users.jsonl"): fmt.Sprintf(`{"facets":{"uid":%[1]s,"name":%[1]s,"job":%[1]s,"more":{%[1]s:[%[1]s]},%[1]s:%[1]s},"disabled":"2026-01-02",`+
			`"tertiary":{"tags":{"kind":"set","value":[%[1]s]},"notes":{"kind":"list","value":[%[1]s]},"ranks":{"kind":"zset","value":[[%[1]s,1]]},`+
			`"settings":{"kind":"hash","value":{%[1]s:%[1]s}},"bio":{"kind":"string","value":%[1]s}}}`, q) + "\n" +
			`{"facets":{"uid":"plain","name":"plain"}}` + "\n",
	}
	for path, text := range files {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := runCommand(nil, "", "import", filepath.Join(dir, "users.jsonl"), "--extra", "--schema", schemaFile); got.code != 0 {
		t.Fatalf("import: %+v, want exit 0", got)
	}
	return schemaFile, dir
}

// TestNothingIsPrintedRaw checks that neither values nor errors in the output can control a
// terminal or begin a new line.
func TestNothingIsPrintedRaw(t *testing.T) {
	schemaFile, dir := controlCharsStore(t)
	nowhere, wrong := filepath.Join(dir, controlChars), filepath.Join(dir, "wrong.jsonl")
	text := `{"` + controlChars + `":1}` + "\n" + `{"type":"\u009b","facets":{}}` + "\n" + `{"facets":{"name":"\u202e"}}` + "\n"
	if err := os.WriteFile(wrong, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	typo := filepath.Join(dir, "typo.jsonl")
	if err := os.WriteFile(typo, []byte(`{"facets":{"name":"x","\u009b":{}}}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for code, lines := range map[int][][]string{
		0: {
			{"export"},
			{"export", "name=" + controlChars},
			{"dump"},
			{"dump", "--format", "short"},
			{"dump", "--format", "keys"},
			{"list", "user"},
			{"list", "user", "--where", "job=" + controlChars},
			{"get", "name=" + controlChars},
			{"schema", "show"},
			{"schema", "show", "--schema", schemaFile},
			{"schema", "check"},
			{"keys", "*"},
			{"walk", "*"},
			{"tags", "list", "name=" + controlChars},
			{"check"},
			{"recordkey", "escape", controlChars},
			{"hint", "name=" + controlChars},
			{"set", "name=" + controlChars, "job=" + controlChars + controlChars},
		},
		2: {
			{controlChars},
			{"--" + controlChars},
			{"get", "[" + controlChars},
			{"set", "plain", controlChars},
			{"set", "plain", "alias=" + controlChars},
			{"list", controlChars},
			{"--store", controlChars, "check"},
			{"--store", "redis://" + controlChars, "check"},
			{"--schema", nowhere, "check"},
			{"import", nowhere},
			{"list", "user", "--where", controlChars + "=x"},
			{"--namespace", controlChars + "//", "check"},
			{"check", "--keep", controlChars, "--repair"},
			{"recordkey", "split", controlChars},
			{"schema", "show", "--schema", nowhere},
			{"list", "user", "--after", controlChars},
			{"import", typo},
			{"dump", "--format", controlChars},
		},
		1: {{"import", wrong, "--dry-run"}},
		3: {{"get", "name=" + controlChars + "x"}, {"get", controlChars + "x", controlChars + "y"}, {"delete", "name=" + controlChars + "x", "--yes"}},
		4: {{"create", "user", "name=" + controlChars, "--no-password"}},
	} {
		for _, args := range lines {
			for _, more := range [][]string{nil, {"--json"}} {
				if len(more) > 0 && args[0] == "dump" {
					continue
				}
				got := runCommand(nil, "", append(slices.Clone(args), more...)...)
				if r, ok := firstControl(got.out + got.err); ok {
					t.Errorf("%q prints %U: %q", args, r, got.out+got.err)
				}
				if got.code != code {
					t.Errorf("%q: %+v, want exit %d", args, got, code)
				}
			}
		}
	}
}

// TestSecretsInExposedFiles checks that commands warn if, and only if, others may read the file
// that a secret is written to. Commands that fail print no secret, so they do not warn.
func TestSecretsInExposedFiles(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("on Windows, the mode of a file does not say who may read it")
	}
	useFile(t)
	if got := runCommand(nil, "", "create", "user", "uid=u1", "--no-password"); got.code != 0 {
		t.Fatalf("create: %+v, want exit 0", got)
	}
	for args, secret := range map[string]bool{
		"export --secrets":                     true,
		"export --secrets --json":              true,
		"export":                               false,
		"get u1 --reveal":                      true,
		"get u1":                               false,
		"dump --reveal":                        true,
		"dump":                                 false,
		"token issue u1 --purpose reset":       true,
		"apikey create key MODE --scope admin": true,
		"apikey list":                          false,
	} {
		for mode, open := range map[os.FileMode]bool{0o600: false, 0o644: true} {
			file, err := os.OpenFile(filepath.Join(t.TempDir(), "out"), os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			if err := file.Chmod(mode); err != nil {
				t.Fatal(err)
			}
			var errs strings.Builder
			words := strings.Fields(strings.Replace(args, "key MODE", fmt.Sprintf("key%o", mode), 1))
			if code := run(words, stdio{in: strings.NewReader(""), out: file, err: &errs}); code != 0 {
				t.Fatalf("%s: exit %d, want 0: %s", args, code, errs.String())
			}
			if warned := strings.Contains(errs.String(), "others may read the file"); warned != (secret && open) {
				t.Errorf("%s into a file with mode %o: warning %v, want %v", args, mode, warned, secret && open)
			}
		}
	}
	for _, args := range []string{"token issue nobody --purpose reset", "apikey create a/b --scope admin", "apikey create shop --scope nope"} {
		file, err := os.OpenFile(filepath.Join(t.TempDir(), "out"), os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if err := file.Chmod(0o644); err != nil {
			t.Fatal(err)
		}
		var errs strings.Builder
		code := run(strings.Fields(args), stdio{in: strings.NewReader(""), out: file, err: &errs})
		if code == 0 || strings.Contains(errs.String(), "others may read the file") {
			t.Errorf("%s: exit %d, %q; want a failure and no warning", args, code, errs.String())
		}
	}
}

// TestNastyRoundTrip checks that an import restores exactly what was exported, whatever characters
// it contains.
func TestNastyRoundTrip(t *testing.T) {
	schemaFile, dir := controlCharsStore(t)
	first := runCommand(nil, "", "export", "--secrets")
	if first.code != 0 || !strings.Contains(first.out, `\u009b`) || strings.Contains(first.out, `"wire"`) || strings.Contains(first.out, `"value64"`) {
		t.Fatalf("export: %+v, want exit 0, escaped texts and no value in another form", first)
	}
	path := filepath.Join(dir, "all.jsonl")
	if err := os.WriteFile(path, []byte(first.out), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := runCommand(nil, "", "import", path, "--extra", "--namespace", "copy", "--schema", schemaFile); got.code != 0 {
		t.Fatalf("import: %+v, want exit 0", got)
	}
	again := runCommand(nil, "", "export", "--secrets", "--namespace", "copy")
	sorted := func(text string) string {
		lines := strings.Split(text, "\n")
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
	if sorted(again.out) != sorted(first.out) {
		t.Errorf("after an import, export prints\n%s\nwant\n%s", again.out, first.out)
	}
	got := runCommand(nil, "", "get", "name="+controlChars, "--json", "--namespace", "copy")
	var e map[string]any
	if err := json.Unmarshal([]byte(got.out), &e); err != nil || e["uid"] != controlChars || e["job"] != controlChars || e[controlChars] != controlChars {
		t.Errorf("get prints %+v (%v), want the values that were imported", got, err)
	}
}

func TestWarnings(t *testing.T) {
	server := redistest.Start(t, redistest.Config("maxmemory 100mb", "maxmemory-policy allkeys-lru"))
	t.Setenv("USERDB_STORE", server.URL())
	got := runCommand(nil, "", "count", "user")
	if got.code != 0 || got.out != "0\n" || !strings.HasPrefix(got.err, "userdb: warning: ") || !strings.HasSuffix(got.err, "; set maxmemory-policy noeviction\n") {
		t.Errorf("count at a server that evicts: %+v, want the count and a warning", got)
	}
	if got := runCommand(nil, "", "count", "user", "--json"); got != (result{0, "0\n", ""}) {
		t.Errorf("count --json at a server that evicts: %+v, want the count and no warning", got)
	}
	if got := runCommand(nil, "x", "login", "Alice", "--password-stdin"); got != (result{5, "", "userdb: wrong identifier or password\n"}) {
		t.Errorf("login at a server that evicts: %+v, want exit 5 and no warning", got)
	}
}
