package recordkey

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxCrumb is the greatest length of a crumb (a type, a field, a value, the name of a tertiary record or of a
// namespace) in bytes, before escaping.
const MaxCrumb = 1 << 10

const hexDigits = "0123456789abcdef"

// How a byte of ASCII stands in an escaped crumb: 0 as it is, 'x' as +x and two hex digits, any other letter after a
// plus sign.
const hexEscape = 'x'

// escapeLetters says of a byte how it is escaped, meant of such a letter what it stands for.
var (
	escapeLetters = newEscapeLetters()
	letterBytes   = [256]byte{'+': '+', '_': ' ', ',': '/', '.': ':', '(': '{', ')': '}'}
)

func newEscapeLetters() [256]byte {
	t := [256]byte{0x7f: hexEscape}
	for c := range 0x20 {
		t[c] = hexEscape
	}
	for c := utf8.RuneSelf; c < len(t); c++ {
		t[c] = hexEscape // peekUntil the whole code point is seen
	}
	for letter, c := range letterBytes {
		if c != 0 {
			t[c] = byte(letter)
		}
	}
	return t
}

// hexRanges are the code points beyond ASCII that are escaped: the C1 controls, and what had the property White_Space
// in Unicode 16. The list is frozen: were it the library's of the day, a new version could give an old value a new key.
// U+FEFF is not in it: it is no white space to Unicode, only to JavaScript's \s.
var hexRanges = [...]struct{ first, last rune }{
	{0x0080, 0x00a0},
	{0x1680, 0x1680},
	{0x2000, 0x200a},
	{0x2028, 0x2029},
	{0x202f, 0x202f},
	{0x205f, 0x205f},
	{0x3000, 0x3000},
}

func isHexEscaped(r rune) bool {
	for _, hr := range hexRanges {
		if r <= hr.last {
			return r >= hr.first
		}
	}
	return false
}

// firstChar measures the first character of s, or its first byte where that is not UTF-8, and says how it is escaped.
func firstChar(s string) (size int, letter byte) {
	if s[0] < utf8.RuneSelf {
		return 1, escapeLetters[s[0]]
	}
	r, size := utf8.DecodeRuneInString(s)
	if size == 1 || isHexEscaped(r) {
		return size, hexEscape
	}
	return size, 0
}

// plainLen is the length of the part of s before the first character that is escaped.
func plainLen(s string) int {
	i := 0
	for i < len(s) {
		if escapeLetters[s[i]] == 0 {
			i++
			continue
		}
		size, letter := firstChar(s[i:])
		if letter != 0 {
			return i
		}
		i += size
	}
	return i
}

// Escape writes crumb as it stands in a record key. Any bytes may be escaped, and no two texts give the same crumb; the
// length is not checked, and the empty text stays empty.
func Escape(crumb string) string {
	if plainLen(crumb) == len(crumb) {
		return crumb
	}
	var buf [stackKeySize]byte
	return string(appendEscaped(buf[:0], crumb))
}

func appendEscaped(b []byte, s string) []byte {
	for {
		n := plainLen(s)
		b = append(b, s[:n]...)
		if s = s[n:]; s == "" {
			return b
		}
		size, letter := firstChar(s)
		b = appendEscape(b, s[:size], letter)
		s = s[size:]
	}
}

func appendEscape(b []byte, raw string, letter byte) []byte {
	if letter != hexEscape {
		return append(b, '+', letter)
	}
	for i := range len(raw) {
		b = append(b, '+', hexEscape, hexDigits[raw[i]>>4], hexDigits[raw[i]&15])
	}
	return b
}

// Unescape undoes Escape in one pass from the left. What Escape would not have written, such as a bare slash, +q or
// +x41, is a *SyntaxError; the length is not checked.
func Unescape(crumb string) (string, error) {
	n, bad := rawLen(crumb)
	if bad != nil {
		return "", bad.error("Unescape", crumb, 0)
	}
	return unescape(crumb, n), nil
}

// UnescapeLoose reads what people may have escaped: one pass from the left, in which all that is no escape stands for
// itself. What it takes need not be what Escape writes, so it is not for keys.
func UnescapeLoose(text string) string {
	var b strings.Builder
	for {
		i := strings.IndexByte(text, '+')
		if i < 0 {
			b.WriteString(text)
			return b.String()
		}
		b.WriteString(text[:i])
		c, size, ok := readEscape(text[i:])
		if !ok {
			c, size = '+', 1
		}
		b.WriteByte(c)
		text = text[i+size:]
	}
}

// fault is why and where a crumb is refused; a pointer to it is nil when all is well.
type fault struct {
	at     int
	reason string
}

func (f *fault) error(fn, input string, offset int) error {
	return &SyntaxError{Func: fn, Input: input, At: offset + f.at, Reason: f.reason}
}

// unescape undoes Escape where rawLen found nothing wrong; n is what it measured. It allocates only where something is
// escaped.
func unescape(s string, n int) string {
	if n == len(s) {
		return s
	}
	var b strings.Builder
	b.Grow(n)
	for {
		i := strings.IndexByte(s, '+')
		if i < 0 {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(s[:i])
		c, size, _ := readEscape(s[i:])
		b.WriteByte(c)
		s = s[i+size:]
	}
}

// rawLen checks that s is what Escape gives and measures what it was given.
func rawLen(s string) (n int, bad *fault) {
	for i := 0; ; {
		m := plainLen(s[i:])
		i, n = i+m, n+m
		if i == len(s) {
			return n, nil
		}
		if s[i] != '+' {
			return n, &fault{i, unescapedReason(s[i:])}
		}
		size, raw, reason := measureEscape(s[i:])
		if reason != "" {
			return n, &fault{i, reason}
		}
		i, n = i+size, n+raw
	}
}

func unescapedReason(s string) string {
	size, letter := firstChar(s)
	return strconv.Quote(s[:size]) + " must be written " + string(appendEscape(nil, s[:size], letter))
}

// measureEscape measures the escapes of one character at the start of s, and the character. Escapes of a character that
// is not escaped that way have a reason.
func measureEscape(s string) (size, raw int, reason string) {
	c, size, ok := readEscape(s)
	if !ok {
		return 0, 0, "invalid escape"
	}
	if size == 2 {
		return size, 1, ""
	}
	char := [utf8.UTFMax]byte{c}
	n := 1
	for n < len(char) && len(s) > n*size && s[n*size] == '+' {
		next, length, ok := readEscape(s[n*size:])
		if !ok || length != size {
			break
		}
		char[n] = next
		n++
	}
	return measureHex(char[:n], size)
}

// measureHex is escapedUnit for the bytes of a run of hex escapes, each of size bytes.
func measureHex(char []byte, size int) (int, int, string) {
	n := 1
	if char[0] >= utf8.RuneSelf {
		var r rune
		if r, n = utf8.DecodeRune(char); n > 1 && !isHexEscaped(r) {
			return 0, 0, strconv.Quote(string(char[:n])) + " must not be written in hex"
		}
	} else if escapeLetters[char[0]] != hexEscape {
		return 0, 0, strconv.Quote(string(char[:1])) + " must not be written in hex"
	}
	return n * size, n, ""
}

// readEscape reads the one escape at the start of s.
func readEscape(s string) (c byte, size int, ok bool) {
	if len(s) < 2 {
		return 0, 0, false
	}
	if s[1] != hexEscape {
		return letterBytes[s[1]], 2, letterBytes[s[1]] != 0
	}
	if len(s) < 4 {
		return 0, 0, false
	}
	hi, lo := strings.IndexByte(hexDigits, s[2]), strings.IndexByte(hexDigits, s[3])
	return byte(hi<<4 | lo), 4, hi >= 0 && lo >= 0
}
