package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// A typist answers prompts.
type typist struct {
	answers []string
	asked   []string
	before  func() // called before each answer
}

func (ty *typist) ask(_ context.Context, prompt string) (string, error) {
	ty.asked = append(ty.asked, prompt)
	if ty.before != nil {
		ty.before()
	}
	if len(ty.answers) == 0 {
		return "", errors.New("asked too often")
	}
	answer := ty.answers[0]
	ty.answers = ty.answers[1:]
	return answer, nil
}

const good = "correct horse battery"

func TestPrompts(t *testing.T) {
	useFile(t)
	const twice = "New password: |Repeat the password: "
	for _, tt := range []struct {
		args    string
		answers []string
		code    int
		asked   string
		err     string
	}{
		{"create user uid=a1 name=Alice", []string{good, good}, 0, twice, ""},
		{"create user uid=b1 name=Bob", []string{good, good + "!"}, 2, twice, "userdb: the two passwords differ: nothing was changed\n"},
		{"create user uid=b1 name=Bob", []string{"", ""}, 2, twice, "userdb: the password is empty\n"},
		{"create user uid=b1 name=Bob", []string{"short", "short"}, 2, twice, "userdb: password refused: 5 characters are fewer than 8\n"},
		{"create user uid=b1 name=Bob --no-password", nil, 0, "", ""},
		// Errors that do not depend on the password are reported before the prompt.
		{"create user name=ALICE", nil, 4, "", "userdb: taken: name; another entry has it: choose another value\n"},
		{"create user email=nonsense", nil, 2, "", "userdb: invalid value: email: "},
		{"create user uid=a1", nil, 4, "", "userdb: taken: uid; another entry has it: choose another value\n"},
		{"create user email=nonsense name=ALICE", nil, 2, "", "userdb: invalid value: email: no @ in the address\nuserdb: taken: name; "},
		{"create user added=soon", nil, 2, "", "userdb: invalid value: added: not a date like "},
		{"create customer=C1", nil, 2, "", `userdb: invalid value: customer: type "user" has no such field; it has uid, added, email, job, name,`},
		{"create user name", nil, 2, "", "userdb: name is not FIELD=VALUE\n"},
		{"create robot", nil, 2, "", "userdb: no such type: robot; "},
		{"passwd nobody", nil, 3, "", "userdb: nobody: not found\n"},
		{"passwd job=x", nil, 2, "", "userdb: hint "},
		{"login Alice", []string{good}, 0, "Password: ", ""},
		{"login Alice", []string{""}, 5, "Password: ", "userdb: wrong identifier or password\n"},
		{"login Bob", []string{good}, 5, "Password: ", "userdb: wrong identifier or password\n"},
		{"passwd b1", []string{good, good}, 0, twice, ""},
		{"passwd b1 --change", []string{good, "staple " + good, "staple " + good}, 0, "Old password: |" + twice, ""},
		{"passwd b1 --change", []string{good, good, good}, 5, "Old password: |" + twice, "userdb: wrong identifier or password\n"},
		{"passwd b1 --change", []string{"staple " + good, good, good}, 0, "Old password: |" + twice, ""},
		{"passwd nobody --change", nil, 3, "", "userdb: nobody: not found\n"},
		{"password strength", []string{"password"}, 0, "Password: ", ""},
		{"login Bob", []string{good}, 0, "Password: ", ""},
		{"operator add Olga", []string{good, good}, 0, twice, ""},
		{"operator add olga", nil, 4, "", "userdb: operator olga: an operator of that name exists"},
		{"operator add \t", nil, 2, "", "userdb: missing: NAME"},
		{"operator add a\u200bb", nil, 2, "", "userdb: invalid value: name: "},
		{"operator add Anna", []string{"short", "short"}, 2, twice, "userdb: password refused: "},
	} {
		ty := &typist{answers: tt.answers}
		got := runCommand(ty.ask, "", strings.Fields(tt.args)...)
		if got.code != tt.code || !strings.HasPrefix(got.err, tt.err) || tt.err == "" && got.err != "" {
			t.Errorf("%s: exit %d, %q; want %d, %q…", tt.args, got.code, got.err, tt.code, tt.err)
		}
		if asked := strings.Join(ty.asked, "|"); asked != tt.asked {
			t.Errorf("%s: asked %q, want %q", tt.args, asked, tt.asked)
		}
	}
}

// TestPromptHoldsNoLock checks that other commands can use the file during a password prompt.
func TestPromptHoldsNoLock(t *testing.T) {
	useFile(t)
	ty := &typist{answers: []string{good, good}}
	ty.before = func() {
		if got := runCommand(nil, "", "count", "user", "--timeout", "5s"); got.code != 0 {
			t.Errorf("while a password is entered, count: exit %d, want 0: %s", got.code, got.err)
		}
	}
	if got := runCommand(ty.ask, "", "create", "user", "name=Alice"); got.code != 0 {
		t.Errorf("create: exit %d, want 0: %s", got.code, got.err)
	}
}

func TestPasswordStdin(t *testing.T) {
	useFile(t)
	if got := runCommand(nil, good+"\n", "create", "user", "name=Alice", "--password-stdin"); got.code != 0 {
		t.Fatalf("create: exit %d, want 0: %s", got.code, got.err)
	}
	long := strings.Repeat("x", maxSecret)
	for _, tt := range []struct {
		stdin string
		code  int
		err   string
	}{
		{good, 0, ""},
		{good + "\n", 0, ""},
		{good + "\r\n", 0, ""},
		{good + "\nanother line\n", 0, ""},
		{good + "\r", 5, "userdb: wrong identifier or password\n"},
		{good + "\r\r\n", 5, "userdb: wrong identifier or password\n"},
		{good + " \n", 5, "userdb: wrong identifier or password\n"},
		{" " + good, 5, "userdb: wrong identifier or password\n"},
		{"\n" + good, 5, "userdb: wrong identifier or password\n"},
		{"", 2, "userdb: no password on standard input\n"},
		{long, 5, "userdb: wrong identifier or password\n"},
		{long + "\n", 5, "userdb: wrong identifier or password\n"},
		{long + "x\n", 2, "userdb: the password is over 4096 bytes\n"},
		{long + long, 2, "userdb: the password is over 4096 bytes\n"},
	} {
		got := runCommand(nil, tt.stdin, "login", "Alice", "--password-stdin")
		if got.code != tt.code || got.err != tt.err {
			t.Errorf("login < %.30q (%d bytes): exit %d, %q; want %d, %q", tt.stdin, len(tt.stdin), got.code, got.err, tt.code, tt.err)
		}
	}
}

// hostile lists words that a visitor may give as an identifier, a token, a hint or an origin.
var hostile = []string{
	"--help", "-h", "--help=true", "--help=false", "--help=1", "--help=0", "--help=", "--help=TRUE", "--help=t", "--help=help",
	"-h=true", "-h=", "-hh", "-hhh", "-hx", "-xh", "-htrue", "-h-", "--h", "--he", "--hel", "--helpp", "--HELP", "-H", "-help", "--no-help", "---help", "-?", "/?",
	"--version", "--version=true", "-v", "-V", "version", "help", "completion", "__complete", "--completion",
	"--", "---", "-", "--=", "-=x", "-=", "", " ", "\t", "\n", "-\n", " --help", "--help ", "\"--help\"", "'-h'", "--help\x00", "\xff", "-\xff", "--\xff",
	"--json", "--json=true", "--json=false", "--password-stdin", "--password-stdin=false", "--change", "--change=false",
	"--store", "--store=memory:", "--schema=", "--namespace", "--namespace=x", "--type", "--type=user", "--timeout", "--timeout=0", "--timeout=-1s",
	"--origin", "--origin=x", "--purpose", "--purpose=reset", "--tag", "--tag=x", "--limit=1", "--reveal", "--yes",
	"user/uid:a1/--help", "*=--help", "uid=-h", `["*","--help"]`, "@file", "$HOME", "${HOME}", "`id`", "$(id)", "%h", "\\-h",
}

// sampled returns all words or, with -short, every fifth of them.
func sampled(words []string) (some []string) {
	if !testing.Short() {
		return words
	}
	for i := 0; i < len(words); i += 5 {
		some = append(some, words[i])
	}
	return some
}

// scripts lists command lines with their standard input. X stands for a word of hostile. None of
// them has an identifier together with its password, or a valid token, so none may exit 0.
var scripts = []struct{ line, stdin string }{
	{"login X --password-stdin", good},
	{"login --password-stdin X", good},
	{"login --password-stdin -- X", good},
	{"login X", good},
	{"X login Bob --password-stdin", "wrong"},
	{"login X Bob --password-stdin", "wrong"},
	{"login Bob X --password-stdin", "wrong"},
	{"login Bob --password-stdin X", "wrong"},
	{"login Bob --password-stdin --origin X", "wrong"},
	{"login --origin X Bob --password-stdin", "wrong"},
	{"login --origin X -- Bob --password-stdin", "wrong"},
	{"login --origin=X Bob --password-stdin", "wrong"},
	{"login - --password-stdin --origin X", "Bob\nwrong"},
	{"--json login --password-stdin X", good},
	{"--origin X login Bob --password-stdin", "wrong"},
	{"--type X login Bob --password-stdin", "wrong"},
	{"passwd X --password-stdin", good},
	{"passwd X --change --password-stdin", good + "\n" + good},
	{"passwd --change --password-stdin -- X", good + "\n" + good},
	{"passwd --change --password-stdin X uid=b1", "wrong\n" + good},
	{"passwd uid=b1 X --change --password-stdin", "wrong\n" + good},
	{"X passwd uid=b1 --change --password-stdin", "wrong\n" + good},
	{"token redeem X --purpose reset", "made up"},
	{"token redeem --purpose reset X", "made up"},
	{"token redeem --purpose reset -- X", "made up"},
	{"token redeem - --purpose X", "made up"},
	{"token redeem --purpose X -- made-up", ""},
	{"token X redeem made-up --purpose reset", ""},
	{"X token redeem made-up --purpose reset", ""},
	{"token --json redeem X --purpose=reset", "made up"},
}

// TestNoWordGrants runs commands whose exit code scripts use to let visitors in, with every hostile
// word, and checks that they never exit 0.
func TestNoWordGrants(t *testing.T) {
	useFile(t)
	if got := runCommand(nil, good, "create", "user", "uid=b1", "name=Bob", "--password-stdin"); got.code != 0 {
		t.Fatalf("create: %+v, want exit 0", got)
	}
	for _, script := range scripts {
		for _, x := range sampled(hostile) {
			args := strings.Fields(script.line)
			if args[0] == "X" && !isFlag(x) {
				continue // it would be the name of a command
			}
			for i, arg := range args {
				args[i] = strings.Replace(arg, "X", x, 1)
			}
			if got := runCommand(nil, script.stdin, args...); got.code == 0 {
				t.Errorf("userdb %q: exit 0, want a failure: %s%s", args, got.out, got.err)
			}
		}
	}
	// Setting the password also resets the counted failures, so that Bob can log in.
	if got := runCommand(nil, good, "passwd", "uid=b1", "--password-stdin"); got.code != 0 {
		t.Fatalf("passwd: %+v, want exit 0", got)
	}
	if got := runCommand(nil, good, "login", "Bob", "--password-stdin"); got.code != 0 {
		t.Errorf("Bob's password has changed: login exits %d: %s", got.code, got.err)
	}
}

// TestNoTwoWordsGrant checks that no two hostile words, with another word between them, make login
// show its help, which would exit 0.
func TestNoTwoWordsGrant(t *testing.T) {
	for _, help := range hostile {
		if !strings.HasPrefix(help, "-") || !strings.Contains(help, "h") {
			continue
		}
		for _, other := range sampled(hostile) {
			args := []string{"login", help, "word", other}
			if s, err := parseLine(args...); err == nil && s.do == nil {
				t.Errorf("userdb %q shows help, want an error", args)
			}
		}
	}
}

// TestHelpWithoutFlag checks that 'userdb help' shows the help of commands that refuse --help, and
// that the errors of these commands name it.
func TestHelpWithoutFlag(t *testing.T) {
	useFile(t)
	for _, name := range []string{"login", "passwd", "token redeem"} {
		if got := runCommand(nil, "", append([]string{"help"}, strings.Fields(name)...)...); got.code != 0 || !strings.Contains(got.out, "Usage:\n  userdb "+name+" ") {
			t.Errorf("help %s: %+v, want exit 0 and the help", name, got)
		}
		for _, args := range [][]string{{"--help"}, {"--nonsense"}} {
			got := runCommand(nil, "", append(strings.Fields(name), args...)...)
			if got.code != 2 || !strings.Contains(got.err, "'userdb help "+name+"'") {
				t.Errorf("%s %q: %+v, want exit 2 and the advice to run help", name, args, got)
			}
		}
	}
}

// TestIdentifierStdin checks that 'login -' reads the identifier from the first line of standard
// input, whatever that line contains.
func TestIdentifierStdin(t *testing.T) {
	useFile(t)
	if got := runCommand(nil, good, "create", "user", "name=Alice", "--password-stdin"); got.code != 0 {
		t.Fatalf("create: %+v, want exit 0", got)
	}
	for _, tt := range []struct {
		stdin string
		code  int
	}{
		{"Alice\n" + good, 0},
		{"alice\r\n" + good + "\r\n", 0},
		{"Alice\n", 2},
		{"", 2},
		{"--help\n" + good, 5},
		{"-\n" + good, 5},
		{strings.Repeat("x", maxSecret+2) + good, 2},
		{good + "\nAlice", 5},
	} {
		if got := runCommand(nil, tt.stdin, "login", "-", "--password-stdin"); got.code != tt.code {
			t.Errorf("login - < %.40q: exit %d, %s; want %d", tt.stdin, got.code, got.err, tt.code)
		}
	}
	for _, line := range [][]string{{"login", "--password-stdin", "--", "-"}, {"token", "redeem", "--purpose", "p", "--", "-"}} {
		if got := runCommand(nil, "Alice\n"+good, line...); got.code != 5 {
			t.Errorf("%q: exit %d, %s; want 5: after -- a hyphen is what a visitor wrote", line, got.code, got.err)
		}
	}
	if got := runCommand((&typist{answers: []string{good}}).ask, "", "login", "-"); got.code != 2 {
		t.Errorf("login - at a terminal: %+v, want exit 2", got)
	}
}

// TestExamplesGuardWords checks that no example in the help and the documentation lets a visitor's
// word become a flag, because readers copy examples.
func TestExamplesGuardWords(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	everyCommand(testRoot(), func(c *cobra.Command) { texts[c.CommandPath()] = c.Long + "\n" + c.Example })
	for _, file := range append(files, "../../README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[file] = string(text)
	}
	command := regexp.MustCompile("userdb (?:login|passwd|token redeem) [^`|#\n]*")
	guarded := regexp.MustCompile(` --? `)
	seen := 0
	for where, text := range texts {
		for _, line := range command.FindAllString(text, -1) {
			seen++
			if !guarded.MatchString(fmt.Sprint(line, " ")) {
				t.Errorf("%s: %q has neither -- nor - for what a visitor gives", where, line)
			}
		}
	}
	if seen < 12 {
		t.Errorf("only %d examples were found, want at least 12", seen)
	}
}

// TestPasswordFile checks that new passwords that nobody could type are refused: those from a file
// with a byte order mark, in UTF-16 or in Latin-1.
func TestPasswordFile(t *testing.T) {
	useFile(t)
	const refused = "userdb: the password contains a byte order mark or a NUL, or is not UTF-8: nobody could type it"
	for name, text := range map[string]string{
		"a byte order mark": "\ufeff" + good + "\n", "UTF-16": "c\x00o\x00r\x00r\x00e\x00c\x00t\x00 \x00h\x00", "Latin-1": "J\xfcrgens Sommerhaus\n",
	} {
		if got := runCommand(nil, text, "create", "user", "uid=1", "--password-stdin"); got.code != 2 || !strings.HasPrefix(got.err, refused) {
			t.Errorf("%s: create: %+v, want exit 2 and %q", name, got, refused)
		}
	}
	if got := runCommand(nil, "Jürgens Sommerhaus\n", "create", "user", "uid=1", "--password-stdin"); got.code != 0 {
		t.Fatalf("create with a password in UTF-8: %+v, want exit 0", got)
	}
	if got := runCommand(nil, "J\xfcrgens Sommerhaus\n", "passwd", "1", "--password-stdin"); got.code != 2 || !strings.HasPrefix(got.err, refused) {
		t.Errorf("passwd: %+v, want exit 2 and %q", got, refused)
	}
	if got := runCommand(nil, "\ufeffJürgens Sommerhaus\n", "login", "1", "--password-stdin"); got.code != 5 {
		t.Errorf("login, which refuses such a password like any wrong one: %+v, want exit 5", got)
	}
}
