package schema

import (
	"net/netip"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
	"golang.org/x/text/cases"
)

// domains converts domains for comparison. It accepts more than registries do (hyphens anywhere,
// symbols, mixed directions), because a domain that it refuses is compared as text, in which ß
// equals ss.
var domains = idna.New(
	idna.MapForLookup(), idna.Transitional(false), idna.CheckHyphens(false), idna.VerifyDNSLength(true),
)

// maxHost is the maximum length in bytes of a domain in UTF-8, which may have 253 characters.
const maxHost = 253 * 4

// foldHost returns the canonical form of an address or a URL, and false if s has no valid host. The
// caller has already mapped s by width and NFKC.
func foldHost(s string) (form string, ok bool) {
	if at, end := urlHost(s); at >= 0 {
		host, ok := canonicalHost(s[at:end])
		return foldCase(s[:at]) + host + foldCase(s[end:]), ok
	}
	at := strings.LastIndexByte(s, '@')
	if at < 1 {
		return "", false
	}
	host, ok := canonicalHost(s[at+1:])
	return unquote(foldCase(s[:at])) + "@" + host, ok
}

// urlHost returns the start and end of the host in an http or https URL. It returns -1 as the start
// if s is not such a URL.
func urlHost(s string) (at, end int) {
	scheme, _, ok := strings.Cut(s, "://")
	if !ok || !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
		return -1, 0
	}
	at, end = len(scheme)+len("://"), len(s)
	if i := strings.IndexAny(s[at:], "/?#"); i >= 0 {
		end = at + i
	}
	if i := strings.LastIndexByte(s[at:end], '@'); i >= 0 {
		at += i + 1
	}
	port := strings.TrimRight(s[at:end], "0123456789")
	if host, ok := strings.CutSuffix(port, ":"); ok {
		end = at + len(host)
	}
	return at, end
}

// canonicalHost returns a domain in A-labels, or an IP address in brackets in the form of RFC 5952.
// It returns false if s is neither.
func canonicalHost(s string) (string, bool) {
	if strings.HasPrefix(s, "[") {
		return canonicalLiteral(s)
	}
	s = foldLabels(s, func(r rune) rune {
		if isJoiner(r) {
			return r
		}
		return mapVisible(r)
	})
	if domain, ok := aLabels(s); ok {
		return domain, true
	}
	return aLabels(strings.Map(mapVisible, s)) // without joiners, which are not valid here
}

func aLabels(s string) (string, bool) {
	s = strings.TrimSuffix(strings.ReplaceAll(s, "\u3002", "."), ".")
	if len(s) > maxHost || strings.HasSuffix(s, ".") {
		return "", false
	}
	domain, err := domains.ToASCII(s)
	return domain, err == nil
}

// foldLabels maps s by mapRune and by case, except for the letters that IDNA 2008 distinguishes.
// The capital ß is one of them: tables before Unicode 15.1 still map it to ss.
func foldLabels(s string, mapRune func(rune) rune) string {
	var b strings.Builder
	fold := cases.Fold()
	for s != "" {
		n := strings.IndexAny(s, "ßẞς")
		if n < 0 {
			n = len(s)
		}
		b.WriteString(fold.String(strings.Map(mapRune, s[:n])))
		letter, size := utf8.DecodeRuneInString(s[n:])
		if size > 0 {
			b.WriteString(strings.Replace(string(letter), "ẞ", "ß", 1))
		}
		s = s[n+size:]
	}
	return b.String()
}

// canonicalLiteral returns the canonical form of an IP address in brackets. It keeps the prefix
// "IPv6:", which an IPv6 address has in an e-mail address but not in a URL, in lower case.
func canonicalLiteral(s string) (string, bool) {
	text, closed := strings.CutSuffix(strings.ToLower(s[1:]), "]")
	text, tagged := strings.CutPrefix(text, "ipv6:")
	ip, err := netip.ParseAddr(text)
	if !closed || err != nil || ip.Zone() != "" || tagged && !ip.Is6() {
		return "", false
	}
	if tagged {
		return "[ipv6:" + ip.String() + "]", true
	}
	return "[" + ip.String() + "]", true
}

var (
	quotedString = regexp.MustCompile(`(?s)^"((?:[^"\\]|\\.)*)"$`)
	quotedPair   = regexp.MustCompile(`(?s)\\(.)`)
)

// unquote removes the quotes from the local part of an address if it is valid without them, and
// otherwise all unnecessary backslashes. It returns an invalid quoted string unchanged.
func unquote(local string) string {
	quoted := quotedString.FindStringSubmatch(local)
	if quoted == nil {
		return local
	}
	content := quotedPair.ReplaceAllString(quoted[1], "$1")
	if isAtoms(content) {
		return content
	}
	return `"` + strings.NewReplacer(`"`, `\"`, `\`, `\\`).Replace(content) + `"`
}

// isAtoms reports whether text is a Dot-string of RFC 5321, which needs no quotes.
func isAtoms(text string) bool {
	special := func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune(`"(),:;<>@[\]`, r) }
	for atom := range strings.SplitSeq(text, ".") {
		if atom == "" || strings.ContainsFunc(atom, special) {
			return false
		}
	}
	return true
}
