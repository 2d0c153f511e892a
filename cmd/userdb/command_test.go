package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/schema"
)

func model(t *testing.T) *kong.Node {
	t.Helper()
	parser, err := newParser(new(cli))
	if err != nil {
		t.Fatal(err)
	}
	return parser.Model.Node
}

func TestArrange(t *testing.T) {
	root := model(t)
	for _, tt := range []struct{ args, want string }{
		{"", "--"},
		{"get a b", "get -- a b"},
		{"get a --json b", "get --json -- a b"},
		{"--json get a", "get --json -- a"},
		{"--yes delete a", "delete --yes -- a"},
		{"--store x get a", "get --store=x -- a"},
		{"get a --store=x --store y", "get --store=x --store=y -- a"},
		{"get -- --json", "get -- --json"},
		{"--json -- get a", "get --json -- a"},
		{"-- tags -- list", "tags -- -- list"},
		{"tags --json list a", "tags list --json -- a"},
		{"tags a list", "tags -- a list"},
		{"get -", "get -- -"},
		{"get --store --json", "get --store --json --"},
		{"get --store", "get --store --"},
		{"get --nosuch a", "get --nosuch -- a"},
		{"create user --tag a b x=y", "create --tag=a --tag=b -- user x=y"},
		{"create user x=y --tag a b --tag c --json", "create --tag=a --tag=b --tag=c --json -- user x=y"},
		{"create --tag a user x=y", "create --tag=a -- user x=y"},
		{"--tag a create user x=y b", "create --tag=a -- user x=y b"},
		{"-h create", "create -h --"},
	} {
		got := strings.Join(arrange(root, strings.Fields(tt.args)).args(), " ")
		if got != tt.want {
			t.Errorf("arrange(%s) = %s, want %s", tt.args, got, tt.want)
		}
	}
}

// leaves are all commands.
func leaves(node *kong.Node) []*kong.Node {
	if len(node.Children) == 0 {
		return []*kong.Node{node}
	}
	var all []*kong.Node
	for _, child := range node.Children {
		all = append(all, leaves(child)...)
	}
	return all
}

func TestEveryCommandRuns(t *testing.T) {
	for _, leaf := range leaves(model(t)) {
		if _, ok := leaf.Target.Addr().Interface().(command); !ok {
			t.Errorf("%s does nothing", leaf.FullPath())
		}
	}
}

// A flag before the command is understood only if it is the same kind of flag for every command.
func TestFlagsMeanOneThing(t *testing.T) {
	kinds := map[string]string{}
	var visit func(node *kong.Node)
	visit = func(node *kong.Node) {
		for _, flag := range node.Flags {
			kind := fmt.Sprint(flag.IsBool(), takesMore(flag))
			if was, ok := kinds[flag.Name]; ok && was != kind {
				t.Errorf("--%s of %s is another kind of flag than elsewhere", flag.Name, node.FullPath())
			}
			kinds[flag.Name] = kind
		}
		for _, child := range node.Children {
			visit(child)
		}
	}
	visit(model(t))
	if len(kinds) < 10 {
		t.Errorf("only %d flags found", len(kinds))
	}
}

// What is not UTF-8 stays what it is, and is refused where a rule asks for text.
func TestBytesAsTheyAre(t *testing.T) {
	useFile(t)
	for _, tt := range []struct{ args, want string }{
		{"key escape \xff \xfe\xed\xa0\x80", "+xff\n+xfe+xed+xa0+x80\n"},
		{"create user uid=a name=Alice --tag \xff \xfe added=2026-01-02 --no-password", ""},
		{"keys user/tags:*", "user/tags:+xfe/~prks\nuser/tags:+xff/~prks\n"},
		{"tags list name=alice", `"\xfe"` + "\n" + `"\xff"` + "\n"},
	} {
		got := here(nil, "", strings.Fields(tt.args)...)
		if tt.want != "" && got.out != tt.want {
			t.Errorf("%q prints %q, %q; want %q", tt.args, got.out, got.err, tt.want)
		}
	}
	if got := here(nil, "", "get", "uid=\xfe"); got.code != 3 || got.err != `userdb: "uid=\xfe": not found`+"\n" {
		t.Errorf("get uid=\\xfe: %+v", got)
	}
	if got := here(nil, "", "create", "user", "uid=\xff", "--no-password"); got.code != 2 {
		t.Errorf("create uid=\\xff: %+v", got)
	}
}

func TestGlobals(t *testing.T) {
	for name, value := range map[string]string{"USERDB_STORE": "memory:", "USERDB_SCHEMA": "s.json", "USERDB_NAMESPACE": "a/b"} {
		t.Setenv(name, value)
	}
	inv, err := parse([]string{"count", "user"})
	want := globals{Store: "memory:", Schema: "s.json", Namespace: "a/b", Type: "user"}
	if err != nil || !reflect.DeepEqual(inv.globals, want) {
		t.Errorf("from the environment: %+v, %v; want %+v", inv.globals, err, want)
	}
	inv, err = parse(strings.Fields("--store x --schema y --namespace z --type t --json count user"))
	want = globals{Store: "x", Schema: "y", Namespace: "z", Type: "t", JSON: true}
	if err != nil || !reflect.DeepEqual(inv.globals, want) {
		t.Errorf("from flags: %+v, %v; want %+v", inv.globals, err, want)
	}
}

// Wherever flags stand, the line means the same.
func TestFlagsAnywhere(t *testing.T) {
	lines := []struct {
		words []string
		flags [][]string
	}{
		{[]string{"get", "a", "b", "c"}, [][]string{{"--reveal"}, {"--json"}, {"--type", "t"}, {"--timeout=5s"}}},
		{[]string{"create", "user", "x=y", "z=--json"}, [][]string{{"--tag", "a"}, {"--tag=-b"}, {"--no-password"}, {"--store", "memory:"}}},
		{[]string{"tags", "add", "a", "b"}, [][]string{{"--json"}, {"--namespace", "n"}}},
		{[]string{"key", "split", "a"}, [][]string{{"--only", "prk"}, {"--schema", "s"}}},
		{[]string{"delete", "a"}, [][]string{{"--yes"}}},
	}
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.SampledFrom(lines).Draw(t, "line")
		plain := slices.Clone(line.words)
		for _, flag := range line.flags {
			plain = append(plain, flag...)
		}
		mixed := slices.Clone(line.words)
		at := make([]int, len(line.flags))
		for i := range at {
			at[i] = rapid.IntRange(0, len(line.words)).Draw(t, "at")
		}
		slices.Sort(at)
		for i := len(at) - 1; i >= 0; i-- {
			mixed = slices.Insert(mixed, at[i], line.flags[i]...)
		}
		want, err := parse(plain)
		if err != nil {
			t.Fatalf("parse(%q): %v", plain, err)
		}
		got, err := parse(mixed)
		if err != nil {
			t.Fatalf("parse(%q): %v", mixed, err)
		}
		if !reflect.DeepEqual(got.command, want.command) || !reflect.DeepEqual(got.globals, want.globals) {
			t.Errorf("parse(%q) = %+v %+v, want %+v %+v", mixed, got.command, got.globals, want.command, want.globals)
		}
	})
}

// FuzzParse gives the parser any words: it neither panics nor says anything but what is wrong with
// them, on one line.
func FuzzParse(f *testing.F) {
	for _, line := range []string{
		"", "get a", "--json\nget\n--\n--x", "create user --tag a b", "-", "--", "---", "--=", "-=x", "--tag", "-h", "--json=x",
		"tags\nadd", "help\nhelp", "__complete\n--\n-", "list\n--limit\n99999999999999999999", "get\n--timeout\n1", "\xff\n\x1b",
		"dump\n--format\n", "key\nsplit\n--only\n${HOME}", "\u2028", "get\n'\n\"",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Split(line, "\n")
		inv, err := parse(args)
		if err != nil && !errors.Is(err, errUsage) {
			t.Errorf("parse(%q) fails with %T: %v", args, err, err)
		}
		if err != nil && drives(oneLine(message(err))) {
			t.Errorf("parse(%q): the message is no line: %q", args, oneLine(message(err)))
		}
		if err == nil && inv.command == nil && !inv.Help {
			t.Errorf("parse(%q) gives no command", args)
		}
	})
}

func TestOffers(t *testing.T) {
	root := model(t)
	for _, tt := range []struct{ line, want string }{
		{"cr|", "create"},
		{"c|", "create count check completion"},
		{"tags |", "add remove list find"},
		{"--json tags l|", "list"},
		{"create |", "user"},
		{"create x|", ""},
		{"create user |", ""},
		{"create user --t|", "--tag --type --timeout"},
		{"delete x --y|", "--yes"},
		{"completion |", "bash zsh fish"},
		{"completion z|", "zsh"},
		{"completion bash |", ""},
		{"hint --as |", "entry user"},
		{"dump --format |", "long short keys"},
		{"get --schema |", ""},
		{"__c|", ""},
		{"nosuch l|", ""},
		{"version |", ""},
	} {
		before, _ := strings.CutSuffix(tt.line, "|")
		words := strings.Split(before, " ")
		var got []string
		for _, o := range offers(root, words) {
			got = append(got, o.word)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("offers(%s) = %s, want %s", tt.line, got, tt.want)
		}
	}
	if got := offers(root, nil); len(got) < 15 {
		t.Errorf("offers for nothing: %v", got)
	}
}

// The scripts are tried in the shells that are there.
func TestCompletionScripts(t *testing.T) {
	for shell, script := range map[string]string{
		"bash": "userdb() { " + program + ` "$@"; }` + "\n" + bashScript + `
COMP_WORDS=(userdb tags li) COMP_CWORD=2; _userdb; echo "${COMPREPLY[*]}"
COMP_WORDS=(userdb completion "") COMP_CWORD=2; _userdb; echo "${COMPREPLY[*]}"`,
		"zsh":  zshScript,
		"fish": "function userdb; " + program + " $argv; end\n" + fishScript + "\ncomplete -C 'userdb tags li' | cut -f1",
	} {
		t.Run(shell, func(t *testing.T) {
			path, err := exec.LookPath(shell)
			if err != nil {
				t.Skip(err)
			}
			file := filepath.Join(t.TempDir(), "script")
			if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
				t.Fatal(err)
			}
			args := []string{file}
			if shell == "zsh" {
				args = []string{"-n", file}
			}
			out, err := exec.Command(path, args...).CombinedOutput()
			want := map[string]string{"bash": "list\nbash zsh fish\n", "zsh": "", "fish": "list\n"}[shell]
			if err != nil || string(out) != want {
				t.Errorf("%s: %q, %v; want %q", shell, out, err, want)
			}
		})
	}
}

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
