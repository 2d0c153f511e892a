package overlap

import (
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// alphabetOf returns the common alphabet of expressions.
func alphabetOf(tb rapid.TB, allowed func(rune) bool, exprs ...string) (alphabet, *runeSets) {
	tb.Helper()
	sets := newRuneSets()
	for _, expr := range exprs {
		newAutomaton(MustCompile(expr), sets, new(int))
	}
	return newAlphabet(sets, allowed), sets
}

func firsts(a alphabet) string {
	var b strings.Builder
	for _, c := range a {
		b.WriteRune(c.picks[0])
	}
	return b.String()
}

// TestClasses checks into how many classes expressions divide the characters, and that the cheapest
// character represents each class.
func TestClasses(t *testing.T) {
	lower := func(r rune) bool { return !unicode.IsUpper(r) }
	for _, c := range []struct {
		exprs   []string
		allowed func(rune) bool
		want    string
	}{
		{nil, anyRune, "a"},
		{[]string{""}, anyRune, "a"},
		{[]string{"a"}, anyRune, "ba"},
		{[]string{"[0-9]"}, anyRune, "a0"},
		{[]string{"[0-9]", "[5-9]"}, anyRune, "a05"},
		{[]string{"[ab]", "[bc]"}, anyRune, "dabc"},
		{[]string{"(?i)a"}, anyRune, "ba"},
		{[]string{"(?i)k"}, anyRune, "ak"},
		{[]string{"[A-Z]"}, anyRune, "aA"},
		{[]string{"[A-Z]"}, lower, "a"},
		{[]string{"."}, anyRune, "a\n"},
		{[]string{"(?s)."}, anyRune, "a"},
		{[]string{`\b`}, anyRune, "a!"},
		{[]string{`(?m)$`}, anyRune, "a\n"},
		{[]string{`\w`}, anyRune, "a!"},
		{[]string{`\x{d800}`}, anyRune, "a"},
		{[]string{`[\x{d7ff}-\x{e000}]`}, anyRune, "a\ud7ff"},
		{[]string{`\p{Greek}`, `\p{Lu}`}, lower, "aͱ"},
	} {
		a, _ := alphabetOf(t, c.allowed, c.exprs...)
		if got := firsts(a); got != c.want {
			t.Errorf("%q: got the classes %+q, want %+q", c.exprs, got, c.want)
		}
	}
}

// TestEveryCharacterIsInOneClass checks that every character is in exactly one class, and in the
// same sets as the others of its class.
func TestEveryCharacterIsInOneClass(t *testing.T) {
	atoms := append([]string{`\pL`, `\p{Greek}`, `\PM`, `(?i)[k-s]`, `[\x{d7f0}-\x{e010}]`, `[^\x{10ffff}]`, `(?i)ǆ`}, exactAtoms...)
	exprs := rapid.SliceOfN(expressions(atoms), 1, 3)
	rapid.Check(t, func(t *rapid.T) {
		a, sets := alphabetOf(t, anyRune, exprs.Draw(t, "exprs")...)
		for _, r := range rapid.SliceOf(rapid.Rune()).Draw(t, "runes") {
			if !utf8.ValidRune(r) {
				continue
			}
			class := a.classOf(t, r)
			for i, c := range a {
				if i != class && c.holds(r) {
					t.Fatalf("%+q is in two classes", r)
				}
			}
			for set, inst := range sets.insts {
				if inst.MatchRune(r) != (a[class].in[set] == 1) {
					t.Fatalf("%+q differs from its class in set %v", r, inst)
				}
			}
		}
	})
}

func TestAlphabetHoldsAllCharacters(t *testing.T) {
	a, _ := alphabetOf(t, anyRune, `\pL|[\x{d900}-\x{da00}]`, `(?i)[^k]`)
	total := 0
	for _, c := range a {
		for _, span := range c.ranges {
			total += int(span.hi-span.lo) + 1
		}
	}
	if want := int(unicode.MaxRune) + 1 - 0x800; total != want {
		t.Errorf("got %d characters, want %d", total, want)
	}
}

func TestCosts(t *testing.T) {
	// Pairs of characters in the order of their costs.
	for i, r := range []rune("az09AZ!~éあ×☃ \u0301\x00\u200b\ue000\U0010ffff") {
		want := []int{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, costHidden, costHidden, costHidden, costHidden}[i]
		if got := costOf(r); got != want {
			t.Errorf("%+q costs %d, want %d", r, got, want)
		}
	}
}

func TestPicks(t *testing.T) {
	for _, c := range []struct {
		expr     string
		allowed  func(rune) bool
		want     string
		complete bool
	}{
		{"[a-c]", anyRune, "abc", true},
		{"[A-Ca-c0-2!]", anyRune, "abc012AB", false},
		{"[ !]", anyRune, "! ", true},
		{"[a-h]", anyRune, "abcdefgh", true},
		{"[a-i]", anyRune, "abcdefgh", false},
		{"[a-z]", func(r rune) bool { return r%2 == 0 }, "bdfhjlnp", false},
		{"[a-z]", func(r rune) bool { return r > 'w' }, "xyz", true},
		{"[A-Z]", func(r rune) bool { return r > 'Z' }, "", false},
		{"[^\x00-\U0001ffff]", func(r rune) bool { return r == 0x20003 }, "\U00020003", true},
		{"[\x00-é]", func(r rune) bool { return r < ' ' || r >= 'é' }, "é\x00\x01\x02\x03\x04\x05\x06", false},
	} {
		a, _ := alphabetOf(t, c.allowed, c.expr)
		var got class
		for _, candidate := range a {
			if strings.ContainsRune(c.want, candidate.picks[0]) {
				got = candidate
			}
		}
		if string(got.picks) != c.want {
			t.Errorf("%q: got the picks %q, want %q", c.expr, string(got.picks), c.want)
		}
		if len(got.ranges) < 10 && got.complete != c.complete && c.want != "\U00020003" {
			t.Errorf("%q: complete is %v, want %v", c.expr, got.complete, c.complete)
		}
	}
}

// TestLargeClassIsNotScannedWhole checks that choose does not examine all characters of a large
// class if it has found readable ones or is unlikely to find any.
func TestLargeClassIsNotScannedWhole(t *testing.T) {
	examined := 0
	a, _ := alphabetOf(t, func(rune) bool { examined++; return true }, "")
	if examined > 1000 {
		t.Errorf("examined %d characters, want at most 1000", examined)
	}
	if a[0].complete {
		t.Error("complete is true for a class of which few characters were examined")
	}
	examined = 0
	c := class{ranges: []runeRange{{0xf0000, 0x10ffff}}} // private use: no better character follows
	c.choose(func(rune) bool { examined++; return true })
	if examined > maxScan || c.complete {
		t.Errorf("examined %d characters, complete is %v; want at most %d, false", examined, c.complete, maxScan)
	}
	if !slices.IsSorted(c.picks) || len(c.picks) != maxPicks || c.cost != costHidden {
		t.Errorf("got picks %+q of cost %d, want %d in order, of cost %d", c.picks, c.cost, maxPicks, costHidden)
	}
}
