package embedded

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const childEnv = "USERDB_EMBEDDED_TEST_CHILD"

// TestMain runs the tests or, if an environment variable says so, a process that a test starts: one
// that counts up until it is killed, one that panics, or one that serves a store.
func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		if err := countUp(path); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	if command := os.Getenv(panickingEnv); command != "" {
		runPanicking(command)
		os.Exit(0)
	}
	if path := os.Getenv(servingEnv); path != "" {
		if err := serveForChaos(path); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func countUp(path string) error {
	ctx := context.Background()
	s, err := Open(ctx, path)
	if err != nil {
		return err
	}
	for {
		n, err := s.Client().Incr(ctx, "n").Result()
		if err == nil {
			err = s.Client().HSet(ctx, fmt.Sprint("user/", n%50), "n", n, "text", strings.Repeat("x", 200)).Err()
		}
		if errors.Is(err, syscall.ENOSPC) {
			continue // it was refused, but the next one may fit
		}
		if err != nil {
			return err
		}
		fmt.Println(n)
	}
}

// child starts a counting process and returns a scanner of its output.
func child(t *testing.T, path string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd, bufio.NewScanner(out)
}

func TestKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	last := 0
	for range 15 {
		cmd, out := child(t, path)
		life := time.Duration(rand.Int64N(int64(8 * time.Millisecond)))
		for out.Scan() {
			n, err := strconv.Atoi(out.Text())
			if err != nil {
				t.Fatal(out.Text())
			}
			if last == 0 || n > last { // the first number shows that it runs
				last = n
			}
			if life >= 0 {
				time.AfterFunc(life, func() { cmd.Process.Kill() })
				life = -1
			}
		}
		cmd.Wait()
		s := open(t, path)
		kept, err := s.Client().Get(t.Context(), "n").Int()
		if err != nil || kept < last {
			t.Fatalf("the file has %d, %v, but %d was answered", kept, err, last)
		}
		last = kept
		closeStore(t, s)
	}
	if last < 15 {
		t.Errorf("only %d changes were made, want at least one for each process", last)
	}
}

// TestKilledOnFullDisk kills a process again and again while most of its writes do not fit on the
// disk.
func TestKilledOnFullDisk(t *testing.T) {
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		t.Skip("mounting a small disk needs root on Linux")
	}
	dir := t.TempDir()
	if err := mountTmpfs(dir); err != nil {
		t.Skip("mounting a tmpfs: ", err)
	}
	t.Cleanup(func() {
		if err := unmount(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 40<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	path, last := filepath.Join(dir, "f"), 0
	for range 10 {
		cmd, out := child(t, path)
		kill := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
		if last > 0 { // there may be no room for another write
			kill.Reset(time.Second)
		}
		for out.Scan() {
			n, err := strconv.Atoi(out.Text())
			if err != nil {
				t.Fatal(out.Text())
			}
			last = n
			kill.Reset(rand.N(20 * time.Millisecond))
		}
		cmd.Wait()
		s := open(t, path)
		kept, err := s.Client().Get(t.Context(), "n").Int()
		if err != nil && !errors.Is(err, redis.Nil) || kept < last {
			t.Fatalf("the file has %d, %v, but %d was answered", kept, err, last)
		}
		closeStore(t, s)
	}
	if last == 0 {
		t.Error("no change was saved on the small disk, want some")
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

// TestLockedByProcess checks that Open waits for the lock, and succeeds once its holder has died.
func TestLockedByProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	cmd, out := child(t, path)
	if !out.Scan() {
		t.Fatal("the child printed nothing")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := Open(ctx, path)
	if !errors.Is(err, ErrLocked) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want ErrLocked and context.DeadlineExceeded", err)
	}
	go cmd.Process.Kill()
	go func() {
		for out.Scan() {
		}
	}()
	closeStore(t, open(t, path))
}

func TestLock(t *testing.T) {
	path := file(t)
	first := open(t, path)
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(10*time.Millisecond, func() { cancel(errors.New("enough")) })
	_, err := Open(ctx, path)
	if want := fmt.Sprintf("embedded: file is locked by %s (process %d) (", filepath.Base(os.Args[0]), os.Getpid()) + first.path + ".lock): enough"; !errors.Is(err, ErrLocked) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	opened := make(chan *Store)
	go func() {
		s, err := Open(context.Background(), path)
		if err != nil {
			t.Error(err)
		}
		opened <- s
	}()
	do(t, first.Client(), "SET k v")
	closeStore(t, first)
	second := <-opened
	if got := second.Client().Get(t.Context(), "k").Val(); got != "v" {
		t.Errorf("k is %q, want v", got)
	}
	closeStore(t, second)
}

// TestLockDeleted checks that two processes that have the file open, because somebody deleted the
// lock file, do not write over each other's changes.
func TestLockDeleted(t *testing.T) {
	first := open(t, file(t))
	do(t, first.Client(), "SET a v")
	if err := os.Remove(first.path + ".lock"); err != nil {
		t.Skip(err)
	}
	second := open(t, first.path)
	do(t, second.Client(), "SET b v")
	if err := first.Client().Set(t.Context(), "c", "v", 0).Err(); !errors.Is(err, ErrUnsaved) || !strings.HasSuffix(err.Error(), "another process has written to the file") {
		t.Errorf("got %v, want that another process has written to the file", err)
	}
	do(t, second.Client(), "SET d v")
	if got := onDisk(t, first.path); len(got) != 3 || got["c"] != "" {
		t.Errorf("on disk: got %v, want a, b and d", got)
	}
}

// TestCutOff checks that a change is refused if something has cut the file off, and that the error
// says so.
func TestCutOff(t *testing.T) {
	s := open(t, file(t))
	do(t, s.Client(), "SET a v")
	info, err := os.Stat(s.path)
	if err == nil {
		err = os.Truncate(s.path, info.Size()-1)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Client().Set(t.Context(), "b", "v", 0).Err(); !errors.Is(err, ErrUnsaved) || !strings.Contains(err.Error(), "cut it off") {
		t.Errorf("got %v, want an error that something has cut the file off", err)
	}
}

func TestLinks(t *testing.T) {
	dir := t.TempDir()
	real := filepath.Join(dir, "real")
	for from, to := range map[string]string{"file": "real/deep/f", "dir": "real", "loop": "loop"} {
		if err := os.Symlink(to, filepath.Join(dir, from)); err != nil {
			t.Skip(err)
		}
	}
	s := open(t, filepath.Join(dir, "file")) // a link to a file that does not exist yet
	do(t, s.Client(), "SET k v")
	for _, other := range []string{filepath.Join(dir, "dir", "deep", "f"), filepath.Join(real, "deep", "..", "deep", "f")} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := Open(ctx, other); !errors.Is(err, ErrLocked) {
			t.Errorf("%s: got %v, want ErrLocked", other, err)
		}
	}
	if info, err := os.Lstat(filepath.Join(dir, "file")); err != nil || info.Mode().IsRegular() {
		t.Errorf("the link was replaced: %v, %v", info, err)
	}
	if got := len(onDisk(t, filepath.Join(real, "deep", "f"))); got != 1 {
		t.Errorf("%d records on disk, want 1", got)
	}
	if _, err := Open(t.Context(), filepath.Join(dir, "loop")); err == nil || !strings.HasSuffix(err.Error(), "too many links") {
		t.Errorf("a link to itself: got %v, want …too many links", err)
	}
}

// TestLinkOfAnother checks that a link that another user made is refused, and that nothing is
// created or opened at its target.
func TestLinkOfAnother(t *testing.T) {
	dir := t.TempDir()
	link, end := filepath.Join(dir, "link"), filepath.Join(dir, "end")
	if err := errors.Join(os.Symlink(end, link), os.Lchown(link, 54321, -1)); err != nil {
		t.Skip(err)
	}
	if _, err := Open(t.Context(), link); !errors.Is(err, ErrExposed) {
		t.Errorf("got %v, want ErrExposed", err)
	}
	for _, path := range []string{end, end + ".lock", link + ".lock"} {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: got %v, want os.ErrNotExist", path, err)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, encoded(t, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		dir:                       dir + " is not a regular file",
		dir + "/":                 dir + "/ is a directory, want a file",
		filepath.Join(plain, "f"): "not a directory",
	} {
		if _, err := Open(t.Context(), path); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: got %v, want …%s", path, err, want)
		}
	}
}

func TestDefaultPath(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home)
	t.Setenv("LOCALAPPDATA", filepath.Join(home, "local"))
	for _, test := range []struct{ goos, xdg, want string }{
		{"linux", "", filepath.Join(home, ".local", "share")},
		{"linux", filepath.Join(home, "xdg"), filepath.Join(home, "xdg")},
		{"linux", "relative", filepath.Join(home, ".local", "share")}, // a relative path is ignored
		{"darwin", "", filepath.Join(home, "Library", "Application Support")},
		{"windows", "", filepath.Join(home, "local")},
		{"windows", filepath.Join(home, "xdg"), filepath.Join(home, "xdg")},
	} {
		t.Setenv("XDG_DATA_HOME", test.xdg)
		if got, err := dataDir(test.goos); got != test.want || err != nil {
			t.Errorf("%s, %q: got %q, %v; want %q", test.goos, test.xdg, got, err, test.want)
		}
	}
	t.Setenv("XDG_DATA_HOME", home)
	if got, err := DefaultPath(); got != filepath.Join(home, "userdb", "userdb.jsonl") || err != nil {
		t.Errorf("got %q, %v; want userdb/userdb.jsonl under %s", got, err, home)
	}
}

func TestDefaultPathWithoutHome(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the error names a variable that depends on the system")
	}
	for _, name := range []string{"HOME", "XDG_DATA_HOME", "LOCALAPPDATA"} {
		t.Setenv(name, "")
	}
	_, err := DefaultPath()
	if want := "finding the user's data directory: $HOME is not defined; set XDG_DATA_HOME, or name a store"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := dataDir("windows"); err == nil || err.Error() != "LOCALAPPDATA is not set" {
		t.Errorf("windows: got %v, want LOCALAPPDATA is not set", err)
	}
}

const panickingEnv = "USERDB_EMBEDDED_TEST_PANIC"

// runPanicking runs a line of words in a store that has a command PANIC.
func runPanicking(line string) {
	commands["PANIC"] = command{0, 0, func(*data, []string) any { panic("a fault in a command") }}
	s, err := Open(context.Background(), "")
	if err == nil {
		err = pipe(context.Background(), s.Client(), line)
	}
	fmt.Println("went on:", err)
}

// TestPanicEndsProcess checks that no process goes on after a command that was carried out in part,
// by a client or by a script.
func TestPanicEndsProcess(t *testing.T) {
	for _, line := range []string{"PANIC", "EVAL redis.call('PANIC') 0", "EVAL pcall(redis.call,'PANIC') 0"} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), panickingEnv+"="+line)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "panic: a fault in a command") || strings.Contains(string(out), "went on") {
			t.Errorf("%s: got %v, %.200s; want that the process ends", line, err, out)
		}
	}
}
