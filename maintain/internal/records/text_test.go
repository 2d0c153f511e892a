package records

import (
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

func TestShorten(t *testing.T) {
	x := strings.Repeat("x", ValueBytes)
	for _, tt := range []struct {
		text string
		size int64
		want string
	}{
		{"", 0, `""`},
		{"plain", 5, "plain"},
		{"größe 日本", 14, "größe 日本"},
		{" a", 2, `" a"`},
		{"a ", 2, `"a "`},
		{`"a"`, 3, `"\"a\""`},
		{`a\b`, 3, `"a\\b"`},
		{"a\u202eb\u200b", 7, `"a\u202eb\u200b"`},
		{"\x00\xff", 2, `"\x00\xff"`},
		{x, ValueBytes, x},
		{x, 12345, x + "… (12345 bytes)"},
		{x + "y", ValueBytes + 1, x + "… (201 bytes)"},
		{x[1:] + "é", ValueBytes + 1, x[1:] + "… (201 bytes)"},
	} {
		if got := Shorten(tt.text, tt.size); got != tt.want {
			t.Errorf("%q, %d: got %s, want %s", tt.text, tt.size, got, tt.want)
		}
	}
}

func TestQuoted(t *testing.T) {
	long := "A" + strings.Repeat("b", ShownBytes-3) + "é"
	for text, want := range map[string]string{
		"":            `""`,
		"a\x1b\u202e": `"a\x1b\u202e"`,
		long:          `"` + long + `"`,
		long + "x":    `"` + long + `"…`,
		"x" + long:    `"x` + strings.TrimSuffix(long, "é") + `"…`,
	} {
		if got := Quoted(text); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

// TestPrintableLaws checks that no two texts look the same, and that only printable text reaches a
// terminal.
func TestPrintableLaws(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
		a, b := text.Draw(r, "a"), text.Draw(r, "b")
		if a != b && Printable(a) == Printable(b) {
			r.Errorf("%q and %q both look like %s", a, b, Printable(a))
		}
		if got := Printable(a); strings.ContainsFunc(got, func(c rune) bool { return !unicode.IsPrint(c) }) {
			r.Errorf("%q looks like %q, which is not printable", a, got)
		}
	})
}
