package validate

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
	"golang.org/x/text/secure/precis"
	"golang.org/x/text/unicode/norm"
)

// The limits of RFC 5321 §4.5.3.1, in octets; a path has 256 with its brackets.
const (
	maxLocal   = 64
	maxDomain  = 255
	maxAddress = 254
)

const (
	beyondASCII  = `\x{80}-\x{10ffff}`
	emailAtom    = "[0-9A-Za-z!#-'*+/=?^_`{|}~" + beyondASCII + `-]+`
	emailQuoted  = `"(?:[ !#-\[\]-~` + beyondASCII + `]|\\[ -~])*"`
	emailLetter  = `[0-9A-Za-z` + beyondASCII + `]`
	emailLabel   = emailLetter + `(?:[0-9A-Za-z` + beyondASCII + `-]*` + emailLetter + `)?`
	emailLiteral = `\[(?:` + ipv4Expr + `|[Ii][Pp][Vv]6:` + ipv6Expr + `)\]`

	emailExpr = `\A(?:` + emailAtom + `(?:\.` + emailAtom + `)*|` + emailQuoted + `)@(?:` +
		emailLabel + `(?:\.` + emailLabel + `)*|` + emailLiteral + `)\z`
)

// refuseEmail says why value is no Mailbox of RFC 5321 §4.1.2 with the extensions of RFC 6531 §3.3.
func refuseEmail(value string) string {
	at := strings.LastIndexByte(value, '@')
	switch {
	case at < 0:
		return "no @ in the address"
	case len(value) > maxAddress:
		return "longer than 254 bytes"
	}
	if reason := refuseLocal(value[:at]); reason != "" {
		return reason
	}
	if domain := value[at+1:]; strings.HasPrefix(domain, "[") {
		return refuseLiteral(domain)
	}
	return refuseDomain(value[at+1:])
}

func refuseLocal(local string) string {
	switch {
	case local == "":
		return "nothing before the @"
	case len(local) > maxLocal:
		return "more than 64 bytes before the @"
	case local[0] == '"':
		return refuseQuoted(local)
	}
	for atom := range strings.SplitSeq(local, ".") {
		if atom == "" {
			return "a dot without text on both sides before the @"
		}
		if strings.ContainsFunc(atom, notAtext) {
			return "a character before the @ that needs quotes"
		}
	}
	return ""
}

func notAtext(r rune) bool {
	if r >= utf8.RuneSelf {
		return !visible(r)
	}
	return r <= ' ' || r == 0x7f || strings.ContainsRune(`"(),.:;<>@[\]`, r)
}

// refuseQuoted takes a Quoted-string as it may be sent: no line breaks and no
// control characters, not even after a backslash.
func refuseQuoted(local string) string {
	const open = "an unclosed quoted part before the @"
	if len(local) < 2 || local[len(local)-1] != '"' {
		return open
	}
	escaped := false
	for _, r := range local[1 : len(local)-1] {
		switch {
		case r < ' ' || r == 0x7f || r >= utf8.RuneSelf && (escaped || !visible(r)):
			return "a character before the @ that is not allowed"
		case escaped:
			escaped = false
		case r == '"':
			return open
		case r == '\\':
			escaped = true
		}
	}
	if escaped {
		return open
	}
	return ""
}

const (
	acePrefix = "xn--"
	notIDNA   = "a part of the domain that IDNA does not allow"
	tooLong   = "a part of the domain longer than 63 bytes"
)

// maxLabel is the greatest length of a label in octets, as DNS keeps it.
const maxLabel = 63

// Expressions that contain all IPv4 and IPv6 addresses, and more, so that their automata are small.
const (
	ipv4Expr = `[0-9]{1,3}(?:\.[0-9]{1,3}){3}`
	ipv6Expr = `[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*`
)

// labels has the letters, digits and marks of IDNA2008 (RFC 5892), and its rules about context: the identifier class of
// PRECIS has the same derivation, plus the rest of printable ASCII.
var labels = precis.NewIdentifier(precis.Norm(norm.NFC))

// refuseDomain says why domain is no Domain of RFC 5321 with the U-labels of RFC 6531. One label is enough.
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
		return "a character that domains cannot contain"
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

// refuseLiteral takes the two address literals that RFC 5321 §4.1.3 defines, not those with a tag of their own.
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
	groups := len(strings.FieldsFunc(text, func(r rune) bool { return r == ':' }))
	if strings.Contains(text, ".") {
		groups++ // an IPv4 address at the end is two
	}
	return !strings.Contains(text, "::") || groups <= 6
}

func reasonUnless(ok bool, reason string) string {
	if ok {
		return ""
	}
	return reason
}

const urlExpr = `\A(?i:https?)://(?:[^\x00-\x20"#%/:<>?@\[\\\]^` + "`" + `{|}\x7f]+|\[` + ipv6Expr + `\])(?::[0-9]+)?` +
	`(?:[/?#][^\x00-\x20"<>\\^` + "`" + `{|}\x7f]*)?\z`

// refuseURL says why value is no absolute http or https URL (RFC 3986, 3987) with
// a host. One that holds a user's name is refused: it may hold a password.
func refuseURL(value string) string {
	u, err := url.Parse(value)
	switch {
	case err != nil:
		return "not a URL"
	case u.Scheme != "http" && u.Scheme != "https":
		return "neither http:// nor https://"
	case u.Host == "":
		return "no host"
	case u.User != nil:
		return "contains a user name"
	case strings.ContainsFunc(value, func(r rune) bool { return !visible(r) }):
		return "a character that URLs cannot contain"
	}
	return refuseHost(u)
}

func refuseHost(u *url.URL) string {
	if strings.HasSuffix(u.Host, ":") || u.Port() != "" && !isPort(u.Port()) {
		return "no valid port"
	}
	if strings.HasPrefix(u.Host, "[") {
		ip, err := netip.ParseAddr(u.Hostname())
		return reasonUnless(err == nil && ip.Is6() && ip.Zone() == "", "a host in brackets that is not IPv6")
	}
	return refuseDomain(u.Hostname())
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}
