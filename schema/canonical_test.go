package schema_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/schema"
)

var (
	casefold = schema.Type{Primary: "id", Fold: schema.FoldCasefold}
	exact    = schema.Type{Primary: "id", Fold: schema.FoldExact}
)

func TestCanonical(t *testing.T) {
	tests := []struct{ give, want string }{
		{"", ""},
		{"bob", "bob"},
		{"Bob", "bob"},
		{"two words", "two words"},
		{" two \t\n words ", "two words"},
		{"\u3000two\u00a0\u2028\u0085words\v", "two words"},
		{" ", ""},
		{"ａｌｉｃｅ＠ｘ．ｏｒｇ", "alice@x.org"},
		{"ｱﾊﾟｰﾄ", "アパート"},
		{"ﬁx Ⅳ ½", "fix iv 1⁄2"},
		{"Straße STRASSE ẞ", "strasse strasse ss"},
		{"ΣΊΣΥΦΟΣ σίσυφος", "σίσυφοσ σίσυφοσ"},
		{"İ I ı", "i̇ i ı"},
		{"e\u0301 É", "é é"},
		{"K Å Ω", "k å ω"}, // KELVIN, ANGSTROM and OHM SIGN
		{"\u1fb3\u0345", "αιι"},
		{"\u13a0\uab70", "\u13a0\u13a0"}, // CHEROKEE LETTER A, capital and small
		{"a\u0000b\u001cc", "a\u0000b\u001cc"},
		{"BOB\xffÉ\xc3 \xc3", "bob\xffé\xc3 \xc3"},
		{" \xff ", "\xff"},
		{"\xffA\ufffdÉ", "\xffa\ufffdé"},
		{"\ufdfa", "صلى الله عليه وسلم"},
	}
	for _, test := range tests {
		if got := casefold.Canonical(test.give); got != test.want {
			t.Errorf("%q: got %q, want %q", test.give, got, test.want)
		}
		if got := (schema.Type{}).Canonical(test.give); got != test.want {
			t.Errorf("%q: the zero fold returns %q, want %q", test.give, got, test.want)
		}
		if got := exact.Canonical(test.give); got != test.give {
			t.Errorf("%q: the exact fold changes it to %q", test.give, got)
		}
	}
}

// TestCanonicalLimit checks that a value too long for any key stays unchanged.
func TestCanonicalLimit(t *testing.T) {
	longest := strings.Repeat("A", schema.MaxFacet)
	if got := casefold.Canonical(longest); got != strings.ToLower(longest) {
		t.Errorf("a value of %d bytes is not folded", len(longest))
	}
	if got := casefold.Canonical(longest + "A"); got != longest+"A" {
		t.Errorf("a value of %d bytes is folded, want it unchanged", len(longest)+1)
	}
}

// checkCanonical fails the test unless the canonical form of s has the properties that keys rely
// on.
func checkCanonical(t interface {
	Helper()
	Errorf(string, ...any)
}, s string,
) {
	t.Helper()
	c := casefold.Canonical(s)
	switch again := casefold.Canonical(c); {
	case again != c:
		t.Errorf("%q: got %q, which folds to %q", s, c, again)
	case strings.TrimSpace(c) != c || strings.Contains(c, "  "):
		t.Errorf("%q: white space is left in %q", s, c)
	case utf8.ValidString(s) && !utf8.ValidString(c):
		t.Errorf("%q: got %q, which is not UTF-8", s, c)
	case casefold.Canonical(" \t"+s+"\u2003\n") != c:
		t.Errorf("%q: got %q, but with white space around it %q", s, c, casefold.Canonical(" \t"+s+"\u2003\n"))
	}
}

func TestCanonicalIsStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		checkCanonical(t, rapid.String().Draw(t, "text"))
		checkCanonical(t, string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")))
	})
}

// TestCanonicalOfRunes checks all characters below U+32000: letters that differ only in case have
// the same canonical form, and so have compositions and decompositions.
func TestCanonicalOfRunes(t *testing.T) {
	for r := rune(0); r < 0x32000; r++ {
		c := casefold.Canonical(string(r))
		if again := casefold.Canonical(c); again != c {
			t.Errorf("%U: got %+q, which folds to %+q", r, c, again)
		}
		if other := unicode.SimpleFold(r); casefold.Canonical(string(other)) != c {
			t.Errorf("%U: got %+q, but for %U %+q", r, c, other, casefold.Canonical(string(other)))
		}
		if apart := norm.NFKD.String(string(r)); casefold.Canonical(apart) != c {
			t.Errorf("%U: got %+q, but its decomposition gives %+q", r, c, casefold.Canonical(apart))
		}
	}
}

// TestCanonicalOfNaughtyStrings checks texts that others collected to break programs.
func TestCanonicalOfNaughtyStrings(t *testing.T) {
	var naughty []string
	readJSON(t, "../test/testdata/blns.json", &naughty)
	var golden []struct{ Input string }
	readJSON(t, "../validate/testdata/precis-golden.json", &golden)
	for _, g := range golden {
		naughty = append(naughty, g.Input)
	}
	if len(naughty) < 1000 {
		t.Fatalf("got %d texts, want at least 1000", len(naughty))
	}
	for _, s := range naughty {
		checkCanonical(t, s)
	}
}

func readJSON(t *testing.T, path string, to any) {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, to); err != nil {
		t.Fatal(err)
	}
}

// TestCanonicalAllocs checks that Canonical does not allocate for typical values.
func TestCanonicalAllocs(t *testing.T) {
	for _, s := range []string{"", "bob", "alice@hotmail.com", "just a. user", "17c07627d35e", "bob+tag@mail-1.example.org"} {
		if n := testing.AllocsPerRun(100, func() { casefold.Canonical(s) }); n != 0 {
			t.Errorf("%q: %g allocations, want 0", s, n)
		}
	}
}

func FuzzCanonical(f *testing.F) {
	f.Add("Ａlice  \xff e\u0301")
	f.Add("\u3000\u0345ᾳ")
	f.Add(`"b\o b"@Straße。de`)
	f.Add("a\u034fb@xn--strae-oqa.de.")
	f.Add("https://u@نامه\u200cای.com:80/ß")
	f.Add("a@[IPv6:0::1]")
	f.Fuzz(func(t *testing.T, s string) { checkCanonical(t, s) })
}

func BenchmarkCanonical(b *testing.B) {
	for name, s := range map[string]string{"plain": "alice@hotmail.com", "capital": "Alice@Hotmail.com", "wide": "ａｌｉｃｅ"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				casefold.Canonical(s)
			}
		})
	}
}
