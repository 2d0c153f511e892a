package main

import (
	"bufio"
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

func TestBlock(t *testing.T) {
	got := block("user/uid:a1", schema.Facets{
		"~isa": schema.Text("user"), "~prk": schema.Text("user/uid:a1"), "~rev": schema.Text("r"),
		"名前": schema.Text("x"), "age": schema.Number(42), "none": schema.Null(), "": schema.Text(""), "a=b": schema.Text("c\td"),
	})
	want := `user/uid:a1
  ""    ""
  a=b   "c\td"
  age   42
  none  null
  ~rev  r
  名前    x`
	if got != want {
		t.Errorf("block:\n%s\nwant:\n%s", got, want)
	}
}

func TestPair(t *testing.T) {
	for _, tt := range []struct{ name, value, want string }{
		{"name", "Alice", "name=Alice"},
		{"name", "Just A. User", "name=Just A. User"},
		{"name", "Alice  job=admin", `name="Alice  job=admin"`},
		{"name", "", `name=""`},
		{"", "x", `""=x`},
		{"a b", "x\n", `a b="x\n"`},
	} {
		if got := pair(tt.name, tt.value); got != tt.want {
			t.Errorf("pair(%q, %q) = %s, want %s", tt.name, tt.value, got, tt.want)
		}
	}
}

func TestFacets(t *testing.T) {
	typ := schema.Type{Primary: "uid", Fields: map[string]schema.Field{
		"age": {Codec: schema.CodecNumber}, "on": {Codec: schema.CodecBoolean}, "more": {Codec: schema.CodecJSON},
		"at": {Codec: schema.CodecDate}, "no": {Codec: schema.CodecNull},
	}}
	got, err := facets(typ, []string{"age=4.20e1", "on=true", `more={"a": [1]}`, "at=2026-01-02", "no=null", "name=a=b", "empty="})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"age": "42", "on": "true", "more": `{"a":[1]}`, "at": "2026-01-02T00:00:00.000Z", "no": "null", "name": "a=b", "empty": "",
	} {
		if wire := got[name].Wire(); wire != want {
			t.Errorf("%s is %q, want %q", name, wire, want)
		}
	}
	for _, tt := range []struct{ text, want string }{
		{"age=abc", "invalid value: age: no number: not a number"},
		{"age=", "invalid value: age: no number: not a number"},
		{"on=yes", "invalid value: on: no boolean: neither true nor false"},
		{"more={", "invalid value: more: no json: "},
		{"no=x", "invalid value: no: no null: not null"},
		{"name=" + strings.Repeat("x", schema.MaxFacet+1), "invalid value: name: no text: "},
	} {
		_, err := facets(typ, []string{tt.text})
		var named *userdb.FieldError
		if !errors.As(err, &named) || !errors.Is(err, userdb.ErrInvalid) || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("facets(%.20s) fails with %v, want %s", tt.text, err, tt.want)
		}
	}
}

func TestFailures(t *testing.T) {
	gone := userdb.ErrNotFound
	for _, tt := range []struct {
		texts []string
		want  string
	}{
		{nil, "<nil>"},
		{[]string{"a"}, "a: not found"},
		{[]string{"a\n"}, `"a\n": not found`},
		{[]string{"a", "b"}, "not found (2 of 9: a, b)"},
		{[]string{"a", "b", "c", "d", "e", "f"}, "not found (6 of 9: a, b, c, d, e, …)"},
	} {
		f := failures{of: 9}
		for _, text := range tt.texts {
			if !f.add(text, gone) {
				t.Errorf("%v is not taken", gone)
			}
		}
		got := "<nil>"
		if err := f.err(); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("failures of %q: %s, want %s", tt.texts, got, tt.want)
		}
	}
	f := failures{}
	if f.add("a", userdb.ErrUnavailable) || f.note(userdb.ErrConflict) {
		t.Error("errors of the store are taken for those of an entry")
	}
}

// brokenWriter takes some bytes, and then fails.
type brokenWriter struct {
	left int
	err  error
}

func (w *brokenWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, w.err
	}
	return len(p), nil
}

func TestOutput(t *testing.T) {
	full := errors.New("full")
	o := &output{w: bufio.NewWriter(&brokenWriter{3, full}), eager: true}
	if err := o.say(nil, "ab"); err != nil {
		t.Errorf("the first line: %v", err)
	}
	if err := o.say(nil, "cd"); !errors.Is(err, full) || err.Error() != "writing the output: full" || enough(err) {
		t.Errorf("the second line: %v", err)
	}
	o = &output{w: bufio.NewWriter(&brokenWriter{0, syscall.EPIPE}), json: true}
	if err := o.say("x", ""); err != nil {
		t.Errorf("a buffered line: %v", err)
	}
	if err := o.flush(); !enough(err) {
		t.Errorf("a closed pipe: %v", err)
	}
}

func TestWrap(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", ""},
		{"one two three", "one two|three"},
		{"averylongword x", "averylongword|x"},
		{"a  b\nc", "a b c"},
	} {
		if got := strings.Join(wrap(tt.text, 8), "|"); got != tt.want {
			t.Errorf("wrap(%q) = %s, want %s", tt.text, got, tt.want)
		}
	}
}
