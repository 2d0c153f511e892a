package overlap

import (
	"regexp"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// exactLetters has one letter of each class that exactAtoms distinguish, so that a shortest witness
// can be spelled with them.
var (
	exactLetters = []rune{'a', 'A', 'z', '\n', '-', '!', 'ſ'} // ſ is a word character for (?i)
	exactAtoms   = []string{
		"", "a", "A", "-", `\n`, "[a-]", "[^a]", "[^A\n]", "[aA]", "[^-!]", ".", "(?s:.)", "(?i:a)", `\w`, `\W`,
		"^", "$", `\A`, `\z`, `\b`, `\B`, "(?m:^)", "(?m:$)", "[[:word:]]", `[^\x00-\x{10ffff}]`,
	}
)

// common looks for a text that matches both expressions.
func common(work int, a, b string) Result {
	set := func(expr string) Set {
		re := regexp.MustCompile(expr)
		return Set{Exprs: []Expr{MustCompile(expr)}, Has: re.MatchString, Longest: 1024}
	}
	p := Prover{Allowed: anyRune, Work: work, Questions: 1}
	return p.Common(set(a), set(b))
}

// TestProverMatchesAllShortTexts compares the results for random expressions with those of package
// regexp on every short text. Both wrong witnesses and missed ones are errors.
func TestProverMatchesAllShortTexts(t *testing.T) {
	const n = 4
	all := texts(exactLetters, n)
	exprs := expressions(exactAtoms)
	results := make(map[bool]int)
	checkOften(t, 4, func(t *rapid.T) {
		a, b := exprs.Draw(t, "a"), exprs.Draw(t, "b")
		p := common(1<<22, a, b)
		results[p.Disjoint]++
		reA, reB := regexp.MustCompile(a), regexp.MustCompile(b)
		shortest := ""
		for _, s := range all {
			if reA.MatchString(s) && reB.MatchString(s) {
				shortest = s
				break
			}
		}
		size := utf8.RuneCountInString(p.Witness)
		switch {
		case p == (Result{}):
			t.Fatalf("%q and %q: got no result, want one within the limit", a, b)
		case p.Disjoint && shortest != "":
			t.Fatalf("disjoint, but both expressions match %q", shortest)
		case !p.Disjoint && (size == 0 || !reA.MatchString(p.Witness) || !reB.MatchString(p.Witness)):
			t.Fatalf("the witness %q does not match both expressions", p.Witness)
		case !p.Disjoint && size <= n && size != utf8.RuneCountInString(shortest):
			t.Fatalf("got the witness %q, want one as short as %q", p.Witness, shortest)
		case !p.Disjoint && size > n && shortest != "":
			t.Fatalf("got the witness %q, but both expressions match the shorter %q", p.Witness, shortest)
		}
	})
	if results[true] == 0 || results[false] == 0 {
		t.Errorf("the test proves little: %v", results)
	}
}
