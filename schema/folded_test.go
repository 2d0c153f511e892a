package schema

import (
	"testing"

	"pgregory.net/rapid"
)

// TestFoldedIsRight holds the glance that most values pass against what it stands for.
func TestFoldedIsRight(t *testing.T) {
	text := rapid.OneOf(
		rapid.StringMatching(`[abz09.@" \[\]:/\\xn-]{0,12}`), rapid.StringMatching(`[ab".\\]{0,4}@[ab.-]{0,8}`),
		rapid.StringMatching(`(http://|ftp://|x)[a.:0@/\[\]-]{0,9}`), rapid.StringMatching(`a@(xn--[a-z0-9-]{0,6}|[a-c.]{0,3})\.?`), rapid.String(),
	)
	met := 0
	rapid.Check(t, func(t *rapid.T) {
		for range 20 {
			s := text.Draw(t, "text")
			if !folded(s) {
				continue
			}
			met++
			if got := fold(s); got != s {
				t.Fatalf("%q becomes %q", s, got)
			}
		}
	})
	if met < 100 {
		t.Errorf("only %d texts passed", met)
	}
}
