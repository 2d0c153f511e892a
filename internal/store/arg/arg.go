// Package arg encodes arguments of scripts.
package arg

import (
	"strconv"
	"time"
)

// Bool returns "1" for true and "0" for false.
func Bool(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// Time returns a time in Unix milliseconds, or "" for the zero time, which stands for the server's
// clock.
func Time(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return strconv.FormatInt(at.UnixMilli(), 10)
}

// Millis returns a duration in milliseconds.
func Millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
