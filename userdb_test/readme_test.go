package userdb_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The program in the README is one that a reader can copy: it compiles, and does what it says.
func TestReadmeProgram(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, ok := strings.Cut(string(text), "```go\n")
	if !ok {
		t.Fatal("the README has no Go program")
	}
	program, _, _ = strings.Cut(program, "```")
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", file)
	cmd.Dir = ".."
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got, want := string(out), "Alice <nil>\n"; got != want {
		t.Errorf("it prints %q, want %q", got, want)
	}
}

// What else it shows in Go is made of what is there.
func TestReadmeFunctions(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	must(t, err)
	blocks := strings.Split(string(text), "```go\n")[1:]
	program := "package main\n\nimport (\n\t\"context\"\n\t\"errors\"\n\t\"time\"\n\n" +
		"\t\"github.com/coffeenode/userdb/hints\"\n\t\"github.com/coffeenode/userdb/userdb\"\n)\n\nfunc main() {}\n\n"
	for _, block := range blocks[1:] {
		code, _, _ := strings.Cut(block, "```")
		program += code + "\n"
	}
	if len(blocks) < 2 {
		t.Fatal("the README has no functions")
	}
	file := filepath.Join(t.TempDir(), "main.go")
	must(t, os.WriteFile(file, []byte(program), 0o600))
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", os.DevNull, file)
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
