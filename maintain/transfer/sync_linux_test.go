package transfer_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/userdb"
)

// replacements watches a directory and returns a function that counts how often a file in it was
// replaced. The kernel merges equal events that follow each other, but here the creation of the
// temporary file always comes between two replacements.
func replacements(t *testing.T, dir, file string) func() int {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Skip("watching a directory: ", err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_MOVED_TO); err != nil {
		t.Fatal(err)
	}
	return func() (count int) {
		buf := make([]byte, 1<<16)
		for {
			n, err := unix.Read(fd, buf)
			if err != nil || n <= 0 {
				return count
			}
			for events := buf[:n]; len(events) > 0; {
				name := events[unix.SizeofInotifyEvent:]
				size := (*unix.InotifyEvent)(unsafe.Pointer(&events[0])).Len
				if string(bytes.TrimRight(name[:size], "\x00")) == file {
					count++
				}
				events = name[size:]
			}
		}
	}
}

// TestImportSyncs checks that an embedded store replaces its file only once per batch, for new
// entries and for updates, and once for the secret by which an import recognizes its store.
func TestImportSyncs(t *testing.T) {
	dir := t.TempDir()
	db, err := userdb.Open(t.Context(), "file:"+filepath.Join(dir, "store"), userdb.Options{Schema: full()})
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
		want    int // number of replacements
	}{
		{"a", transfer.DuplicateFail, 5},
		{"b", transfer.DuplicateUpdate, 4},
		{"b", transfer.DuplicateSkip, 0},
	} {
		count, batches := replacements(t, dir, "store"), 0
		save := func(transfer.ImportState) error { batches++; return nil }
		if _, err := transfer.Import(t.Context(), db, strings.NewReader(lines(tt.job)), transfer.ImportOptions{OnDuplicate: tt.on, Save: save}); err != nil {
			t.Fatal(err)
		}
		if got := count(); got != tt.want || batches != 4 {
			t.Errorf("%s: the file was replaced %d times in %d batches, want %d times in 4", tt.on, got, batches, tt.want)
		}
	}
}
