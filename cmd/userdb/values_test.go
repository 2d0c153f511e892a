package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/internal/redistest"
)

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestValuesOnCluster runs the script of several values on a cluster.
func TestValuesOnCluster(t *testing.T) {
	runScript(t, filepath.Join("testdata", "script", "values.txtar"), redistest.StartCluster(t).URL())
}

// TestHundredValues checks that the command creates, shows, changes, lists and imports an entry
// with as many values as a field may have.
func TestHundredValues(t *testing.T) {
	useFile(t)
	dir := t.TempDir()
	schema := filepath.Join(dir, "schema.json")
	writeFile(t, schema, `{"types":{"user":{"primary":"uid","fields":{"alias":{"role":"secondary","many":100}}}}}`)
	t.Setenv("USERDB_SCHEMA", schema)
	run := func(args ...string) string {
		t.Helper()
		got := runCommand(nil, "", args...)
		if got.code != 0 {
			t.Fatalf("%.200q: %+v, want exit 0", args, got)
		}
		return got.out
	}
	args := []string{"create", "uid=u", "--no-password"}
	for i := range 100 {
		args = append(args, fmt.Sprintf("alias=Alias %d, of; k=v + more", i))
	}
	run(args...)
	if got := strings.Count(run("get", "alias=alias 99, of; k=v + more"), "\n  alias  Alias "); got != 100 {
		t.Errorf("get shows %d values, want 100", got)
	}
	if got := runCommand(nil, "", "set", "u", "alias+=more"); got.code != 2 || got.err != "userdb: invalid value: alias: over 100 values\n" {
		t.Errorf("one value too many: %+v, want exit 2", got)
	}
	run("set", "u", "alias+=k=v", "alias-=ALIAS 0, of; k=v + more", "--first", "alias=Alias 50, of; k=v + more")
	text := run("list", "--csv", "--split", "alias=;")
	file := filepath.Join(dir, "all.csv")
	writeFile(t, file, text)
	run("delete", "u", "--yes")
	run("import", file, "--split", "alias=;")
	again := run("list", "--csv", "--split", "alias=;")
	if again != text || !strings.HasPrefix(strings.Split(text, "\n")[1], `u,"""Alias 50, of; k=v + more"";""Alias 1, of;`) {
		t.Errorf("CSV with 100 values: got %.200q and, after an import, %.200q; want the same, with Alias 50 first", text, again)
	}
}

// TestValuesInTable checks that a table shows as many values of a field as fit.
func TestValuesInTable(t *testing.T) {
	useFile(t)
	schema := filepath.Join(t.TempDir(), "schema.json")
	writeFile(t, schema, `{"types":{"user":{"primary":"uid","fields":{"email":{"role":"secondary","kind":"email","many":3},"alias":{"role":"secondary","many":3}}}}}`)
	t.Setenv("USERDB_SCHEMA", schema)
	for _, args := range [][]string{
		{"uid=u1", "email=ada@example.com", "email=ada@work.example", "alias=one, two", "alias=three"}, {"uid=u2", "email=bob@example.com", "alias=one, three"},
	} {
		if got := runCommand(nil, "", slices.Concat([]string{"create", "--no-password"}, args)...); got.code != 0 {
			t.Fatalf("create: %+v, want exit 0", got)
		}
	}
	for width, want := range map[int]string{
		140: "u1   \"one, two\", three  ada@example.com, ada@work.example\n",
		48:  "u1   \"one, two\", three  ada@example.com, ada@wo…\n",
	} {
		if got := runWithWidth(t, width, "list", "--where", "email=ada@work.example"); !strings.Contains(got, want) {
			t.Errorf("at %d columns:\n%s\nwant\n%s", width, got, want)
		}
	}
}
