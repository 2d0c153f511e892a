//go:build unix

package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coffeenode/userdb/internal/redistest"
)

// makeFolder makes a folder with files, and an embedded store for the test.
func makeFolder(t *testing.T, files map[string]string) (dir, store string) {
	t.Helper()
	useFile(t)
	dir = t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, os.Getenv("USERDB_STORE")
}

// runProcess runs the program in a separate process and waits for its end.
func runProcess(t *testing.T, dir, store string, args ...string) result {
	t.Helper()
	cmd, errs := newProcess(t, store, args...)
	var out bytes.Buffer
	cmd.Dir, cmd.Stdout = dir, &out
	return result{exitCode(cmd.Run()), out.String(), errs.String()}
}

func contents(t *testing.T, parts ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestImportUnclosedQuote checks that an unclosed quote in a large file is an error, and that the
// import continues after it is corrected.
func TestImportUnclosedQuote(t *testing.T) {
	const head = "uid,name\n1,Ann\n2,Ben\n3,Cid\n"
	big := head + "4,\"Dan\n" + strings.Repeat("12345,Somebody with a long name here\n", 700_000)
	small := head + "4,\"Dan\n5,Eve\n"
	for _, tt := range []struct{ in, why string }{
		{big, "a row of over 16 MiB: is a quote not closed?"},
		{small, "a quote that is not closed"},
	} {
		dir, store := makeFolder(t, map[string]string{"staff.csv": tt.in})
		got := runProcess(t, dir, store, "import", "staff.csv")
		want := result{2, "", "3 lines done; --resume continues from there\n" + fmt.Sprintf(
			"userdb: reading the input: line 5 and everything after it were not read: bad input: %s (%d of %d bytes of staff.csv were not read)\n",
			tt.why, len(tt.in)-len(head), len(tt.in))}
		if got != want {
			t.Errorf("%d bytes: %+v\nwant %+v", len(tt.in), got, want)
		}
		if err := os.WriteFile(filepath.Join(dir, "staff.csv"), []byte(head+"4,\"Dan\"\n5,Eve\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		got = runProcess(t, dir, store, "import", "staff.csv", "--resume")
		if want := (result{0, "5 lines read: 5 created, 0 updated, 0 skipped, 0 refused\n5 without a password, which each owner sets with a token\n", ""}); got != want {
			t.Errorf("after the correction: %+v, want %+v", got, want)
		}
	}
}

func TestImportDirectory(t *testing.T) {
	dir, store := makeFolder(t, nil)
	for _, args := range []string{"import .", "import . --csv", "import ./ --dry-run"} {
		got := runProcess(t, dir, store, strings.Fields(args)...)
		if want := (result{2, "", "userdb: " + strings.Fields(args)[1] + " is a directory\n"}); got != want {
			t.Errorf("%s: %+v, want %+v", args, got, want)
		}
	}
	in, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	cmd, errs := newProcess(t, store, "import", "-")
	cmd.Stdin = in
	if err := cmd.Run(); exitCode(err) != 1 || !strings.Contains(errs.String(), "line 1 and everything after it were not read: ") {
		t.Errorf("a directory as standard input: exit %d, %s; want 1, and that no line was read", exitCode(err), errs)
	}
}

// TestImportDeadWriter checks that an import from a pipe does not import the last line if the
// writer died in the middle of it.
func TestImportDeadWriter(t *testing.T) {
	for _, tt := range []struct{ name, in, err string }{
		{"users.jsonl", `{"facets":{"uid":"1","name":"Ann"}}` + "\n" + `{"facets":{"uid":"2","na`, "line 2: not a JSON object as in an export\n" +
			"userdb: lines refused: 1 of 2; correct them in users.jsonl.rejects, then 'userdb import users.jsonl.rejects'\n"},
		{"users.csv", "uid,name\n1,Ann\n2,\"Be", "1 line done; --resume continues from there\n" +
			"userdb: reading the input: line 3 and everything after it were not read: bad input: a quote that is not closed\n"},
	} {
		dir, store := makeFolder(t, nil)
		cmd, errs := pipeInto(t, dir, store, tt.name)
		w := openPipe(t, dir, tt.name)
		io.WriteString(w, tt.in)
		w.Close()
		if err := cmd.Wait(); exitCode(err) == 0 || errs.String() != tt.err {
			t.Errorf("%s: exit %d, %s; want %s", tt.name, exitCode(err), errs, tt.err)
		}
		if got := runProcess(t, dir, store, "count", "user"); got.out != "1\n" {
			t.Errorf("%s: count: %+v, want 1", tt.name, got)
		}
	}
}

// pipeInto starts an import of a named pipe.
func pipeInto(t *testing.T, dir, store, name string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	if err := unix.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, errs := newProcess(t, store, "import", name)
	cmd.Dir = dir
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, errs
}

func openPipe(t *testing.T, dir, name string) *os.File {
	t.Helper()
	w, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestImportInterruptedAndResumed checks that an import can be interrupted while it waits for its
// pipe, that --resume continues it, and that the refused lines of both runs are kept.
func TestImportInterruptedAndResumed(t *testing.T) {
	lines := `{"facets":{"uid":"a0","name":"@"}}` + "\n"
	for i := range 99 { // with the line above, as many lines as the first batch has
		lines += fmt.Sprintf(`{"facets":{"uid":"a%d","name":"A%d"}}`+"\n", i+1, i+1)
	}
	rest := `{"facets":{"uid":"a0","name":"A1"}}` + "\n"
	for i := range 149 {
		rest += fmt.Sprintf(`{"facets":{"uid":"b%d","name":"B%d"}}`+"\n", i, i)
	}
	dir, store := makeFolder(t, nil)
	cmd, errs := pipeInto(t, dir, store, "users.jsonl")
	w := openPipe(t, dir, "users.jsonl")
	defer w.Close()
	io.WriteString(w, lines)
	for {
		if _, err := os.Stat(filepath.Join(dir, "users.jsonl.import")); err == nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	cmd.Process.Signal(syscall.SIGINT)
	if err := cmd.Wait(); exitCode(err) != 130 || errs.String() != "line 1: invalid value: name: contains an @\n100 lines done; --resume continues from there\nuserdb: interrupted\n" {
		t.Fatalf("interrupted: got exit code %d and %s; want 130, and that 100 lines are done", exitCode(err), errs)
	}
	if err := os.Remove(filepath.Join(dir, "users.jsonl")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "users.jsonl"), []byte(lines+rest), 0o600); err != nil {
		t.Fatal(err)
	}
	got := runProcess(t, dir, store, "import", "users.jsonl", "--resume")
	want := result{
		1, "250 lines read: 248 created, 0 updated, 0 skipped, 2 refused\n248 without a password, which each owner sets with a token\n",
		"line 101: taken: name\n" +
			"userdb: lines refused: 2 of 250; correct them in users.jsonl.rejects, then 'userdb import users.jsonl.rejects'\n",
	}
	if got != want {
		t.Errorf("resumed: %+v\nwant %+v", got, want)
	}
	if text := contents(t, dir, "users.jsonl.rejects"); !strings.Contains(text, `"line":1,`) || !strings.Contains(text, `"line":101,`) || strings.Count(text, "\n") != 2 {
		t.Errorf("the refused lines are not 1 and 101:\n%s", text)
	}
	if _, err := os.Stat(filepath.Join(dir, "users.jsonl.import")); !os.IsNotExist(err) {
		t.Errorf("the state is still there: %v", err)
	}
}

// TestContextReader checks that reading from a silent writer can be stopped.
func TestContextReader(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	silent, w := io.Pipe()
	defer w.Close()
	r := contextReader(ctx, silent)
	cancel(errInterrupted)
	if n, err := r.Read(make([]byte, 1)); n != 0 || err != errInterrupted {
		t.Errorf("Read after an interruption: %d, %v; want 0, %v", n, err, errInterrupted)
	}
	text, err := io.ReadAll(contextReader(t.Context(), strings.NewReader("all of it")))
	if string(text) != "all of it" || err != nil {
		t.Errorf("a reader that is not interrupted reads %q, %v; want all of it", text, err)
	}
}

// TestFullAndClosedOutputs checks the exit codes of commands whose output cannot be written or
// whose reader has gone away.
func TestFullAndClosedOutputs(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	dir, store := makeFolder(t, map[string]string{"good.jsonl": `{"facets":{"uid":"1","name":"Ann"}}`, "bad.jsonl": `{"facets":{"name":"@"}}`})
	if got := runProcess(t, dir, store, "import", "good.jsonl"); got.code != 0 {
		t.Fatalf("import: %+v, want exit 0", got)
	}
	closed := func() *os.File {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		t.Cleanup(func() { w.Close() })
		return w
	}
	for _, tt := range []struct {
		args         string
		full, closed int
	}{
		{"export", 1, 1},
		{"export 1 --json", 1, 1},
		{"list user", 1, 0},
		{"get 1", 1, 0},
		{"get 1 2", 3, 3},
		{"dump", 1, 0},
		{"schema show", 1, 0},
		{"import good.jsonl --on-duplicate skip", 1, 0},
		{"import bad.jsonl", 1, 1},
		{"check 1 --repair --keep 1", 2, 2},
	} {
		for _, to := range []struct {
			name string
			out  *os.File
			want int
		}{{"full", full, tt.full}, {"closed", closed(), tt.closed}} {
			cmd, errs := newProcess(t, store, strings.Fields(tt.args)...)
			cmd.Dir, cmd.Stdout = dir, to.out
			if err := cmd.Run(); exitCode(err) != to.want || (errs.Len() == 0) != (to.want == 0) {
				t.Errorf("%s into a %s output: exit %d, %q; want %d", tt.args, to.name, exitCode(err), errs, to.want)
			}
		}
	}
}

// TestCheckIntoClosedOutput checks that a check whose output cannot be written still exits 7 on
// damage, and that a repair then still mends all of it.
func TestCheckIntoClosedOutput(t *testing.T) {
	server := redistest.Shared(t)
	for i := range 2000 { // more than the output buffer holds
		if err := server.Client().Set(t.Context(), fmt.Sprintf("user/name:ghost%d/~prk", i), "user/uid:g", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		args string
		want int
	}{{"check", 7}, {"check --repair", 0}, {"check", 0}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		cmd, errs := newProcess(t, server.URL(), strings.Fields(tt.args)...)
		cmd.Stdout = w
		if err := cmd.Run(); exitCode(err) != tt.want {
			t.Errorf("%s: exit %d, %s; want %d", tt.args, exitCode(err), errs, tt.want)
		}
		w.Close()
	}
}

// interruptedImport runs an import that refuses its second row and stops at the third, which cannot
// be read. Then it corrects the third row, adds a fourth that will be refused, and writes a file
// victim, which no import may change.
func interruptedImport(t *testing.T) (dir, store string) {
	t.Helper()
	dir, store = makeFolder(t, map[string]string{"users.csv": "uid,name\n1,Ann\n2,@\n3,\"Cid\n"})
	if got := runProcess(t, dir, store, "import", "users.csv"); got.code != 2 || contents(t, dir, "users.csv.rejects") == "" {
		t.Fatalf("import: %+v, want exit 2 and refused lines", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "users.csv"), []byte("uid,name\n1,Ann\n2,@\n3,Cid\n4,@\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "victim"), []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir, store
}

func mode(t *testing.T, parts ...string) string {
	t.Helper()
	info, err := os.Lstat(filepath.Join(parts...))
	if err != nil {
		return "none"
	}
	return info.Mode().String()
}

// TestImportFilesAreMadeAnew checks that an import replaces a file or a link that has the name of
// one of its files. It does not write through links, and only this user may read the files that it
// leaves.
func TestImportFilesAreMadeAnew(t *testing.T) {
	for name, prepare := range map[string]func(path string) error{
		"nothing":       func(string) error { return nil },
		"link":          func(path string) error { return os.Symlink("victim", path) },
		"dangling link": func(path string) error { return os.Symlink("nowhere", path) },
		"hard link":     func(path string) error { return os.Link(filepath.Join(filepath.Dir(path), "victim"), path) },
		"file that others may write": func(path string) error {
			if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
				return err
			}
			return os.Chmod(path, 0o666)
		},
	} {
		dir, store := makeFolder(t, map[string]string{"users.csv": "uid,name\n1,Ann\n2,@\n3,\"Cid\n", "victim": "precious"})
		for _, file := range []string{"users.csv.rejects", "users.csv.import.new"} {
			if err := prepare(filepath.Join(dir, file)); err != nil {
				t.Fatal(err)
			}
		}
		if got := runProcess(t, dir, store, "import", "users.csv"); got.code != 2 {
			t.Errorf("%s: import: %+v, want exit 2", name, got)
		}
		for _, file := range []string{"users.csv.rejects", "users.csv.import"} {
			if got := mode(t, dir, file); got != "-rw-------" {
				t.Errorf("%s: the mode of %s is %s, want -rw-------", name, file, got)
			}
		}
		if contents(t, dir, "victim") != "precious" || mode(t, dir, "nowhere") != "none" || strings.Contains(contents(t, dir, "users.csv.rejects"), "old") {
			t.Errorf("%s: the victim is %q, the target of the dangling link %s, the refused lines %q; want precious, none and nothing old", name, contents(t, dir, "victim"), mode(t, dir, "nowhere"), contents(t, dir, "users.csv.rejects"))
		}
	}
}

// TestResumeRefusesReplacedFiles checks that a resumed import refuses to use its files if they have
// become links or folders or have a second hard link. If others may write the files, the import
// uses them, but only this user may read the new file for refused lines.
func TestResumeRefusesReplacedFiles(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"a link": func(path string) error { return cmp.Or(os.Rename(path, path+".away"), os.Symlink(path+".away", path)) },
		"a link to another file": func(path string) error {
			return cmp.Or(os.Remove(path), os.Symlink(filepath.Join(filepath.Dir(path), "victim"), path))
		},
		"a file with a second hard link": func(path string) error { return os.Link(path, path+".away") },
		"a folder":                       func(path string) error { return cmp.Or(os.Remove(path), os.Mkdir(path, 0o700)) },
	} {
		for _, file := range []string{"users.csv.rejects", "users.csv.import"} {
			dir, store := interruptedImport(t)
			if err := spoil(filepath.Join(dir, file)); err != nil {
				t.Fatal(err)
			}
			got := runProcess(t, dir, store, "import", "users.csv", "--resume")
			if got.code != 2 || !strings.Contains(got.err, file) || contents(t, dir, "victim") != "precious" || mode(t, dir, "victim") != "-rw-r--r--" {
				t.Errorf("%s is %s: %+v, and the victim is %q; want exit 2, an error that names the file, and the victim as it was: precious, -rw-r--r--", file, name, got, contents(t, dir, "victim"))
			}
			if got := runProcess(t, dir, store, "count", "user"); got.out != "1\n" {
				t.Errorf("%s is %s: there are %s entries, want 1", file, name, got.out)
			}
		}
	}
	dir, store := interruptedImport(t)
	for _, file := range []string{"users.csv.rejects", "users.csv.import"} {
		if err := os.Chmod(filepath.Join(dir, file), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	got := runProcess(t, dir, store, "import", "users.csv", "--resume")
	rejects := contents(t, dir, "users.csv.rejects")
	if got.code != 1 || mode(t, dir, "users.csv.rejects") != "-rw-------" || strings.Count(rejects, "\n") != 3 || strings.Count(rejects, "~reason") != 1 {
		t.Errorf("import: %+v, refused lines with mode %s: %q; want exit 1, -rw------- and two refused lines", got, mode(t, dir, "users.csv.rejects"), rejects)
	}
}

// TestRejectsAreNotTheInput checks that refused lines cannot go to the input, under any of its
// names, but can go to a device.
func TestRejectsAreNotTheInput(t *testing.T) {
	dir, store := makeFolder(t, map[string]string{"users.csv": "uid,name\n1,@\n"})
	if err := os.Symlink("users.csv", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"users.csv", "./users.csv", "link"} {
		got := runProcess(t, dir, store, "import", "users.csv", "--rejects", name)
		if want := (result{2, "", "userdb: " + name + " is the input: name another file for the refused lines\n"}); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	got := runProcess(t, dir, store, "import", "users.csv", "--rejects", "/dev/stderr")
	if got.code != 1 || !strings.HasPrefix(got.err, "uid,name,~line,~reason,~text\n1,'@,2,") {
		t.Errorf("refused lines to /dev/stderr: %+v, want exit 1 and the lines", got)
	}
	if got := runProcess(t, dir, store, "import", "users.csv", "--rejects", "/dev/full"); got.code != 1 ||
		!strings.Contains(got.err, "writing a refused line: ") || !strings.Contains(got.err, "name a file that can be written with --rejects, and import again with --on-duplicate skip, not with --resume\n") {
		t.Errorf("refused lines to /dev/full: %+v, want exit 1 and the advice not to resume", got)
	}
}

// TestRejectsIntoLog checks that refused lines that go to standard error or standard output are
// added to a log that the shell opened.
func TestRejectsIntoLog(t *testing.T) {
	dir, store := makeFolder(t, map[string]string{"users.csv": "uid,name\n1,@\n"})
	for _, name := range []string{"/dev/stderr", "/dev/stdout", "/dev/fd/2", "/dev/fd/3"} {
		log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_TRUNC|os.O_RDWR|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		fmt.Fprintln(log, "an earlier line")
		cmd, _ := newProcess(t, store, "import", "users.csv", "--rejects", name)
		cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = dir, log, log, []*os.File{log}
		_ = cmd.Run()
		got := contents(t, dir, "log")
		if !strings.HasPrefix(got, "an earlier line\nuid,name,~line,~reason,~text\n1,'@,2,") || !strings.Contains(got, "\n1 line read: ") {
			t.Errorf("%s: the log contains\n%s\nwant the earlier line, the refused line and the report", name, got)
		}
	}
}

// TestImportFromDevice checks that an import from a device records no progress, and makes no file
// of refused lines beside it.
func TestImportFromDevice(t *testing.T) {
	text := strings.Builder{}
	text.WriteString("uid,name\n1,@\n")
	for i := range 300 {
		fmt.Fprintf(&text, "%d,Person %[1]d\n", i+2)
	}
	dir, store := makeFolder(t, map[string]string{"users.csv": text.String()})
	file, err := os.Open(filepath.Join(dir, "users.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd, errs := newProcess(t, store, "import", "/dev/fd/3", "--csv")
	var out strings.Builder
	cmd.Stdout, cmd.ExtraFiles = &out, []*os.File{file}
	if code := exitCode(cmd.Run()); code != 1 || !strings.HasPrefix(out.String(), "301 lines read: 300 created, 0 updated, 0 skipped, 1 refused\n") {
		t.Errorf("exit %d, %s%s; want exit 1, and 300 entries created", code, out.String(), errs)
	}
	got := runProcess(t, dir, store, "import", "/dev/fd/3", "--csv", "--resume")
	if want := "userdb: --resume needs a file that can be read again, not standard input or a device\n"; got.code != 2 || got.err != want {
		t.Errorf("--resume: %+v, want exit 2 and %q", got, want)
	}
}

// TestExposedFile checks that an embedded store is not opened if other users may read or write its
// file or may write its lock file, or if the lock file is a link.
func TestExposedFile(t *testing.T) {
	for _, tt := range []struct {
		file string
		mode os.FileMode
		want string
	}{
		{"users.jsonl", 0o602, "write the file: its mode is -rw-----w-; if its contents are right, run chmod go="},
		{"users.jsonl", 0o620, "write the file: its mode is -rw--w----; if its contents are right, run chmod go="},
		{"users.jsonl.lock", 0o666, "write the file: its mode is -rw-rw-rw-; if its contents are right, run chmod go="},
		{"users.jsonl", 0o644, "read the file: its mode is -rw-r--r--; run chmod go="},
		{"users.jsonl", 0o640, "read the file: its mode is -rw-r-----; run chmod go="},
		{"users.jsonl", 0o711, ""}, // may be executed only
	} {
		useFile(t)
		path := strings.TrimPrefix(os.Getenv("USERDB_STORE"), "file:")
		if got := runCommand(nil, "", "create", "user", "uid=1", "name=Ann", "--no-password"); got.code != 0 {
			t.Fatalf("create: %+v, want exit 0", got)
		}
		file := filepath.Join(filepath.Dir(path), tt.file)
		if err := os.Chmod(file, tt.mode); err != nil {
			t.Fatal(err)
		}
		got := runCommand(nil, "", "count", "user")
		want := result{0, "1\n", ""}
		if tt.want != "" {
			want = result{6, "", got.err}
			if !strings.HasSuffix(got.err, fmt.Sprintf("%s: others may %s\n", file, tt.want)) {
				t.Errorf("%s %v: %s, want %s", tt.file, tt.mode, got.err, tt.want)
			}
		}
		if got != want {
			t.Errorf("%s %v: %+v, want %+v", tt.file, tt.mode, got, want)
		}
	}
	useFile(t)
	path := strings.TrimPrefix(os.Getenv("USERDB_STORE"), "file:")
	if err := os.Symlink("elsewhere", path+".lock"); err != nil {
		t.Fatal(err)
	}
	if got := runCommand(nil, "", "count", "user"); got.code != 6 || !strings.Contains(got.err, "it is a link") || mode(t, filepath.Dir(path), "elsewhere") != "none" {
		t.Errorf("with a symbolic link as the lock file: %+v, want exit 6 and no new file", got)
	}
}

// TestSilentFiles checks that --timeout and Ctrl-C end a command that reads from a pipe without a
// writer, or from a standard input that sends nothing.
func TestSilentFiles(t *testing.T) {
	dir, store := makeFolder(t, map[string]string{"users.jsonl": ""})
	t.Chdir(dir)
	if err := unix.Mkfifo("pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	for line, from := range map[string]string{
		"import pipe": "pipe",
		"import users.jsonl --from firebase --from-params pipe": "pipe",
		"list user --schema pipe":                               "pipe",
		"schema check --schema pipe":                            "pipe",
		"hint --batch":                                          "standard input",
		"token redeem - --purpose x":                            "standard input",
	} {
		cmd, errs := newProcess(t, store, strings.Fields(line+" --timeout 300ms")...)
		silent, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		want := "userdb: the input did not arrive in time: " + from + "; is something writing to it? --timeout gives more time\n"
		if got := exitCode(cmd.Run()); got != 6 || errs.String() != want {
			t.Errorf("%s: exit %d, %s; want 6, %s", line, got, errs, want)
		}
		silent.Close()
		if got := interruptWaiting(t, store, syscall.SIGINT, line); got != (result{130, "", "userdb: interrupted\n"}) {
			t.Errorf("%s, interrupted: %+v, want exit 130", line, got)
		}
	}
}

// TestImportRejectsOfCSV checks that the refused lines of a CSV file are imported as CSV.
func TestImportRejectsOfCSV(t *testing.T) {
	dir, store := t.TempDir(), "file:"+filepath.Join(t.TempDir(), "users.jsonl")
	csv := "ID,name,password,~line,~reason\n1,Ann,,2,unknown\n"
	for _, name := range []string{"x.csv.rejects", "x.CSV.rejects.rejects"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(csv), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := runProcess(t, dir, store, "import", name, "--map", "ID=uid", "--on-duplicate", "skip"); got.code != 0 {
			t.Errorf("import of %s: %+v, want exit 0", name, got)
		}
	}
}

// TestImportResumedAfterRestart checks that --resume imports the lines that a server lost when it
// restarted, and writes each refused line once.
func TestImportResumedAfterRestart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	lines := `{"facets":{"uid":"a0","name":"@"}}` + "\n"
	for i := range 99 { // with the line above, as many lines as the first batch has
		lines += fmt.Sprintf(`{"facets":{"uid":"a%d","name":"A%d"}}`+"\n", i+1, i+1)
	}
	dir := t.TempDir()
	runProcess(t, dir, server.URL(), "schema", "apply", "user", "--yes")
	cmd, errs := pipeInto(t, dir, server.URL(), "users.jsonl")
	w := openPipe(t, dir, "users.jsonl")
	defer w.Close()
	waitFor(t, "the import begins", func() bool { return server.Client().Exists(t.Context(), "~/secret").Val() == 1 })
	if err := server.Client().Save(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	io.WriteString(w, lines)
	waitFor(t, "the first lines are done", func() bool {
		_, err := os.Stat(filepath.Join(dir, "users.jsonl.import"))
		return err == nil
	})
	cmd.Process.Signal(syscall.SIGINT)
	if err := cmd.Wait(); exitCode(err) != 130 {
		t.Fatalf("interrupted: got exit code %d and %s; want 130", exitCode(err), errs)
	}
	server.Kill()
	server.Restart()
	if got := runProcess(t, dir, server.URL(), "count", "user"); got.out != "0\n" {
		t.Fatalf("the server lost nothing: %+v", got)
	}
	if err := os.Remove(filepath.Join(dir, "users.jsonl")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "users.jsonl"), []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	got := runProcess(t, dir, server.URL(), "import", "users.jsonl", "--resume")
	want := result{
		1, "100 lines read: 99 created, 0 updated, 0 skipped, 1 refused\n99 without a password, which each owner sets with a token\n",
		"a server restarted, or a replica took over, since the import was interrupted: it starts again from the first line, because lines may be missing\n" +
			"line 1: invalid value: name: contains an @\n" +
			"userdb: lines refused: 1 of 100; correct them in users.jsonl.rejects, then 'userdb import users.jsonl.rejects'\n",
	}
	if got != want {
		t.Errorf("resumed: %+v\nwant %+v", got, want)
	}
	if text := contents(t, dir, "users.jsonl.rejects"); strings.Count(text, "\n") != 1 {
		t.Errorf("the refused line is not there once:\n%s", text)
	}
	if got := runProcess(t, dir, server.URL(), "count", "user"); got.out != "99\n" {
		t.Errorf("count: %+v, want 99", got)
	}
}
