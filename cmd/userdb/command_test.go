package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/internal/embedded"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// testRoot returns the root command of a session that discards its output.
func testRoot() *cobra.Command { return newRoot(newSession(stdio{out: io.Discard, err: io.Discard})) }

// parseLine reads a command line and returns its session.
func parseLine(args ...string) (*session, error) {
	s := newSession(stdio{out: io.Discard, err: io.Discard})
	return s, s.parse(args)
}

func TestArrange(t *testing.T) {
	root := testRoot()
	for _, tt := range []struct{ args, want string }{
		{"version", "version --"},
		{"get a b", "get -- a b"},
		{"get a --json b", "get --json -- a b"},
		{"--json get a", "get --json -- a"},
		{"--yes delete a", "delete --yes -- a"},
		{"--store x get a", "get --store=x -- a"},
		{"get a --store=x --store y", "get --store=x --store=y -- a"},
		{"get -- --json", "get -- --json"},
		{"--json -- get a", "get --json -- a"},
		{"-- tags list -- a", "tags list -- -- a"},
		{"tags --json list a", "tags list --json -- a"},
		{"get -", "get -- -"},
		{"create user --tag a b x=y", "create --tag=a --tag=b -- user x=y"},
		{"create user x=y --tag a b --tag c --json", "create --tag=a --tag=b --tag=c --json -- user x=y"},
		{"create --tag a user x=y", "create --tag=a -- user x=y"},
		{"--tag a create user x=y b", "create --tag=a -- user x=y b"},
		{"-h create", "create --help"},
		{"create --nonsense --help x", "create --help"},
		{"login --help x", "login --help -- x"},
		{"--version --json", "--version --json --"},
		{"help tags add", "help -- tags add"},
		{"tour --keep", "tour --keep --"},
		{"check --repair --keep a/b:c", "check --repair --keep=a/b:c --"},
	} {
		got := strings.Join(arrange(root, strings.Fields(tt.args)).args(), " ")
		if got != tt.want {
			t.Errorf("arrange(%s) = %s, want %s", tt.args, got, tt.want)
		}
	}
}

// TestArrangeErrors checks the errors that arrange finds before cobra reads the line.
func TestArrangeErrors(t *testing.T) {
	root := testRoot()
	for _, tt := range []struct{ args, want string }{
		{"", "a command is missing"},
		{"tags --json", "a command is missing"},
		{"tags a list", "unknown command: a, did you mean add"},
		{"-- tags -- list", "unknown command: --"},
		{"help nosuch", "unknown command: nosuch"},
		{"help tags lst", "unknown command: lst, did you mean list"},
		{"help get a", "unknown command: a"},
		{"help help a", "unknown command: a"},
		{"--json help creat", "unknown command: creat, did you mean create"},
		{"get --store --json", "--store needs a value; write one that begins with - as --store=VALUE"},
		{"get --store", "--store needs a value; write one that begins with - as --store=VALUE"},
		{"get --nosuch a", "unknown flag: --nosuch (write text that begins with - after --)"},
		{"--sore=x get a", "unknown flag: --sore (write text that begins with - after --)"},
		{"get -x a", "unknown flag: -x (write text that begins with - after --)"},
		{"login --origin -- Bob", "--origin needs a value; write one that begins with - as --origin=VALUE"},
	} {
		if l := arrange(root, strings.Fields(tt.args)); l.err == nil || l.err.Error() != tt.want {
			t.Errorf("arrange(%s) fails with %v, want %s", tt.args, l.err, tt.want)
		}
	}
}

// leafCommands returns all commands that have no subcommands.
func leafCommands(c *cobra.Command) []*cobra.Command {
	if !c.HasSubCommands() {
		return []*cobra.Command{c}
	}
	var all []*cobra.Command
	for _, below := range c.Commands() {
		all = append(all, leafCommands(below)...)
	}
	return all
}

func TestEveryCommandRuns(t *testing.T) {
	for _, leaf := range leafCommands(testRoot()) {
		if !leaf.Runnable() || leaf.Args == nil && leaf.Name() != "help" {
			t.Errorf("%s does nothing, or accepts any words", leaf.CommandPath())
		}
	}
}

// TestFlagsAreOfOneKind checks that flags with the same name are of the same kind in all commands.
// Otherwise it would not be clear whether a flag before the command takes a value.
func TestFlagsAreOfOneKind(t *testing.T) {
	kinds := map[string]string{}
	for _, leaf := range leafCommands(testRoot()) {
		leaf.Flags().VisitAll(func(flag *pflag.Flag) {
			if flag.Name == "keep" && leaf.Name() == "tour" {
				return // --keep of check has a value; arrange uses the command's own flag
			}
			kind := fmt.Sprint(flag.NoOptDefVal, takesMore(flag))
			if was, ok := kinds[flag.Name]; ok && was != kind {
				t.Errorf("--%s of %s is another kind of flag than elsewhere", flag.Name, leaf.CommandPath())
			}
			kinds[flag.Name] = kind
		})
	}
	if len(kinds) < 10 {
		t.Errorf("only %d flags were found, want at least 10", len(kinds))
	}
}

// TestInvalidUTF8 checks that bytes that are not UTF-8 are kept unchanged, and are refused if a
// rule requires text.
func TestInvalidUTF8(t *testing.T) {
	useFile(t)
	for _, tt := range []struct{ args, want string }{
		{"recordkey escape \xff \xfe\xed\xa0\x80", "+xff\n+xfe+xed+xa0+x80\n"},
		{"create user uid=a name=Alice --tag \xff \xfe added=2026-01-02 --no-password", ""},
		{"keys user/tags:*", "user/tags:+xfe/~prks\nuser/tags:+xff/~prks\n"},
		{"tags list name=alice", `"\xfe"` + "\n" + `"\xff"` + "\n"},
	} {
		got := runCommand(nil, "", strings.Fields(tt.args)...)
		if tt.want != "" && got.out != tt.want {
			t.Errorf("%q prints %q and the error %q; want %q", tt.args, got.out, got.err, tt.want)
		}
	}
	if got := runCommand(nil, "", "get", "uid=\xfe"); got.code != 3 || got.err != `userdb: "uid=\xfe": not found`+"\n" {
		t.Errorf("get uid=\\xfe: %+v; want exit 3 and the name escaped", got)
	}
	if got := runCommand(nil, "", "create", "user", "uid=\xff", "--no-password"); got.code != 2 {
		t.Errorf("create uid=\\xff: %+v, want exit 2", got)
	}
}

func TestGlobals(t *testing.T) {
	for name, value := range map[string]string{"USERDB_STORE": "memory:", "USERDB_SCHEMA": "s.json", "USERDB_NAMESPACE": "a/b"} {
		t.Setenv(name, value)
	}
	for line, want := range map[string]globals{
		"count user": {Store: "memory:", Schema: "s.json", Namespace: "a/b", History: true},
		"--store x --schema y --namespace z --type t --json count t": {Store: "x", Schema: "y", Namespace: "z", Type: "t", JSON: true, History: true},
		"count user --namespace= --schema=":                          {Store: "memory:", History: true},
	} {
		s, err := parseLine(strings.Fields(line)...)
		if err != nil || !reflect.DeepEqual(s.globals, want) {
			t.Errorf("%s: %+v, %v; want %+v", line, s.globals, err, want)
		}
	}
}

// TestFlagsAnywhere checks that a line means the same wherever its flags are.
func TestFlagsAnywhere(t *testing.T) {
	lines := []struct {
		words []string
		flags [][]string
	}{
		{[]string{"get", "a", "b", "c"}, [][]string{{"--reveal"}, {"--json"}, {"--type", "t"}, {"--timeout=5s"}}},
		{[]string{"create", "user", "x=y", "z=--json"}, [][]string{{"--tag", "a"}, {"--tag=-b"}, {"--no-password"}, {"--store", "memory:"}}},
		{[]string{"tags", "add", "a", "b"}, [][]string{{"--json"}, {"--namespace", "n"}}},
		{[]string{"recordkey", "split", "a"}, [][]string{{"--only", "prk"}, {"--schema", "s"}}},
		{[]string{"delete", "a"}, [][]string{{"--yes"}}},
	}
	root := testRoot()
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.SampledFrom(lines).Draw(t, "line")
		ordered := slices.Clone(line.words)
		for _, flag := range line.flags {
			ordered = append(ordered, flag...)
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
		for _, args := range [][]string{ordered, mixed} {
			if _, err := parseLine(args...); err != nil {
				t.Fatalf("parse(%q): %v", args, err)
			}
		}
		if got, want := arrange(root, mixed).args(), arrange(root, ordered).args(); !slices.Equal(got, want) {
			t.Errorf("arrange(%q) = %q, want %q", mixed, got, want)
		}
	})
}

// FuzzParse checks that any words are parsed without a panic, or refused with an error of one line.
func FuzzParse(f *testing.F) {
	for _, line := range []string{
		"", "get a", "--json\nget\n--\n--x", "create user --tag a b", "-", "--", "---", "--=", "-=x", "--tag", "-h", "--json=x",
		"tags\nadd", "help\nhelp", "__complete\n--\n-", "list\n--limit\n99999999999999999999", "get\n--timeout\n1", "\xff\n\x1b",
		"dump\n--format\n", "recordkey\nsplit\n--only\n${HOME}", "\u2028", "get\n'\n\"",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Split(line, "\n")
		s, err := parseLine(args...)
		if err != nil && userdb.CodeOf(err) != userdb.CodeUsage {
			t.Errorf("parse(%q): got %v of type %T, want a usage error", args, err, err)
		}
		if err != nil && controlsTerminal(oneLine(message(err))) {
			t.Errorf("parse(%q): the message is not one line: %q", args, oneLine(message(err)))
		}
		if err == nil && s.do == nil && s.help.Len() == 0 {
			t.Errorf("parse(%q) leaves nothing to do", args)
		}
	})
}

// completions returns the completions of the last word of a line.
func completions(t *testing.T, line string) (words []string) {
	t.Helper()
	args := strings.Split(line, " ")
	got := runCommand(nil, "", append([]string{cobra.ShellCompRequestCmd}, args...)...)
	if got.code != 0 {
		t.Errorf("%s: exit %d, want 0: %s", line, got.code, got.err)
	}
	for offer := range strings.Lines(got.out) {
		word, _, _ := strings.Cut(strings.TrimSpace(offer), "\t")
		if strings.HasPrefix(word, args[len(args)-1]) && !strings.HasPrefix(word, ":") {
			words = append(words, word)
		}
	}
	return words
}

func TestCompletions(t *testing.T) {
	useFile(t)
	for _, tt := range []struct{ line, want string }{
		{"cr", "create"},
		{"c", "create count check compact completion"},
		{"tags ", "add remove list find"},
		{"--json tags l", "list"},
		{"create ", "user"},
		{"create x", ""},
		{"create user ", ""},
		{"create user --ta", "--tag"},
		{"delete x --y", "--yes"},
		{"completion ", "bash zsh fish powershell"},
		{"completion z", "zsh"},
		{"completion bash ", ""},
		{"hint --as ", "entry user"},
		{"dump --format ", "long short keys"},
		{"get --schema ", ""},
		{"__c", ""},
		{"nosuch l", ""},
		{"version ", ""},
		{"help lo", "login"},
		{"login --h", "--history"},
	} {
		if got := strings.Join(completions(t, tt.line), " "); got != tt.want {
			t.Errorf("completions of %q: %s, want %s", tt.line, got, tt.want)
		}
	}
	if got := completions(t, ""); len(got) < 15 {
		t.Errorf("completions of an empty line: %v, want at least 15", got)
	}
}

// TestCompletionScripts checks that the installed shells can read the scripts, and that the one for
// bash asks the program.
func TestCompletionScripts(t *testing.T) {
	for shell, more := range map[string]string{
		"bash": "\n" + program + `() { echo "asked for $*"; }; words=(` + program + ` tags li) cword=2 cur=li; __userdb_get_completion_results; echo "$out"`,
		"zsh":  "", "fish": "",
	} {
		t.Run(shell, func(t *testing.T) {
			path, err := exec.LookPath(shell)
			if err != nil {
				t.Skip(err)
			}
			script := runCommand(nil, "", "completion", shell)
			file := filepath.Join(t.TempDir(), "script")
			if err := os.WriteFile(file, []byte(script.out+more), 0o600); err != nil || script.code != 0 {
				t.Fatal(err, script)
			}
			args := map[string][]string{"bash": {file}}[shell]
			if args == nil {
				args = []string{"-n", file}
			}
			out, err := exec.Command(path, args...).CombinedOutput()
			if err != nil || shell == "bash" && string(out) != "asked for __complete tags li\n" {
				t.Errorf("%s runs the script: %q, %v; want no error, and in bash the question to the program", shell, out, err)
			}
		})
	}
}

// splitWords splits a line as a shell does. It supports only the syntax of the examples: spaces,
// single quotes, and at the end a file for standard input (<) or output (>).
func splitWords(line string) (args []string, stdin, stdout string) {
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

// everyCommand calls do with c and all commands below it.
func everyCommand(c *cobra.Command, do func(*cobra.Command)) {
	do(c)
	for _, below := range c.Commands() {
		everyCommand(below, do)
	}
}

// TestExamples checks that every example in the help works, on a store with Alice and Bob in it.
func TestExamples(t *testing.T) {
	everyCommand(testRoot(), func(c *cobra.Command) {
		if strings.Contains(c.CommandPath(), " completion") || c.Name() == "help" || c.Name() == "serve" {
			return // cobra's own, or covered by TestServeExamples
		}
		prepare := func() {}
		if strings.HasPrefix(c.CommandPath(), "userdb factor") {
			prepare = func() { enrolAlice(t) }
		}
		t.Run(c.CommandPath(), func(t *testing.T) {
			var lines []string
			for line := range strings.Lines(c.Example) {
				rest, ok := strings.CutPrefix(strings.TrimSpace(line), "userdb ")
				if lines = append(lines, rest); !ok {
					t.Errorf("%q is not an example", line)
				}
			}
			runLines(t, lines, prepare)
		})
	})
}

// runLines runs command lines one after the other. They run in a folder with the files that
// examples name, on a store with Alice and Bob that prepare may change. Then it checks the store.
func runLines(t *testing.T, lines []string, prepare func()) {
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
		"hr.csv":              "E-Mail,name,Phone,active\nyve@example.com,Yve,012,t\n",
		"crm.csv":             "email,name\n\"yan@example.com; yan@work.example\",Yan\n",
		"accounts.csv":        "email,name,clear_password\nval@example.com,Val,correct horse battery\n",
		"ordered.json":        builtIn(t),
		"schema.json":         `{"types":{"user":{"primary":"uid","fields":{"email":{"role":"secondary"},"name":{"role":"secondary"}}}}}`,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("USERDB_SCHEMA", filepath.Join(dir, "ordered.json"))
	runExample(t, "create user uid=17c07627d35e email=alice@example.com name=Alice job=author --tag python c++ --password-stdin < secret.txt")
	runExample(t, "create user email=bob@example.com name=Bob --tag python --no-password")
	if _, err := embedded.Backup("store.jsonl", "accounts.db"); err != nil {
		t.Fatal(err)
	}
	prepare()
	for _, line := range lines {
		runExample(t, line)
	}
	t.Setenv("USERDB_SCHEMA", "") // the stored one, which an example may have changed
	if got := runCommand(nil, "", "check"); got.code != 0 {
		t.Errorf("check: exit %d, want 0: %s%s", got.code, got.out, got.err)
	}
}

// builtIn returns the built-in schema as JSON, with several values for addresses, names that are
// held, UIDs that are retired, and second factors.
func builtIn(t *testing.T) string {
	t.Helper()
	sc := schema.User()
	user := sc.Types["user"]
	email, name := user.Fields["email"], user.Fields["name"]
	email.Many, name.Hold, user.Retire, user.Factors = 5, 90*schema.Day, true, true
	user.Fields["email"], user.Fields["name"], sc.Types["user"] = email, name, user
	text, err := json.Marshal(sc)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func runExample(t *testing.T, line string) {
	t.Helper()
	args, file, out := splitWords(line)
	stdin := ""
	term := terminal((&typist{answers: []string{good, good}}).ask)
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("userdb %s: %v", line, err)
		}
		stdin, term = string(text), nil
	}
	got := runCommand(term, stdin, args...)
	if got.code != 0 || got.err != "" && !strings.HasPrefix(got.err, "more: ") && !strings.HasPrefix(got.err, "userdb: note: ") {
		t.Errorf("userdb %s: exit %d, want 0: %s", line, got.code, got.err)
	}
	if out != "" {
		if err := os.WriteFile(out, []byte(got.out), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if args[0] != "passwd" && got.out == "" {
		t.Errorf("userdb %s prints nothing", line)
	}
}

var update = flag.Bool("update", false, "write the current help, tables and tour to the files in testdata")

// TestHelp checks that the help of each command equals that in testdata/help.txt, fits a terminal
// and mentions every flag.
func TestHelp(t *testing.T) {
	const width, golden = helpWidth, "testdata/help.txt"
	var all strings.Builder
	everyCommand(testRoot(), func(c *cobra.Command) {
		got := runCommand(nil, "", append([]string{"help"}, strings.Fields(c.CommandPath())[1:]...)...)
		if got.code != 0 || got.err != "" {
			t.Fatalf("help %s: %+v, want exit 0 and no error", c.CommandPath(), got)
		}
		c.LocalFlags().VisitAll(func(flag *pflag.Flag) {
			if !flag.Hidden && !strings.Contains(got.out, "--"+flag.Name+" ") {
				t.Errorf("the help of %s does not mention --%s", c.CommandPath(), flag.Name)
			}
		})
		for line := range strings.Lines(got.out) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > width {
				t.Errorf("the help of %s has a line of %d characters: %s", c.CommandPath(), n, line)
			}
		}
		// Global flags are in the help of userdb itself.
		own, _, _ := strings.Cut(got.out, "\nGlobal Flags:\n")
		if !strings.Contains(c.CommandPath(), " completion ") {
			fmt.Fprintf(&all, "=== %s\n%s", c.CommandPath(), own)
		}
	})
	if *update {
		if err := os.WriteFile(golden, []byte(all.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || all.String() != string(want) {
		t.Errorf("the help differs from %s (%v): write it with -update, and read the difference", golden, err)
	}
}
