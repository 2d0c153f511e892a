package main

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/internal/jsonline"
)

func TestShown(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"Alice", "Alice"},
		{"Just A. User", "Just A. User"},
		{"Zoë 名前 😀", "Zoë 名前 😀"},
		{"", `""`},
		{" x", `" x"`},
		{"x ", `"x "`},
		{`"x"`, `"\"x\""`},
		{`x"`, `x"`},
		{"a\nb", `"a\nb"`},
		{"\x1b[31m", `"\x1b[31m"`},
		{"\u009b31m", `"\u009b31m"`},
		{"a\u202eb", `"a\u202eb"`},
		{"a\u00a0b", `"a\u00a0b"`},
		{"\xff", `"\xff"`},
	} {
		if got := shown(tt.text); got != tt.want {
			t.Errorf("shown(%q) = %s, want %s", tt.text, got, tt.want)
		}
	}
}

func TestCountWords(t *testing.T) {
	for want, got := range map[string]string{
		"0 entries": count(0, "entry"), "1 entry": count(1, "entry"), "2 entries": count(2, "entry"),
		"1 error": count(1, "error"), "0 errors": count(0, "error"),
	} {
		if got != want {
			t.Errorf("count = %q, want %q", got, want)
		}
	}
}

// drives says whether something in a line could drive a terminal.
func drives(line string) bool {
	return !utf8.ValidString(line) || strings.ContainsFunc(line, func(r rune) bool {
		return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r)
	})
}

func TestNothingDrivesATerminal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "text")
		for what, got := range map[string]string{"shown": shown(text), "oneLine": oneLine(text), "pair": pair(text, text)} {
			if drives(got) {
				t.Errorf("%s(%q) = %q", what, text, got)
			}
		}
		if got := shown(text); got != text {
			if back, err := strconv.Unquote(got); err != nil || back != text {
				t.Errorf("shown(%q) = %s, which is %q, %v", text, got, back, err)
			}
		}
		line, err := jsonline.Marshal([]string{text})
		if err != nil {
			t.Fatal(err)
		}
		if body, ok := strings.CutSuffix(string(line), "\n"); !ok || drives(body) {
			t.Errorf("JSON of %q: %q", text, line)
		}
		var back []string
		if err := json.Unmarshal(line, &back); err != nil || back[0] != strings.ToValidUTF8(text, "\ufffd") && utf8.ValidString(text) {
			t.Errorf("JSON of %q is read as %q, %v", text, back, err)
		}
	})
}

func TestJSONLine(t *testing.T) {
	for _, tt := range []struct {
		v    any
		want string
	}{
		{"<a&b>", `"<a&b>"`},
		{"\u007f\u009b\u202e\u2028\U000e0001", `"\u007f\u009b\u202e\u2028\udb40\udc01"`},
		{[]string{"é😀"}, `["é😀"]`},
		{3, "3"},
	} {
		got, err := jsonline.Marshal(tt.v)
		if err != nil || string(got) != tt.want+"\n" {
			t.Errorf("JSON of (%q) = %s, %v; want %s", tt.v, got, err, tt.want)
		}
	}
}
