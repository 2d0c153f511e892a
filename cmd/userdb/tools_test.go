package main

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestBatchLines(t *testing.T) {
	long := `"` + strings.Repeat("x", maxLine-2) + `"`
	for _, tt := range []struct{ name, stdin, want string }{
		{"no input", "", ""},
		{"one line", "\"a b\"\n", `{"result":"a+_b"}`},
		{"no newline at the end", "\"a\"\n\"b\"", `{"result":"a"}|{"result":"b"}`},
		{"white space around", " \t\"a\" \r\n", `{"result":"a"}`},
		{"empty lines", "\n\n\"a\"\n", `{"error":"the line is not a JSON value"}|{"error":"the line is not a JSON value"}|{"result":"a"}`},
		{"two values", "\"a\" \"b\"\n", `{"error":"the line is not a JSON value"}`},
		{"half a value", "\"a\n", `{"error":"the line is not a JSON value"}`},
		{"values that are not strings", "1\nnull\n{}\n[\"a\"]\ntrue\n", strings.Repeat(`|{"error":"the line is not a JSON string"}`, 5)[1:]},
		{"too long, then another", long + "y\n\"a\"\n", `{"error":"the line is over 1048576 bytes"}|{"result":"a"}`},
		{"too long without an end", strings.Repeat("x", 3*maxLine), `{"error":"the line is over 1048576 bytes"}`},
		{"empty text", `""`, `{"result":""}`},
		{"not UTF-8", "\"\xff\"\n", `{"result":"` + "\ufffd" + `"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := runCommand(nil, tt.stdin, "recordkey", "escape", "--batch")
			if want := strings.ReplaceAll(tt.want+"|", "|", "\n"); got.out != strings.TrimPrefix(want, "\n") || got.code != 0 || got.err != "" {
				t.Errorf("exit %d, output %.200q, error %q; want exit 0 and %q", got.code, got.out, got.err, want)
			}
		})
	}
	longest := `"` + strings.Repeat("x", maxLine-3) + "\"\n"
	if got := runCommand(nil, longest, "recordkey", "escape", "--batch"); got.code != 0 || len(got.out) < maxLine {
		t.Errorf("the longest line that is allowed: exit %d, %d bytes of output; want exit 0 and the whole text", got.code, len(got.out))
	}
}

// TestBatchReadError checks that a failure of standard input ends a batch, even in the middle of a
// line.
func TestBatchReadError(t *testing.T) {
	for _, text := range []string{"", `"a`, "\"a\"\n", `"` + strings.Repeat("x", maxLine) + "\n", `"` + strings.Repeat("x", 2*maxLine)} {
		var out, errs bytes.Buffer
		in := io.MultiReader(strings.NewReader(text), &failOnce{errors.New("the cable is out")})
		code := run([]string{"recordkey", "escape", "--batch"}, stdio{in: in, out: &out, err: &errs})
		if code != 1 || errs.String() != "userdb: reading standard input: the cable is out\n" {
			t.Errorf("a read error after %d bytes: exit %d, want 1: %q", len(text), code, errs.String())
		}
	}
}

// A failOnce is a reader that fails once and is then at its end.
type failOnce struct{ err error }

func (o *failOnce) Read([]byte) (int, error) {
	err := o.err
	o.err = io.EOF
	return 0, err
}
