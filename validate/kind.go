package validate

import (
	"unicode"

	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// kind is a rule that is code, and its description by expressions.
type kind struct {
	// refuse says what is wrong with a value that is valid UTF-8 and not empty;
	// nothing if it is right.
	refuse func(value string) (reason string)
	// phrases are expressions that hold for every value of the kind. They belong
	// to the rule: what refuse lets through is held against them too.
	phrases []phrase
	// usual is a glance that takes most values, and none that refuse or a phrase does
	// not take; nil where there is none.
	usual func(value string) bool
	// seen: all characters of a value can be seen; only the two joiners are not.
	seen bool
	// max is the greatest length of a value in bytes.
	max int
}

// kindOf returns the kind of a field of type t by name; false if there is none.
func kindOf(name string, t schema.Type) (k kind, known bool) {
	switch name {
	case "", "pattern":
		return kind{refuse: func(string) string { return "" }, max: recordkey.MaxCrumb}, true
	case "email":
		k = emailKind()
	case "url":
		k = urlKind()
	case "username":
		k = usernameKind(t)
	case "nickname":
		k = nicknameKind(t)
	default:
		return kind{}, false
	}
	k.seen = true
	return k, true
}

// Zero-width joiners are no graphic characters, but words of some scripts need them.
const (
	zeroWidthNonJoiner = '\u200c'
	zeroWidthJoiner    = '\u200d'
)

// visible reports whether r may stand in an address or URL beyond ASCII: what is
// neither control, white space, private nor unassigned.
func visible(r rune) bool {
	return unicode.IsPrint(r) || r == zeroWidthNonJoiner || r == zeroWidthJoiner
}
