package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// deploy/dist.sh sets -man to write the man pages. A test writes them, so that the command itself
// does not depend on the library that formats them.
var man = flag.String("man", "", "write man pages into this folder")

// TestManPages writes a page for every command, and checks that it has the name of the command and
// a synopsis.
func TestManPages(t *testing.T) {
	dir := *man
	if dir == "" {
		dir = t.TempDir()
	}
	root := newRoot(newSession(stdio{}))
	root.DisableAutoGenTag = true
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "userdb", Manual: "userdb"}, dir); err != nil {
		t.Fatal(err)
	}
	var checkPages func(c *cobra.Command)
	checkPages = func(c *cobra.Command) {
		if !c.IsAvailableCommand() && c != root {
			return
		}
		text, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"))
		if err != nil || !strings.Contains(string(text), ".SH SYNOPSIS") || !strings.Contains(strings.ReplaceAll(string(text), `\-`, "-"), c.Name()) {
			t.Errorf("the page of %s: %v, want one with its name and a synopsis:\n%s", c.CommandPath(), err, text)
		}
		for _, child := range c.Commands() {
			checkPages(child)
		}
	}
	checkPages(root)
}
