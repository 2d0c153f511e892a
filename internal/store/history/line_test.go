package history_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/store/history"
)

// TestLines checks that parsing a line returns the Line that it was built from, except for what a
// text cannot hold.
func TestLines(t *testing.T) {
	long := strings.Repeat("é", 50)
	for name, c := range map[string]struct{ in, want history.Line }{
		"empty words":   {history.Line{Kind: "delete"}, history.Line{Kind: "delete"}},
		"all words":     {history.Line{Kind: "issue", Who: "key:web", Origin: "192.0.2.1", Fields: []string{"email"}, Purpose: "change:email"}, history.Line{Kind: "issue", Who: "key:web", Origin: "192.0.2.1", Fields: []string{"email"}, Purpose: "change:email"}},
		"escaped words": {history.Line{Kind: "tags", Who: "a b", Origin: "/", Fields: []string{"a/b", "c\nd"}}, history.Line{Kind: "tags", Who: "a b", Origin: "/", Fields: []string{"a/b", "c\nd"}}},
		"a long word":   {history.Line{Kind: "login", Who: long}, history.Line{Kind: "login", Who: long[:80]}},
		"a cut rune":    {history.Line{Kind: "login", Who: "x" + long}, history.Line{Kind: "login", Who: "x" + long[:78]}},
		"many fields":   {history.Line{Kind: "update", Fields: slices.Repeat([]string{strings.Repeat("f", 100)}, 6)}, history.Line{Kind: "update", Fields: append(slices.Repeat([]string{strings.Repeat("f", 100)}, 4), "…")}},
	} {
		const number = "1767323045000000"
		c.want.Time = time.UnixMicro(1767323045000000)
		for _, mark := range []string{"", " abcdefgh0"} {
			text := number + " " + c.in.String() + mark
			if got, ok := history.ParseLine(text); !ok || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s: %q is parsed as %+v, %v, want %+v", name, text, got, ok, c.want)
			}
		}
	}
	if l, ok := history.ParseLine("1767323045000000 create / / /"); ok {
		t.Errorf("a line that lacks a word: got %+v, want false", l)
	}
}

// TestWaitingLines checks that lines that are in the record and also wait in the entry count once.
func TestWaitingLines(t *testing.T) {
	const first, second, third = "1 create / / / /", "2 update / / name / abcdefgh0", "3 update / / name / abcdefgh0"
	got := history.Lines(first+"\n"+second, third+"\n"+first)
	if want := []string{first, second}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := history.Lines("", ""); len(got) != 0 {
		t.Errorf("without lines: got %q, want none", got)
	}
}

// TestOfLatest checks that the lines of an earlier entry with the same key are left out.
func TestOfLatest(t *testing.T) {
	for text, want := range map[string]int{"": 0, "u": 1, "c": 1, "cu": 2, "cud": 0, "cudu": 1, "cudcu": 2, "ccu": 2} {
		var lines []string
		for _, kind := range text {
			lines = append(lines, "1 "+map[rune]string{'c': "create", 'u': "update", 'd': "delete"}[kind]+" / / / /")
		}
		if got := history.OfLatest(lines); len(got) != want {
			t.Errorf("%s: got %d lines, want the last %d", text, len(got), want)
		}
	}
}
