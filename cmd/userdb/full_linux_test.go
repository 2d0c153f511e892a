package main

import (
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
