package schema

import (
	"net/netip"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
	"golang.org/x/text/cases"
)

// domains compares domains. It takes more than registries give out (hyphens anywhere, symbols, mixed directions): what
// it did not take would be compared as text, in which ß is ss.
var domains = idna.New(
	idna.MapForLookup(), idna.Transitional(false), idna.CheckHyphens(false), idna.VerifyDNSLength(true),
)

// maxHost is the greatest length of a domain in UTF-8: 253 characters.
const maxHost = 253 * 4

// foldHost gives an address or a URL its canonical form; false for another text, and where there is no host. s is
// mapped by width and NFKC.
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

// urlHost returns where the host of a URL begins and ends; at is -1 if s is no URL.
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

// canonicalHost is a domain in A-labels, or an IP address in brackets as RFC 5952 writes it; false for what is neither.
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
	return aLabels(strings.Map(mapVisible, s)) // joiners where no script needs them
}

func aLabels(s string) (string, bool) {
	s = strings.TrimSuffix(strings.ReplaceAll(s, "\u3002", "."), ".")
	if len(s) > maxHost || strings.HasSuffix(s, ".") {
		return "", false
	}
	domain, err := domains.ToASCII(s)
	return domain, err == nil
}

// foldLabels maps by case all but the letters that IDNA 2008 tells apart. The capital ß is one, too: tables before
// Unicode 15.1 still have it as ss.
func foldLabels(s string, seen func(rune) rune) string {
	var b strings.Builder
	fold := cases.Fold()
	for s != "" {
		n := strings.IndexAny(s, "ßẞς")
		if n < 0 {
			n = len(s)
		}
		b.WriteString(fold.String(strings.Map(seen, s[:n])))
		kept, size := utf8.DecodeRuneInString(s[n:])
		if size > 0 {
			b.WriteString(strings.Replace(string(kept), "ẞ", "ß", 1))
		}
		s = s[n+size:]
	}
	return b.String()
}

// canonicalLiteral gives the one form to an IPv6 address, which has many, with the tag of an e-mail address or, in a
// URL, without.
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

// unquote takes the quotes from the local part of an address where it is right without them, and the backslashes where
// nothing needs them. What is not quoted rightly stays as it is.
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
