package transfer_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/userdb"
)

// writes returns the number of writes in the file of an embedded store. Each of them was synced.
func writes(t *testing.T, path string) int {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return bytes.Count(file, []byte("udb\x02")) // the first bytes of each write
}

// TestImportSyncs checks that an embedded store writes to its file only once for each batch of new
// entries or updates, and once for the secret by which an import recognizes its store.
func TestImportSyncs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	db, err := userdb.Open(t.Context(), "file:"+path, userdb.Options{Schema: fullSchema()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	lines := func(job string) string {
		var in strings.Builder
		for i := range 2150 {
			fmt.Fprintf(&in, `{"facets":{"uid":"u%d","name":"user%d","job":"%s%d"}}`+"\n", i, i, job, i)
		}
		return in.String()
	}
	for _, tt := range []struct {
		job, on string
		want    int // number of writes
	}{
		{"a", transfer.DuplicateFail, 5},
		{"b", transfer.DuplicateUpdate, 4},
		{"b", transfer.DuplicateSkip, 0},
	} {
		before, batches := writes(t, path), 0
		save := func(transfer.ImportState) error { batches++; return nil }
		if _, err := transfer.Import(t.Context(), db, strings.NewReader(lines(tt.job)), transfer.ImportOptions{OnDuplicate: tt.on, Save: save}); err != nil {
			t.Fatal(err)
		}
		if got := writes(t, path) - before; got != tt.want || batches != 4 {
			t.Errorf("%s: got %d writes for %d batches, want %d for 4", tt.on, got, batches, tt.want)
		}
	}
}
