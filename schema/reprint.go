package schema

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// reprint writes one JSON text as JavaScript's JSON.stringify(JSON.parse(text))
// does: compact, numbers in JavaScript's form, and names that are list indices
// before the others; but two members of one name, of which JavaScript takes the
// later, are refused: somebody else may take the other. It returns why it cannot.
// encoding/json cannot do this: it loses lone surrogates and order.
func reprint(text []byte) (out []byte, reason string) {
	if !utf8.Valid(text) {
		return nil, "not UTF-8"
	}
	if !json.Valid(text) {
		return nil, "not one JSON value"
	}
	if nesting(text) > maxNesting {
		return nil, "nested too deeply"
	}
	p := printer{in: text}
	if out = p.value(make([]byte, 0, len(text))); p.reason != "" {
		return nil, p.reason
	}
	return out, ""
}

// maxNesting bounds the work: each object is copied into the one around it.
const maxNesting = 500

// nesting returns how deep lists and objects lie within each other.
func nesting(text []byte) (deepest int) {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case quoted:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

// printer walks over JSON that is known to be valid.
type printer struct {
	in     []byte
	at     int
	reason string // why it cannot be printed
}

// next skips white space and returns the byte after it.
func (p *printer) next() byte {
	for isSpace(p.in[p.at]) {
		p.at++
	}
	return p.in[p.at]
}

// isSpace reports whether b is white space between the tokens of JSON.
func isSpace(b byte) bool { return b == ' ' || b == '\t' || b == '\n' || b == '\r' }

func (p *printer) value(out []byte) []byte {
	switch p.next() {
	case '{':
		return p.object(out)
	case '[':
		return p.list(out)
	case '"':
		return p.text(out)
	default:
		return p.scalar(out)
	}
}

func (p *printer) list(out []byte) []byte {
	p.at++ // [
	out = append(out, '[')
	for p.next() != ']' {
		if p.in[p.at] == ',' {
			p.at++
			out = append(out, ',')
		}
		out = p.value(out)
	}
	p.at++
	return append(out, ']')
}

type member struct{ name, value []byte }

func (p *printer) object(out []byte) []byte {
	members := p.members()
	slices.SortStableFunc(members, func(a, b member) int {
		return cmp.Compare(index(a.name), index(b.name))
	})
	out = append(out, '{')
	for i, m := range members {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, m.name...), ':'), m.value...)
	}
	return append(out, '}')
}

// members reads an object.
func (p *printer) members() []member {
	var members []member
	met := map[string]bool{}
	p.at++ // {
	for p.next() != '}' {
		if p.in[p.at] == ',' {
			p.at++
			p.next()
		}
		name := p.text(nil)
		p.next()
		p.at++ // :
		m := member{name, p.value(nil)}
		if met[string(name)] {
			p.reason = "a member stands there twice"
		}
		met[string(name)] = true
		members = append(members, m)
	}
	p.at++
	return members
}

// index returns the number that a printed name is as an index of a list, or
// MaxUint32 for any other name. JavaScript puts such members first.
func index(name []byte) uint32 {
	digits := string(name[1 : len(name)-1])
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || strconv.FormatUint(n, 10) != digits {
		return math.MaxUint32
	}
	return uint32(n)
}

// scalar prints a number, true, false or null.
func (p *printer) scalar(out []byte) []byte {
	start := p.at
	for p.at < len(p.in) && !isSpace(p.in[p.at]) && bytes.IndexByte([]byte(",]}"), p.in[p.at]) < 0 {
		p.at++
	}
	word := p.in[start:p.at]
	if word[0] >= 'a' {
		return append(out, word...)
	}
	f, err := strconv.ParseFloat(string(word), 64)
	if err != nil {
		p.reason = "a number is too large"
	}
	return append(out, printNumber(f)...)
}

func (p *printer) text(out []byte) []byte {
	p.at++ // "
	out = append(out, '"')
	for p.in[p.at] != '"' {
		if p.in[p.at] == '\\' {
			out = quoteRune(out, p.escape())
			continue
		}
		out = append(out, p.in[p.at])
		p.at++
	}
	p.at++
	return append(out, '"')
}

// escape reads one escaped character, or half of one where the other half is
// missing.
func (p *printer) escape() rune {
	c := p.in[p.at+1]
	if c != 'u' {
		p.at += 2
		return unescaped(c)
	}
	r := p.unit()
	if utf16.IsSurrogate(r) && bytes.HasPrefix(p.in[p.at:], []byte(`\u`)) {
		mark := p.at
		if both := utf16.DecodeRune(r, p.unit()); both != utf8.RuneError {
			return both
		}
		p.at = mark
	}
	return r
}

// unit reads \uXXXX.
func (p *printer) unit() rune {
	n, _ := strconv.ParseUint(string(p.in[p.at+2:p.at+6]), 16, 16)
	p.at += 6
	return rune(n)
}

// The characters that have escapes of one letter, and the letters.
const (
	escapedRunes   = "\b\t\n\f\r\"\\/"
	escapedLetters = "btnfr\"\\/"
)

func unescaped(letter byte) rune {
	return rune(escapedRunes[bytes.IndexByte([]byte(escapedLetters), letter)])
}

// quoteRune writes a character as it stands between the quotes of JSON.stringify.
func quoteRune(out []byte, r rune) []byte {
	switch {
	case r == '"' || r == '\\':
		return append(out, '\\', byte(r))
	case utf16.IsSurrogate(r):
		return fmt.Appendf(out, `\u%04x`, r)
	case r >= ' ':
		return utf8.AppendRune(out, r)
	}
	if i := bytes.IndexByte([]byte(escapedRunes), byte(r)); i >= 0 {
		return append(out, '\\', escapedLetters[i])
	}
	return fmt.Appendf(out, `\u%04x`, r)
}
