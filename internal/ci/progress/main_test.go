package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTests feeds what go test prints.
func TestTests(t *testing.T) {
	var out strings.Builder
	r := &report{out: &out, tests: true, running: map[test]time.Time{}, printed: map[test][]string{}}
	if got := r.now(); got != "0 packages done, compiling" {
		t.Errorf("got %q before any test has begun", got)
	}
	for _, e := range []string{
		`"start","Package":"a"`, `"run","Package":"a","Test":"T"`, `"run","Package":"a","Test":"T/one"`,
		`"output","Package":"a","Test":"T/one","Output":"quiet\n"`, `"pass","Package":"a","Test":"T/one"`,
		`"run","Package":"a","Test":"T/two"`, `"output","Package":"a","Test":"T/two","Output":"=== RUN T/two\n"`,
		`"output","Package":"a","Test":"T/two","Output":"loud\n"`, `"fail","Package":"a","Test":"T/two"`,
		`"run","Package":"a","Test":"T/three"`,
	} {
		r.line(`{"Action":` + e + "}\n")
	}
	if got, want := r.now(), "0 packages done, T/three ("; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, e := range []string{
		`"output","Package":"a","Test":"T/three","Output":"panic\n"`, `"output","Package":"a","Output":"FAIL a\n"`, `"fail","Package":"a"`,
		`"start","Package":"b"`, `"output","Package":"b","Output":"PASS\n"`, `"output","Package":"b","Output":"ok b\n"`, `"pass","Package":"b"`,
		`"build-output","Output":"# c\n"`,
	} {
		r.line(`{"Action":` + e + "}\n")
	}
	r.line("FAIL\n")
	if got, want := out.String(), "a\nloud\nFAIL a\npanic\nok b\n# c\nFAIL\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := r.now(), "2 packages done, compiling"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A watcher makes a file when a line about a command that still runs was printed.
type watcher struct {
	strings.Builder
	file string
}

func (w *watcher) Write(p []byte) (int, error) {
	if strings.Contains(string(p), " s: ") {
		os.WriteFile(w.file, nil, 0o600)
	}
	return w.Builder.Write(p)
}

func TestCommand(t *testing.T) {
	w := &watcher{file: filepath.Join(t.TempDir(), "seen")}
	script := fmt.Sprintf("until [ -e %s ]; do sleep 0.01; done; echo done; exit 3", w.file)
	if code := run([]string{"sh", "-c", script}, w, time.Millisecond); code != 3 {
		t.Errorf("got code %d, want 3", code)
	}
	if got := w.String(); !strings.HasSuffix(got, "done\n") {
		t.Errorf("got %q", got)
	}
	for _, tt := range []struct {
		command string
		code    int
	}{{"true", 0}, {"userdb-has-no-such-command", 127}} {
		if code := run([]string{tt.command}, &strings.Builder{}, time.Hour); code != tt.code {
			t.Errorf("%s: got code %d, want %d", tt.command, code, tt.code)
		}
	}
}
