package embedded

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestOldFile checks whether the first change is refused if a file already has the name under which
// the file of JSON lines is kept.
func TestOldFile(t *testing.T) {
	other := encoded(t, someRecords()[:2])
	for _, tt := range []struct {
		name    string
		make    func(path string) error
		refused bool
	}{
		{"none", func(string) error { return nil }, false},
		{"an earlier file", func(old string) error { return os.WriteFile(old, other, 0o600) }, true},
		{"a copy", func(old string) error { return copyFile(strings.TrimSuffix(old, ".old"), old) }, false},
		{"the same file", func(old string) error { return os.Link(strings.TrimSuffix(old, ".old"), old) }, false},
		{"another file", func(old string) error { return os.WriteFile(old, []byte("precious"), 0o600) }, true},
		{"a folder", func(old string) error { return os.Mkdir(old, 0o700) }, true},
		{"a link", func(old string) error { return os.Symlink("victim", old) }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path, data := legacyFile(t)
			old := path + ".old"
			if err := tt.make(old); err != nil {
				t.Skip(err)
			}
			s := open(t, path)
			err := s.Client().Set(t.Context(), "new", "v", 0).Err()
			if refused := errors.Is(err, ErrUnsaved); refused != tt.refused || refused && !strings.Contains(err.Error(), " cannot be kept as "+old+": there is another file of that name") {
				t.Errorf("got %v, want an error: %v", err, tt.refused)
			}
			for _, left := range []string{path + ".tmp", old + ".tmp"} {
				if _, err := os.Lstat(left); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s: got %v, want os.ErrNotExist", left, err)
				}
			}
			if tt.refused {
				if got, err := os.ReadFile(path); !bytes.Equal(got, data) {
					t.Errorf("the file is %q, %v; want it unchanged", got, err)
				}
				return
			}
			if got, err := os.ReadFile(old); !bytes.Equal(got, data) {
				t.Errorf("the old file is %q, %v; want that of JSON lines", got, err)
			}
		})
	}
}

// TestCompactLeavesOthers checks that Compact removes no file but the one that was kept, even in a
// later process and after the new file was rewritten.
func TestCompactLeavesOthers(t *testing.T) {
	path, data := legacyFile(t)
	old := path + ".old"
	s := open(t, path)
	do(t, s.Client(), "SET k v")
	for _, other := range [][]byte{[]byte("precious"), encoded(t, someRecords()[:2]), bytes.Repeat([]byte("x"), len(data)), data} {
		if err := os.WriteFile(old, other, 0o600); err != nil {
			t.Fatal(err)
		}
		closeStore(t, s)
		s = open(t, path)
		result, err := s.Compact(t.Context())
		if kept := bytes.Equal(other, data); err != nil || kept != (result.Removed == old) {
			t.Errorf("%.20q: got %+v, %v; want it removed: %v", other, result, err, kept)
			continue
		} else if kept {
			continue
		}
		if got, err := os.ReadFile(old); !bytes.Equal(got, other) {
			t.Errorf("got %q, %v; want %q", got, err, other)
		}
	}
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	return errors.Join(err, os.WriteFile(to, data, 0o600))
}

// A linklessDisk has no hard links.
type linklessDisk struct{ osDisk }

func (linklessDisk) link(string, string) error { return syscall.EPERM }

// TestKeptWithoutLinks checks that the file of JSON lines is copied on a file system without links.
func TestKeptWithoutLinks(t *testing.T) {
	path, data := legacyFile(t)
	s := openDisk(t, path, linklessDisk{})
	do(t, s.Client(), "SET new v")
	got, err := os.ReadFile(path + ".old")
	if !bytes.Equal(got, data) {
		t.Errorf("the old file is %q, %v; want that of JSON lines", got, err)
	}
	if info, err := os.Stat(path + ".old"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v; want mode 0600", info, err)
	}
}

// TestFileAppears checks that the first change does not replace a file that was put into the place
// of the store after it was opened.
func TestFileAppears(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		path := file(t)
		if legacy {
			path, _ = legacyFile(t)
		}
		s := open(t, path)
		other := path + ".other"
		if err := errors.Join(os.WriteFile(other, []byte("precious"), 0o600), os.Rename(other, path)); err != nil {
			t.Fatal(err)
		}
		if err := s.Client().Set(t.Context(), "k", "v", 0).Err(); !errors.Is(err, ErrUnsaved) || !errors.Is(err, errReplaced) {
			t.Errorf("got %v, want errReplaced", err)
		}
		if got, err := os.ReadFile(path); string(got) != "precious" {
			t.Errorf("got %q, %v; want the file unchanged", got, err)
		}
	}
}

// TestLeftFiles checks that opening a store removes the files that a killed process left.
func TestLeftFiles(t *testing.T) {
	path := file(t)
	s := open(t, path)
	do(t, s.Client(), "SET k v")
	closeStore(t, s)
	left := []string{path + ".tmp", path + ".old.tmp"}
	for _, name := range left {
		if err := os.WriteFile(name, []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	open(t, path)
	for _, name := range left {
		if _, err := os.Lstat(name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: got %v, want os.ErrNotExist", name, err)
		}
	}
}
