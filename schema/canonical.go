package schema

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
	"golang.org/x/text/width"
)

// Canonical returns the form of a secondary value that keys and rules use. Under FoldExact it
// returns value unchanged.
//
// Under FoldCasefold it trims white space and replaces inner runs of it with one space, maps
// characters by width, NFKC and case, and removes invisible characters (Unicode's default ignorable
// code points). It repeats this until nothing changes, so that a canonical value is its own
// canonical form. Bytes that are not UTF-8 stay unchanged, and so does a value longer than
// MaxFacet, which is too long for any key.
//
// If a domain follows the last @, or the value begins with http:// or https:// and a domain, the
// domain gets the form in which IDNA 2008 compares it: A-labels from the non-transitional mapping
// of UTS 46, without a trailing dot. A U-label thus equals its A-label, but two domains stay
// different if they differ in ß and ss, in ς and σ, or in a joiner that the script needs. The text
// before the @ loses its quotes if they are not needed. A domain that is not valid is treated as
// text. Canonical looks for a domain in the values of all fields, because a value may be looked up
// in all fields.
func (t Type) Canonical(value string) string {
	if t.Fold == FoldExact || len(value) > MaxFacet || isFolded(value) {
		return value
	}
	if lower, ok := foldASCII(value); ok {
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

// MaxValue is the maximum length, in bytes, of a text that is looked up or written as a secondary
// value.
const MaxValue = 4 << 10

// Identifier returns the canonical form of a text that a caller wants to look up or to write. If
// the text is longer than MaxValue, no entry can have it, and Identifier returns false without
// folding it.
func (t Type) Identifier(text string) (form string, ok bool) {
	if len(text) > MaxValue {
		return "", false
	}
	return t.Canonical(text), true
}

// maxRounds exceeds the number of rounds that any known text needs, which is three. It is odd so
// that the tests would notice a mapping that alternates between two texts.
const maxRounds = 7

// isFolded returns true only if s is ASCII that fold would not change. It does so for most values,
// which saves the cost of folding them.
func isFolded(s string) bool {
	last := byte(' ')
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= utf8.RuneSelf, 'A' <= c && c <= 'Z', '\t' <= c && c <= '\r', c == ' ' && last == ' ':
			return false
		case c == '"', c == '[', c == '/' && last == '/', c == '-' && last == '-':
			return false // possibly a quoted part, an address in brackets, a URL or an A-label
		}
		last = c
	}
	return s == "" || last != ' ' && last != '.'
}

// foldASCII returns s in lower case, and true only if fold would return the same. A character
// outside ASCII that ToLower maps to ASCII, such as the Kelvin sign, becomes shorter, so foldASCII
// recognizes it by the length of the result.
func foldASCII(s string) (lower string, ok bool) {
	lower = strings.ToLower(s)
	return lower, len(lower) == len(s) && isFolded(lower)
}

// fold applies one round of FoldCasefold.
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
		n := strings.IndexRune(s, utf8.RuneError) // the next invalid byte or U+FFFD; its bytes stay
		if n < 0 {
			return b.String() + foldRunes(s)
		}
		b.WriteString(foldRunes(s[:n]))
		b.WriteByte(s[n])
		s = s[n+1:]
	}
	return b.String()
}

// foldRunes maps s, which must be UTF-8, by width, NFKC and case.
func foldRunes(s string) string { return foldCase(norm.NFKC.String(width.Fold.String(s))) }

// foldCase maps s by case and removes invisible characters.
func foldCase(s string) string {
	return cases.Fold().String(strings.Map(mapVisible, s))
}

// mapVisible removes invisible characters and prepares Cherokee for cases.Fold. The small letters
// of Cherokee fold to capital ones, but cases.Fold also folds capital letters to small ones
// (golang.org/issue/46101), so that the result would never be stable.
func mapVisible(r rune) rune {
	switch {
	case '\u13a0' <= r && r <= '\u13f5':
		return unicode.ToLower(r)
	case ignorable(r):
		return -1
	}
	return r
}

// ignorable reports whether r is assigned and has Unicode's property Default_Ignorable_Code_Point,
// as UAX 44 derives it. Unassigned code points do not count, because they may become anything.
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

// Invisible reports whether text contains an invisible character that Canonical removes. The two
// joiners do not count, because words of some scripts need them.
func Invisible(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return !isJoiner(r) && ignorable(r) })
}

func isJoiner(r rune) bool { return r == '\u200c' || r == '\u200d' }

// Unassigned reports whether text contains a code point that is not assigned in the program's
// Unicode tables. The canonical form of such a text may change with new tables.
func Unassigned(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf && unicode.Is(unicode.Cn, r) })
}
