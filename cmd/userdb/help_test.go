package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/coffeenode/userdb/schema"
)

// examples are the commands that a command's help shows.
func examples(help string) (lines []string) {
	for line := range strings.Lines(help) {
		if rest, ok := strings.CutPrefix(line, "  userdb "); ok {
			lines = append(lines, strings.TrimSpace(rest))
		}
	}
	return lines
}

// words splits a line as a shell does, as far as examples need it: white space, single quotes, and
// a file for standard input or output at the end.
func words(line string) (args []string, stdin, stdout string) {
	word, quoted, begun := "", false, false
	end := func() {
		if begun {
			args = append(args, word)
		}
		word, begun = "", false
	}
	for _, r := range line {
		switch {
		case r == '\'':
			quoted, begun = !quoted, true
		case r == ' ' && !quoted:
			end()
		default:
			word, begun = word+string(r), true
		}
	}
	end()
	n := len(args)
	switch {
	case n > 2 && args[n-2] == "<":
		return args[:n-2], args[n-1], ""
	case n > 2 && args[n-2] == ">":
		return args[:n-2], "", args[n-1]
	}
	return args, "", ""
}

// Every example in a help works, on a store with Alice and Bob in it.
func TestExamples(t *testing.T) {
	root := model(t)
	t.Run("userdb", func(t *testing.T) { runExamples(t, about) })
	var visit func(node *kong.Node)
	visit = func(node *kong.Node) {
		for _, child := range node.Children {
			if !child.Hidden {
				t.Run(child.Path(), func(t *testing.T) { runExamples(t, child.Detail) })
			}
			visit(child)
		}
	}
	visit(root)
}

func runExamples(t *testing.T, help string) { runLines(t, examples(help)) }

// Every command in the README's part for operators works, in its order, on such a store.
func TestReadmeCommands(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, _ := strings.Cut(string(text), "\n## Looking after the data\n")
	part, _, _ = strings.Cut(part, "\n## ")
	var lines []string
	for line := range strings.Lines(part) {
		if rest, ok := strings.CutPrefix(line, "userdb "); ok {
			rest, _, _ = strings.Cut(rest, " #")
			lines = append(lines, strings.TrimSpace(rest))
		}
	}
	runLines(t, lines)
}

// runLines runs commands, one after the other.
func runLines(t *testing.T, lines []string) {
	t.Helper()
	if len(lines) == 0 {
		t.Fatal("no example")
	}
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("USERDB_STORE", "file:"+filepath.Join(dir, "store.jsonl"))
	for name, text := range map[string]string{
		"secret.txt":          "correct horse battery\n",
		"name-and-secret.txt": "Alice\ncorrect horse battery\n",
		"old-and-new.txt":     "correct horse battery\nstaple under a willow\n",
		"hints.jsonl":         "\"17c0\"\n[\"name\",\"Alice\"]\n",
		"keys.jsonl":          "\"user/uid:17c0\"\n",
		"users.jsonl":         `{"type":"user","facets":{"email":"erin@example.com","name":"Erin"}}` + "\n",
		"staff.csv":           "email,name\nzoe@example.com,Zoe\n",
		"ordered.json":        strings.Replace(builtIn(t), `"codec":"date"`, `"codec":"date","role":"ordered"`, 1),
		"schema.json":         `{"types":{"user":{"primary":"uid","fields":{"email":{"role":"secondary"},"name":{"role":"secondary"}}}}}`,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("USERDB_SCHEMA", filepath.Join(dir, "ordered.json"))
	for _, line := range append([]string{
		"create user email=alice@example.com name=Alice job=author --tag python c++ --password-stdin < secret.txt",
		"create user email=bob@example.com name=Bob --tag python --no-password",
	}, lines...) {
		runExample(t, line)
	}
	t.Setenv("USERDB_SCHEMA", "") // the stored one, which an example may have changed
	if got := here(nil, "", "check"); got.code != 0 {
		t.Errorf("check exits %d: %s%s", got.code, got.out, got.err)
	}
}

// builtIn is the built-in schema as a file.
func builtIn(t *testing.T) string {
	t.Helper()
	text, err := json.Marshal(schema.User())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func runExample(t *testing.T, line string) {
	t.Helper()
	args, file, out := words(line)
	stdin := ""
	var term terminal = &typist{answers: []string{good, good}}
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("userdb %s: %v", line, err)
		}
		stdin, term = string(text), nil
	}
	got := here(term, stdin, args...)
	if got.code != 0 || got.err != "" && !strings.HasPrefix(got.err, "more: ") {
		t.Errorf("userdb %s: exit %d, %s", line, got.code, got.err)
	}
	if out != "" {
		if err := os.WriteFile(out, []byte(got.out), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	silent := args[0] == "passwd" || got.out != ""
	if !silent {
		t.Errorf("userdb %s prints nothing", line)
	}
}

// A help fits a terminal and says everything that the grammar has.
func TestHelp(t *testing.T) {
	root := model(t)
	for _, node := range append(leaves(root), root) {
		var b strings.Builder
		if err := printHelp(&b, node); err != nil {
			t.Fatal(err)
		}
		help := b.String()
		for _, flag := range node.Flags {
			if !strings.Contains(help, flagText(flag)) {
				t.Errorf("the help of %s does not tell of --%s", node.FullPath(), flag.Name)
			}
		}
		for line := range strings.Lines(help) {
			if n := len([]rune(line)); n > helpWidth+3 && !strings.HasPrefix(line, "Usage: ") {
				t.Errorf("the help of %s has a line of %d characters: %s", node.FullPath(), n, line)
			}
		}
	}
}
