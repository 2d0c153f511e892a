package schema

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// A Period is a length of time in whole seconds. In JSON it is a text such as "90d", "36h" or
// "1d12h", in which a day has 24 hours.
type Period time.Duration

// Day is 24 hours.
const Day = Period(24 * time.Hour)

// ParsePeriod parses the text of a period.
func ParsePeriod(text string) (Period, error) {
	days, rest := "0", text
	if before, after, has := strings.Cut(text, "d"); has {
		if days, rest = before, after; rest == "" {
			rest = "0s"
		}
	}
	n, err := strconv.ParseUint(days, 10, 14)
	d, restErr := time.ParseDuration(rest)
	if err != nil || restErr != nil || d < 0 || d%time.Second != 0 || d > time.Duration(maxPeriod) {
		return 0, errors.New("want a length of time such as 90d or 36h")
	}
	return Period(n)*Day + Period(d), nil
}

// String returns the text of p, in days if that is exact.
func (p Period) String() string {
	if p%Day == 0 && p != 0 {
		return strconv.FormatInt(int64(p/Day), 10) + "d"
	}
	return time.Duration(p).String()
}

// MarshalText implements [encoding.TextMarshaler].
func (p Period) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (p *Period) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePeriod(string(text))
	return err
}
