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
	// databaseDate matches a date and a time as databases and programs write them.
	databaseDate = regexp.MustCompile(`^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(:\d\d)?(?:[.,](\d{1,9}))? ?(Z|UTC|GMT|[+-]\d\d(?::?\d\d)?(?: UTC)?)?$`)
	// zeroDate matches what MySQL stores in place of no date.
	zeroDate = regexp.MustCompile(`^0000-00-00(?: 00:00:00(?:\.0+)?)?$`)
	// directoryDate matches the generalized time of directories.
	directoryDate = regexp.MustCompile(`^(\d{14})(?:\.\d+)?Z$`)
	epoch         = regexp.MustCompile(`^(\d{9,16})(?:\.(\d{1,9}))?$`)
	localOrder    = regexp.MustCompile(`^\d{1,2}[./-]\d{1,2}[./-](?:\d{2}|\d{4})(?: |$)`)
)

// Epochs of accounts lie between 1973 and 2286, so their size shows their unit.
const (
	firstEpoch = 1e8  // seconds in 1973
	lastEpoch  = 1e10 // seconds in 2286
)

// parseDate parses a date in one of the forms of databases and programs. A time without a time zone
// is in zone, which may be nil. none reports that the text stands for no date. If the text cannot
// be parsed, reason says why.
func parseDate(text string, zone *time.Location) (at time.Time, none bool, reason string) {
	if zeroDate.MatchString(text) {
		return at, true, ""
	}
	if m := databaseDate.FindStringSubmatch(text); m != nil {
		return parseDatabaseDate(m, zone)
	}
	if m := directoryDate.FindStringSubmatch(text); m != nil {
		if at, err := time.Parse("20060102150405", m[1]); err == nil {
			return at, false, ""
		}
	}
	if m := epoch.FindStringSubmatch(text); m != nil {
		return parseEpoch(m)
	}
	for _, layout := range []string{"Mon, 02 Jan 2006 15:04:05 GMT", "Mon, 02 Jan 2006 15:04:05 -0700"} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, false, ""
		}
	}
	if localOrder.MatchString(text) {
		return at, false, "a date whose day and month cannot be told apart; write it like 2024-01-31"
	}
	_, err := schema.ParseText(schema.CodecDate, text)
	if value, is := err.(*schema.ValueError); is {
		reason = value.Reason
	}
	return at, false, reason
}

func parseDatabaseDate(m []string, zone *time.Location) (at time.Time, none bool, reason string) {
	offset := strings.TrimSuffix(m[5], " UTC")
	switch offset {
	case "":
		if zone == nil {
			return at, false, "a time without a time zone; write it with its zone, such as +00, or name the zone (userdb import --zone)"
		}
		at, err := time.ParseInLocation("2006-01-02T15:04:05", m[1]+"T"+m[2]+cmp.Or(m[3], ":00"), zone)
		if err != nil {
			return at, false, "no such day or time of day"
		}
		nanos, _ := strconv.Atoi((m[4] + "000000000")[:9])
		return at.Add(time.Duration(nanos)), false, ""
	case "Z", "UTC", "GMT":
		offset = "Z"
	default:
		digits := strings.ReplaceAll(offset, ":", "") + "00"
		offset = digits[:3] + ":" + digits[3:5]
	}
	fraction := m[4]
	if fraction != "" {
		fraction = "." + fraction
	}
	v, err := schema.ParseText(schema.CodecDate, m[1]+"T"+m[2]+cmp.Or(m[3], ":00")+fraction+offset)
	if err != nil {
		return at, false, "no such day, time of day or time zone"
	}
	at, _ = v.Time()
	return at, false, ""
}

// parseEpoch parses seconds, milliseconds or microseconds since 1970.
func parseEpoch(m []string) (at time.Time, none bool, reason string) {
	n, _ := strconv.ParseInt(m[1], 10, 64) // at most 16 digits
	switch {
	case n >= firstEpoch && n < lastEpoch:
		nanos, _ := strconv.Atoi((m[2] + "000000000")[:9])
		return time.Unix(n, int64(nanos)).UTC(), false, ""
	case n >= firstEpoch*1e3 && n < lastEpoch*1e3:
		return time.UnixMilli(n).UTC(), false, ""
	case n >= firstEpoch*1e6 && n < lastEpoch*1e6:
		return time.UnixMicro(n).UTC(), false, ""
	}
	return at, false, "a number that is neither seconds nor milliseconds since 1970"
}

// dateValue parses the date of a facet that its own parser has refused, in the other forms that an
// input may have. It returns Null for a text that stands for no date.
func dateValue(text string, zone *time.Location) (schema.Value, string) {
	if strings.HasPrefix(text, `"`) {
		_ = json.Unmarshal([]byte(text), &text) // the scanner has read it
	}
	at, none, reason := parseDate(text, zone)
	if none {
		return schema.Null(), ""
	}
	return schema.Date(at), reason
}
