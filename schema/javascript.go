package schema

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The wire of numbers, dates and JSON is what JavaScript prints, so that the original reads it.

// printNumber prints f as Number.prototype.toString does.
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
	return strings.Replace(s, "e-0", "e-", 1) // Go writes e-07, JavaScript e-7
}

// numeralPattern is a decimal number at the beginning of a text.
var numeralPattern = regexp.MustCompile(`^[+-]?(?:Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)`)

// parseNumberPrefix reads text as parseFloat does: the longest beginning that is a number, and NaN where there is none. It
// never fails.
func parseNumberPrefix(text string) float64 {
	numeral := numeralPattern.FindString(strings.TrimLeft(text, javaScriptSpace))
	if numeral == "" {
		return math.NaN()
	}
	f, _ := strconv.ParseFloat(numeral, 64) // out of range is an infinity, as there
	return f
}

// javaScriptSpace is what parseFloat skips. It is not what Unicode, or Go, calls white space.
const javaScriptSpace = "\t\n\v\f\r \u00a0\u1680" +
	"\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a" +
	"\u2028\u2029\u202f\u205f\u3000\ufeff"

// The first and the last millisecond that a JavaScript date can be, counted from 1970.
const (
	firstMilli = -8_640_000_000_000_000
	lastMilli  = 8_640_000_000_000_000
)

// dateForm is how toISOString prints the years 0 to 9999.
const dateForm = "2006-01-02T15:04:05.000Z"

// printDate prints t as toISOString does. A time outside of what JavaScript can tell becomes the nearest that it can.
func printDate(t time.Time) string {
	// UnixMilli overflows for times that are too far away.
	seconds := min(max(t.Unix(), firstMilli/1000), lastMilli/1000)
	millis := seconds * 1000
	if seconds == t.Unix() {
		millis = min(t.UnixMilli(), lastMilli)
	}
	t = time.UnixMilli(millis).UTC()
	if year := t.Year(); year < 0 || year > 9999 {
		return fmt.Sprintf("%+07d%s", year, t.Format(dateForm[len("2006"):]))
	}
	return t.Format(dateForm)
}

// parsePrintedDate reads a date as printDate writes it, and reports whether text is one. Nearly all dates are.
func parsePrintedDate(text string) (time.Time, bool) {
	if n := len(text); n != len(dateForm) || text[n-5] != '.' || text[n-4] < '0' { // time.Parse takes a comma and a sign, too
		return time.Time{}, false
	}
	t, err := time.Parse(dateForm, text)
	return t, err == nil
}

// isoDate is the date format of ECMAScript, but for local time: where no zone is given only a day stands, which begins
// in UTC.
var isoDate = regexp.MustCompile(`^(\d{4}|[+-]\d{6})-(\d\d)-(\d\d)` +
	`(?:T(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(?:Z|([+-])(\d\d):(\d\d)))?$`)

// parseDate reads an ISO date, to the millisecond, and returns why it cannot.
func parseDate(text string) (t time.Time, reason string) {
	if t, is := parsePrintedDate(text); is {
		return t, ""
	}
	return parseISODate(text)
}

// parseISODate is readDate for all forms that ECMAScript has.
func parseISODate(text string) (t time.Time, reason string) {
	m := isoDate.FindStringSubmatch(text)
	if m == nil || m[1] == "-000000" {
		return t, "not a date like 2026-11-20 or 2026-11-20T08:02:40.512Z"
	}
	if digitsToInt(m[9]) > 23 || digitsToInt(m[10]) > 59 {
		return t, "no such time zone"
	}
	east := time.Duration(digitsToInt(m[8]+m[9]))*time.Hour + time.Duration(digitsToInt(m[8]+m[10]))*time.Minute
	year, month, day := digitsToInt(m[1]), digitsToInt(m[2]), digitsToInt(m[3])
	hour, minute, second := digitsToInt(m[4]), digitsToInt(m[5]), digitsToInt(m[6])
	if hour > 23 || minute > 59 || second > 59 {
		return t, "no such time of day"
	}
	millis := digitsToInt((m[7] + "000")[:3]) // JavaScript drops the digits after the third
	t = time.Date(year, time.Month(month), day, hour, minute, second, millis*1e6, time.UTC)
	if t.Year() != year || t.Day() != day {
		return t, "no such day"
	}
	t = t.Add(-east)
	if ms := t.UnixMilli(); ms < firstMilli || ms > lastMilli {
		return t, "outside the range of JavaScript dates"
	}
	return t, ""
}

// digitsToInt reads digits, with or without a sign, that a regular expression has let through; none are 0.
func digitsToInt(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}

// maxNesting bounds the objects and lists that stand in one another.
const maxNesting = 500

// stringify writes one JSON text as JSON.stringify(JSON.parse(text)) does: compact, numbers in JavaScript's form, and
// names that are list indices before the others. It refuses two members of one name, of which JavaScript takes the
// later and other programs the earlier, and writes half a surrogate pair as U+FFFD, as encoding/json reads it. The
// error is a *ValueError for codec c.
func stringify(c Codec, text []byte) (string, error) {
	switch {
	case len(text) > maxQuoted:
		return "", tooLong(c, string(text[:maxQuoted]))
	case !utf8.Valid(text):
		return "", refuse(c, string(text), "not UTF-8")
	case !json.Valid(text):
		return "", refuse(c, string(text), "not one JSON value")
	}
	root, p := parser{json.NewDecoder(bytes.NewReader(text)), "a member appears twice"}.read("", maxNesting)
	if p != nil {
		return "", refuse(c, string(text), p.reason)
	}
	return string(root.print(make([]byte, 0, len(text)))), nil
}

// print appends n as JSON.stringify writes it.
func (n node) print(out []byte) []byte {
	switch token := n.token.(type) {
	case json.Delim:
		if token == '{' {
			slices.SortStableFunc(n.items, func(a, b node) int { return cmp.Compare(listIndex(a.name), listIndex(b.name)) })
		}
		out = append(out, byte(token))
		for i, item := range n.items {
			if i > 0 {
				out = append(out, ',')
			}
			if token == '{' {
				out = append(quote(out, item.name), ':')
			}
			out = item.print(out)
		}
		return append(out, byte(token)+2) // in ASCII ] is two after [, and } after {
	case string:
		return quote(out, token)
	case float64:
		return append(out, printNumber(token)...)
	case bool:
		return strconv.AppendBool(out, token)
	default:
		return append(out, "null"...)
	}
}

// listIndex returns the number that a name is as an index of a list, or MaxUint32 for any other name. JavaScript puts
// such members first.
func listIndex(name string) uint32 {
	n, err := strconv.ParseUint(name, 10, 32)
	if err != nil || strconv.FormatUint(n, 10) != name {
		return math.MaxUint32
	}
	return uint32(n)
}

// quote appends s as JSON.stringify writes it. Bytes that are not UTF-8 become U+FFFD.
func quote(out []byte, s string) []byte {
	const escaped, letters = "\b\t\n\f\r\"\\", `btnfr"\`
	out = append(out, '"')
	for _, r := range s {
		if i := strings.IndexRune(escaped, r); i >= 0 {
			out = append(out, '\\', letters[i])
		} else if r < ' ' {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return append(out, '"')
}
