package main

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// shown is a text for people. What could be misread (the empty text, spaces at its ends) or could
// drive a terminal (control characters, marks that turn the direction of writing) stands in quotes,
// escaped; and so does what looks like that.
func shown(text string) string {
	if text == "" || text[0] == '"' || strings.TrimSpace(text) != text || !printable(text) {
		return strconv.Quote(text)
	}
	return text
}

func printable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) })
}

// oneLine makes a message fit for one line of a terminal.
func oneLine(text string) string {
	if printable(text) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if strconv.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// count is a number of things.
func count(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if stem, ok := strings.CutSuffix(thing, "y"); ok {
		thing = stem + "ie"
	}
	return strconv.FormatInt(n, 10) + " " + thing + "s"
}
