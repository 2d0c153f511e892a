// Package records holds what the packages of maintain share: text for messages, walks over all
// entries, and changes of entries.
package records

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/coffeenode/userdb/recordkey"
)

// Relative returns a key without its namespace, as SRKs store it and messages show it.
func Relative(k recordkey.Key) string { return k.In(recordkey.Namespace{}).String() }

// Map returns the results of calling f for each element of list.
func Map[T, U any](list []T, f func(T) U) []U {
	results := make([]U, len(list))
	for i, element := range list {
		results[i] = f(element)
	}
	return results
}

// ShownBytes is the maximum number of bytes of a text that Quoted quotes.
const ShownBytes = 80

// Quoted returns text from the database in quotes, shortened if necessary.
func Quoted(text string) string {
	if len(text) <= ShownBytes {
		return strconv.Quote(text)
	}
	return strconv.Quote(strings.ToValidUTF8(text[:ShownBytes], "")) + "…"
}

// Printable returns text as it is, or quoted if it could mislead a terminal or a reader.
func Printable(text string) string {
	if q := strconv.Quote(text); len(q) != len(text)+2 || text == "" || strings.TrimSpace(text) != text {
		return q
	}
	return text
}

const ValueBytes = 200 // maximum number of bytes of a value that Shorten shows

// Shorten returns a printable form of a value, truncated if it is long. size is the length of the
// whole value in bytes.
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

// Unkeyable returns why a value cannot be part of a key.
func Unkeyable(value string) string {
	if value == "" {
		return "empty"
	}
	return "over 1 KiB"
}
