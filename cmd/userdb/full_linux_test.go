package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestFullDisk runs commands that write the file of a store on a full disk, if the test may mount
// one. Each must exit 6 and say what to do.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=128k"); err != nil {
		t.Skip("mounting a tmpfs: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, "users.db")
	t.Setenv("USERDB_STORE", "file:"+path)
	if got := runCommand(nil, "", "create", "user", "uid=u", "name=N", "--no-password"); got.code != 0 {
		t.Fatalf("create: %+v, want exit 0", got)
	}
	filler, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = filler.Write(make([]byte, 512))
	}
	filler.Close()
	tags := ""
	for i := range 5 { // together more than a page, since part of one may be free in the file
		tags += fmt.Sprint(" ", i, strings.Repeat("t", 1000))
	}
	for _, command := range []string{
		"compact", "tags add u" + tags, "backup " + dir + "/copy.db", "salvage " + dir + "/copy.db",
		"create user uid=w name=W --no-password --store file:" + dir + "/other/users.db",
		"serve --listen 127.0.0.1:0 --store file:" + dir + "/first.db",
	} {
		got := runCommand(nil, "", strings.Fields(command)...)
		if got.code != 6 || !strings.Contains(got.err, "make room on the disk of the file") {
			t.Errorf("%.80s: %+v, want exit 6 and the advice to make room", command, got)
		}
	}
}

// TestFullDiskOfRejects runs an import whose disk for refused lines becomes full in the middle of a
// line, and resumes it when there is room. Every line of the file must then be readable, and every
// refused line must be in it.
func TestFullDiskOfRejects(t *testing.T) {
	dir, disk := t.TempDir(), t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=32k"); err != nil {
		t.Skip("mounting a tmpfs: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("USERDB_STORE", "file:"+filepath.Join(dir, "users.db"))
	const refused = 600
	var lines strings.Builder
	for i := range refused {
		fmt.Fprintf(&lines, `{"type":"user","facets":{"uid":"u%d","email":"no address"}}`+"\n", i)
	}
	input, rejects := filepath.Join(dir, "users.jsonl"), filepath.Join(disk, "rejects")
	if err := os.WriteFile(input, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	expect(t, runCommand(nil, "", "import", input, "--rejects", rejects), 1, "", "no space left on device")
	if err := syscall.Mount("", disk, "", syscall.MS_REMOUNT, "size=1m"); err != nil {
		t.Fatal(err)
	}
	expect(t, runCommand(nil, "", "import", input, "--rejects", rejects, "--resume"), 1, fmt.Sprintf("%d refused", refused), "")
	text, err := os.ReadFile(rejects)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		var entry struct{ Facets map[string]string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		found[entry.Facets["uid"]] = true
	}
	if len(found) != refused {
		t.Errorf("the file has %d of %d refused lines", len(found), refused)
	}
}
