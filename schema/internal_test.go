package schema

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/internal/structs"
)

// TestFoldShortcuts checks that fold does not change a text that isFolded accepts, and returns the
// same as foldASCII for a text that foldASCII accepts.
func TestFoldShortcuts(t *testing.T) {
	text := rapid.OneOf(
		rapid.StringMatching(`[abz09.@" \[\]:/\\xn-]{0,12}`), rapid.StringMatching(`[ab".\\]{0,4}@[ab.-]{0,8}`),
		rapid.StringMatching(`[aBK09.@" \[\]:/\\xXnN\x{212A}\x{130}-]{0,12}`), rapid.StringMatching(`(HTTP:/[/a]|A)[bC.:0@/XN-]{0,9}`),
		rapid.StringMatching(`(http://|ftp://|x)[a.:0@/\[\]-]{0,9}`), rapid.StringMatching(`a@(xn--[a-z0-9-]{0,6}|[a-c.]{0,3})\.?`), rapid.String(),
	)
	accepted, upper := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		for range 20 {
			s := text.Draw(t, "text")
			lower, accepts := foldASCII(s)
			if accepts && lower != s {
				upper++
			}
			if accepts = accepts || isFolded(s); !accepts {
				continue
			}
			accepted++
			if got := fold(s); got != lower {
				t.Fatalf("fold(%q) is %q, but its shortcut returns %q", s, got, lower)
			}
		}
	})
	if accepted < 20 || upper < 20 { // a short test draws 400 texts, with about 50 of each kind
		t.Errorf("only %d texts had a shortcut, %d of them with upper case; want at least 20 of each", accepted, upper)
	}
}

// TestParsePrintedDate checks that parsePrintedDate agrees with parseISODate and accepts every
// result of Date.
func TestParsePrintedDate(t *testing.T) {
	for _, text := range []string{"2026-11-20T08:02:40.+12Z", "2026-11-20T08:02:40.-00Z", "2026-11-20T08:02:40,512Z", "2026-11-20T8:02:40.5120Z", "2026-02-30T08:02:40.512Z"} {
		if _, ok := parsePrintedDate(text); ok {
			t.Errorf("parsePrintedDate accepts %q", text)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(
			rapid.StringMatching(`\d{4}-[01]\d-[0-3]\dT[0-2]\d:[0-6]\d:[0-6]\d\.\d{3}Z`),
			rapid.StringMatching(`\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}.[-+\d]{3}[Zz+]`),
		).Draw(t, "text")
		if got, ok := parsePrintedDate(text); ok {
			if want, reason := parseISODate(text); reason != "" || !got.Equal(want) {
				t.Fatalf("%q: %v, but parseISODate returns %v %q", text, got, want, reason)
			}
		}
		at := time.UnixMilli(rapid.Int64Range(0, 4e12).Draw(t, "at")).UTC()
		if got, ok := parsePrintedDate(Date(at).Wire()); !ok || !got.Equal(at) {
			t.Fatalf("%q is read as %v, %t; want %v", Date(at).Wire(), got, ok, at)
		}
	})
}

// TestTagOptions checks that a tag accepts every role by its name.
func TestTagOptions(t *testing.T) {
	for _, n := range roleNames {
		if tag, err := structs.ParseTag("x," + n.name); err != nil || len(tag.Options) != 1 {
			t.Errorf("a tag with the role %s is parsed as %v, %v; want one option", n.name, tag, err)
		}
	}
}
