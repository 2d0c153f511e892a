package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/userdb"
)

// varying matches texts that differ from tour to tour: a revision, a time, the seconds to wait and,
// on a slow machine, the number of guesses.
var varying = regexp.MustCompile(`(~rev +)\S{12}|(added +)\S+Z|(seq )\d+|(wait )\d+s|(until )\S+Z|(?m:^ +)\d+( userdb: wrong)`)

// TestTour compares the tour with a golden file. The tour must ignore the store, the namespace and
// the schema that the environment names, and leave nothing behind.
func TestTour(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("HOME", dir)
	t.Setenv("XDG_DATA_HOME", dir)
	t.Setenv("USERDB_STORE", "redis://127.0.0.1:1")
	t.Setenv("USERDB_NAMESPACE", "shop")
	t.Setenv("USERDB_SCHEMA", filepath.Join(dir, "no-such-schema.json"))
	name := os.Args[0]
	t.Cleanup(func() { os.Args[0] = name })
	os.Args[0] = "userdb" // the tour prints the name by which it was started
	got := runCommand(nil, "", "tour")
	if got.code != 0 || got.err != "" {
		t.Fatalf("tour: exit code %d, want 0 and no error: %s", got.code, got.err)
	}
	checkTour(t, got.out)
	for _, line := range strings.Split(got.out, "\n") {
		if len([]rune(line)) > 80 {
			t.Errorf("a line has more than 80 columns: %s", line)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the tour left %v behind (%v)", left, err)
	}
}

// checkTour compares the output of a tour with testdata/tour.txt.
func checkTour(t *testing.T, out string) {
	t.Helper()
	const golden = "testdata/tour.txt"
	out = varying.ReplaceAllString(out, "${1}${2}${3}${4}${5}…${6}")
	path := filepath.Join(sources, golden)
	if *update {
		if err := os.WriteFile(path, []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || out != string(want) {
		t.Errorf("the tour differs from %s (%v): write it with -update, and read the difference:\n%s", golden, err, out)
	}
}

// sources is the folder of this package.
var sources, _ = os.Getwd()

// TestTwoTours starts a tour while the test, in place of another tour, has the same store open. The
// store's file does not exist yet. Once it does, the second tour must refuse the store and leave it
// unchanged.
func TestTwoTours(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("USERDB_STORE", "")
	ctx, url := t.Context(), "file:"+tourFile
	quiet := stdio{out: io.Discard, err: io.Discard}
	first, err := userdb.Open(ctx, url, userdb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan error, 1)
	go func() { second <- newSession(quiet).tourOn(ctx, url, true) }()
	// The first tour writes this while the second one waits.
	users, err := first.Type("user")
	if err == nil {
		_, err = users.Create(ctx, userdb.NewEntry{UID: "kept"})
	}
	if err = errors.Join(err, first.Close()); err != nil {
		t.Fatal(err)
	}
	if err := <-second; err == nil || exitStatus(err) != 2 || !strings.Contains(err.Error(), tourFile+" exists") {
		t.Errorf("the second tour: %v, want that the file exists", err)
	}
	if got := runCommand(nil, "", "list", "--store", url); got.code != 0 || !strings.HasPrefix(got.out, "user/uid:kept ") || strings.Contains(got.out, "alice") {
		t.Errorf("the store of the first tour: %+v, want only the entry kept", got)
	}
}

// TestTourKeeps checks that --keep leaves a store that list and login can use, and prints three
// commands to go on with, and that a second tour refuses the store.
func TestTourKeeps(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("USERDB_STORE", "")
	got := runCommand(nil, "", "tour", "--keep")
	if got.code != 0 || got.err != "" {
		t.Fatalf("tour --keep: exit code %d, want 0 and no error: %s", got.code, got.err)
	}
	for _, line := range strings.Split(got.out, "\n") {
		if len([]rune(line)) > 80 && !strings.Contains(line, "echo") {
			t.Errorf("over 80 columns: %s", line)
		}
	}
	_, next, _ := strings.Cut(got.out, "To go on:")
	list := runCommand(nil, "", "list", "--store", "file:"+tourFile)
	login := runCommand(nil, tourPassword, "login", "c2042", "--password-stdin", "--store", "file:"+tourFile)
	switch {
	case strings.Count(next, "userdb ") != 3:
		t.Errorf("the tour ends without three commands to go on with:\n%s", next)
	case list.code != 0 || !strings.Contains(list.out, "email=alice@hotmail.com"):
		t.Errorf("list: %+v, want exit 0 and Alice", list)
	case login.code != 0:
		t.Errorf("login: %+v, want exit 0", login)
	}
	if again := runCommand(nil, "", "tour", "--keep"); again.code != 2 || !strings.Contains(again.err, tourFile+" exists") {
		t.Errorf("a second tour: %+v, want exit 2, because the file exists", again)
	}
}

// TestBrokenTourKeepsNothing checks that a tour that fails leaves no file behind.
func TestBrokenTourKeepsNothing(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	full := errors.New("full")
	s := newSession(stdio{out: io.Discard, err: io.Discard})
	s.out.w = bufio.NewWriterSize(&brokenWriter{500, full}, 16)
	if err := s.tour(t.Context(), true); !errors.Is(err, full) {
		t.Errorf("tour: %v, want %v", err, full)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestTourStops checks that a command of the tour is not repeated if it fails unexpectedly, and
// that a tour whose context has ended reports only that.
func TestTourStops(t *testing.T) {
	db, err := userdb.Open(t.Context(), "memory:", userdb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	on := tour{newSession(stdio{out: io.Discard, err: io.Discard}), db}
	missing := tourCommand{words: []string{"get", "nobody"}, exit: 8, again: true}
	if err := on.runCommand(t.Context(), missing); err == nil || strings.Count(err.Error(), "not found") != 1 {
		t.Errorf("a command that fails: got %v, want an error that says \"not found\" once", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errTimeout)
	if err := on.runCommand(ctx, missing); err != errTimeout {
		t.Errorf("after the end of the context: %v, want %v", err, errTimeout)
	}
}

func TestTourRefuses(t *testing.T) {
	for _, args := range [][]string{{"tour", "--store", "memory:"}, {"tour", "--json"}, {"tour", "now"}} {
		if got := runCommand(nil, "", args...); got.code != 2 || got.out != "" {
			t.Errorf("%v: %+v, want exit code 2 and no output", args, got)
		}
	}
}
