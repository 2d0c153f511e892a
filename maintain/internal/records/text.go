// Package records is what the rooms of maintain share: texts of messages, walks over all entries, and the schema that is
// stored beside them.
package records

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/coffeenode/userdb/recordkey"
)

// Relative is a key as the view's callers know it.
func Relative(k recordkey.Key) string { return k.In(recordkey.Namespace{}).String() }

// Map is what each element of a list becomes.
func Map[T, U any](list []T, to func(T) U) []U {
	others := make([]U, len(list))
	for i, of := range list {
		others[i] = to(of)
	}
	return others
}

// ShownBytes is how much of a text a problem quotes.
const ShownBytes = 80

// Quoted is text from the database, fit for a sentence.
func Quoted(text string) string {
	if len(text) <= ShownBytes {
		return strconv.Quote(text)
	}
	return strconv.Quote(strings.ToValidUTF8(text[:ShownBytes], "")) + "…"
}

// Printable is text as it is, or quoted where a terminal or a reader could be misled by it.
func Printable(text string) string {
	if q := strconv.Quote(text); len(q) != len(text)+2 || text == "" || strings.TrimSpace(text) != text {
		return q
	}
	return text
}

const ValueBytes = 200 // how much of a value is shown

// Shorten makes a value printable, and cuts it where it is long. size is its whole length.
func Shorten(text string, size int64) string {
	if len(text) > ValueBytes {
		text = text[:ValueBytes]
		for range utf8.UTFMax - 1 {
			if r, n := utf8.DecodeLastRuneInString(text); r != utf8.RuneError || n != 1 {
				break
			}
			text = text[:len(text)-1]
		}
	}
	shown := Printable(text)
	if int64(len(text)) < size {
		shown += fmt.Sprintf("… (%d bytes)", size)
	}
	return shown
}

// Unkeyable says what keeps a value out of a key.
func Unkeyable(value string) string {
	if value == "" {
		return "empty"
	}
	return "over 1 KiB"
}
