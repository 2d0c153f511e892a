package schema

import (
	"math"
	"strconv"
	"strings"
)

// printNumber prints f as JavaScript's Number.prototype.toString does.
func printNumber(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	case f == 0:
		return "0" // the negative zero too
	}
	if size := math.Abs(f); size >= 1e-6 && size < 1e21 {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	if n := len(s); s[n-4] == 'e' && s[n-2] == '0' { // Go writes e-07, JavaScript e-7
		s = s[:n-2] + s[n-1:]
	}
	return s
}

// readNumber reads text as JavaScript's parseFloat does: the longest beginning
// that is a number, and NaN where there is none. It never fails.
func readNumber(text string) float64 {
	text = strings.TrimLeft(text, spaceOfJavaScript)
	n := numberLen(text)
	if n == 0 {
		return math.NaN()
	}
	f, _ := strconv.ParseFloat(text[:n], 64) // out of range is an infinity, as there
	return f
}

// spaceOfJavaScript is what parseFloat skips. It is not what Unicode, or Go,
// calls white space.
const spaceOfJavaScript = "\t\n\v\f\r \u00a0\u1680" +
	"\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a" +
	"\u2028\u2029\u202f\u205f\u3000\ufeff"

// numberLen returns the length of the longest decimal number that s begins
// with, 0 if there is none.
func numberLen(s string) int {
	n := signLen(s)
	if strings.HasPrefix(s[n:], "Infinity") {
		return n + len("Infinity")
	}
	whole := digitsLen(s[n:])
	n += whole
	fraction := 0
	if n < len(s) && s[n] == '.' {
		fraction = digitsLen(s[n+1:])
		n += 1 + fraction
	}
	if whole+fraction == 0 {
		return 0
	}
	return n + exponentLen(s[n:])
}

func exponentLen(s string) int {
	if s == "" || s[0]|0x20 != 'e' {
		return 0
	}
	sign := signLen(s[1:])
	digits := digitsLen(s[1+sign:])
	if digits == 0 {
		return 0
	}
	return 1 + sign + digits
}

func signLen(s string) int {
	if s != "" && (s[0] == '+' || s[0] == '-') {
		return 1
	}
	return 0
}

func digitsLen(s string) int {
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	return n
}
