package recordkey

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxCrumb is the maximum length of a crumb in bytes, before escaping. Types, fields, values and
// the names of tertiary records and namespaces are crumbs.
const MaxCrumb = 1 << 10

const hexDigits = "0123456789abcdef"

// hexEscape is the letter in escapeLetters for a byte that is escaped as +x and two hex digits. A
// byte with any other letter is escaped as a plus sign and that letter. A byte whose letter is zero
// is not escaped.
const hexEscape = 'x'

// escapeLetters maps each byte to how it is escaped. letterBytes maps the letter after a plus sign
// back to the byte that it stands for.
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
		t[c] = hexEscape // unless firstChar finds a code point that is not escaped
	}
	for letter, c := range letterBytes {
		if c != 0 {
			t[c] = byte(letter)
		}
	}
	return t
}

// hexRanges lists the code points beyond ASCII that are escaped: the C1 controls, and the
// characters with the property White_Space in Unicode 16. The list is frozen, because a newer
// Unicode version in the library could change the keys of existing values. U+FEFF is missing on
// purpose: it is white space only in JavaScript's \s, not in Unicode.
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

// firstChar returns the size of the first character of s, or of its first byte if that is not valid
// UTF-8, and how it is escaped.
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

// plainLen returns the length of the part of s before the first character that must be escaped.
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

// Escape returns crumb in the form that it has in a record key. Any bytes can be escaped, and
// different inputs have different results. The empty string stays empty. Escape does not check the
// length.
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

// Unescape reverses Escape in one pass from the left. The error is a *SyntaxError if crumb is not a
// result of Escape, for example if it contains a bare slash, +q or +x41. Unescape does not check
// the length.
func Unescape(crumb string) (string, error) {
	n, bad := rawLen(crumb)
	if bad != nil {
		return "", bad.error("Unescape", crumb, 0)
	}
	return unescape(crumb, n), nil
}

// UnescapeLoose unescapes text that people may or may not have escaped. It makes one pass from the
// left and leaves everything that is not a valid escape as it is. It also accepts text that Escape
// never returns, so do not use it for keys.
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

// A fault describes why a crumb was refused, and where. Functions return a nil *fault if the crumb
// is valid.
type fault struct {
	at     int
	reason string
}

func (f *fault) error(fn, input string, offset int) error {
	return &SyntaxError{Func: fn, Input: input, At: offset + f.at, Reason: f.reason}
}

// unescape reverses Escape for a crumb that rawLen accepted; n is the length that rawLen returned.
// It allocates only if s contains an escape.
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

// rawLen returns the length of s after unescaping, or a fault if s is not a result of Escape.
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

// measureEscape returns the length of the escapes for the character at the start of s, and the
// length of that character in bytes. If the character must not be escaped this way, it returns the
// reason.
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

// measureHex does the work of measureEscape for a run of hex escapes. char holds their bytes; each
// escape takes size bytes.
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

// readEscape decodes the escape at the start of s and returns its size.
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
