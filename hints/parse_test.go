package hints_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
)

// texts are operators' hints. The golden file contains the results.
var texts = []string{
	// record keys
	"user/uid:17c07627d35e", "user/name:Alice/~prk", "user/name:Just+_A.+_User/~prk", "user/*:Alice/~prk",
	"order/number:7", "team/id:x", "~acme/user/uid:x", "~a=b/user/uid:x", "user/uid:x/tags", "~/schema/user",
	// texts that resemble record keys
	"user/name:Just A. User/~prk", "user/uid:+x41", "user/uid:{x}", "user/uid:", "team/id:a b", "user:x", "user/x",
	// fields and values
	"name=Alice", "name= Just A.  User ", "uid=17c0", "*=Alice", "*=*", "*=", "=x", "name=", "age=4", "job=Cook",
	"url=http://example.com/a=b", "email=user/uid:x", "name=a=b",
	// UIDs
	"17c07627d35e", "Alice", "alice@hotmail.com", "a/:b", "~x", "*", " ", "-", "é",
	// pairs and triplets in JSON
	`["user","email","a@b.c"]`, `["user","uid","17c0"]`, `["order","7"]`, `["user","17c0"]`, `["email","a@b.c"]`,
	`["uid","17c0"]`, `["*","Alice"]`, `["user","*","Alice"]`, `["user","*","*"]`, `["*","*"]`, `["team","x"]`,
	`["order","code","x"]`, `["user","a=b"]`, ` ["user","17c0"]`, `["user","~isa","x"]`, `["user","name",""]`,
	// entries, complete and partial
	`{"~isa":"user","~prk":"user/uid:x","uid":"x","name":"Alice","age":42,"rating":{"a":[1]},"added":null}`,
	`{"~isa":"user","name":"Alice"}`, `{"name":"Alice","email":"a@b.c"}`, `{"~isa":"order","number":"7"}`,
	`{"~isa":"user"}`, `{}`, `{"uid":5}`, `{"~isa":["user"],"uid":"x"}`, `{"name":"\ud800"}`,
}

func TestGoldenHints(t *testing.T) {
	var b strings.Builder
	answer := func(text, view string) string {
		h, err := hints.Parse(text)
		if err != nil {
			return err.Error()
		}
		target, err := h.Resolve(twoTypes(), view)
		if err != nil {
			return err.Error()
		}
		return strings.ReplaceAll(asJSON(t, target), `\u003c`, "<")
	}
	for _, text := range texts {
		fmt.Fprintf(&b, "%+q\n\tof user   %s\n", text, answer(text, "user"))
		if free := answer(text, ""); free != answer(text, "user") {
			fmt.Fprintf(&b, "\tany type  %s\n", free)
		}
	}
	checkGolden(t, "hints.golden", b.String())
}

func TestParseRefuses(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{"", `hints: empty hint`},
		{strings.Repeat("x", 20_000), `hints: "` + strings.Repeat("x", 80) + `"…: over 16384 bytes`},
		{`[`, `hints: "[": not valid JSON`},
		{`[]`, `hints: "[]": list of 0, want two or three`},
		{`["user"]`, `hints: "[\"user\"]": list of 1, want two or three`},
		{`["user","name","x","y"]`, `hints: "[\"user\",\"name\",\"x\",\"y\"]": list of 4, want two or three`},
		{`["user",7]`, `hints: "[\"user\",7]": element 2 is not a string`},
		{`["user",null]`, `hints: "[\"user\",null]": element 2 is not a string`},
		{`["user","x"] ["y"]`, `hints: "[\"user\",\"x\"] [\"y\"]": not valid JSON`},
		{"[\"user\",\"\xff\"]", `hints: "[\"user\",\"\xff\"]": not UTF-8`},
		// The error does not quote the text, because an entry may contain a password hash.
		{`{"password":"$2a$10$abc"`, `hints: {…}: not valid JSON`},
		{`{"uid":"x","uid":"y"}`, `hints: {…}: facet "uid" appears twice`},
		{`{"uid":"x","\u0075id":"y"}`, `hints: {…}: facet "uid" appears twice`},
		{`{"uid":"x","more":[{"a":1,"a":2}]}`, `hints: {…}: facet "more": a member appears twice`},
		{`{"n":1e999}`, `hints: {…}: facet "n": a number is too large`},
		{strings.Repeat("[", 101), `hints: "` + strings.Repeat("[", 80) + `"…: not valid JSON`},
		{strings.Repeat("[", 101) + strings.Repeat("]", 101), `hints: "` + strings.Repeat("[", 80) + `"…: element 1 is not a string`},
		{`{"a":` + strings.Repeat("[", 501) + strings.Repeat("]", 501) + `}`, `hints: {…}: facet "a": nested too deeply`},
		{`["` + strings.Repeat("x", 1<<20) + `"]`, `hints: "[\"` + strings.Repeat("x", 78) + `"…: over 1048576 bytes`},
	} {
		h, err := hints.Parse(row.text)
		checkErr(t, err, row.want)
		if !h.IsZero() {
			t.Errorf("%.80s: refused, but the hint is %s, want the zero Hint", row.text, h)
		}
	}
}

func TestParseJSON(t *testing.T) {
	for _, row := range []struct{ in, want string }{
		{`"user/uid:x"`, `["prk","user/uid:x","user","uid","x"]`},
		{`"name=Alice"`, `["srk","user/name:alice/~prk","user","name","alice"]`},
		// JSON within JSON is not parsed
		{`"[\"user\",\"x\"]"`, `["prk","user/uid:[\"user\",\"x\"]","user","uid","[\"user\",\"x\"]"]`},
		{`"\u0061"`, `["prk","user/uid:a","user","uid","a"]`},
		{"\t[ \"user\" ,\n\"[\\\"]\" ]\r\n", `["prk","user/uid:[\"]","user","uid","[\"]"]`},
	} {
		h, err := hints.ParseJSON([]byte(row.in))
		if err != nil {
			t.Errorf("%s: %v", row.in, err)
			continue
		}
		got, err := h.Resolve(twoTypes(), "user")
		if err != nil || asJSON(t, got) != row.want {
			t.Errorf("%s: got %s, %v, want %s", row.in, asJSON(t, got), err, row.want)
		}
	}
	for _, row := range []struct{ in, want string }{
		{``, `hints: "": not valid JSON`},
		{`7`, `hints: "7": neither a list, an object nor a string`},
		{`null`, `hints: "null": neither a list, an object nor a string`},
		{`""`, `hints: empty hint`},
	} {
		_, err := hints.ParseJSON([]byte(row.in))
		checkErr(t, err, row.want)
	}
}

// TestBracketsInTexts checks that brackets inside strings do not count as nesting.
func TestBracketsInTexts(t *testing.T) {
	many := strings.Repeat("[{", 200)
	h, err := hints.Parse(`["user","\"\\` + many + `"]`)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := h.Resolve(twoTypes(), ""); err != nil || got.Value != `"\`+many {
		t.Errorf("got %+v, %v; want the whole text as value", got, err)
	}
}

// TestPairs checks that a pair that begins with the name of a type means that type and a UID, even
// if the caller names another type.
func TestPairs(t *testing.T) {
	pair, err := hints.ParseJSON([]byte(`["order","7"]`))
	if err != nil {
		t.Fatal(err)
	}
	if got := pair.Type(); got != "" {
		t.Errorf("a pair names type %q before there is a schema, want none", got)
	}
	got, err := pair.Of("user").Resolve(twoTypes(), "")
	if err != nil || got.Type != "order" {
		t.Errorf("got %+v, %v, want the type in the pair", got, err)
	}
	_, err = pair.Resolve(twoTypes(), "user")
	checkErr(t, err, `hints: UID: names type "order", want "user"`)
}

// fuzzResolve resolves h, unless err is set, and checks the properties that all targets and errors
// must have.
func fuzzResolve(t *testing.T, h hints.Hint, err error) {
	t.Helper()
	for _, view := range []string{"", "user"} {
		if err != nil {
			break
		}
		target, err := h.Resolve(twoTypes(), view)
		if err != nil {
			if !errors.Is(err, hints.ErrHint) || len(err.Error()) > 2000 {
				t.Errorf("view %q: got %v, want an ErrHint of at most 2000 bytes", view, err)
			}
			continue
		}
		if view != "" && target.Type != view {
			t.Errorf("a hint for type %q has a target of type %q", view, target.Type)
		}
		for _, k := range target.Keys {
			if k.Type() != target.Type || key(k.String()) != k {
				t.Errorf("view %q: key %s is of another type than %q, or is not read back", view, k, target.Type)
			}
		}
		_ = asJSON(t, target)
	}
	if err != nil && (!errors.Is(err, hints.ErrHint) || len(err.Error()) > 2000) {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range texts {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, err := hints.Parse(text)
		fuzzResolve(t, h, err)
	})
}

func FuzzParseJSON(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Add([]byte(`"user/uid:x"`))
	// an object that AsEntry and AsUser read as a list
	f.Add([]byte(`{"0":"user","1":"uid","2":"x","~isa":"list","length":3}`))
	// brackets inside and outside strings
	f.Add([]byte(`{"a":"\"[","b":[[{"c":"]"}]]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := hints.ParseJSON(b)
		fuzzResolve(t, h, err)
		for _, as := range []func() (hints.Quintuplet, error){
			func() (hints.Quintuplet, error) { return hints.AsEntry(twoTypes(), b) },
			func() (hints.Quintuplet, error) { return hints.AsUser(twoTypes(), "user", b) },
		} {
			q, err := as()
			if err != nil && !errors.Is(err, hints.ErrHint) {
				t.Error(err)
			}
			if err == nil && q[3] != "*" && key(q[1]).Value() != q[4] {
				t.Errorf("%s: got %v, whose key has another value", b, q)
			}
		}
	})
}

func TestWord(t *testing.T) {
	for text, want := range map[string]string{
		"17c0": "17c0", "alice@example.com": "alice@example.com", "name=Alice": "", "*=Alice": "", "user/uid:17c0": "", `["user","17c0"]`: "",
	} {
		h, err := hints.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if word, ok := h.Word(); ok != (want != "") || ok && word != want {
			t.Errorf("%s: Word returns %q, %t; want %q", text, word, ok, want)
		}
	}
	if _, ok := hints.UID("17c0").Word(); ok {
		t.Error("Word returns true for the result of UID, want true only for a bare word that Parse read")
	}
}
