package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// nasty drives a terminal in each of the ways: C0, DEL, C1, marks of direction, and what ends lines elsewhere.
const nasty = "a\x00\a\b\t\x1b[31m\x7f\u0085\u009b31m\u009d\u061c\u200e\u200f\u202a\u202e\u2066\u2069\u2028\u2029\ufeff\U000e0001z"

// rawIn gives the first character of an output that could drive a terminal.
func rawIn(output string) (rune, bool) {
	for _, r := range output {
		if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r)) {
			return r, true
		}
	}
	return 0, false
}

// nastyStore is a file with entries that hold nasty texts wherever there is a text, by a schema that does.
func nastyStore(t *testing.T) (schemaFile string, dir string) {
	t.Helper()
	useFile(t)
	dir = t.TempDir()
	quoted, err := json.Marshal(nasty)
	if err != nil {
		t.Fatal(err)
	}
	q := string(quoted)
	schemaFile = filepath.Join(dir, "schema.json")
	files := map[string]string{
		schemaFile: `{"types":{"user":{"primary":"uid","fold":"exact","fields":{"name":{"role":"secondary"},"more":{"codec":"json"},` +
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
	if got := here(nil, "", "import", filepath.Join(dir, "users.jsonl"), "--schema", schemaFile); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	return schemaFile, dir
}

// Nothing that a command prints of values, and no error, drives a terminal, whoever reads it.
func TestNothingIsPrintedRaw(t *testing.T) {
	schemaFile, dir := nastyStore(t)
	nowhere, wrong := filepath.Join(dir, nasty), filepath.Join(dir, "wrong.jsonl")
	text := `{"` + nasty + `":1}` + "\n" + `{"type":"\u009b","facets":{}}` + "\n" + `{"facets":{"name":"\u202e","\u009b":{}}}` + "\n"
	if err := os.WriteFile(wrong, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for code, lines := range map[int][][]string{
		0: {
			{"export"},
			{"export", "name=" + nasty},
			{"dump"},
			{"dump", "--format", "short"},
			{"dump", "--format", "keys"},
			{"list", "user"},
			{"list", "user", "--where", "job=" + nasty},
			{"get", "name=" + nasty},
			{"schema", "show"},
			{"schema", "show", "--schema", schemaFile},
			{"schema", "check"},
			{"keys", "*"},
			{"walk", "*"},
			{"tags", "list", "name=" + nasty},
			{"check"},
			{"key", "escape", nasty},
			{"hint", "name=" + nasty},
			{"set", "name=" + nasty, "job=" + nasty + nasty},
		},
		2: {
			{nasty},
			{"--" + nasty},
			{"get", "[" + nasty},
			{"set", "plain", nasty},
			{"set", "plain", "alias=" + nasty},
			{"list", nasty},
			{"--store", nasty, "check"},
			{"--store", "redis://" + nasty, "check"},
			{"--schema", nowhere, "check"},
			{"import", nowhere},
			{"list", "user", "--where", nasty + "=x"},
			{"--namespace", nasty + "//", "check"},
			{"check", "--keep", nasty, "--repair"},
			{"key", "split", nasty},
			{"schema", "show", "--schema", nowhere},
			{"list", "user", "--after", nasty},
			{"dump", "--format", nasty},
		},
		1: {{"import", wrong, "--dry-run"}},
		3: {{"get", "name=" + nasty + "x"}, {"get", nasty + "x", nasty + "y"}, {"delete", "name=" + nasty + "x", "--yes"}},
		4: {{"create", "user", "name=" + nasty, "--no-password"}},
	} {
		for _, args := range lines {
			for _, more := range [][]string{nil, {"--json"}} {
				if len(more) > 0 && args[0] == "dump" {
					continue
				}
				got := here(nil, "", append(slices.Clone(args), more...)...)
				if r, is := rawIn(got.out + got.err); is {
					t.Errorf("%q prints %U: %q", args, r, got.out+got.err)
				}
				if got.code != code {
					t.Errorf("%q: %+v, want exit %d", args, got, code)
				}
			}
		}
	}
}

// What an export holds comes back as it was, whatever it holds.
func TestNastyRoundTrip(t *testing.T) {
	schemaFile, dir := nastyStore(t)
	first := here(nil, "", "export", "--secrets")
	if first.code != 0 || !strings.Contains(first.out, `\u009b`) || strings.Contains(first.out, `"wire"`) || strings.Contains(first.out, `"value64"`) {
		t.Fatalf("%+v", first)
	}
	path := filepath.Join(dir, "all.jsonl")
	if err := os.WriteFile(path, []byte(first.out), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := here(nil, "", "import", path, "--namespace", "copy", "--schema", schemaFile); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	again := here(nil, "", "export", "--secrets", "--namespace", "copy")
	sorted := func(text string) string {
		lines := strings.Split(text, "\n")
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
	if sorted(again.out) != sorted(first.out) {
		t.Errorf("%s\nwas\n%s", again.out, first.out)
	}
	got := here(nil, "", "get", "name="+nasty, "--json", "--namespace", "copy")
	var e map[string]any
	if err := json.Unmarshal([]byte(got.out), &e); err != nil || e["uid"] != nasty || e["job"] != nasty || e[nasty] != nasty {
		t.Errorf("%v, %+v", err, got)
	}
}
