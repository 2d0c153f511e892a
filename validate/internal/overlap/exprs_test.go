package overlap

import "pgregory.net/rapid"

// texts returns all texts of one to n letters, the shortest first.
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

// expressions generates regular expressions that combine atoms with every operator of RE2.
func expressions(atoms []string) *rapid.Generator[string] { return nested(atoms, 4) }

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

// checkOften calls rapid.Check several times, because one check is fast here.
func checkOften(t rapid.TB, times int, prop func(*rapid.T)) {
	for range times {
		rapid.Check(t, prop)
	}
}
