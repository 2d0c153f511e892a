//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// halfDone leaves an import that was interrupted behind a refused line: the third line cannot be read.
func halfDone(t *testing.T) (dir, store string) {
	t.Helper()
	dir, store = folder(t, map[string]string{"users.csv": "uid,name\n1,Ann\n2,@\n3,\"Cid\n"})
	if got := process(t, dir, store, "import", "users.csv"); got.code != 2 || contents(t, dir, "users.csv.rejects") == "" {
		t.Fatalf("%+v", got)
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

// An import writes through no link, and what it leaves is for its user alone, whatever stood there before.
func TestImportFilesAreMadeAnew(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"nothing":       func(string) error { return nil },
		"link":          func(path string) error { return os.Symlink("victim", path) },
		"dangling link": func(path string) error { return os.Symlink("nowhere", path) },
		"second name":   func(path string) error { return os.Link(filepath.Join(filepath.Dir(path), "victim"), path) },
		"loose file": func(path string) error {
			if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
				return err
			}
			return os.Chmod(path, 0o666)
		},
	} {
		dir, store := folder(t, map[string]string{"users.csv": "uid,name\n1,Ann\n2,@\n3,\"Cid\n", "victim": "precious"})
		for _, file := range []string{"users.csv.rejects", "users.csv.import.new"} {
			if err := make(filepath.Join(dir, file)); err != nil {
				t.Fatal(err)
			}
		}
		if got := process(t, dir, store, "import", "users.csv"); got.code != 2 {
			t.Errorf("%s: %+v", name, got)
		}
		for _, file := range []string{"users.csv.rejects", "users.csv.import"} {
			if got := mode(t, dir, file); got != "-rw-------" {
				t.Errorf("%s: %s is %s", name, file, got)
			}
		}
		if contents(t, dir, "victim") != "precious" || mode(t, dir, "nowhere") != "none" || strings.Contains(contents(t, dir, "users.csv.rejects"), "old") {
			t.Errorf("%s: the victim is %q, nowhere %s, rejects %q", name, contents(t, dir, "victim"), mode(t, dir, "nowhere"), contents(t, dir, "users.csv.rejects"))
		}
	}
}

// Going on, an import takes only what it has left itself.
func TestResumeTakesItsOwnFiles(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"a link": func(path string) error { return firstOf(os.Rename(path, path+".away"), os.Symlink(path+".away", path)) },
		"a link to another file": func(path string) error {
			return firstOf(os.Remove(path), os.Symlink(filepath.Join(filepath.Dir(path), "victim"), path))
		},
		"a second name": func(path string) error { return os.Link(path, path+".away") },
		"a folder":      func(path string) error { return firstOf(os.Remove(path), os.Mkdir(path, 0o700)) },
	} {
		for _, file := range []string{"users.csv.rejects", "users.csv.import"} {
			dir, store := halfDone(t)
			if err := spoil(filepath.Join(dir, file)); err != nil {
				t.Fatal(err)
			}
			got := process(t, dir, store, "import", "users.csv", "--resume")
			if got.code != 2 || !strings.Contains(got.err, file) || contents(t, dir, "victim") != "precious" || mode(t, dir, "victim") != "-rw-r--r--" {
				t.Errorf("%s is %s: %+v, and the victim is %q", file, name, got, contents(t, dir, "victim"))
			}
			if got := process(t, dir, store, "count", "user"); got.out != "1\n" {
				t.Errorf("%s is %s: %s entries", file, name, got.out)
			}
		}
	}
	dir, store := halfDone(t)
	for _, file := range []string{"users.csv.rejects", "users.csv.import"} {
		if err := os.Chmod(filepath.Join(dir, file), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	got := process(t, dir, store, "import", "users.csv", "--resume")
	rejects := contents(t, dir, "users.csv.rejects")
	if got.code != 1 || mode(t, dir, "users.csv.rejects") != "-rw-------" || strings.Count(rejects, "\n") != 3 || strings.Count(rejects, "~reason") != 1 {
		t.Errorf("%+v; %s %q", got, mode(t, dir, "users.csv.rejects"), rejects)
	}
}

// The input is not where refused lines go, by whatever name.
func TestRejectsAreNotTheInput(t *testing.T) {
	dir, store := folder(t, map[string]string{"users.csv": "uid,name\n1,@\n"})
	if err := os.Symlink("users.csv", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"users.csv", "./users.csv", "link"} {
		got := process(t, dir, store, "import", "users.csv", "--rejects", name)
		if want := (result{2, "", "userdb: " + name + " is the input: name another file for the refused lines\n"}); got != want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	got := process(t, dir, store, "import", "users.csv", "--rejects", "/dev/stderr")
	if got.code != 1 || !strings.HasPrefix(got.err, "uid,name,~line,~reason,~text\n1,@,2,") {
		t.Errorf("/dev/stderr: %+v", got)
	}
	if got := process(t, dir, store, "import", "users.csv", "--rejects", "/dev/full"); got.code != 1 || !strings.Contains(got.err, "writing a refused line: ") {
		t.Errorf("/dev/full: %+v", got)
	}
}

// An embedded store that others may write is refused, before anything in it is believed.
func TestExposedFile(t *testing.T) {
	for _, tt := range []struct {
		file string
		mode os.FileMode
		want string
	}{
		{"users.jsonl", 0o602, "its mode is -rw-----w-; if what is in it is right: chmod go-w"},
		{"users.jsonl", 0o620, "its mode is -rw--w----; if what is in it is right: chmod go-w"},
		{"users.jsonl.lock", 0o666, "its mode is -rw-rw-rw-; if what is in it is right: chmod go-w"},
		{"users.jsonl", 0o644, ""},
	} {
		useFile(t)
		path := strings.TrimPrefix(os.Getenv("USERDB_STORE"), "file:")
		if got := here(nil, "", "create", "user", "uid=1", "name=Ann", "--no-password"); got.code != 0 {
			t.Fatal(got.err)
		}
		file := filepath.Join(filepath.Dir(path), tt.file)
		if err := os.Chmod(file, tt.mode); err != nil {
			t.Fatal(err)
		}
		got := here(nil, "", "count", "user")
		want := result{0, "1\n", ""}
		if tt.want != "" {
			want = result{6, "", got.err}
			if !strings.HasSuffix(got.err, fmt.Sprintf("%s: others may write the file: %s\n", file, tt.want)) {
				t.Errorf("%s %v: %s", tt.file, tt.mode, got.err)
			}
		}
		if got != want {
			t.Errorf("%s %v: %+v", tt.file, tt.mode, got)
		}
	}
	useFile(t)
	path := strings.TrimPrefix(os.Getenv("USERDB_STORE"), "file:")
	if err := os.Symlink("elsewhere", path+".lock"); err != nil {
		t.Fatal(err)
	}
	if got := here(nil, "", "count", "user"); got.code != 6 || !strings.Contains(got.err, "it is a link") || mode(t, filepath.Dir(path), "elsewhere") != "none" {
		t.Errorf("a link for a lock: %+v", got)
	}
}
