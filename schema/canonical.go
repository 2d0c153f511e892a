package schema

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
	"golang.org/x/text/width"
)

// Canonical returns the form of a secondary value that keys and rules see. Under FoldExact that is the value itself.
// Under FoldCasefold white space around it is cut and runs of it within become one space, then characters are mapped by
// width, by NFKC and by case, and invisible ones (Unicode's default ignorable code points) are removed, again and again
// until nothing changes, so that Canonical of the result is the result. Bytes that are not UTF-8 stay as they are. A
// value longer than MaxFacet, too long for any key, is returned unchanged.
//
// A value in which a domain follows the last @, and one that begins with http:// or https:// and a domain, has that
// domain as IDNA 2008 compares it: as A-labels, made by the mapping of UTS 46 that is not transitional, without a dot
// at its end. So ß and ss, ς and σ, and a joiner that a script needs, make different domains, and a U-label is its
// A-label. The text before the @ is without quotes where it needs none. What cannot be a domain is text. The form of a
// value alone decides, not its field: a value is looked for in all of them.
func (t Type) Canonical(value string) string {
	if t.Fold == FoldExact || len(value) > MaxFacet || isFolded(value) {
		return value
	}
	if lower, is := foldASCII(value); is {
		return lower
	}
	for range maxRounds {
		next := fold(value)
		if next == value || isFolded(next) {
			return next
		}
		value = next
	}
	return value
}

// maxRounds is more than any text is known to need, which is three. It is odd, so that the tests would notice a mapping
// that alternates between two texts.
const maxRounds = 7

// isFolded reports whether s is ASCII that fold would not change. Most values are, and cost nothing.
func isFolded(s string) bool {
	last := byte(' ')
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= utf8.RuneSelf, 'A' <= c && c <= 'Z', '\t' <= c && c <= '\r', c == ' ' && last == ' ':
			return false
		case c == '"', c == '[', c == '/' && last == '/', c == '-' && last == '-':
			return false // there may be a quoted part, an address in brackets, a URL, or an A-label
		}
		last = c
	}
	return s == "" || last != ' ' && last != '.'
}

// foldASCII returns s in lower case, if that is all that fold does to it. What is as long, and ASCII now, was ASCII before.
func foldASCII(s string) (lower string, is bool) {
	lower = strings.ToLower(s)
	return lower, len(lower) == len(s) && isFolded(lower)
}

// fold is one round of FoldCasefold.
func fold(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if utf8.ValidString(s) {
		s = norm.NFKC.String(width.Fold.String(s))
		if form, ok := foldHost(s); ok {
			return form
		}
		return foldCase(s)
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
func foldRunes(s string) string { return foldCase(norm.NFKC.String(width.Fold.String(s))) }

// foldCase maps s by case, and removes invisible characters.
func foldCase(s string) string {
	return cases.Fold().String(strings.Map(mapVisible, s))
}

// mapVisible makes cases.Fold right for Cherokee, whose small letters fold to the capital ones: it folds capital ones to
// small ones too (golang.org/issue/46101), so that nothing would ever be folded. It drops invisible characters.
func mapVisible(r rune) rune {
	switch {
	case '\u13a0' <= r && r <= '\u13f5':
		return unicode.ToLower(r)
	case ignorable(r):
		return -1
	}
	return r
}

// ignorable reports whether r has Unicode's property Default_Ignorable_Code_Point, as UAX 44 derives it, but is
// assigned: what is not may become anything yet.
func ignorable(r rune) bool {
	switch {
	case r < 0xad:
		return false
	case unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector):
		return !unicode.Is(unicode.Cn, r)
	case unicode.Is(unicode.Cf, r):
		return !unicode.Is(unicode.Prepended_Concatenation_Mark, r) &&
			(r < 0xfff9 || r > 0xfffb) && (r < 0x13430 || r > 0x1343f)
	}
	return false
}

// Invisible reports whether text holds an invisible character that Canonical removes, other than the two joiners, which
// words of some scripts need.
func Invisible(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return !isJoiner(r) && ignorable(r) })
}

func isJoiner(r rune) bool { return r == '\u200c' || r == '\u200d' }

// Unassigned reports whether text holds a code point that the Unicode tables of this program do not know. Its canonical
// form is not decided yet.
func Unassigned(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf && unicode.Is(unicode.Cn, r) })
}
