package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rivo/uniseg"
)

// runWithWidth runs a command line at a terminal that is width characters wide, and returns its
// output.
func runWithWidth(t *testing.T, width int, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(args, stdio{in: strings.NewReader(""), out: &out, err: &errs, width: width}); code != 0 {
		t.Errorf("userdb %q: exit %d, want 0: %s", args, code, errs.String())
	}
	return out.String()
}

// TestTable checks that a listing is a table no wider than the terminal. The golden file shows
// whether columns with wide characters are aligned; look at it when it changes.
func TestTable(t *testing.T) {
	useFile(t)
	file := filepath.Join(t.TempDir(), "schema.json")
	const people = `{"types":{"user":{"primary":"uid","fields":{
		"name":{"role":["secondary","ordered"]},"email":{"role":"secondary"},"job":{},"added":{"codec":"date"}}}}}`
	if err := os.WriteFile(file, []byte(people), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("USERDB_SCHEMA", file)
	for _, facets := range [][]string{
		{"uid=1", "name=1 Alice", "email=alice@example.com", "job=author"},
		{"uid=2", "name=2 漢字の名前", "email=kanji@example.com", "job=書記"},
		{"uid=3", "name=3 Jose\u0301", "email=jose@example.com"}, // a combining accent
		{"uid=4", "name=4 👨‍👩‍👧", "email=family@example.com", "job=parents"},
		{"uid=5", "name=5 Longer", "email=" + strings.Repeat("long.", 11) + "@a-domain-of-many-letters.example.com", "job=" + strings.Repeat("tells much ", 30) + "end"},
		{"uid=6", "name=6 Marks", "job=a\u202eb"},
		{"uid=a-uid-that-is-longer-than-others", "name=7"},
	} {
		if got := runCommand(nil, "", append([]string{"create", "user", "added=2026-01-02", "--no-password"}, facets...)...); got.code != 0 {
			t.Fatalf("create %q: %+v, want exit 0", facets, got)
		}
	}
	runCommand(nil, "", "disable", "email=jose@example.com")
	var all strings.Builder
	show := func(width int, args ...string) {
		text := runWithWidth(t, width, args...)
		for line := range strings.Lines(text) {
			if line = strings.TrimSuffix(line, "\n"); uniseg.StringWidth(line) > width || strings.HasSuffix(line, " ") {
				t.Errorf("a line is wider than %d, or has a space at its end: %q", width, line)
			}
		}
		all.WriteString("$ userdb " + strings.Join(args, " ") + "\n" + text + "\n")
	}
	for _, width := range []int{40, 80, 140} {
		show(width, "list", "user", "--order", "name")
	}
	show(80, "list", "user", "--order", "name", "--fields", "job,name")
	show(80, "list", "user", "--order", "name", "--limit", "2", "--fields", "email")
	show(80, "list", "user", "--where", "name=nobody")
	const golden = "testdata/table.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(all.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || string(want) != all.String() {
		t.Errorf("the tables differ from %s (%v): write them with -update, and look at them:\n%s", golden, err, all.String())
	}
	if got := runCommand(nil, "", "list", "user", "--fields", "nmae"); got.code != 2 || !strings.Contains(got.err, "type user has no field nmae") {
		t.Errorf("list with a field that does not exist: %+v, want exit 2 and the field", got)
	}
	if got := runCommand(nil, "", "list", "user", "--order", "name", "--limit", "1", "--fields", "job,added"); got.out != "user/uid:1  job=author  added=2026-01-02T00:00:00.000Z\n" {
		t.Errorf("list without a terminal: %+v, want a line and no table", got)
	}
}

// TestTableAfterSample checks that the first sampleSize entries determine the columns, that later
// entries are cut to fit them, and that an ellipsis marks a field without a column.
func TestTableAfterSample(t *testing.T) {
	useFile(t)
	file := filepath.Join(t.TempDir(), "schema.json")
	if err := os.WriteFile(file, []byte(`{"types":{"user":{"primary":"uid","open":true,"fields":{"name":{"role":["secondary","ordered"]}}}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("USERDB_SCHEMA", file)
	var lines strings.Builder
	for n := range sampleSize {
		lines.WriteString(`{"facets":{"uid":"` + string(rune('a'+n/26)) + string(rune('a'+n%26)) + `","name":"` + string(rune('a'+n/26)) + string(rune('a'+n%26)) + `"}}` + "\n")
	}
	lines.WriteString(`{"facets":{"uid":"zzz","name":"zz and much longer than all before","late":"x"}}` + "\n")
	in := filepath.Join(t.TempDir(), "in.jsonl")
	if err := os.WriteFile(in, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := runCommand(nil, "", "import", in, "--extra"); got.code != 0 {
		t.Fatalf("import: %+v, want exit 0", got)
	}
	all := strings.Split(runWithWidth(t, 60, "list", "user", "--order", "name"), "\n")
	if want := "zzz  zz …  …"; len(all) != sampleSize+3 || all[sampleSize+1] != want {
		t.Errorf("%d lines, the last %q; want %d and %q", len(all), all[sampleSize+1], sampleSize+3, want)
	}
}

// TestGrids shows the other lists on terminals of two widths. Look at the golden file when it
// changes: texts that people copy, such as the ID of a session, must be whole.
func TestGrids(t *testing.T) {
	useFile(t)
	for _, args := range [][]string{
		{"create", "uid=1", "name=Alice", "added=2026-01-02", "--password-stdin"},
		{"login", "--session", "--password-stdin", "--origin", "192.0.2.17", "alice"},
		{"apikey", "create", "a-shop-on-the-web", "--scope", "read", "write", "login", "--type", "user"},
		{"apikey", "create", "directory", "--scope", "scim", "--expires", "90d"},
		{"operator", "add", "Olga", "--password-stdin"},
		{"operator", "add", "Anna", "--namespace", "acme", "--password-stdin"},
		{"operator", "disable", "olga"},
		{"create", "uid=2", "--namespace", "acme/of/the/north", "--no-password"},
		{"create", "uid=2", "--namespace", "b", "--no-password"},
		{"token", "issue", "alice", "--purpose", "change:email", "--value", "a@example.com"},
	} {
		if got := runCommand(nil, "correct horse battery", args...); got.code != 0 {
			t.Fatalf("%q: %+v, want exit 0", args, got)
		}
	}
	var all strings.Builder
	for _, width := range []int{80, 140} {
		for _, args := range [][]string{
			{"session", "list", "alice"},
			{"apikey", "list"},
			{"operator", "list"},
			{"namespace", "list"},
			{"events"},
			{"events", "alice"},
			{"dump", "x*"},
			{"schema", "diff"},
			{"tags", "list", "alice"},
			{"keys", "x*"},
			{"walk", "x*"},
		} {
			var out, errs bytes.Buffer
			code := run(args, stdio{in: strings.NewReader(""), out: &out, err: &errs, width: width})
			text := changing.ReplaceAllStringFunc(out.String(), func(s string) string {
				word := strings.TrimRight(s, " ")
				return strings.Repeat("9", len(word)) + s[len(word):]
			})
			for line := range strings.Lines(text) {
				if uniseg.StringWidth(strings.TrimSuffix(line, "\n")) > width {
					t.Errorf("userdb %q: a line is wider than %d: %s", args, width, line)
				}
			}
			fmt.Fprintf(&all, "$ userdb %s # exit %d, %d columns\n%s%s\n", strings.Join(args, " "), code, width, text, errs.String())
		}
	}
	const golden = "testdata/grids.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(all.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || string(want) != all.String() {
		t.Errorf("the tables differ from %s (%v): write them with -update, and look at them:\n%s", golden, err, all.String())
	}
}

// TestTallGrid lists API keys whose names leave no room for the other columns. Nothing may be cut.
func TestTallGrid(t *testing.T) {
	useFile(t)
	name := strings.Repeat("a-long-name-", 5) + "end"
	for _, args := range [][]string{{name, "--scope", "read", "write", "--expires", "90d"}, {"b", "--scope", "scim"}} {
		if got := runCommand(nil, "", append([]string{"apikey", "create"}, args...)...); got.code != 0 {
			t.Fatalf("apikey create: %+v, want exit 0", got)
		}
	}
	got := changing.ReplaceAllString(runWithWidth(t, 80, "apikey", "list"), "TIME")
	want := name + "\n  scopes  read write\n  types   all\n  until   TIME\n  made    TIME\nb\n  scopes  scim\n  types   all\n  made    TIME\n"
	if got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
	if got := runWithWidth(t, 140, "apikey", "list"); !strings.HasPrefix(got, "name  ") || !strings.Contains(got, name) {
		t.Errorf("at 140 columns:\n%s, want a table", got)
	}
}

// changing matches texts that differ from run to run: times and IDs of sessions.
var changing = regexp.MustCompile(`(20\d\d-)?\d\d-\d\d( \d\d:\d\d(:\d\d)?Z)?|(?m:^[A-Za-z0-9_-]{12}  )`)
