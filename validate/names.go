package validate

import (
	"golang.org/x/text/secure/bidirule"
	"golang.org/x/text/secure/precis"
	"golang.org/x/text/unicode/bidi"
	"golang.org/x/text/unicode/norm"

	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// The profiles of RFC 8265 but for their Bidi Rule, which they ask only of text
// with characters that run from right to left; x/text asks it of any text beyond
// ASCII, and so refuses "josé_".
var (
	caseMapped    = precis.NewIdentifier(precis.FoldWidth, precis.LowerCase(), precis.Norm(norm.NFC))
	casePreserved = precis.NewIdentifier(precis.FoldWidth, precis.Norm(norm.NFC))
)

// notOthers keep names apart from addresses, URLs and numbers: the original's
// closing advice.
var notOthers = []phrase{
	{not: true, expr: `@`, reason: "an @ in it"},
	{not: true, expr: `\A(?i:https?)://`, reason: "begins like a URL"},
	{not: true, expr: `\A\p{Nd}+\z`, reason: "digits only"},
}

func usernameKind(t schema.Type) kind {
	profile := caseMapped
	if t.Fold == schema.FoldExact {
		profile = casePreserved
	}
	enforce := func(value string) (string, bool) { return username(profile, value) }
	return nameKind(t, "RFC 8265", enforce, usualName, `\A[^\x00-\x20\x7f]+\z`)
}

func nicknameKind(t schema.Type) kind {
	return nameKind(t, "RFC 8266", nickname, usualNickname, `\A[^\x00-\x1f\x7f]+\z`)
}

// nameKind takes what enforce leaves the same value. Under FoldExact that means
// unchanged: else two values could be one name to the RFC.
func nameKind(t schema.Type, rfc string, enforce func(string) (string, bool), usual func(string) bool, expr string) kind {
	refuse := func(value string) string {
		form, ok := enforce(value)
		switch {
		case !ok:
			return "a character that " + rfc + " does not allow there"
		case t.Canonical(form) != value:
			return "not in the form that " + rfc + " gives it"
		}
		return ""
	}
	phrases := append([]phrase{{expr: expr, reason: "not a name"}}, notOthers...)
	return kind{refuse: refuse, phrases: phrases, usual: usual, max: recordkey.MaxCrumb}
}

// username returns the form that profile gives value, and whether it allows it.
func username(profile *precis.Profile, value string) (string, bool) {
	form, err := profile.String(value)
	return form, err == nil && form != "" && !badBidi(form)
}

// nickname returns the form that RFC 8266 gives value, and whether it allows it.
func nickname(value string) (string, bool) {
	form, err := precis.Nickname.String(value)
	return form, err == nil
}

// badBidi reports whether text runs from right to left and breaks the rule of RFC
// 5893 §2.
func badBidi(text string) bool {
	return bidirule.DirectionString(text) == bidi.RightToLeft && !bidirule.ValidString(text)
}
