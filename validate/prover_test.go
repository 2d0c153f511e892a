package validate

import (
	"regexp"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/schema"
)

// texts returns all texts of 1 to n letters, the shortest first.
func texts(letters []rune, n int) []string {
	var all []string
	level := []string{""}
	for range n {
		var next []string
		for _, s := range level {
			for _, r := range letters {
				next = append(next, s+string(r))
			}
		}
		all = append(all, next...)
		level = next
	}
	return all
}

// expressions draws expressions over atoms, with everything that RE2 can join
// them by.
func expressions(atoms []string) *rapid.Generator[string] {
	var of func(depth int) *rapid.Generator[string]
	of = func(depth int) *rapid.Generator[string] {
		atom := rapid.SampledFrom(atoms)
		if depth == 0 {
			return atom
		}
		sub := of(depth - 1)
		return rapid.OneOf(
			atom,
			rapid.Custom(func(t *rapid.T) string { return sub.Draw(t, "left") + sub.Draw(t, "right") }),
			rapid.Custom(func(t *rapid.T) string { return sub.Draw(t, "left") + "|" + sub.Draw(t, "right") }),
			rapid.Custom(func(t *rapid.T) string {
				flags := rapid.SampledFrom([]string{"", "?:", "?i:", "?m:", "?s:", "?ims:", "?i-s:", "?U:"}).Draw(t, "flags")
				times := rapid.SampledFrom([]string{"", "*", "+", "?", "*?", "+?", "??", "{2}", "{0,2}", "{1,}", "{2,3}?"}).Draw(t, "times")
				return "(" + flags + sub.Draw(t, "sub") + ")" + times
			}),
			rapid.Custom(func(t *rapid.T) string { return "^" + sub.Draw(t, "sub") + "$" }),
			rapid.Custom(func(t *rapid.T) string { return "^(?:" + sub.Draw(t, "sub") + ")$" }),
		)
	}
	return of(4)
}

// checkOften is rapid.Check some times over: one check is quick here.
func checkOften(t *testing.T, times int, prop func(*rapid.T)) {
	t.Helper()
	for range times {
		rapid.Check(t, prop)
	}
}

// shortestTaken returns the first of all that both fields take.
func shortestTaken(r *Rules, all []string) (string, bool) {
	for _, s := range all {
		if r.Secondary("a", s) == nil && r.Secondary("b", s) == nil {
			return s, true
		}
	}
	return "", false
}

// exactLetters has one letter of each class that exactAtoms can tell apart, so
// that a shortest witness is among the texts over them.
var (
	exactLetters = []rune{'a', 'A', 'z', '\n', '-', '!', 'ſ'} // ſ is a word character for (?i)
	exactAtoms   = []string{
		"", "a", "A", "-", `\n`, "[a-]", "[^a]", "[^A\n]", "[aA]", "[^-!]", ".", "(?s:.)", "(?i:a)", `\w`, `\W`,
		"^", "$", `\A`, `\z`, `\b`, `\B`, "(?m:^)", "(?m:$)", "[[:word:]]", `[^\x00-\x{10ffff}]`,
	}
)

// TestProverAgainstAllShortTexts compares the verdicts on random expressions, both
// ways and to the length, with what package regexp says of every short text.
func TestProverAgainstAllShortTexts(t *testing.T) {
	const n = 4
	all := texts(exactLetters, n)
	exprs := expressions(exactAtoms)
	verdicts := make(map[Verdict]int)
	checkOften(t, 4, func(t *rapid.T) {
		a, b := exprs.Draw(t, "a"), exprs.Draw(t, "b")
		p := proveQuickly(t, fields(schema.FoldExact, map[string]schema.Field{"a": pattern(a), "b": pattern(b)}))
		verdicts[p.Verdict]++
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
		case p.Verdict == NotDecided:
			t.Fatalf("not decided: %s", p.Note)
		case p.Verdict == Orthogonal && shortest != "":
			t.Fatalf("orthogonal, but both take %q", shortest)
		case p.Verdict == Overlap && (size == 0 || !reA.MatchString(p.Witness) || !reB.MatchString(p.Witness)):
			t.Fatalf("%q is no witness", p.Witness)
		case p.Verdict == Overlap && size <= n && size != utf8.RuneCountInString(shortest):
			t.Fatalf("witness %q, the shortest text is %q", p.Witness, shortest)
		case p.Verdict == Overlap && size > n && shortest != "":
			t.Fatalf("witness %q, but both take %q", p.Witness, shortest)
		}
	})
	if verdicts[Orthogonal] == 0 || verdicts[Overlap] == 0 {
		t.Errorf("the test proves little: %v", verdicts)
	}
}

// proveQuickly is Check with a smaller limit.
func proveQuickly(tb rapid.TB, t schema.Type) Pair {
	tb.Helper()
	r, err := Compile(t)
	if err != nil {
		tb.Fatalf("compiling: %v", err)
	}
	return r.newProver(1 << 22).prove()[0]
}

// Under FoldCasefold values are canonical, which no expression says exactly.
var (
	foldedLetters = []rune{'a', 'é', 'A', ' ', '\u0301', '1', '@', '.', '"', '!'}
	foldedAtoms   = []string{
		"", "a", "é", "A", " ", "\u0301", "1", "@", `\.`, `"`, "[^a]", "[^@]", ".", `\pM`, `\pL`, `\d`, "(?i:A)", "(?i:É)",
		"^", "$", `\b`, `\B`, "[a1]", "!",
	}
)

// TestProverAgainstAllShortValues does the same with kinds and canonical values.
// Where a witness is not of these letters, a shorter one may exist among others.
func TestProverAgainstAllShortValues(t *testing.T) {
	all := texts(foldedLetters, 3)
	exprs := expressions(foldedAtoms)
	kinds := rapid.SampledFrom([]string{"", "", "email", "username", "nickname", "url"})
	folds := rapid.SampledFrom([]schema.Fold{schema.FoldCasefold, schema.FoldCasefold, schema.FoldExact})
	verdicts := make(map[Verdict]int)
	checkOften(t, 2, func(t *rapid.T) {
		field := func(name string) schema.Field {
			f := schema.Field{Kind: kinds.Draw(t, "kind of "+name), Pattern: exprs.Draw(t, name)}
			f.Reserved = rapid.SliceOfN(rapid.SampledFrom(all[:110]), 0, 2).Draw(t, "reserved in "+name)
			return f
		}
		typ := fields(folds.Draw(t, "fold"), map[string]schema.Field{"a": field("a"), "b": field("b")})
		p := proveQuickly(t, typ)
		verdicts[p.Verdict]++
		r := mustCompileRapid(t, typ)
		shortest, found := shortestTaken(r, all)
		switch {
		case p.Verdict == Orthogonal && found:
			t.Fatalf("orthogonal, but both take %q", shortest)
		case p.Verdict == Overlap && (r.Secondary("a", p.Witness) != nil || r.Secondary("b", p.Witness) != nil):
			t.Fatalf("%q is no witness", p.Witness)
		case p.Verdict == Overlap && found && p.Note == "" && utf8.RuneCountInString(p.Witness) > utf8.RuneCountInString(shortest):
			t.Fatalf("witness %q, but both take %q", p.Witness, shortest)
		}
	})
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

// The prover leaves out every character that alone is not canonical. That is right
// if none of them stands in a canonical value, and where spaces are as it thinks.
func TestCanonicalValuesAreMadeOfCanonicalCharacters(t *testing.T) {
	r := mustCompile(t, fields(schema.FoldCasefold, nil))
	runes := rapid.OneOf(rapid.Rune(), rapid.RuneFrom([]rune("  \t\u00a0\u2003İıſßΣς\u0345\u0301\u0308ﾞｶ가각\u1161ᾳ＠A\u1e9e\u00a8\u037a\u13a0\uab70\u200d\u200c\u034f\u3164\ufe0f。.@\"\\-")))
	around := rapid.SampledFrom([][2]string{{"", ""}, {"a@", ""}, {"a@", ".de."}, {`"`, `"@x.org`}, {"http://", "/"}})
	rapid.Check(t, func(t *rapid.T) {
		at := around.Draw(t, "around")
		value := r.typ.Canonical(at[0] + rapid.StringOf(runes).Draw(t, "text") + at[1])
		for _, c := range value {
			if !r.stands(c) {
				t.Fatalf("%+q holds %+q", value, c)
			}
		}
		if value != "" && !r.spaces.takes(value) {
			t.Fatalf("spaces in %+q", value)
		}
	})
}
