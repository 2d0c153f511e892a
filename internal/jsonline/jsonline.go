// Package jsonline writes JSON in which nothing can drive a terminal: control characters and marks that turn the
// direction of writing, which JSON has to let stand, are escaped like all else that is not printed. It also tells texts that can be read in
// one way alone.
package jsonline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Marshal writes v as one line, with its end.
func Marshal[T any](v T) ([]byte, error) { return marshal(v, "") }

// Indent is Marshal over several lines, for people.
func Indent[T any](v T) ([]byte, error) { return marshal(v, "  ") }

func marshal[T any](v T, indent string) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("writing JSON: %w", err)
	}
	return escape(b.Bytes()), nil
}

// escape can take any character that is not printed for its escape: but for the ends of lines it can only stand in texts.
func escape(text []byte) []byte {
	if !bytes.ContainsFunc(text, notPrintable) {
		return text
	}
	out := make([]byte, 0, len(text)+64)
	for _, r := range string(text) {
		switch {
		case !notPrintable(r):
			out = utf8.AppendRune(out, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

func notPrintable(r rune) bool { return r != '\n' && !strconv.IsPrint(r) }

// Whole reports whether a text of JSON is UTF-8 and has no half of a surrogate pair. Whatever is wrong so is read as U+FFFD: two texts
// that are not the same would be one.
func Whole(text []byte) bool { return utf8.Valid(text) && !HalfPair(string(text)) }

// HalfPair reports whether a JSON text has the escape of one half of a surrogate pair without the other.
func HalfPair(raw string) bool {
	for {
		_, after, found := strings.Cut(raw, `\`)
		if !found || len(after) < 5 {
			return false
		}
		raw = after[1:]
		if after[0] != 'u' {
			continue
		}
		n, _ := strconv.ParseUint(raw[:4], 16, 16)
		raw = raw[4:]
		if first := rune(n); utf16.IsSurrogate(first) {
			if len(raw) < 6 || raw[:2] != `\u` {
				return true
			}
			n, _ = strconv.ParseUint(raw[2:6], 16, 16)
			if utf16.DecodeRune(first, rune(n)) == utf8.RuneError {
				return true
			}
			raw = raw[6:]
		}
	}
}

// Twice reports whether JSON has an object with two members of one name. Readers differ in which of them they take.
func Twice(text []byte) bool {
	type object struct {
		names map[string]bool // so far; nil: it is an array
		next  bool            // a name comes next
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.UseNumber()
	for open := []object{{}}; ; {
		token, err := in.Token()
		if err != nil {
			return false
		}
		top := &open[len(open)-1]
		if name, is := token.(string); is && top.next {
			if top.names[name] {
				return true
			}
			top.names[name], top.next = true, false
			continue
		}
		top.next = top.names != nil
		switch token {
		case json.Delim('{'):
			open = append(open, object{map[string]bool{}, true})
		case json.Delim('['):
			open = append(open, object{})
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
		}
	}
}
