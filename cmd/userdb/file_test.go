package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestExistingTarget checks that backup and salvage do not overwrite a file, and that the error
// names it.
func TestExistingTarget(t *testing.T) {
	dir := t.TempDir()
	store, target := "file:"+filepath.Join(dir, "accounts.db"), filepath.Join(dir, "copy.db")
	if err := os.WriteFile(target, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := runCommand(nil, "", "create", "name=ann", "--no-password", "--store", store); got.code != 0 {
		t.Fatalf("create: %+v", got)
	}
	for _, command := range []string{"backup", "salvage"} {
		got := runCommand(nil, "", command, target, "--store", store)
		if got.code != 2 || !strings.Contains(got.err, target+" exists: name a new file to write to") {
			t.Errorf("%s: %+v, want exit 2 and the name of the file that exists", command, got)
		}
	}
	if text, err := os.ReadFile(target); err != nil || string(text) != "mine" {
		t.Errorf("the file has %q, want mine; error %v", text, err)
	}
}
