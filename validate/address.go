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

// The limits of RFC 5321 §4.5.3.1 in octets. A path has up to 256 including its brackets, so an
// address has up to 254.
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

	emailDomain = `)@(?:` + emailLabel + `(?:\.` + emailLabel + `)*|` + emailLiteral + `)\z`

	emailExpr     = `\A(?:` + emailAtom + `(?:\.` + emailAtom + `)*|` + emailQuoted + emailDomain
	emailDotsExpr = `\A(?:\.*` + emailAtom + `(?:\.+` + emailAtom + `)*\.*|` + emailQuoted + emailDomain
)

// refuseEmailDots returns why value is neither a Mailbox (see refuseEmail) nor one with additional
// dots before the @, or "". It refuses unnecessary quotes, so that each mailbox has one spelling.
func refuseEmailDots(value string) string {
	local, domain := value[:max(0, strings.LastIndexByte(value, '@'))], value[strings.LastIndexByte(value, '@')+1:]
	plain := strings.Trim(local, `"`)
	if local != plain && plain != "" && strings.Trim(plain, ".") != "" && !strings.ContainsFunc(strings.ReplaceAll(plain, ".", ""), notAtext) {
		return "quotes before the @ that are not needed: write it without them"
	}
	atoms := strings.FieldsFunc(local, func(r rune) bool { return r == '.' })
	if local != plain || len(atoms) == 0 || len(local) > maxLocal || len(value) > maxAddress {
		return refuseEmail(value)
	}
	return refuseEmail(strings.Join(atoms, ".") + "@" + domain)
}

// refuseEmail returns why value is not a Mailbox of RFC 5321 §4.1.2 with the extensions of RFC 6531
// §3.3, or "".
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

// refuseQuoted checks a Quoted-string in the form in which it may be sent: without line breaks and
// control characters, even after a backslash.
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

// maxLabel is the maximum length of a label in the DNS, in octets.
const maxLabel = 63

// Expressions that match all IPv4 and IPv6 addresses. They also match other texts, which keeps
// their automata small.
const (
	ipv4Expr = `[0-9]{1,3}(?:\.[0-9]{1,3}){3}`
	ipv6Expr = `[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*`
)

// labels accepts the letters, digits and marks of IDNA 2008 (RFC 5892) and applies its contextual
// rules. The identifier class of PRECIS is derived in the same way, but also contains all other
// printable ASCII characters.
var labels = precis.NewIdentifier(precis.Norm(norm.NFC))

// refuseDomain returns why domain is not a Domain of RFC 5321 with the U-labels of RFC 6531, or "".
// A single label is valid.
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
	case !isASCII(label):
		return refuseULabel(label)
	case len(label) > maxLabel:
		return tooLong
	case len(label) >= len(acePrefix) && strings.EqualFold(label[:len(acePrefix)], acePrefix):
		return refuseALabel(label)
	}
	return ""
}

// notLDH reports whether r is ASCII but not a letter, digit or hyphen.
func notLDH(r rune) bool {
	return r < utf8.RuneSelf && r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
}

// refuseULabel checks a U-label. It is stricter than x/net, which omits the rules of IDNA 2008 for
// symbols and for most characters that need a context.
func refuseULabel(label string) string {
	first, _ := utf8.DecodeRuneInString(label)
	form, err := labels.String(label)
	if err != nil || form != label || unicode.IsMark(first) || violatesBidiRule(label) {
		return notIDNA
	}
	if a, err := idna.Punycode.ToASCII(label); err != nil || len(a) > maxLabel {
		return tooLong // the limit applies to the A-label
	}
	return ""
}

// refuseALabel accepts only the A-labels of valid U-labels.
func refuseALabel(label string) string {
	u, err := idna.Registration.ToUnicode(strings.ToLower(label))
	if err != nil {
		return notIDNA
	}
	return refuseULabel(u)
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf })
}

// refuseLiteral accepts only the two address literals that RFC 5321 §4.1.3 defines, not those with
// other tags.
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

// isIPv6 reports whether text is an IPv6 address of RFC 5321, in which "::" stands for at least two
// groups.
func isIPv6(text string) bool {
	ip, err := netip.ParseAddr(text)
	if err != nil || !ip.Is6() || ip.Zone() != "" {
		return false
	}
	groups := len(strings.FieldsFunc(text, func(r rune) bool { return r == ':' }))
	if strings.Contains(text, ".") {
		groups++ // a trailing IPv4 address counts as two groups
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

// refuseURL returns why value is not an absolute http or https URL (RFC 3986, 3987) with a host, or
// "". It refuses a URL with a user name, because that may include a password.
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
