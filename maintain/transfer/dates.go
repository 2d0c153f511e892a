package transfer

import (
	"cmp"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/coffeenode/userdb/schema"
)

var (
	// databaseDate matches a date and a time as databases and programs write them. Go and Java
	// write the name of the zone after its offset.
	databaseDate = regexp.MustCompile(`^(\d{4})[-/](\d\d)[-/](\d\d)[Tt ](\d\d:\d\d)(:\d\d)?(?:[.,](\d{1,9}))? ?` +
		`(?:([Zz]|UTC|GMT|[+-]\d\d(?::?\d\d)?)(?: [A-Z]{3,5}|\[[\w/+-]+\])?)?$`)
	// zeroDate matches the text that MySQL stores for a missing date.
	zeroDate = regexp.MustCompile(`^0000-00-00(?:[T ]00:00:00(?:\.0+)?Z?)?$`)
	// directoryDate matches the generalized time of directories, the short form of ISO 8601, and
	// the timestamp of MediaWiki, which names no zone.
	directoryDate  = regexp.MustCompile(`^((?:19|20)\d{6})T?(\d{6})(?:\.\d+)?(Z?)$`)
	epoch          = regexp.MustCompile(`^(\d{9,19})(?:\.(\d{1,9}))?$`)
	millisDate     = regexp.MustCompile(`^/Date\((\d+)(?:[+-]\d{4})?\)/$`) // of .NET
	slashDate      = regexp.MustCompile(`^(\d{4})/(\d\d)/(\d\d)$`)
	localOrder     = regexp.MustCompile(`^\d{1,2}[./-]\d{1,2}[./-](?:\d{2}|\d{4})(?: |$)`)
	sheetDate      = regexp.MustCompile(`^\d{5}(?:\.\d+)?$`)
	zoneInBrackets = regexp.MustCompile(` \([^()]*\)$`)
)

// Accounts are from 1990 or later, and from before 2262, so the size of an epoch shows its unit.
const (
	firstEpoch = 631152000  // the beginning of 1990, in seconds since 1970
	lastEpoch  = 9223372036 // a time in 2262, in seconds since 1970
)

// programDates are the forms in which programs print a date in UTC or with its offset.
var programDates = []string{
	"Mon, 2 Jan 2006 15:04:05 GMT", "Mon, 2 Jan 2006 15:04:05 -0700", "2 Jan 2006 15:04:05 -0700",
	"Mon Jan _2 15:04:05 UTC 2006", "Mon Jan _2 15:04:05 GMT 2006", "Mon Jan 02 2006 15:04:05 GMT-0700",
}

// parseDate parses a date in one of the forms of databases and programs. A time without a time zone
// is in zone, which may be nil. none reports that the text stands for no date. If the text cannot
// be parsed, reason says why.
func parseDate(text string, zone *time.Location) (at time.Time, none bool, reason string) {
	if zeroDate.MatchString(text) {
		return at, true, ""
	}
	if m := databaseDate.FindStringSubmatch(text); m != nil {
		at, reason = parseDatabaseDate(m, zone)
		return at, false, reason
	}
	if m := directoryDate.FindStringSubmatch(text); m != nil {
		if m[3] == "Z" {
			zone = time.UTC
		}
		if zone == nil {
			return at, false, zoneMissing
		}
		if at, err := time.ParseInLocation("20060102150405", m[1]+m[2], zone); err == nil {
			return at, false, ""
		}
	}
	if m := epoch.FindStringSubmatch(text); m != nil {
		at, reason = parseEpoch(m)
		return at, false, reason
	}
	if m := millisDate.FindStringSubmatch(text); m != nil {
		if ms, err := strconv.ParseInt(m[1], 10, 64); err == nil && ms < lastEpoch*1e3 {
			return time.UnixMilli(ms).UTC(), false, ""
		}
	}
	if m := slashDate.FindStringSubmatch(text); m != nil {
		if at, err := time.Parse("20060102", m[1]+m[2]+m[3]); err == nil {
			return at, false, ""
		}
	}
	for _, layout := range programDates {
		if at, err := time.Parse(layout, zoneInBrackets.ReplaceAllString(text, "")); err == nil {
			return at, false, ""
		}
	}
	switch {
	case localOrder.MatchString(text):
		return at, false, "a date whose day and month cannot be told apart; write it like 2024-01-31"
	case sheetDate.MatchString(text):
		return at, false, "a number of days, as spreadsheets store dates: give the column a date format like 2024-01-31, and export it again"
	case strings.EqualFold(text, "null"):
		return at, false, nullWord
	}
	_, err := schema.ParseText(schema.CodecDate, text)
	if value, ok := err.(*schema.ValueError); ok {
		reason = value.Reason
	}
	return at, false, reason
}

// nullWord is the reason for refusing the word NULL in a cell, which may be somebody's name.
const nullWord = "the word NULL, which means no value only by request (userdb import --null NULL)"

const zoneMissing = "a time without a time zone; write it with its zone, such as +00, or name the zone (userdb import --zone)"

func parseDatabaseDate(m []string, zone *time.Location) (at time.Time, reason string) {
	nanos, _ := strconv.Atoi((m[6] + "000000000")[:9])
	offset := strings.ReplaceAll(m[7], ":", "")
	switch offset {
	case "Z", "z", "UTC", "GMT":
		zone = time.UTC
	case "":
		if zone == nil {
			return at, zoneMissing
		}
	default:
		hours, _ := strconv.Atoi(offset[1:3])
		minutes, _ := strconv.Atoi((offset[3:] + "00")[:2])
		if hours > 23 || minutes > 59 {
			return at, "no such time zone"
		}
		seconds := (hours*60 + minutes) * 60
		if offset[0] == '-' {
			seconds = -seconds
		}
		zone = time.FixedZone("", seconds)
	}
	at, err := time.ParseInLocation("20060102 15:04:05", m[1]+m[2]+m[3]+" "+m[4]+cmp.Or(m[5], ":00"), zone)
	if err != nil {
		return at, "no such day or time of day"
	}
	return at.Add(time.Duration(nanos)), ""
}

// parseEpoch parses seconds, milliseconds, microseconds or nanoseconds since 1970. Directories
// count units of 100 nanoseconds since 1601: these numbers have 18 digits, so all such numbers are
// refused, and with them nanoseconds before September 2001.
func parseEpoch(m []string) (at time.Time, reason string) {
	n, _ := strconv.ParseInt(m[1], 10, 64) // too many digits give the largest number
	switch {
	case n >= firstEpoch && n < lastEpoch:
		nanos, _ := strconv.Atoi((m[2] + "000000000")[:9])
		return time.Unix(n, int64(nanos)).UTC(), ""
	case n >= firstEpoch*1e3 && n < lastEpoch*1e3:
		return time.UnixMilli(n).UTC(), ""
	case n >= firstEpoch*1e6 && n < lastEpoch*1e6:
		return time.UnixMicro(n).UTC(), ""
	case n >= 1e18:
		return time.Unix(0, n).UTC(), ""
	}
	return at, "a number that is neither seconds nor milliseconds since 1970, or is before 1990"
}

// dateValue parses a date that the codec has refused, in the other forms that an input may have. It
// returns Null for a text that stands for no date.
func dateValue(text string, zone *time.Location) (schema.Value, string) {
	text = unwrapExtended(text)
	if strings.HasPrefix(text, `"`) {
		_ = json.Unmarshal([]byte(text), &text) // cannot fail: the scanner has read it
	}
	at, none, reason := parseDate(text, zone)
	if none {
		return schema.Null(), ""
	}
	return schema.Date(at), reason
}
