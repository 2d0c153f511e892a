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

// kind is a rule that is code, and its description by expressions.
type kind struct {
	// refuse says what is wrong with a value that is valid UTF-8 and not empty; nothing if it is right.
	refuse func(value string) (reason string)
	// phrases are expressions that hold for every value of the kind. They belong to the rule: what refuse lets through
	// is held against them too.
	phrases []phrase
	// quick takes most values, if they are short, and none that refuse or a phrase would not take; nil where there is
	// none. It costs a small part of the rule.
	quick func(value string) bool
	// seen: all characters of a value can be seen; only the two joiners are not.
	visible bool
	// max is the greatest length of a value in bytes.
	max int
}

// maxQuick is the greatest length of a value that quick is asked about: no limit of a kind is less.
const maxQuick = 63

// acceptsQuickly reports whether value is right at the first look.
func (k kind) acceptsQuickly(value string) bool {
	return k.quick != nil && len(value) <= maxQuick && k.quick(value)
}

// What most names and addresses look like: lower-case ASCII letters and digits, with a few signs between them. The
// tests hold each to a regular expression.

func quickName(value string) bool { return value != "" && letter(value[0]) && alnum(value, "._-") }

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
	return found && dotted(local, "_-") && dotted(domain, "-") && !strings.Contains(domain, "--")
}

// dotted reports whether text is parts with dots between them, of letters and digits with signs between those.
func dotted(text, signs string) bool {
	for part := range strings.SplitSeq(text, ".") {
		if part == "" || !alnum(part, signs) || !alnum(part[:1], "") || !alnum(part[len(part)-1:], "") {
			return false
		}
	}
	return true
}

// alnum reports whether text has lower-case ASCII letters, digits and signs alone.
func alnum(text, signs string) bool {
	for i := range len(text) {
		if c := text[i]; !letter(c) && (c < '0' || c > '9') && strings.IndexByte(signs, c) < 0 {
			return false
		}
	}
	return true
}

func letter(c byte) bool { return 'a' <= c && c <= 'z' }

// kindOf returns the kind of a field of type t by name; false if it is unknown.
func kindOf(name string, t schema.Type) (k kind, known bool) {
	switch name {
	case "", "pattern":
		return kind{refuse: func(string) string { return "" }, max: recordkey.MaxCrumb}, true
	case "email":
		k = kind{refuse: refuseEmail, phrases: []phrase{{expr: emailExpr, reason: "not an address"}}, quick: quickEmail, max: maxAddress}
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
	default:
		return kind{}, false
	}
	k.visible = true
	return k, true
}

// families are the kinds that exclude all those of another family.
var families = map[string]string{"email": "email", "url": "url", "username": "name", "nickname": "name"}

// disjointKinds reports whether the kinds of t's secondary fields exclude each other. It is false where that is not known.
func disjointKinds(t schema.Type) bool {
	seen := map[string]bool{}
	for _, field := range t.Secondary() {
		family := families[t.Fields[field].Kind]
		if family == "" || seen[family] {
			return len(t.Secondary()) == 1
		}
		seen[family] = true
	}
	return true
}

// Zero-width joiners are no graphic characters, but words of some scripts need them.
const (
	zeroWidthNonJoiner = '\u200c'
	zeroWidthJoiner    = '\u200d'
)

// visible reports whether r may stand in an address or URL beyond ASCII: what is neither control, white space, private
// nor unassigned.
func visible(r rune) bool {
	return unicode.IsPrint(r) || r == zeroWidthNonJoiner || r == zeroWidthJoiner
}

// The profiles of RFC 8265 but for their Bidi Rule, which they ask only of text with characters that run from right to
// left; x/text asks it of any text beyond ASCII, and so refuses "josé_".
var (
	caseMapped    = precis.NewIdentifier(precis.FoldWidth, precis.LowerCase(), precis.Norm(norm.NFC))
	casePreserved = precis.NewIdentifier(precis.FoldWidth, precis.Norm(norm.NFC))
)

// nameExclusions keep names apart from addresses, URLs and numbers: the original's closing advice.
var nameExclusions = []phrase{
	{not: true, expr: `@`, reason: "contains an @"},
	{not: true, expr: `\A(?i:https?)://`, reason: "begins like a URL"},
	{not: true, expr: `\A\p{Nd}+\z`, reason: "digits only"},
}

// nameKind takes what profile leaves the same value. Under FoldExact that means unchanged: else two values could be one
// name to the RFC.
func nameKind(t schema.Type, rfc string, profile *precis.Profile, quick func(string) bool, expr string) kind {
	refuse := func(value string) string {
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

// enforce returns the form that profile gives value, and whether it allows it. A nickname has no Bidi Rule.
func enforce(profile *precis.Profile, value string) (string, bool) {
	form, err := profile.String(value)
	return form, err == nil && form != "" && (profile == precis.Nickname || !badBidi(form))
}

// badBidi reports whether text runs from right to left and breaks the rule of RFC 5893 §2.
func badBidi(text string) bool {
	return bidirule.DirectionString(text) == bidi.RightToLeft && !bidirule.ValidString(text)
}
