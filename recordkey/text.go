package recordkey

import "strings"

// stackKeySize is the size of the buffer on the stack in which keys are built. A longer key needs
// one on the heap.
const stackKeySize = 256

// String returns the key as Redis stores it. For the zero Key it returns "invalid Key", which Parse
// refuses.
func (k Key) String() string {
	if k.kind == 0 {
		return "invalid Key"
	}
	var buf [stackKeySize]byte
	return string(k.append(buf[:0]))
}

// AppendText appends the key as Redis stores it to b. It returns a *SyntaxError for the zero Key.
func (k Key) AppendText(b []byte) ([]byte, error) {
	if k.kind == 0 {
		return b, &SyntaxError{Func: "AppendText", Reason: "zero Key"}
	}
	return k.append(b), nil
}

// MarshalText returns the key as Redis stores it. It returns a *SyntaxError for the zero Key.
func (k Key) MarshalText() ([]byte, error) { return k.AppendText(nil) }

// UnmarshalText sets k to the result of Parse. It leaves k unchanged on error.
func (k *Key) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*k = parsed
	return nil
}

func (k Key) append(b []byte) []byte {
	b = append(b, k.ns.path...)
	if k.kind == KindOwn {
		b = append(append(b, ownPrefix...), k.name...)
		if k.typ == "" {
			return b
		}
		b = append(append(b, "/{"...), k.ns.path...)
		return append(k.appendFacet(b), '}')
	}
	b = k.appendFacet(b)
	switch k.kind {
	case KindSRK:
		b = append(b, srkEnding...)
	case KindIndex:
		b = append(b, indexEnding...)
	case KindTertiary:
		b = appendEscaped(append(b, '/'), k.name)
	}
	return b
}

func (k Key) appendFacet(b []byte) []byte {
	b = appendEscaped(b, k.typ)
	b = appendEscaped(append(b, '/'), k.field)
	return appendEscaped(append(b, ':'), k.value)
}

// Parse parses a record key. It accepts exactly the texts that Key.String returns for valid keys.
// The error is a *SyntaxError for any other text, even for one that resembles a key, such as
// user/uid:+x41. Parse does not allocate if nothing in the key is escaped; the parts of the Key are
// then substrings of s.
func Parse(s string) (Key, error) {
	ns, at, err := parseNamespaces(s)
	if err != nil {
		return Key{}, err
	}
	if strings.HasPrefix(s[at:], ownPrefix) {
		return parseOwn(s, ns, at+len(ownPrefix))
	}
	p := parser{in: s, at: at, end: len(s)}
	k := p.readKey(ns)
	if p.err != nil {
		return Key{}, p.err
	}
	return k, nil
}

// A parser reads the parts of a key, which are called crumbs, from the left. After the first error
// it reads nothing more.
type parser struct {
	in  string
	at  int
	end int // where the parser stops reading
	err error
}

// readKey reads the part of a key that follows the namespaces.
func (p *parser) readKey(ns Namespace) Key {
	k := Key{ns: ns}
	k.typ = p.readName("type", '/')
	k.field = p.readName("field", ':')
	k.value = p.readCrumb("value", p.peekUntil('/'))
	k.kind, k.name = p.readEnding()
	return k
}

func (p *parser) fail(at int, reason string) {
	if p.err == nil {
		p.err = &SyntaxError{Func: "Parse", Input: p.in, At: at, Reason: reason}
	}
}

// peekUntil returns the input before the next c, or all remaining input if there is no c.
func (p *parser) peekUntil(c byte) string {
	rest := p.in[p.at:p.end]
	if i := strings.IndexByte(rest, c); i >= 0 {
		return rest[:i]
	}
	return rest
}

// readName reads a crumb that must not begin with a tilde, and the c that must follow it.
func (p *parser) readName(what string, c byte) string {
	text := p.peekUntil(c)
	if p.err == nil && strings.HasPrefix(text, "~") {
		p.fail(p.at, what+tildeReason)
		return ""
	}
	name := p.readCrumb(what, text)
	switch {
	case p.err != nil:
		return ""
	case p.at == p.end:
		p.fail(p.at, "no "+string(c)+" after the "+what)
		return ""
	}
	p.at++
	return name
}

func (p *parser) readCrumb(what, text string) string {
	if p.err != nil {
		return ""
	}
	n, err := checkEscaped("Parse", what, p.in, p.at, text)
	if err != nil {
		p.err = err
		return ""
	}
	p.at += len(text)
	return unescape(text, n)
}

// readEnding reads everything after the value.
func (p *parser) readEnding() (Kind, string) {
	if p.err != nil {
		return 0, ""
	}
	switch p.in[p.at:p.end] {
	case "":
		return KindPRK, ""
	case srkEnding:
		return KindSRK, ""
	case indexEnding:
		return KindIndex, ""
	}
	p.at++
	rest := p.in[p.at:p.end]
	if strings.HasPrefix(rest, "~") {
		p.fail(p.at, "name"+tildeReason)
		return 0, ""
	}
	return KindTertiary, p.readCrumb("name", rest)
}

// parseOwn parses a KindOwn key. Its parts begin at offset start of s.
func parseOwn(s string, ns Namespace, start int) (Key, error) {
	at := start
	for depth := 1; ; depth++ {
		if depth > 1 && strings.HasPrefix(s[at:], "{") {
			return parseOwnOfEntry(s, ns, s[start:at-1], at)
		}
		part, rest, more := strings.Cut(s[at:], "/")
		if depth > maxDepth {
			return Key{}, &SyntaxError{Func: "Parse", Input: s, At: at, Reason: "more than 16 parts"}
		}
		if _, err := checkEscaped("Parse", "part", s, at, part); err != nil {
			return Key{}, err
		}
		if !more {
			return Key{kind: KindOwn, ns: ns, name: s[start:]}, nil
		}
		at = len(s) - len(rest)
	}
}

// parseOwnOfEntry parses a KindOwn key that ends with the key of an entry in braces. name holds the
// parts before it. The opening brace is at offset brace of s.
func parseOwnOfEntry(s string, ns Namespace, name string, brace int) (Key, error) {
	p := parser{in: s, at: brace + 1 + len(ns.path), end: len(s) - 1}
	if !strings.HasPrefix(s[brace+1:], ns.path) || s[p.end] != '}' {
		return Key{}, &SyntaxError{Func: "Parse", Input: s, At: brace, Reason: "want the key of an entry in the same namespace between braces"}
	}
	k := p.readKey(ns)
	if p.err == nil && k.kind != KindPRK {
		p.fail(brace+1, k.kind.String()+" between braces, want PRK")
	}
	if p.err != nil {
		return Key{}, p.err
	}
	k.kind, k.name = KindOwn, name
	return k, nil
}

// checkEscaped checks an escaped crumb, which begins at the given offset of input, and returns its
// length before escaping.
func checkEscaped(fn, what, input string, offset int, crumb string) (n int, err error) {
	n, bad := rawLen(crumb)
	switch {
	case bad != nil:
		return 0, bad.error(fn, input, offset)
	case n == 0:
		return 0, &SyntaxError{Func: fn, Input: input, At: offset, Reason: what + emptyReason}
	case n > MaxCrumb:
		return 0, &SyntaxError{Func: fn, Input: input, At: offset, Reason: what + longReason}
	}
	return n, nil
}
