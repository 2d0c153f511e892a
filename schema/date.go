package schema

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// The first and the last millisecond that a JavaScript date can be, counted
// from 1970.
const (
	firstMilli = -8_640_000_000_000_000
	lastMilli  = 8_640_000_000_000_000
)

// printDate prints t as JavaScript's toISOString does. A time outside of what
// JavaScript can tell becomes the nearest that it can.
func printDate(t time.Time) string {
	t = time.UnixMilli(min(max(milli(t), firstMilli), lastMilli)).UTC()
	if year := t.Year(); year < 0 || year > 9999 {
		return fmt.Sprintf("%+07d%s", year, t.Format("-01-02T15:04:05.000Z"))
	}
	return t.Format("2006-01-02T15:04:05.000Z")
}

// milli is t.UnixMilli, but for times so far away that it would overflow.
func milli(t time.Time) int64 {
	switch s := t.Unix(); {
	case s < firstMilli/1000:
		return firstMilli
	case s > lastMilli/1000:
		return lastMilli
	default:
		return t.UnixMilli()
	}
}

// isoDate is the date format of ECMAScript, but for local time: where no zone is
// given only a day stands, which begins in UTC.
var isoDate = regexp.MustCompile(`^(\d{4}|[+-]\d{6})-(\d\d)-(\d\d)` +
	`(?:T(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(Z|[+-]\d\d:\d\d))?$`)

// plainDate says whether text is a date as Date writes it, within the days that every month has: nearly
// all dates are, and reading an entry only has to know that they can be read.
func plainDate(text string) bool {
	const form = "0000-00-00T00:00:00.000Z"
	if len(text) != len(form) {
		return false
	}
	for i := range len(form) {
		if c := text[i]; form[i] != '0' && c != form[i] || form[i] == '0' && (c < '0' || c > '9') {
			return false
		}
	}
	return between(text[5:7], "01", "12") && between(text[8:10], "01", "28") &&
		text[11:13] <= "23" && text[14:16] <= "59" && text[17:19] <= "59"
}

func between(text, low, high string) bool { return low <= text && text <= high }

// readDate reads an ISO date, to the millisecond, and returns why it cannot.
func readDate(text string) (t time.Time, reason string) {
	const form = "not a date like 2026-11-20 or 2026-11-20T08:02:40.512Z"
	m := isoDate.FindStringSubmatch(text)
	if m == nil || m[1] == "-000000" {
		return t, form
	}
	zone, ok := zoneOffset(m[8])
	if !ok {
		return t, "no such time zone"
	}
	year, month, day := number(m[1]), number(m[2]), number(m[3])
	hour, minute, second := number(m[4]), number(m[5]), number(m[6])
	if hour > 23 || minute > 59 || second > 59 {
		return t, "no such time of day"
	}
	t = time.Date(year, time.Month(month), day, hour, minute, second, thousandths(m[7])*1e6, time.UTC)
	if t.Year() != year || t.Day() != day {
		return t, "no such day"
	}
	t = t.Add(-zone)
	if ms := t.UnixMilli(); ms < firstMilli || ms > lastMilli {
		return t, "beyond the years that JavaScript's dates have"
	}
	return t, ""
}

// zoneOffset reads Z, ±HH:MM, or nothing, which is UTC.
func zoneOffset(s string) (time.Duration, bool) {
	if len(s) < len("+00:00") {
		return 0, true
	}
	hours, minutes := number(s[1:3]), number(s[4:])
	d := time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute
	if s[0] == '-' {
		d = -d
	}
	return d, hours < 24 && minutes < 60
}

// thousandths reads the digits of a fraction, and drops those after the third,
// as JavaScript does.
func thousandths(digits string) int {
	return number((digits + "000")[:3])
}

// number reads digits that a regular expression has let through; none are 0.
func number(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}
