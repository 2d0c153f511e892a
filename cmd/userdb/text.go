package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
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

// appendJSON writes v as one line of JSON. What could drive a terminal is escaped, too: it can only
// stand in texts, where JSON takes the escape for the character.
func appendJSON(v any) ([]byte, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("writing JSON: %w", err)
	}
	text := strings.TrimSuffix(b.String(), "\n")
	out := make([]byte, 0, len(text)+1)
	for _, r := range text {
		switch {
		case strconv.IsPrint(r):
			out = utf8.AppendRune(out, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return append(out, '\n'), nil
}
