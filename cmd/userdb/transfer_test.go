package main

import (
	"fmt"
	"os"
	"path/filepath"
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

// TestLargeImport imports 50,000 users into Redis and into the embedded file.
func TestLargeImport(t *testing.T) {
	for name, url := range map[string]func() string{"redis": func() string { return redistest.Shared(t).URL() }, "file": func() string { return "" }} {
		t.Run(name, func(t *testing.T) {
			useFile(t)
			t.Setenv("USERDB_STORE", url())
			expect(t, runCommand(nil, "", "import", writeUsers(t, 50_000)), 0, "50000 lines read: 50000 created, 0 updated, 0 skipped, 0 refused", "")
			expect(t, runCommand(nil, "", "count", "user"), 0, "50000", "")
			expect(t, runCommand(nil, "", "check"), 0, "50000 entries, 0 errors, 0 problems", "")
		})
	}
}
