package main

import (
	"regexp"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// formFlags declares the flags that say how an input is written.
func (r *importRun) formFlags(c *cobra.Command) {
	c.Flags().Func("delimiter", "the columns of CSV are separated by `CHAR`, such as ';' or '\\t' (default:\na comma, or what a first line such as sep=; names)", func(text string) error {
		if text == `\t` || text == "tab" {
			text = "\t"
		}
		char, size := utf8.DecodeRuneInString(text)
		if size != len(text) || size == 0 || char == utf8.RuneError || char == '"' || char == '\n' || char == '\r' {
			return usagef("want one character, and neither a quote nor a line break")
		}
		r.o.Delimiter, r.o.CSV = char, true
		return nil
	})
	c.Flags().StringVar(&r.o.Null, "null", "", "a cell of CSV that is `TEXT`, without quotes, has no value; \\N never has one")
	splitFlag(c, &r.o.Split, "the cells of a field hold several values, with a character between them:\n`FIELD=CHAR`, such as 'email=;'; may be repeated")
	c.Flags().Func("zone", "times that name no time zone are in `ZONE`: UTC, +02:00, Europe/Berlin", func(text string) (err error) {
		r.o.Zone, err = parseZone(text)
		return err
	})
	c.Flags().BoolVar(&r.o.KeepIDs, "keep-ids", false, "keep the prefix auth0| of the IDs in an export from Auth0")
}

var zoneOffset = regexp.MustCompile(`^([+-])(\d\d):?(\d\d)$`)

// parseZone parses an offset from UTC or the name of a time zone.
func parseZone(text string) (*time.Location, error) {
	if m := zoneOffset.FindStringSubmatch(text); m != nil {
		hours, _ := strconv.Atoi(m[2])
		minutes, _ := strconv.Atoi(m[3])
		if hours > 23 || minutes > 59 {
			return nil, usagef("no such time zone")
		}
		seconds := (hours*60 + minutes) * 60
		if m[1] == "-" {
			seconds = -seconds
		}
		return time.FixedZone(text, seconds), nil
	}
	zone, err := time.LoadLocation(text)
	if err != nil || text == "" || text == "Local" {
		return nil, usagef("no such time zone here: want an offset such as +02:00, UTC, or a name that this system knows")
	}
	return zone, nil
}
