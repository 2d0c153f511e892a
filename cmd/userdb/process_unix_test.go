//go:build unix

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coffeenode/userdb/internal/embedded"
)

// newProcess returns a command that runs the program in a separate process, and the buffer of its
// standard error.
func newProcess(t *testing.T, store string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "USERDB_STORE="+store)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	return cmd, &errs
}

// lockedFile returns the URL of a store in a file that the test has locked.
func lockedFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "users.jsonl")
	f, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return "file:" + path
}

// deafServer starts a server that accepts connections and never answers, and returns its URL. It
// sends a value on called for each connection.
func deafServer(t *testing.T) (url string, called chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	called = make(chan struct{}, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go io.Copy(io.Discard, c)
			called <- struct{}{}
		}
	}()
	return "redis://" + l.Addr().String(), called
}

func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

// TestInterrupt checks that an interrupted command exits 130 with one line, whatever it waits for.
func TestInterrupt(t *testing.T) {
	// A command ignores hang-ups if its parent ignores them. Because of Notify, this process does
	// not, even if nohup started it.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	locked := lockedFile(t)
	want := `{"error":{"code":"interrupted","message":"interrupted"}}` + "\n"
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		// A process may connect several times, so each signal has a server of its own.
		deaf, called := deafServer(t)
		got := interrupt(t, deaf, sig, "list user --json", func(io.Writer, io.Reader) { <-called })
		if got != (result{130, "", want}) {
			t.Errorf("%v while waiting for a server that does not answer: %+v, want exit 130, %q", sig, got, want)
		}
		got = interrupt(t, "memory:", sig, "recordkey escape --batch --json", func(in io.Writer, out io.Reader) {
			io.WriteString(in, "\"a b\"\n")
			if line, err := bufio.NewReader(out).ReadString('\n'); line != "{\"result\":\"a+_b\"}\n" {
				t.Errorf("the first answer is %q, %v; want the escaped text as JSON", line, err)
			}
		})
		if got != (result{130, "", want}) {
			t.Errorf("%v while reading standard input: %+v, want exit 130, %q", sig, got, want)
		}
		got = interruptWaiting(t, locked, sig, "list user --json")
		if got != (result{130, "", want}) {
			t.Errorf("%v while waiting for a locked file: %+v, want exit 130, %q", sig, got, want)
		}
	}
}

// TestNohup checks that a command that nohup starts goes on when its terminal is closed.
func TestNohup(t *testing.T) {
	cmd, errs := newProcess(t, "memory:")
	cmd.Path, cmd.Args = "/bin/bash", []string{"bash", "-c", "trap '' HUP; exec " + program + " recordkey escape --batch"}
	in, out := startPiped(t, cmd)
	lines := bufio.NewReader(out)
	for range 2000 { // for longer than an interruption takes
		io.WriteString(in, "\"a b\"\n")
		if line, err := lines.ReadString('\n'); line == "" {
			t.Fatalf("no answer: %v, %q", err, errs)
		}
		cmd.Process.Signal(syscall.SIGHUP)
	}
	in.Close()
	if err := cmd.Wait(); err != nil || errs.Len() != 0 {
		t.Errorf("after its input ended: %v, %q; want neither error nor message", err, errs)
	}
}

// interruptWaiting interrupts a command that does not show when it begins to wait. If the signal
// kills the command because it came too early, the next attempt waits longer.
func interruptWaiting(t *testing.T, store string, sig os.Signal, line string) result {
	t.Helper()
	got := result{code: -1}
	for wait := 50 * time.Millisecond; got.code == -1 && wait < 10*time.Second; wait *= 2 {
		got = interrupt(t, store, sig, line, func(io.Writer, io.Reader) { time.Sleep(wait) })
	}
	return got
}

// interrupt starts a command line, and interrupts it when ready returns.
func interrupt(t *testing.T, store string, sig os.Signal, line string, ready func(in io.Writer, out io.Reader)) result {
	t.Helper()
	cmd, errs := newProcess(t, store, strings.Fields(line)...)
	ready(startPiped(t, cmd))
	cmd.Process.Signal(sig)
	return result{exitCode(cmd.Wait()), "", errs.String()}
}

// startPiped starts a process and returns its standard input and output.
func startPiped(t *testing.T, cmd *exec.Cmd) (in io.WriteCloser, out io.Reader) {
	t.Helper()
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return in, out
}

func TestTimeout(t *testing.T) {
	deaf, _ := deafServer(t)
	for _, tt := range []struct{ name, store, want string }{
		{"locked file", lockedFile(t), "file is locked by another process"},
		{"connection refused", "redis://127.0.0.1:1", "; is the store of --store (USERDB_STORE) "},
		{"server that does not answer", deaf, "userdb: timed out: the store did not answer within 300ms; is the store of --store (USERDB_STORE) reachable? --timeout gives more time\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd, errs := newProcess(t, tt.store, "list", "user", "--timeout", "300ms")
			if err := cmd.Run(); exitCode(err) != 6 || !strings.Contains(errs.String(), tt.want) || strings.Count(errs.String(), "\n") != 1 {
				t.Errorf("list: exit %d, %q; want exit 6 and %q", exitCode(err), errs.String(), tt.want)
			}
		})
	}
}

// A firstWrite is a writer that calls do after the first write.
type firstWrite struct {
	mu   sync.Mutex
	text strings.Builder
	once sync.Once
	do   func()
}

func (w *firstWrite) Write(p []byte) (int, error) {
	w.mu.Lock()
	n, err := w.text.Write(p)
	w.mu.Unlock()
	w.once.Do(w.do)
	return n, err
}

func (w *firstWrite) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// TestWaitingForFile checks that a command that waits for a file names the process that has it
// open. With --json it does not, because standard error then has only errors.
func TestWaitingForFile(t *testing.T) {
	defer func(before time.Duration) { patience = before }(patience)
	patience = time.Millisecond
	path := filepath.Join(t.TempDir(), "users.jsonl")
	open := func() *embedded.Store {
		t.Helper()
		store, err := embedded.Open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	want := fmt.Sprintf("userdb: waiting for %s, which shop (process 7) has open\n", path)
	for _, command := range []string{"list", "compact"} {
		holder := open()
		// The file looks as if another process held it.
		if err := os.WriteFile(path+".lock", []byte("shop (process 7)\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		errs := &firstWrite{do: func() { holder.Close() }}
		code := run([]string{command, "--store", "file:" + path, "--timeout", "1m"}, stdio{in: strings.NewReader(""), out: io.Discard, err: errs})
		if code != 0 || errs.String() != want {
			t.Errorf("%s: exit code %d, %q; want exit code 0 once the file is closed, and %q", command, code, errs, want)
		}
	}
	holder := open()
	defer holder.Close()
	if got := runCommand(nil, "", "list", "--store", "file:"+path, "--timeout", "500ms", "--json"); got.code != 6 || strings.Contains(got.err, "waiting") {
		t.Errorf("with --json: %+v, want exit code 6 and only the error", got)
	}
	// While a command reads a large file, it holds the lock itself: it must not say that it waits.
	if got := runCommand(nil, "", "list", "--store", "file:"+path, "--timeout", "500ms"); got.code != 6 || strings.Contains(got.err, "waiting") {
		t.Errorf("a file that this process has open: %+v, want exit code 6 and only the error", got)
	}
	if got := runCommand(nil, "", "list", "--store", "redis://192.0.2.1", "--timeout", "500ms"); got.code != 6 || strings.Contains(got.err, "waiting for") {
		t.Errorf("a server that does not answer: %+v, want exit code 6 and only the error", got)
	}
	holder.Close()
	if name := embedded.Holder(path); name != "" {
		t.Errorf("after the holder closed the file, %q has it open, want nobody", name)
	}
}

// TestCompactInReadOnlyFolder checks that an error about a folder that is not writable says what to
// do, and that other errors are returned unchanged.
func TestCompactInReadOnlyFolder(t *testing.T) {
	for _, cause := range []error{syscall.EACCES, syscall.EROFS} {
		err := explainFolder(fmt.Errorf("compacting a.db: %w", &fs.PathError{Op: "open", Path: "a.db.tmp", Err: cause}))
		if !errors.Is(err, cause) || !strings.Contains(err.Error(), "may create files in that folder") {
			t.Errorf("%v: got %q, want what to do", cause, err)
		}
	}
	if err := explainFolder(syscall.ENOSPC); err != syscall.ENOSPC { //nolint:errorlint // the error must be unchanged
		t.Errorf("a full disk: got %q, want the error alone", err)
	}
}

// TestClosedOutput checks that a reader that stops early, as head does, causes no error.
func TestClosedOutput(t *testing.T) {
	store := "file:" + filepath.Join(t.TempDir(), "users.jsonl")
	t.Setenv("USERDB_STORE", store)
	for i := range 3 {
		if got := runCommand(nil, "", "create", "user", "uid=u"+strconv.Itoa(i), "name=N"+strconv.Itoa(i), "--no-password"); got.code != 0 {
			t.Fatalf("create: %+v, want exit 0", got)
		}
	}
	for _, args := range []string{"list user", "walk *", "keys *", "dump", "get u1", "count user", "schema show", "--help", "check"} {
		cmd, errs := newProcess(t, store, strings.Fields(args)...)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout = w
		r.Close()
		err = cmd.Run()
		w.Close()
		if err != nil || errs.Len() != 0 {
			t.Errorf("%s: %v, %q; want neither error nor message", args, err, errs.String())
		}
	}
}

// TestNoOutput checks that no secret is made if standard output is closed, but that other commands
// and the null device are fine.
func TestNoOutput(t *testing.T) {
	store := "file:" + filepath.Join(t.TempDir(), "users.jsonl")
	t.Setenv("USERDB_STORE", store)
	for _, tt := range []struct{ args, redirect, want string }{
		{"create uid=a1 name=Alice --password-stdin", "<<<'" + good + "' >&-", ""},
		{"apikey create web --scope read", ">&-", "standard output is closed"},
		{"token issue a1 --purpose reset", ">&-", "standard output is closed"},
		{"login --session --password-stdin Alice", "<<<'" + good + "' >&-", "standard output is closed"},
		{"login --password-stdin Alice", "<<<'" + good + "' >&-", ""},
		{"apikey create web --scope read", ">/dev/null", ""},
		{"token issue a1 --purpose reset", ">/dev/null", ""},
	} {
		cmd, errs := newProcess(t, store)
		cmd.Path, cmd.Args = "/bin/bash", []string{"bash", "-c", program + " " + tt.args + " " + tt.redirect}
		err := cmd.Run()
		if want := map[bool]int{true: 2}[tt.want != ""]; exitCode(err) != want || !strings.Contains(errs.String(), tt.want) {
			t.Errorf("%s %s: exit %d, %q; want %d, %q", tt.args, tt.redirect, exitCode(err), errs.String(), want, tt.want)
		}
	}
	if got := runCommand(nil, "", "apikey", "list"); strings.Count(got.out, "\n") != 1 {
		t.Errorf("the keys are %q, want one", got.out)
	}
	if got := runCommand(nil, "", "session", "list", "a1"); got.out != "" {
		t.Errorf("the sessions are %q, want none", got.out)
	}
}

// TestFullOutput checks that a command fails if its output cannot be written.
func TestFullOutput(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	cmd, errs := newProcess(t, "memory:", "count", "user")
	cmd.Stdout = full
	if err := cmd.Run(); exitCode(err) != 1 || !strings.HasPrefix(errs.String(), "userdb: writing the output: ") {
		t.Errorf("count into a full output: exit %d, %q; want exit 1 and that the output was not written", exitCode(err), errs.String())
	}
}
