package overlap

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func searchFor(tb testing.TB, longest int, exprs ...string) *search {
	tb.Helper()
	var all []Expr
	for _, expr := range exprs {
		expr, not := strings.CutPrefix(expr, "NOT ")
		e := MustCompile(expr)
		e.not = not
		all = append(all, e)
	}
	return newSearch(all, longest, maxSearchWork, anyRune)
}

func TestSearch(t *testing.T) {
	for _, c := range []struct {
		longest int
		exprs   []string
		want    Result
	}{
		{9, nil, Result{Witness: "a", Shortest: true}},
		{0, nil, Result{Disjoint: true}},
		{9, []string{"^$"}, Result{Disjoint: true}},
		{9, []string{"^a*$"}, Result{Witness: "a", Shortest: true}},
		{9, []string{"^(?:aa)*$"}, Result{Witness: "aa", Shortest: true}},
		{9, []string{"^a{9}$"}, Result{Witness: "aaaaaaaaa", Shortest: true}},
		{8, []string{"^a{9}$"}, Result{Disjoint: true}},
		{9, []string{"a", "b", "c"}, Result{Witness: "abc", Shortest: true}},
		{9, []string{"a", "NOT a"}, Result{Disjoint: true}},
		{9, []string{"NOT ^a"}, Result{Witness: "b", Shortest: true}},
		{9, []string{"NOT [^a]", "NOT ^a$", "NOT aaaa"}, Result{Witness: "aa", Shortest: true}},
		{9, []string{"NOT (?m)^[^a]"}, Result{Witness: "a", Shortest: true}},
		{9, []string{"^[!b]+$", "^..$"}, Result{Witness: "bb", Shortest: true}},
		{9, []string{"^(?:!!|zA|Az|9z)$"}, Result{Witness: "9z", Shortest: true}},
		{9, []string{"^(?:a[!]|[!]{2}|99)$"}, Result{Witness: "99", Shortest: true}},
	} {
		if got := searchFor(t, c.longest, c.exprs...).run(func(string) bool { return true }); got != c.want {
			t.Errorf("%q up to %d: got %+v, want %+v", c.exprs, c.longest, got, c.want)
		}
	}
}

// TestEnumerate checks that the search tries other texts of the same length, and then longer ones,
// after the predicate has refused the first text.
func TestEnumerate(t *testing.T) {
	for _, c := range []struct {
		exprs []string
		right func(string) bool
		want  Result
	}{
		{[]string{"^[abc]$"}, func(s string) bool { return s == "c" }, Result{Witness: "c", Shortest: true}},
		{[]string{"^[abc]$"}, func(string) bool { return false }, Result{Disjoint: true}},
		{[]string{"^[abc]{1,3}$"}, func(s string) bool { return s == "cab" }, Result{Witness: "cab", Shortest: true}},
		{[]string{"^[abc]{1,3}$"}, func(string) bool { return false }, Result{Disjoint: true}},
		{[]string{"^(?:a|bbbb)$"}, func(s string) bool { return s != "a" }, Result{Witness: "bbbb", Shortest: true}},
		{[]string{"^(?:[a-z]|bbbb)$"}, func(s string) bool { return len(s) > 1 }, Result{Witness: "bbbb"}},
		{[]string{"^[a-z]$"}, func(s string) bool { return s == "z" }, Result{}},
		{[]string{"^a+$"}, func(s string) bool { return len(s) == 50 }, Result{Witness: strings.Repeat("a", 50), Shortest: true}},
		{[]string{"^(?:aa)+$"}, func(s string) bool { return len(s)%2 == 1 }, Result{Disjoint: true}},
		{[]string{"^[a-h]{8}$"}, func(s string) bool { return s == "hhhhhhhh" }, Result{}},
		{[]string{"^[a-h]{8}$|^x{9}$"}, func(s string) bool { return s[0] == 'x' }, Result{Witness: "xxxxxxxxx"}},
	} {
		if got := searchFor(t, 100, c.exprs...).run(c.right); got != c.want {
			t.Errorf("%q: got %+v, want %+v", c.exprs, got, c.want)
		}
	}
}

// TestEnumerateTriesInOrder checks that the search tries texts in order of length, none twice, and
// only texts that the expressions accept.
func TestEnumerateTriesInOrder(t *testing.T) {
	var tried []string
	searchFor(t, 4, "^[ab]*c?$", "NOT ba").run(func(s string) bool {
		tried = append(tried, s)
		return false
	})
	tried = tried[1:] // run passes the first text twice
	var want []string
	for _, s := range texts([]rune("abc"), 4) {
		if strings.Count(s, "c") == 0 || strings.IndexByte(s, 'c') == len(s)-1 {
			if !strings.Contains(s, "ba") {
				want = append(want, s)
			}
		}
	}
	if !slices.IsSortedFunc(tried, func(a, b string) int { return len(a) - len(b) }) {
		t.Errorf("tried %q, want the texts in order of length", tried)
	}
	slices.Sort(tried)
	slices.Sort(want)
	if !slices.Equal(tried, want) {
		t.Errorf("tried %q, want %q", tried, want)
	}
}

// TestSmallLimitsGiveNoWrongResults checks that a small limit may prevent a result, but never
// causes a wrong one.
func TestSmallLimitsGiveNoWrongResults(t *testing.T) {
	exprs := expressions(exactAtoms)
	checkOften(t, 4, func(t *rapid.T) {
		a, b := exprs.Draw(t, "a"), exprs.Draw(t, "b")
		work := rapid.IntRange(0, 4000).Draw(t, "work")
		refused := rapid.SliceOfN(rapid.SampledFrom(texts([]rune("aA-"), 2)), 0, 3).Draw(t, "refused")
		right := func(s string) bool { return !slices.Contains(refused, s) }
		parts := []Expr{MustCompile(a), MustCompile(b)}
		truth := newSearch(parts, 50, maxSearchWork, anyRune).run(right)
		got := newSearch(parts, 50, work, anyRune).run(right)
		if got != (Result{}) && truth != (Result{}) && got.Disjoint != truth.Disjoint {
			t.Fatalf("with little work the result is %+v, with more %+v", got, truth)
		}
		if got.Shortest && len([]rune(got.Witness)) != len([]rune(truth.Witness)) {
			t.Fatalf("with little work the result is %+v, with more %+v", got, truth)
		}
	})
}
