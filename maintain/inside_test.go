package maintain

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/schema"
)

// TestCodes holds the documentation to the codes that there are.
func TestCodes(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for line := range strings.Lines(string(doc)) {
		words := strings.Fields(line)
		if len(words) < 3 {
			continue
		}
		fact, is := facts[words[1]]
		if !is {
			continue
		}
		documented = append(documented, words[1])
		if words[2] != string(rune('0'+fact.invariant)) || (words[3] == "w") != fact.warning {
			t.Errorf("doc.go says %q, the code is %+v", line, fact)
		}
	}
	if !slices.Equal(documented, slices.Sorted(maps.Keys(facts))) {
		t.Errorf("documented %q, there are %q", documented, slices.Sorted(maps.Keys(facts)))
	}
}

func TestSure(t *testing.T) {
	problem := func(at int, key, seen string) finding {
		return finding{Problem: Problem{Key: key, Code: "x"}, at: at, seen: seen}
	}
	for _, tt := range []struct {
		name  string
		looks []findings // what each look finds; the last one again and again
		want  string
		count int
	}{
		{"nothing", []findings{nil}, "", 1},
		{"twice the same", []findings{{problem(1, "b", "1")}, {problem(0, "b", "1")}}, "b", 2},
		{"gone", []findings{{problem(1, "b", "1")}, nil}, "", 2},
		{"another version", []findings{{problem(1, "b", "1")}, {problem(0, "b", "2")}, nil}, "", 3},
		{"another version, and then the same", []findings{{problem(1, "b", "1")}, {problem(0, "b", "2")}, {problem(0, "b", "2")}}, "b", 3},
		{"one of two gone", []findings{{problem(0, "a", ""), problem(2, "c", "")}, {problem(1, "c", "")}}, "c", 2},
		{"one of two changing", []findings{{problem(0, "a", "1"), problem(2, "c", "")}, {problem(0, "a", "2"), problem(1, "c", "")}, {problem(0, "a", "3"), problem(1, "c", "")}, {problem(0, "a", "4"), problem(1, "c", "")}, {problem(0, "a", "5"), problem(1, "c", "")}}, "c", 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			count, items := 0, []string{"a", "b", "c"}
			got, err := sure(t.Context(), items, func(_ context.Context, items []string) (findings, error) {
				found := tt.looks[min(count, len(tt.looks)-1)]
				for _, f := range found {
					if items[f.at] != f.Key {
						t.Errorf("look %d is at %q, want %s at %d", count, items, f.Key, f.at)
					}
				}
				count++
				return found, nil
			})
			var keys []string
			for _, p := range got {
				keys = append(keys, p.Key)
			}
			if err != nil || strings.Join(keys, " ") != tt.want || count != tt.count {
				t.Errorf("got %q, %v after %d looks, want %q after %d", keys, err, count, tt.want, tt.count)
			}
		})
	}
}

func TestSureFails(t *testing.T) {
	lost := errors.New("lost")
	for fails := range 3 {
		count := 0
		got, err := sure(t.Context(), []string{"a"}, func(context.Context, []string) (findings, error) {
			if count++; count > fails {
				return nil, lost
			}
			return findings{{seen: string(rune(count))}}, nil
		})
		if err != lost || got != nil {
			t.Errorf("failing at look %d: %v, %v", fails, got, err)
		}
	}
}

func TestHeading(t *testing.T) {
	for _, tt := range []struct {
		r    store.Raw
		want string
	}{
		{store.Raw{Type: "string", TTL: -1}, "string"},
		{store.Raw{Type: "set", Size: 3, TTL: 3_600_000}, "set, 3, expires in 1h0m0s"},
		{store.Raw{Type: "hash", TTL: 400}, "hash, expires in 0s"},
		{store.Raw{Type: "ReJSON-RL"}, "ReJSON-RL"},
		{store.Raw{Type: "list", Problem: "WRONGTYPE\n"}, `list, 0, not readable: "WRONGTYPE\n"`},
	} {
		if got := heading(tt.r); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.r, got, tt.want)
		}
	}
}

// TestUnknownType: what a module keeps is shown by its type.
func TestUnknownType(t *testing.T) {
	var b bytes.Buffer
	d := dumper{w: bufio.NewWriter(&b)}
	if err := d.record("key", store.Raw{Type: "ReJSON-RL", TTL: -1}); err != nil {
		t.Fatal(err)
	}
	d.w.Flush()
	if want := "key  ReJSON-RL\n    (contents of this type are not shown)\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

func TestShorten(t *testing.T) {
	x := strings.Repeat("x", valueBytes)
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
		{x, valueBytes, x},
		{x, 12345, x + "… (12345 bytes)"},
		{x + "y", valueBytes + 1, x + "… (201 bytes)"},
		{x[1:] + "é", valueBytes + 1, x[1:] + "… (201 bytes)"},
	} {
		if got := shorten(tt.text, tt.size); got != tt.want {
			t.Errorf("%q, %d: %s, want %s", tt.text, tt.size, got, tt.want)
		}
	}
}

func TestLikeOurs(t *testing.T) {
	s := schema.Schema{Types: map[string]schema.Type{"user": {}, "odd type{}": {}}}
	for key, want := range map[string]bool{
		"user/uid:\t":           true,
		"user/:":                true,
		"odd type{}/id:1":       true, // raw
		"odd+_type{}/id:1":      true, // as the original escapes it
		"odd+_type+(+)/id:1/~x": true, // as we do
		"odd+_type+(}/id:1":     false,
		"users/uid:\t":          false,
		"user/uid":              false,
		"user:uid/\t":           false,
		"x/user/uid:1/\t":       false,
		"":                      false,
	} {
		if got := likeOurs(key, s); got != want {
			t.Errorf("%q: %v, want %v", key, got, want)
		}
	}
}

func TestQuoted(t *testing.T) {
	long := "A" + strings.Repeat("b", shownBytes-3) + "é"
	for text, want := range map[string]string{
		"":            `""`,
		"a\x1b\u202e": `"a\x1b\u202e"`,
		long:          `"` + long + `"`,
		long + "x":    `"` + long + `"…`,
		"x" + long:    `"x` + strings.TrimSuffix(long, "é") + `"…`,
	} {
		if got := quoted(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// TestPrintableLaws: no two texts look the same, and nothing reaches a terminal but what it prints.
func TestPrintableLaws(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
		a, b := text.Draw(r, "a"), text.Draw(r, "b")
		if a != b && printable(a) == printable(b) {
			r.Errorf("%q and %q both look like %s", a, b, printable(a))
		}
		if got := printable(a); strings.ContainsFunc(got, func(c rune) bool { return !unicode.IsPrint(c) }) {
			r.Errorf("%q looks like %q, which is not printable", a, got)
		}
	})
}
