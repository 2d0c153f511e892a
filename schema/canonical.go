package schema

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
	"golang.org/x/text/width"
)

// Canonical returns the form of a secondary value that keys and rules see. Under
// FoldExact that is the value itself. Under FoldCasefold white space around it is
// cut and runs of it within become one space, then characters are mapped by
// width, by NFKC and by case, again and again until nothing changes, so that
// Canonical of the result is the result. Bytes that are not UTF-8 stay as they
// are. A value longer than MaxFacet, too long for any key, is returned unchanged.
func (t Type) Canonical(value string) string {
	if t.Fold == FoldExact || len(value) > MaxFacet || folded(value) {
		return value
	}
	for range maxRounds {
		next := fold(value)
		if next == value {
			break
		}
		value = next
	}
	return value
}

// maxRounds is more than any text is known to need, which is two. It is odd, so
// that a map that goes to and fro would be seen by the tests.
const maxRounds = 7

// folded reports whether s is ASCII that fold would not change. Most values are,
// and cost nothing.
func folded(s string) bool {
	last := byte(' ')
	for i := range len(s) {
		c := s[i]
		if c >= utf8.RuneSelf || 'A' <= c && c <= 'Z' || '\t' <= c && c <= '\r' || c == ' ' && last == ' ' {
			return false
		}
		last = c
	}
	return s == "" || last != ' '
}

// fold is one round of FoldCasefold.
func fold(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if utf8.ValidString(s) {
		return foldRunes(s)
	}
	var b strings.Builder
	for s != "" {
		n := strings.IndexRune(s, utf8.RuneError) // the next invalid byte
		if n < 0 {
			return b.String() + foldRunes(s)
		}
		b.WriteString(foldRunes(s[:n]))
		b.WriteByte(s[n])
		s = s[n+1:]
	}
	return b.String()
}

// foldRunes maps s, which is UTF-8, by width, by NFKC and by case.
func foldRunes(s string) string {
	s = norm.NFKC.String(width.Fold.String(s))
	return cases.Fold().String(strings.Map(lowerCherokee, s))
}

// lowerCherokee makes cases.Fold right for Cherokee, whose small letters fold to
// the capital ones: it folds capital ones to small ones too (golang.org/issue/46101),
// so that nothing would ever be folded.
func lowerCherokee(r rune) rune {
	if '\u13a0' <= r && r <= '\u13f5' {
		return unicode.ToLower(r)
	}
	return r
}
