package validate

import (
	"strings"

	"github.com/coffeenode/userdb/recordkey"
)

// Most values are of a few ASCII characters. That those are right is seen at one glance, which costs a
// tenth of looking at them by all the rules of their kind. A glance never takes what the kind refuses; a
// test holds it against the kind.

// usualName glances at a username or nickname: lower-case letters, digits and . _ - between them, with a
// letter first.
func usualName(value string) bool {
	if value == "" || !lowerLetter(value[0]) || len(value) > recordkey.MaxCrumb {
		return false
	}
	for i := range len(value) {
		if c := value[i]; !lowerLetter(c) && !digit(c) && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// usualNickname glances at a nickname, which may have single spaces inside.
func usualNickname(value string) bool {
	for word := range strings.SplitSeq(value, " ") {
		if !usualName(word) && (word == "" || !digits(word)) {
			return false
		}
	}
	return value != "" && lowerLetter(value[0])
}

// usualEmail glances at an address: of both parts the dot-separated texts are of lower-case letters and
// digits, with hyphens and underscores between them on the left, and hyphens on the right.
func usualEmail(value string) bool {
	local, domain, ok := strings.Cut(value, "@")
	return ok && len(value) <= maxAddress && len(local) <= maxLocal && len(domain) <= maxLabel &&
		dotted(local, "-_") && dotted(domain, "-") && !strings.Contains(domain, "--")
}

// dotted says whether a text is of parts between dots that begin and end with a letter or digit and
// have, besides those, only these others.
func dotted(text, others string) bool {
	inside := false // behind a letter or digit
	for i := range len(text) {
		switch c := text[i]; {
		case lowerLetter(c) || digit(c):
			inside = true
		case c == '.' && inside && (lowerLetter(text[i-1]) || digit(text[i-1])):
			inside = false
		case c != '.' && inside && strings.IndexByte(others, c) >= 0:
		default:
			return false
		}
	}
	return inside && (lowerLetter(text[len(text)-1]) || digit(text[len(text)-1]))
}

func digits(text string) bool {
	for i := range len(text) {
		if !digit(text[i]) {
			return false
		}
	}
	return true
}

func lowerLetter(c byte) bool { return 'a' <= c && c <= 'z' }

func digit(c byte) bool { return '0' <= c && c <= '9' }
