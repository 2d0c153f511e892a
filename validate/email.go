package validate

import (
	"strings"
	"unicode/utf8"
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

func emailKind() kind {
	return kind{
		refuse:  refuseEmail,
		phrases: []phrase{{expr: emailExpr, reason: "not an address"}},
		usual:   usualEmail,
		max:     maxAddress,
	}
}

// refuseEmail says why value is no Mailbox of RFC 5321 §4.1.2 with the extensions
// of RFC 6531 §3.3.
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
			return "a character before the @ that must not stand there unquoted"
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
// control characters, not even behind a backslash.
func refuseQuoted(local string) string {
	const open = "a quoted part before the @ that does not end there"
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
