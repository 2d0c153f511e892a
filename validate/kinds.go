package validate

import (
	"strings"
	"unicode"

	"golang.org/x/text/secure/bidirule"
	"golang.org/x/text/secure/precis"
	"golang.org/x/text/unicode/bidi"
	"golang.org/x/text/unicode/norm"

	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// A kind is a rule written in code, with regular expressions that describe it.
type kind struct {
	// refuse returns what is wrong with a value, or "". The value is valid UTF-8 and not empty.
	refuse func(value string) (reason string)
	// phrases are regular expressions. A value of the kind must pass refuse and satisfy all of
	// them.
	phrases []phrase
	// quick accepts most short values at a fraction of the cost of refuse, and never one that
	// refuse or a phrase rejects. It may be nil.
	quick func(value string) bool
	// visible says that values must not contain invisible characters other than the two joiners.
	visible bool
	// emoji says that values may have U+FE0F after a symbol, although it is invisible, because
	// phones write it there. The canonical form leaves it out.
	emoji bool
	// max is the maximum length of a value in bytes.
	max int
}

// maxQuick is the maximum length of a value that is passed to quick. It does not exceed the limit
// of any kind.
const maxQuick = 63

func (k kind) acceptsQuickly(value string) bool {
	return k.quick != nil && len(value) <= maxQuick && k.quick(value)
}

// The quick functions accept values that look like most names and addresses: lower-case ASCII
// letters and digits, with a few signs between them. Tests compare each of these functions with a
// regular expression.

func quickName(value string) bool { return value != "" && isLetter(value[0]) && isAlnum(value, "._-") }

func quickNickname(value string) bool {
	first := true
	for word := range strings.SplitSeq(value, " ") {
		if !quickName(word) && (first || word == "" || strings.Trim(word, "0123456789") != "") {
			return false
		}
		first = false
	}
	return true
}

func quickEmail(value string) bool {
	local, domain, found := strings.Cut(value, "@")
	return found && isDotted(local, "_-") && isDotted(domain, "-") && !strings.Contains(domain, "--")
}

// isDotted reports whether text consists of parts separated by dots. A part has letters, digits and
// signs, and begins and ends with a letter or digit.
func isDotted(text, signs string) bool {
	for part := range strings.SplitSeq(text, ".") {
		if part == "" || !isAlnum(part, signs) || !isAlnum(part[:1], "") || !isAlnum(part[len(part)-1:], "") {
			return false
		}
	}
	return true
}

// isAlnum reports whether text contains only lower-case ASCII letters, digits and signs.
func isAlnum(text, signs string) bool {
	for i := range len(text) {
		if c := text[i]; !isLetter(c) && (c < '0' || c > '9') && strings.IndexByte(signs, c) < 0 {
			return false
		}
	}
	return true
}

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' }

// kindOf returns the kind called name for a field of type t, and reports whether it is known.
func kindOf(name string, t schema.Type) (k kind, known bool) {
	switch name {
	case "", "pattern":
		return kind{refuse: func(string) string { return "" }, max: recordkey.MaxCrumb}, true
	case "email":
		k = kind{refuse: refuseEmail, phrases: []phrase{{expr: emailExpr, reason: "not an address"}}, quick: quickEmail, max: maxAddress}
	case "email-dots":
		k = kind{refuse: refuseEmailDots, phrases: []phrase{{expr: emailDotsExpr, reason: "not an address"}}, quick: quickEmail, max: maxAddress}
	case "url":
		k = kind{refuse: refuseURL, phrases: []phrase{{expr: urlExpr, reason: "a character that URLs cannot contain"}}, max: recordkey.MaxCrumb}
	case "username":
		profile := caseMapped
		if t.Fold == schema.FoldExact {
			profile = casePreserved
		}
		k = nameKind(t, "RFC 8265", profile, quickName, `\A[^\x00-\x20\x7f]+\z`)
	case "nickname":
		k = nameKind(t, "RFC 8266", precis.Nickname, quickNickname, `\A[^\x00-\x1f\x7f]+\z`)
		k.emoji = true
	default:
		return kind{}, false
	}
	k.visible = true
	return k, true
}

// families maps each kind to its family. Kinds of different families exclude each other.
var families = map[string]string{"email": "email", "email-dots": "email", "url": "url", "username": "name", "nickname": "name"}

// disjointKinds reports whether the kinds of t's typed secondary fields are known to exclude each
// other.
func disjointKinds(t schema.Type) bool {
	seen := map[string]bool{}
	for _, field := range t.Typed() {
		family := families[t.Fields[field].Kind]
		if family == "" || seen[family] {
			return len(t.Typed()) == 1
		}
		seen[family] = true
	}
	return true
}

// The zero-width joiners are not graphic characters, but words of some scripts need them.
const (
	zeroWidthNonJoiner = '\u200c'
	zeroWidthJoiner    = '\u200d'
)

// emojiVariation asks for the colored form of the symbol before it.
const emojiVariation = '\ufe0f'

// visible reports whether an address or URL may contain r, which is beyond ASCII: it must not be a
// control character, an invisible character other than the joiners, white space, or a private or
// unassigned code point.
func visible(r rune) bool {
	return unicode.IsPrint(r) || r == zeroWidthNonJoiner || r == zeroWidthJoiner
}

// The profiles of RFC 8265, without their Bidi Rule. The RFC applies that rule only to text with
// right-to-left characters, but x/text applies it to all text beyond ASCII and so refuses "josé_".
var (
	caseMapped    = precis.NewIdentifier(precis.FoldWidth, precis.LowerCase(), precis.Norm(norm.NFC))
	casePreserved = precis.NewIdentifier(precis.FoldWidth, precis.Norm(norm.NFC))
)

// nameExclusions keep names apart from addresses, URLs and numbers, as the documentation of the
// original, CoffeeNode UserDB, advises.
var nameExclusions = []phrase{
	{not: true, expr: `@`, reason: "contains an @"},
	{not: true, expr: `\A(?i:https?)://`, reason: "begins like a URL"},
	{not: true, expr: `\A\p{Nd}+\z`, reason: "digits only"},
}

// nameKind returns a kind that accepts a value only if the result of profile has the same canonical
// form. Under FoldExact this means that profile leaves the value unchanged. If the kind accepted
// other values, two of them could be the same name under the RFC.
func nameKind(t schema.Type, rfc string, profile *precis.Profile, quick func(string) bool, expr string) kind {
	refuse := func(value string) string {
		if len(value) > recordkey.MaxCrumb {
			return "longer than 1 KiB"
		}
		form, ok := enforce(profile, value)
		switch {
		case !ok:
			return "a character that " + rfc + " does not allow there"
		case t.Canonical(form) != value:
			return "not in the form that " + rfc + " prescribes"
		}
		return ""
	}
	phrases := append([]phrase{{expr: expr, reason: "not a name"}}, nameExclusions...)
	return kind{refuse: refuse, phrases: phrases, quick: quick, max: recordkey.MaxCrumb}
}

// enforce applies profile to value and reports whether the profile allows it. Nicknames have no
// Bidi Rule.
func enforce(profile *precis.Profile, value string) (string, bool) {
	form, err := profile.String(value)
	return form, err == nil && form != "" && (profile == precis.Nickname || !violatesBidiRule(form))
}

// violatesBidiRule reports whether text runs from right to left and violates the rule of RFC 5893
// §2.
func violatesBidiRule(text string) bool {
	return bidirule.DirectionString(text) == bidi.RightToLeft && !bidirule.ValidString(text)
}
