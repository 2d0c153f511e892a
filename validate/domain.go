package validate

import (
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
	"golang.org/x/text/secure/precis"
	"golang.org/x/text/unicode/norm"
)

const (
	acePrefix = "xn--"
	notIDNA   = "a part of the domain that IDNA does not allow"
	tooLong   = "a part of the domain longer than 63 bytes"
)

// maxLabel is the greatest length of a label in octets, as DNS keeps it.
const maxLabel = 63

// Expressions that contain all IPv4 and IPv6 addresses, and more, so that their
// automata are small.
const (
	ipv4Expr = `[0-9]{1,3}(?:\.[0-9]{1,3}){3}`
	ipv6Expr = `[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*`
)

// labels has the letters, digits and marks of IDNA2008 (RFC 5892), and its rules
// about context: the identifier class of PRECIS has the same derivation, plus the
// rest of printable ASCII.
var labels = precis.NewIdentifier(precis.Norm(norm.NFC))

// refuseDomain says why domain is no Domain of RFC 5321 with the U-labels of RFC
// 6531. One label is enough.
func refuseDomain(domain string) string {
	switch {
	case domain == "":
		return "no domain"
	case len(domain) > maxDomain:
		return "a domain longer than 255 bytes"
	}
	for label := range strings.SplitSeq(domain, ".") {
		if reason := refuseLabel(label); reason != "" {
			return reason
		}
	}
	return ""
}

func refuseLabel(label string) string {
	switch {
	case label == "":
		return "a dot without text on both sides in the domain"
	case label[0] == '-' || label[len(label)-1] == '-':
		return "a part of the domain that begins or ends with a hyphen"
	case strings.ContainsFunc(label, notLDH):
		return "a character that no domain has"
	case !ascii(label):
		return refuseULabel(label)
	case len(label) > maxLabel:
		return tooLong
	case len(label) >= len(acePrefix) && strings.EqualFold(label[:len(acePrefix)], acePrefix):
		return refuseALabel(label)
	}
	return ""
}

// notLDH reports whether r is ASCII but no letter, digit or hyphen.
func notLDH(r rune) bool {
	return r < utf8.RuneSelf && r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
}

// refuseULabel is stricter than x/net, which leaves out what IDNA2008 says of
// symbols and of most characters that need a context.
func refuseULabel(label string) string {
	first, _ := utf8.DecodeRuneInString(label)
	form, err := labels.String(label)
	if err != nil || form != label || unicode.IsMark(first) || badBidi(label) {
		return notIDNA
	}
	if a, err := idna.Punycode.ToASCII(label); err != nil || len(a) > maxLabel {
		return tooLong // as DNS keeps it
	}
	return ""
}

// refuseALabel takes the A-labels of U-labels that are right, and no others.
func refuseALabel(label string) string {
	u, err := idna.Registration.ToUnicode(strings.ToLower(label))
	if err != nil {
		return notIDNA
	}
	return refuseULabel(u)
}

func ascii(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf })
}

// refuseLiteral takes the two address literals that RFC 5321 §4.1.3 defines, not
// those with a tag of their own.
func refuseLiteral(literal string) string {
	const reason = "an address in brackets that is neither IPv4 nor IPv6"
	text, closed := strings.CutSuffix(literal[1:], "]")
	if !closed {
		return reason
	}
	const tag = "IPv6:"
	if len(text) > len(tag) && strings.EqualFold(text[:len(tag)], tag) {
		return reasonUnless(isIPv6(text[len(tag):]), reason)
	}
	ip, err := netip.ParseAddr(text)
	return reasonUnless(err == nil && ip.Is4(), reason)
}

// isIPv6 wants "::" to stand for two groups or more, as RFC 5321 does.
func isIPv6(text string) bool {
	ip, err := netip.ParseAddr(text)
	if err != nil || !ip.Is6() || ip.Zone() != "" {
		return false
	}
	return !strings.Contains(text, "::") || groups(text) <= 6
}

// groups counts the 16-bit groups that are written in an IPv6 address.
func groups(text string) (n int) {
	for group := range strings.SplitSeq(text, ":") {
		if group != "" {
			n++
		}
	}
	if strings.Contains(text, ".") {
		n++ // an IPv4 address at the end is two
	}
	return n
}

func reasonUnless(ok bool, reason string) string {
	if ok {
		return ""
	}
	return reason
}
