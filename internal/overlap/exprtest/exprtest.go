// Package exprtest draws regular expressions and texts. It is for tests only.
package exprtest

import "pgregory.net/rapid"

// Texts returns all texts of 1 to n letters, the shortest first.
func Texts(letters []rune, n int) []string {
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

// Expressions draws expressions over atoms, with everything that RE2 can join them
// by.
func Expressions(atoms []string) *rapid.Generator[string] { return nested(atoms, 4) }

func nested(atoms []string, depth int) *rapid.Generator[string] {
	atom := rapid.SampledFrom(atoms)
	if depth == 0 {
		return atom
	}
	sub := nested(atoms, depth-1)
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

// CheckOften is rapid.Check some times over: one check is quick here.
func CheckOften(t rapid.TB, times int, prop func(*rapid.T)) {
	for range times {
		rapid.Check(t, prop)
	}
}
