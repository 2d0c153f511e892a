package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestReport passes the output of go test to a report, and checks what it prints.
func TestReport(t *testing.T) {
	r := &report{output: map[string]string{}}
	var out string
	feed := func(events ...string) {
		for _, e := range events {
			out += r.line(`{"Action":` + e + "}\n")
		}
	}
	feed(
		`"start","Package":"a"`, `"run","Package":"a","Test":"T"`, `"run","Package":"a","Test":"T/one"`,
		`"output","Package":"a","Test":"T/one","Output":"quiet\n"`, `"pass","Package":"a","Test":"T/one"`,
		`"run","Package":"a","Test":"T/two"`, `"output","Package":"a","Test":"T/two","Output":"=== RUN T/two\n"`,
		`"output","Package":"a","Test":"T/two","Output":"loud\n"`, `"fail","Package":"a","Test":"T/two"`,
		`"run","Package":"a","Test":"T/three"`, `"output","Package":"a","Test":"T/three","Output":"pan"`,
		`"pause","Package":"a","Test":"T/three"`, `"run","Package":"ab","Test":"T"`, `"cont","Package":"a","Test":"T/three"`,
	)
	if want := []string{"a T", "ab T", "a T/three"}; !slices.Equal(r.running, want) {
		t.Errorf("running %q, want %q", r.running, want)
	}
	feed(
		`"output","Package":"a","Test":"T/three","Output":"ic\n"`, `"output","Package":"a","Output":"FAIL a\n"`, `"fail","Package":"a"`,
		`"start","Package":"b"`, `"output","Package":"b","Output":"PASS\n"`, `"output","Package":"b","Output":"ok b\n"`, `"pass","Package":"b"`,
		`"build-output","Output":"# c\n"`,
	)
	out += r.line("FAIL\n") + r.line("{ is no event\n")
	if want := "a T/two\nloud\nFAIL a\na T/three\npanic\nok b\n# c\nFAIL\n{ is no event\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
	if want := []string{"ab T"}; !slices.Equal(r.running, want) || len(r.output) > 0 {
		t.Errorf("running %q, want %q; the output %q is kept, want none", r.running, want, r.output)
	}
}

// A watcher creates a file once a line about a running command is printed.
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

// TestRun checks that run prints the output of a command, and a line while it waits for output, and
// that it returns the exit code of the command.
func TestRun(t *testing.T) {
	w := &watcher{file: filepath.Join(t.TempDir(), "seen")}
	script := fmt.Sprintf("until [ -e %s ]; do sleep 0.01; done; echo done; exit 3", w.file)
	if code := run([]string{"sh", "-c", script}, w, time.Millisecond); code != 3 {
		t.Errorf("got code %d, want 3", code)
	}
	if got := w.String(); !strings.Contains(got, "\ndone\n") {
		t.Errorf("got %q, want the line done", got)
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
