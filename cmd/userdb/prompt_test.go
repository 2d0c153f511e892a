package main

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// A typist answers what a terminal is asked.
type typist struct {
	answers []string
	asked   []string
	before  func() // each answer
}

func (ty *typist) ask(_ context.Context, prompt string) (string, error) {
	ty.asked = append(ty.asked, prompt)
	if ty.before != nil {
		ty.before()
	}
	if len(ty.answers) == 0 {
		return "", errors.New("asked once too often")
	}
	answer := ty.answers[0]
	ty.answers = ty.answers[1:]
	return answer, nil
}

func (*typist) restore() {}

const good = "correct horse battery"

func TestPrompts(t *testing.T) {
	useFile(t)
	const twice = "New password: |The same again: "
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
		// What is wrong anyway is said before anybody types in vain.
		{"create user name=ALICE", nil, 4, "", "userdb: taken: name; another entry has it: choose another value\n"},
		{"create user email=nonsense", nil, 2, "", "userdb: invalid value: email: "},
		{"create user added=soon", nil, 2, "", "userdb: invalid value: added: no date: "},
		{"create user name", nil, 2, "", "userdb: name is not FIELD=VALUE\n"},
		{"create robot", nil, 2, "", "userdb: schema: types.robot: "},
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
	} {
		ty := &typist{answers: tt.answers}
		got := here(ty, "", strings.Fields(tt.args)...)
		if got.code != tt.code || !strings.HasPrefix(got.err, tt.err) || tt.err == "" && got.err != "" {
			t.Errorf("%s: exit %d, %q; want %d, %q…", tt.args, got.code, got.err, tt.code, tt.err)
		}
		if asked := strings.Join(ty.asked, "|"); asked != tt.asked {
			t.Errorf("%s: asked %q, want %q", tt.args, asked, tt.asked)
		}
	}
}

// While somebody thinks about a password, others must get at the file.
func TestPromptHoldsNoLock(t *testing.T) {
	useFile(t)
	ty := &typist{answers: []string{good, good}}
	ty.before = func() {
		if got := here(nil, "", "count", "user", "--timeout", "5s"); got.code != 0 {
			t.Errorf("while a password is typed, count exits %d: %s", got.code, got.err)
		}
	}
	if got := here(ty, "", "create", "user", "name=Alice"); got.code != 0 {
		t.Errorf("create exits %d: %s", got.code, got.err)
	}
}

func TestPasswordStdin(t *testing.T) {
	useFile(t)
	if got := here(nil, good+"\n", "create", "user", "name=Alice", "--password-stdin"); got.code != 0 {
		t.Fatalf("create exits %d: %s", got.code, got.err)
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
		got := here(nil, tt.stdin, "login", "Alice", "--password-stdin")
		if got.code != tt.code || got.err != tt.err {
			t.Errorf("login < %.30q (%d bytes): exit %d, %q; want %d, %q", tt.stdin, len(tt.stdin), got.code, got.err, tt.code, tt.err)
		}
	}
}
