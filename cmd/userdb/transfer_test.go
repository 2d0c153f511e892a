package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/internal/redistest"
)

// writeUsers writes n users to a file for an import and returns its path.
func writeUsers(t *testing.T, n int) string {
	t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"type":"user","facets":{"uid":"u%06d","email":"user%d@example.com","name":"user%d"}}`+"\n", i, i, i)
	}
	file := filepath.Join(t.TempDir(), "users.jsonl")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func expect(t *testing.T, got result, code int, out, errs string) {
	t.Helper()
	if got.code != code || !strings.Contains(got.out, out) || !strings.Contains(got.err, errs) {
		t.Fatalf("exit %d, output %q, standard error %q; want %d, %q and %q", got.code, got.out, got.err, code, out, errs)
	}
}

// TestLargeImport imports 50,000 users, with -short 5,000, into Redis and into the embedded file.
func TestLargeImport(t *testing.T) {
	for _, store := range []string{"redis", "file"} {
		t.Run(store, func(t *testing.T) {
			useFile(t)
			if store == "redis" {
				t.Setenv("USERDB_STORE", redistest.Shared(t).URL())
			}
			users := 50_000
			if testing.Short() {
				users = 5000
			}
			want := fmt.Sprintf("%[1]d lines read: %[1]d created, 0 updated, 0 skipped, 0 refused", users)
			expect(t, runCommand(nil, "", "import", writeUsers(t, users)), 0, want, "")
			expect(t, runCommand(nil, "", "count", "user"), 0, strconv.Itoa(users), "")
			expect(t, runCommand(nil, "", "check"), 0, fmt.Sprintf("%d entries, 0 errors, 0 problems", users), "")
		})
	}
}

// TestImportForm checks the flags for the format of the input of 'import', and that an error about
// the format does not quote the input.
func TestImportForm(t *testing.T) {
	useFile(t)
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	const one = "1 line read: 1 created, 0 updated, 0 skipped, 0 refused"
	table := write("a.txt", "uid;added;job\n1;2024-01-02 03:04:05;NULL\n")
	expect(t, runCommand(nil, "", "import", table), 2, "", "import it as CSV with its delimiter (userdb import --delimiter)")
	expect(t, runCommand(nil, "", "import", table, "--csv"), 2, "", "if semicolons separate the columns, name that delimiter (userdb import --delimiter)")
	expect(t, runCommand(nil, "", "import", table, "--delimiter", ";;"), 2, "", "want one character")
	expect(t, runCommand(nil, "", "import", table, "--delimiter", ";", "--zone", "Mars/Base"), 2, "", "no such time zone here")
	expect(t, runCommand(nil, "", "import", table, "--delimiter", ";", "--zone", "+02:00", "--null", "NULL", "--without-identifier"), 0, one, "")
	expect(t, runCommand(nil, "", "get", "1"), 0, "2024-01-02T01:04:05.000Z", "")
	expect(t, runCommand(nil, "", "import", write("b.csv", "uid\tname\n2\tBen\n"), "--delimiter", `\t`), 0, one, "")
	expect(t, runCommand(nil, "", "import", write("c.csv", ",uid,name\n0,3,Cid\n"), "--ignore", ""), 0, one, "")
	got := runCommand(nil, "", "import", write("d.csv", "email,clear_password\rGeheim-2024,x\r"))
	if expect(t, got, 2, "", "its lines end with CR alone"); strings.Contains(got.err, "Geheim") {
		t.Errorf("the error quotes a password: %s", got.err)
	}
}

// TestDryRunResume checks that a dry run is refused together with --resume, which it would ignore.
func TestDryRunResume(t *testing.T) {
	useFile(t)
	file := writeUsers(t, 1)
	if err := os.WriteFile(file+".import", []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, runCommand(nil, "", "import", file, "--dry-run", "--resume"), 2, "", "--resume cannot be used with --dry-run")
}

// TestTableRoundTrip checks that 'import' reads the output of 'list --csv' unchanged, whatever the
// values are, even if one of them is the word that --null takes for no value.
func TestTableRoundTrip(t *testing.T) {
	values := []string{
		`\N`, "NULL", "null", " x", "x ", `="x"`, `="="`, "=1+1", "'=x", "''", `a"b`, `"`, `""`, `\"`, "a\r\nb", "a\nb\n", "\r", "\n",
		"sep=;", "-5", "00123", "1,2", "a;b", "\t", "\ufeffx", `\.`, "true",
	}
	useFile(t)
	for i, v := range values {
		expect(t, runCommand(nil, "", "create", "user", fmt.Sprintf("uid=u%d", i), "job="+v, "--no-password"), 0, "", "")
	}
	export := func() []string { return slices.Sorted(strings.Lines(runCommand(nil, "", "export").out)) }
	want := export()
	table := filepath.Join(t.TempDir(), "users.csv")
	listed := runCommand(nil, "", "list", "--csv")
	if err := os.WriteFile(table, []byte(listed.out), 0o600); err != nil || listed.code != 0 {
		t.Fatal(listed, err)
	}
	useFile(t)
	expect(t, runCommand(nil, "", "import", table, "--null", "NULL", "--without-identifier"), 0, fmt.Sprintf("%d created", len(values)), "")
	if got := export(); !slices.Equal(got, want) || len(want) != len(values) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
