package privatefile

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// makers holds functions that create different things at a path.
var makers = map[string]func(t *testing.T, path string){
	"no file":               func(*testing.T, string) {},
	"file":                  func(t *testing.T, path string) { put(t, path, 0o600) },
	"writable by all":       func(t *testing.T, path string) { put(t, path, 0o666) },
	"readable by all":       func(t *testing.T, path string) { put(t, path, 0o644) },
	"readable by the group": func(t *testing.T, path string) { put(t, path, 0o640) },
	"writable by the group": func(t *testing.T, path string) { put(t, path, 0o620) },
	"folder":                func(t *testing.T, path string) { check(t, os.Mkdir(path, 0o700)) },
	"pipe":                  func(t *testing.T, path string) { check(t, unix.Mkfifo(path, 0o600)) },
	"link": func(t *testing.T, path string) {
		put(t, path+".victim", 0o600)
		check(t, os.Symlink(path+".victim", path))
	},
	"dangling link": func(t *testing.T, path string) { check(t, os.Symlink(path+".nowhere", path)) },
	"hard link": func(t *testing.T, path string) {
		put(t, path+".victim", 0o600)
		check(t, os.Link(path+".victim", path))
	},
	"another user's": func(t *testing.T, path string) {
		put(t, path, 0o600)
		if err := os.Chown(path, 54321, -1); err != nil {
			t.Skip(err)
		}
	},
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	check(t, os.WriteFile(path, []byte("precious"), 0o600))
	check(t, os.Chmod(path, mode))
}

// state returns the mode and the contents of a file, or "none" if there is no regular file.
func state(path string) string {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return "none"
	}
	text, _ := os.ReadFile(path)
	return fmt.Sprintf("%o %s", info.Mode().Perm(), text)
}

func TestOpenFiles(t *testing.T) {
	for name, want := range map[string]struct{ create, reopen, open string }{
		// Open is called with O_CREATE, so it creates the file.
		"no file":               {"600 new", "no such file", "600 new"},
		"file":                  {"600 new", "600 precious+new", "600 precious+new"},
		"writable by all":       {"600 new", "600 precious+new", "others may write the file: its mode is -rw-rw-rw-; if its contents are right, run chmod go="},
		"readable by all":       {"600 new", "600 precious+new", "others may read the file: its mode is -rw-r--r--; run chmod go="},
		"readable by the group": {"600 new", "600 precious+new", "others may read the file: its mode is -rw-r-----"},
		"writable by the group": {"600 new", "600 precious+new", "others may write the file: its mode is -rw--w----"},
		"folder":                {"not a regular file", "is a directory", "is a directory"},
		"pipe":                  {"not a regular file", "no such device or address", "no such device or address"},
		"link":                  {"600 new", "it is a link", "it is a link"},
		"dangling link":         {"600 new", "it is a link", "it is a link"},
		"hard link":             {"600 new", "others may write the file: it has another owner, or a second hard link", "600 precious+new"},
		"another user's":        {"600 new", "others may write the file: it has another owner", "others may write the file: it belongs to the user 54321"},
	} {
		for how, open := range map[string]struct {
			f    func(path string) (*os.File, error)
			want string
		}{
			"create": {Create, want.create},
			"reopen": {func(path string) (*os.File, error) { return Reopen(path, os.O_WRONLY|os.O_APPEND) }, want.reopen},
			"open":   {func(path string) (*os.File, error) { return Open(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE) }, want.open},
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "file")
				makers[name](t, path)
				before := state(path)
				f, err := open.f(path)
				got := fmt.Sprint(err)
				if err == nil {
					f.WriteString("new")
					check(t, f.Close())
					got = strings.Replace(state(path), "preciousnew", "precious+new", 1)
				} else if state(path) != before {
					t.Errorf("the file was refused but changed from %s to %s", before, state(path))
				}
				if !strings.Contains(got, open.want) || errors.Is(err, ErrUntrusted) != strings.Contains(open.want, "others may write") ||
					errors.Is(err, ErrReadable) != strings.Contains(open.want, "others may read") {
					t.Errorf("got %s, want %s", got, open.want)
				}
				if victim := state(path + ".victim"); victim != "none" && victim != "600 precious" && !strings.Contains(open.want, "precious") {
					t.Errorf("the file that the link leads to is %s, want it unchanged", victim)
				}
			})
		}
	}
}

// TestPipe checks that opening a pipe fails without blocking, even for reading.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	makers["pipe"](t, path)
	for how, open := range map[string]func(string, int) (*os.File, error){"reopen": Reopen, "open": Open} {
		if _, err := open(path, os.O_RDONLY); !errors.Is(err, errKind) {
			t.Errorf("%s: %v, want errKind", how, err)
		}
	}
}

// TestWrite checks that Write leaves nothing behind if the file cannot be written completely, that
// it does not follow a link, and that it replaces no file.
func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	var before unix.Rlimit
	check(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &before))
	signal.Ignore(unix.SIGXFSZ) // or it would end the process
	defer signal.Reset(unix.SIGXFSZ)
	check(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4, Max: before.Max}))
	err := Write(path, "new key")
	check(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &before))
	left, readErr := os.ReadDir(filepath.Dir(path))
	check(t, readErr)
	if !errors.Is(err, unix.EFBIG) || len(left) != 0 {
		t.Errorf("a file that is too long: %v, and %q is left; want EFBIG and no file", err, left)
	}
	makers["link"](t, path+".tmp")
	check(t, Write(path, "new key"))
	if got, victim := state(path), state(path+".tmp.victim"); got != "600 new key" || victim != "600 precious" {
		t.Errorf("the file is %s, and the one that a link leads to is %s; want 600 new key and 600 precious", got, victim)
	}
	if err := Write(path, "other"); !errors.Is(err, os.ErrExist) || state(path) != "600 new key" {
		t.Errorf("again: %v, and the file is %s; want ErrExist and the first text", err, state(path))
	}
}
