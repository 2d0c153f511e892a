package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A keyboard types at a pseudo-terminal from which the program reads.
type keyboard struct {
	t    *testing.T
	ptmx *os.File
	tty  *os.File
	seen strings.Builder
}

func newKeyboard(t *testing.T) *keyboard {
	t.Helper()
	ptmx, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { ptmx.Close() })
	if err := unix.IoctlSetPointerInt(int(ptmx.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(ptmx.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	return &keyboard{t: t, ptmx: ptmx, tty: tty}
}

// echoes reports whether the terminal shows entered text.
func (k *keyboard) echoes() bool {
	state, err := unix.IoctlGetTermios(int(k.tty.Fd()), unix.TCGETS)
	if err != nil {
		k.t.Fatal(err)
	}
	return state.Lflag&unix.ECHO != 0
}

// answer waits for a prompt and for the echo to be off, and types text.
func (k *keyboard) answer(prompt, text string) {
	k.t.Helper()
	var b [1]byte
	for !strings.HasSuffix(k.seen.String(), prompt) {
		if _, err := k.ptmx.Read(b[:]); err != nil {
			k.t.Fatalf("waiting for %q: %v; seen %q", prompt, err, k.seen.String())
		}
		k.seen.WriteByte(b[0])
	}
	for k.echoes() {
		time.Sleep(time.Millisecond)
	}
	k.ptmx.WriteString(text)
}

// runAtTerminal runs the program at a terminal, calls typing to answer its prompts, and waits until
// the program ends.
func runAtTerminal(t *testing.T, store, line string, typing func(*keyboard)) (result, *keyboard) {
	t.Helper()
	k := newKeyboard(t)
	cmd, errs := newProcess(t, store, strings.Fields(line)...)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout = k.tty, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	typing(k)
	err := cmd.Wait()
	return result{exitCode(err), out.String(), errs.String()}, k
}

func TestTerminal(t *testing.T) {
	store := "file:" + filepath.Join(t.TempDir(), "users.jsonl")
	got, k := runAtTerminal(t, store, "create user uid=a1 name=Alice --json", func(k *keyboard) {
		k.answer("New password: ", good+"\n")
		k.answer("Repeat the password: ", good+"\n")
	})
	if got.code != 0 || !strings.HasPrefix(got.out, `{"added":`) || got.err != "" {
		t.Errorf("create: %+v, want exit 0 and the entry", got)
	}
	if seen := k.seen.String(); seen != "New password: \r\nRepeat the password: " {
		t.Errorf("create shows %q, want only the two prompts", seen)
	}
	got, _ = runAtTerminal(t, store, "login Alice --json", func(k *keyboard) { k.answer("Password: ", good+"\n") })
	if got.code != 0 || !strings.HasPrefix(got.out, `{"added":`) {
		t.Errorf("login: %+v, want exit 0 and the entry", got)
	}
	got, k = runAtTerminal(t, store, "login Alice", func(k *keyboard) { k.answer("Password: ", "half\x1a a\x1c pass\x03") })
	if got != (result{130, "", "userdb: interrupted\n"}) || !k.echoes() {
		t.Errorf("Ctrl-Z, Ctrl-\\ and Ctrl-C at the prompt: %+v, echo %v; want exit 130, echo true", got, k.echoes())
	}
	got, _ = runAtTerminal(t, store, "passwd nobody", func(*keyboard) {})
	if got != (result{3, "", "userdb: nobody: not found\n"}) {
		t.Errorf("passwd of an entry that does not exist: %+v, want exit 3 and no prompt", got)
	}
}

// TestCSVAtTerminal checks that values cannot control a terminal, and that a file has them
// unchanged.
func TestCSVAtTerminal(t *testing.T) {
	useFile(t)
	const job = "\x1b[2JCook"
	if got := runCommand(nil, "", "create", "user", "uid=a1", "name=Alice", "job="+job, "--no-password"); got.code != 0 {
		t.Fatalf("create: %+v, want exit 0", got)
	}
	args := []string{"list", "user", "--csv", "--fields", "uid,job"}
	k := newKeyboard(t)
	if code := run(args, stdio{in: strings.NewReader(""), out: k.tty, err: new(bytes.Buffer)}); code != 0 {
		t.Fatalf("list: exit code %d, want 0", code)
	}
	shown := bufio.NewReader(k.ptmx)
	for _, want := range []string{"uid,job\r\n", "a1,\\x1b[2JCook\r\n"} {
		if got, err := shown.ReadString('\n'); err != nil || got != want {
			t.Errorf("a terminal shows %q (%v), want %q", got, err, want)
		}
	}
	if got := runCommand(nil, "", args...); got.out != "uid,job\na1,"+job+"\n" {
		t.Errorf("a file has %q, want the value unchanged", got.out)
	}
}
