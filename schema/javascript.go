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

// Numbers, dates and JSON are stored in the form that JavaScript prints, so that CoffeeNode UserDB,
// the original of this store, can read them.

// printNumber formats f like Number.prototype.toString.
func printNumber(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	case f == 0:
		return "0" // also for negative zero
	}
	if size := math.Abs(f); size >= 1e-6 && size < 1e21 {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	return strings.Replace(s, "e-0", "e-", 1) // Go writes e-07, JavaScript e-7
}

// numeralPattern matches a decimal number at the start of a text.
var numeralPattern = regexp.MustCompile(`^[+-]?(?:Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)`)

// integerPattern matches a whole number in plain digits, as in JSON.
var integerPattern = regexp.MustCompile(`^-?[1-9][0-9]*$|^0$`)

// isInteger reports whether text is a whole number in plain digits. Such a number keeps its digits,
// even if JavaScript cannot hold them all.
func isInteger(text string) bool { return integerPattern.MatchString(text) }

// LosesDigits reports whether JavaScript, and so CoffeeNode UserDB, would write v differently: v
// is, or contains as JSON, a whole number that it rounds or writes with an exponent.
func LosesDigits(v Value) bool {
	switch v.codec {
	case CodecNumber:
		return isInteger(v.wire) && printNumber(parseNumberPrefix(v.wire)) != v.wire
	case CodecJSON:
		root, p := parser{json.NewDecoder(strings.NewReader(v.wire)), ""}.withNumbers().read("", maxNesting)
		return p == nil && root.losesDigits()
	}
	return false
}

func (n node) losesDigits() bool {
	if number, is := n.token.(json.Number); is {
		f, _ := number.Float64()
		return isInteger(number.String()) && printNumber(f) != number.String()
	}
	return slices.ContainsFunc(n.items, node.losesDigits)
}

// parseNumberPrefix parses text like parseFloat: it parses the longest prefix that is a number and
// returns NaN if there is none.
func parseNumberPrefix(text string) float64 {
	numeral := numeralPattern.FindString(strings.TrimLeft(text, javaScriptSpace))
	if numeral == "" {
		return math.NaN()
	}
	// A number that is too large becomes infinite, as in JavaScript.
	f, _ := strconv.ParseFloat(numeral, 64)
	return f
}

// javaScriptSpace holds the characters that parseFloat skips. They differ from the white space of
// Unicode and of Go.
const javaScriptSpace = "\t\n\v\f\r \u00a0\u1680" +
	"\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a" +
	"\u2028\u2029\u202f\u205f\u3000\ufeff"

// The first and last millisecond of JavaScript dates, counted from 1970.
const (
	firstMilli = -8_640_000_000_000_000
	lastMilli  = 8_640_000_000_000_000
)

// dateForm is the format of toISOString for the years 0 to 9999.
const dateForm = "2006-01-02T15:04:05.000Z"

// printDate formats t like toISOString. It clamps t to the range of JavaScript dates.
func printDate(t time.Time) string {
	// UnixMilli overflows for times that are far away.
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

// parsePrintedDate parses a date in the format of printDate, and reports whether text is one.
// Almost all dates have this format.
func parsePrintedDate(text string) (time.Time, bool) {
	// time.Parse would also accept a comma before the milliseconds, and a sign in them.
	if n := len(text); n != len(dateForm) || text[n-5] != '.' || text[n-4] < '0' {
		return time.Time{}, false
	}
	t, err := time.Parse(dateForm, text)
	return t, err == nil
}

// isoDate matches the date format of ECMAScript, but without local time: a date with a time must
// also have a zone. A date without a time means midnight UTC.
var isoDate = regexp.MustCompile(`^(\d{4}|[+-]\d{6})-(\d\d)-(\d\d)` +
	`(?:T(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(?:Z|([+-])(\d\d):(\d\d)))?$`)

// parseDate parses an ISO date to the millisecond. If it cannot, it returns the reason.
func parseDate(text string) (t time.Time, reason string) {
	if t, ok := parsePrintedDate(text); ok {
		return t, ""
	}
	return parseISODate(text)
}

// parseISODate parses a date in any form of ECMAScript. If it cannot, it returns the reason.
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
	millis := digitsToInt((m[7] + "000")[:3]) // JavaScript ignores the digits after the third
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

// digitsToInt parses digits, with or without a sign, that a regular expression has accepted. It
// returns 0 for "".
func digitsToInt(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}

// maxNesting limits the nesting of objects and arrays.
const maxNesting = 500

// stringify returns one JSON text in the form of JSON.stringify(JSON.parse(text)): compact, with
// numbers in JavaScript's notation, and with names that are array indices before the others. Unlike
// JavaScript, it keeps all digits of whole numbers. It refuses two members with the same name,
// because JavaScript uses the last and other programs the first. An unpaired surrogate becomes
// U+FFFD, as in encoding/json. The error is a *ValueError for codec c.
func stringify(c Codec, text []byte) (string, error) {
	switch {
	case len(text) > maxQuoted:
		return "", tooLong(c, string(text[:maxQuoted]))
	case !utf8.Valid(text):
		return "", valueError(c, string(text), "not UTF-8")
	case !json.Valid(text):
		return "", valueError(c, string(text), "not one JSON value")
	}
	root, p := parser{json.NewDecoder(bytes.NewReader(text)), "a member appears twice"}.withNumbers().read("", maxNesting)
	if p == nil && root.tooLarge() {
		p = problemf("a number is too large")
	}
	if p != nil {
		return "", valueError(c, string(text), p.reason)
	}
	return string(root.print(make([]byte, 0, len(text)))), nil
}

// print appends n in the form of JSON.stringify.
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
		return append(out, byte(token)+2) // in ASCII, ] is two after [, and } is two after {
	case string:
		return quote(out, token)
	case json.Number:
		if isInteger(token.String()) {
			return append(out, token...)
		}
		f, _ := token.Float64()
		return append(out, printNumber(f)...)
	case bool:
		return strconv.AppendBool(out, token)
	default:
		return append(out, "null"...)
	}
}

// tooLarge reports whether n holds a number that JavaScript would read as infinite.
func (n node) tooLarge() bool {
	if number, is := n.token.(json.Number); is {
		_, err := number.Float64()
		return err != nil
	}
	return slices.ContainsFunc(n.items, node.tooLarge)
}

// listIndex returns name as an array index, or MaxUint32 if it is not one. JavaScript writes
// members with such names first.
func listIndex(name string) uint32 {
	n, err := strconv.ParseUint(name, 10, 32)
	if err != nil || strconv.FormatUint(n, 10) != name {
		return math.MaxUint32
	}
	return uint32(n)
}

// quote appends s as a JSON string in the form of JSON.stringify. Bytes that are not UTF-8 become
// U+FFFD.
func quote(out []byte, s string) []byte {
	const escaped, letters = "\b\t\n\f\r\"\\", `btnfr"\`
	out = append(out, '"')
	for _, r := range s {
		if ' ' <= r && r < utf8.RuneSelf && r != '"' && r != '\\' {
			out = append(out, byte(r))
		} else if i := strings.IndexRune(escaped, r); i >= 0 {
			out = append(out, '\\', letters[i])
		} else if r < ' ' {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return append(out, '"')
}
