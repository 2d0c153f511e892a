package validate

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/schema"
)

// texts returns all texts of up to n letters, the shortest first.
func texts(letters []rune, n int) []string {
	all, from := []string{""}, 0
	for range n {
		level := all[from:]
		from = len(all)
		for _, s := range level {
			for _, r := range letters {
				all = append(all, s+string(r))
			}
		}
	}
	return all[1:]
}

// shortestAccepted returns the first text that both fields accept.
func shortestAccepted(r *Rules, all []string) (string, bool) {
	for _, s := range all {
		if r.Secondary("a", s) == nil && r.Secondary("b", s) == nil {
			return s, true
		}
	}
	return "", false
}

// checkWithSmallLimit returns the only pair of a type with two fields. It is like Check, but with a
// smaller limit.
func checkWithSmallLimit(tb rapid.TB, t schema.Type) Pair {
	tb.Helper()
	pairs, err := check(t, 1<<22)
	if err != nil {
		tb.Fatalf("Check: %v", err)
	}
	return pairs[0]
}

// Letters and expressions for types with FoldCasefold. No expression can state exactly which texts
// are canonical, so the letters include some that canonical values cannot contain.
var (
	foldedLetters = []rune{'a', 'é', 'A', ' ', '\u0301', '1', '@', '.', '"', '!'}
	foldedAtoms   = []string{
		"", "a", "é", "A", " ", "\u0301", "1", "@", `\.`, `"`, "[^a]", "[^@]", ".", `\pM`, `\pL`, `\d`, "(?i:A)", "(?i:É)",
		"^", "$", `\b`, `\B`, "[a1]", "!",
	}
)

// TestProverMatchesAllShortValues compares the verdicts on random fields to what the rules of the
// fields say about every short value. The fields have kinds, and their types use both folds. A
// witness may contain letters that the short values lack, and may then be shorter than all of them
// that both fields accept.
func TestProverMatchesAllShortValues(t *testing.T) {
	all := texts(foldedLetters, 3)
	parts := rapid.SampledFrom(append([]string{"|", "|", "(?:a|é)*", ".?", "[^@]+", "(?i:É){2}", "(?:^a|1$)", "(?m:^.*$)"}, foldedAtoms...))
	exprs := rapid.Map(rapid.SliceOfN(parts, 0, 6), func(parts []string) string { return strings.Join(parts, "") })
	kinds := rapid.SampledFrom([]string{"", "", "email", "username", "nickname", "url"})
	folds := rapid.SampledFrom([]schema.Fold{schema.FoldCasefold, schema.FoldCasefold, schema.FoldExact})
	verdicts := make(map[Verdict]int)
	check := func(t *rapid.T) {
		field := func(name string) schema.Field {
			f := schema.Field{Kind: kinds.Draw(t, "kind of "+name), Pattern: exprs.Draw(t, name)}
			f.Reserved = rapid.SliceOfN(rapid.SampledFrom(all[:110]), 0, 2).Draw(t, "reserved in "+name)
			return f
		}
		typ := fields(folds.Draw(t, "fold"), map[string]schema.Field{"a": field("a"), "b": field("b")})
		p := checkWithSmallLimit(t, typ)
		verdicts[p.Verdict]++
		r := mustCompileRapid(t, typ)
		shortest, found := shortestAccepted(r, all)
		switch {
		case p.Verdict == Orthogonal && found:
			t.Fatalf("orthogonal, but both fields accept %q", shortest)
		case p.Verdict == Overlap && (r.Secondary("a", p.Witness) != nil || r.Secondary("b", p.Witness) != nil):
			t.Fatalf("the witness %q is not accepted by both fields", p.Witness)
		case p.Verdict == Overlap && found && p.Note == "" && utf8.RuneCountInString(p.Witness) > utf8.RuneCountInString(shortest):
			t.Fatalf("the witness is %q, but both fields accept the shorter %q", p.Witness, shortest)
		}
	}
	for range 2 {
		rapid.Check(t, check)
	}
	if verdicts[Orthogonal] == 0 || verdicts[Overlap] == 0 || verdicts[NotDecided] > verdicts[Overlap] {
		t.Errorf("the test proves little: %v", verdicts)
	}
}

func mustCompileRapid(t *rapid.T, typ schema.Type) *Rules {
	r, err := Compile(typ)
	if err != nil {
		t.Fatalf("compiling: %v", err)
	}
	return r
}

// TestCanonicalValuesContainOnlyCanonicalCharacters checks two assumptions of the prover: canonical
// values contain only characters for which Rules.canonical returns true, and spaces occur only
// where the expression spaces allows them.
func TestCanonicalValuesContainOnlyCanonicalCharacters(t *testing.T) {
	r := mustCompile(t, fields(schema.FoldCasefold, nil))
	runes := rapid.OneOf(rapid.Rune(), rapid.RuneFrom([]rune("  \t\u00a0\u2003İıſßΣς\u0345\u0301\u0308ﾞｶ가각\u1161ᾳ＠A\u1e9e\u00a8\u037a\u13a0\uab70\u200d\u200c\u034f\u3164\ufe0f。.@\"\\-")))
	around := rapid.SampledFrom([][2]string{{"", ""}, {"a@", ""}, {"a@", ".de."}, {`"`, `"@x.org`}, {"http://", "/"}})
	rapid.Check(t, func(t *rapid.T) {
		at := around.Draw(t, "around")
		value := r.typ.Canonical(at[0] + rapid.StringOf(runes).Draw(t, "text") + at[1])
		for _, c := range value {
			if !r.canonical(c) {
				t.Fatalf("%+q contains %+q, which is not canonical", value, c)
			}
		}
		if value != "" && !regexp.MustCompile(spaces).MatchString(value) {
			t.Fatalf("%+q has spaces in the wrong places", value)
		}
	})
}
