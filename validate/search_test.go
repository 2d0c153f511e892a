package validate

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func searchFor(tb testing.TB, longest int, exprs ...string) *search {
	tb.Helper()
	var parts []part
	for _, expr := range exprs {
		expr, not := strings.CutPrefix(expr, "NOT ")
		p, err := newPart("", expr, "")
		if err != nil {
			tb.Fatal(err)
		}
		p.not = not
		parts = append(parts, p)
	}
	return newSearch(parts, longest, maxWork, anyRune)
}

func TestSearch(t *testing.T) {
	for _, c := range []struct {
		longest int
		exprs   []string
		want    finding
	}{
		{9, nil, finding{Overlap, "a", ""}},
		{0, nil, finding{Orthogonal, "", ""}},
		{9, []string{"^$"}, finding{Orthogonal, "", ""}},
		{9, []string{"^a*$"}, finding{Overlap, "a", ""}},
		{9, []string{"^(?:aa)*$"}, finding{Overlap, "aa", ""}},
		{9, []string{"^a{9}$"}, finding{Overlap, "aaaaaaaaa", ""}},
		{8, []string{"^a{9}$"}, finding{Orthogonal, "", ""}},
		{9, []string{"a", "b", "c"}, finding{Overlap, "abc", ""}},
		{9, []string{"a", "NOT a"}, finding{Orthogonal, "", ""}},
		{9, []string{"NOT ^a"}, finding{Overlap, "b", ""}},
		{9, []string{"NOT [^a]", "NOT ^a$", "NOT aaaa"}, finding{Overlap, "aa", ""}},
		{9, []string{"NOT (?m)^[^a]"}, finding{Overlap, "a", ""}},
		{9, []string{"^[!b]+$", "^..$"}, finding{Overlap, "bb", ""}},
		{9, []string{"^(?:!!|zA|Az|9z)$"}, finding{Overlap, "9z", ""}},
		{9, []string{"^(?:a[!]|[!]{2}|99)$"}, finding{Overlap, "99", ""}},
	} {
		if got := searchFor(t, c.longest, c.exprs...).run(func(string) bool { return true }); got != c.want {
			t.Errorf("%q up to %d: got %+v, want %+v", c.exprs, c.longest, got, c.want)
		}
	}
}

// What the code of a kind refuses is followed by other texts of the length, then
// by longer ones.
func TestEnumerate(t *testing.T) {
	const shorter = "a shorter one may exist"
	for _, c := range []struct {
		exprs []string
		right func(string) bool
		want  finding
	}{
		{[]string{"^[abc]$"}, func(s string) bool { return s == "c" }, finding{Overlap, "c", ""}},
		{[]string{"^[abc]$"}, func(string) bool { return false }, finding{Orthogonal, "", ""}},
		{[]string{"^[abc]{1,3}$"}, func(s string) bool { return s == "cab" }, finding{Overlap, "cab", ""}},
		{[]string{"^[abc]{1,3}$"}, func(string) bool { return false }, finding{Orthogonal, "", ""}},
		{[]string{"^(?:a|bbbb)$"}, func(s string) bool { return s != "a" }, finding{Overlap, "bbbb", ""}},
		{[]string{"^(?:[a-z]|bbbb)$"}, func(s string) bool { return len(s) > 1 }, finding{Overlap, "bbbb", shorter}},
		{[]string{"^[a-z]$"}, func(s string) bool { return s == "z" }, undecided},
		{[]string{"^a+$"}, func(s string) bool { return len(s) == 50 }, finding{Overlap, strings.Repeat("a", 50), ""}},
		{[]string{"^(?:aa)+$"}, func(s string) bool { return len(s)%2 == 1 }, finding{Orthogonal, "", ""}},
		{[]string{"^[a-h]{8}$"}, func(s string) bool { return s == "hhhhhhhh" }, undecided},
		{[]string{"^[a-h]{8}$|^x{9}$"}, func(s string) bool { return s[0] == 'x' }, finding{Overlap, "xxxxxxxxx", shorter}},
	} {
		if got := searchFor(t, 100, c.exprs...).run(c.right); got != c.want {
			t.Errorf("%q: got %+v, want %+v", c.exprs, got, c.want)
		}
	}
}

// The texts are tried by length, none twice, and each is one that the parts take.
func TestEnumerateTriesInOrder(t *testing.T) {
	var tried []string
	searchFor(t, 4, "^[ab]*c?$", "NOT ba").run(func(s string) bool {
		tried = append(tried, s)
		return false
	})
	tried = tried[1:] // the first one was tried before
	var want []string
	for _, s := range texts([]rune("abc"), 4) {
		if strings.Count(s, "c") == 0 || strings.IndexByte(s, 'c') == len(s)-1 {
			if !strings.Contains(s, "ba") {
				want = append(want, s)
			}
		}
	}
	if !slices.IsSortedFunc(tried, func(a, b string) int { return len(a) - len(b) }) {
		t.Errorf("not by length: %q", tried)
	}
	slices.Sort(tried)
	slices.Sort(want)
	if !slices.Equal(tried, want) {
		t.Errorf("tried %q, want %q", tried, want)
	}
}

// A wrong answer is worse than none, however small the limit.
func TestSmallLimitsGiveNoWrongAnswers(t *testing.T) {
	exprs := expressions(exactAtoms)
	checkOften(t, 4, func(t *rapid.T) {
		a, b := exprs.Draw(t, "a"), exprs.Draw(t, "b")
		work := rapid.IntRange(0, 4000).Draw(t, "work")
		refused := rapid.SliceOfN(rapid.SampledFrom(texts([]rune("aA-"), 2)), 0, 3).Draw(t, "refused")
		right := func(s string) bool { return !slices.Contains(refused, s) }
		parts, err := compileParts("", []phrase{{expr: a}, {expr: b}})
		if err != nil {
			t.Fatalf("compiling: %v", err)
		}
		truth := newSearch(parts, 50, maxWork, anyRune).run(right)
		got := newSearch(parts, 50, work, anyRune).run(right)
		if got.verdict != NotDecided && got.verdict != truth.verdict && truth.verdict != NotDecided {
			t.Fatalf("with little work %+v, with more %+v", got, truth)
		}
		if got.verdict == Overlap && got.note == "" && len([]rune(got.witness)) != len([]rune(truth.witness)) {
			t.Fatalf("with little work %+v, with more %+v", got, truth)
		}
	})
}
