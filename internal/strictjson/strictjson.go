// Package strictjson writes JSON that cannot control a terminal: it escapes every character that is
// not printable, including control characters and marks that change the direction of text, which
// JSON allows unescaped. It also detects JSON texts that different readers may understand
// differently.
package strictjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Marshal returns v as JSON on one line, with a newline at the end.
func Marshal[T any](v T) ([]byte, error) { return marshal(v, "") }

// Indent returns v as indented JSON for people.
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

// escape replaces every character that is not printable by its escape. Apart from line ends, such
// characters can occur only in strings, where an escape means the same.
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

// ValidUnicode reports whether a JSON text is valid UTF-8 and has no unpaired surrogate. Readers
// replace invalid bytes and unpaired surrogates by U+FFFD, so that two different texts could become
// the same.
func ValidUnicode(text []byte) bool { return utf8.Valid(text) && !HasLoneSurrogate(string(text)) }

// HasLoneSurrogate reports whether a JSON text has an escape of an unpaired surrogate.
func HasLoneSurrogate(raw string) bool {
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

// HasDuplicateNames reports whether a JSON text has an object with two members of the same name.
// Readers differ in which of them they use.
func HasDuplicateNames(text []byte) bool {
	return hasDuplicates(text, func(name string) string { return name })
}

// HasDuplicateNamesFold reports whether a JSON text has an object with two members whose names are
// equal or differ only in case.
func HasDuplicateNamesFold(text []byte) bool { return hasDuplicates(text, FoldName) }

// CountValues returns how many values the objects and arrays of a valid JSON text contain. An empty
// object or array counts as if it contained one. CountValues allocates nothing, so that a text can
// be refused before decoding it takes many times its size.
func CountValues(text []byte) (n int) {
	objects, arrays, commas := count(text)
	return objects + arrays + commas
}

// DecodedSize returns about how many bytes of memory a valid JSON text takes when it is decoded
// into a value of type any. It allocates nothing.
func DecodedSize(text []byte) int {
	const objectSize, valueSize = 256, 32
	objects, arrays, commas := count(text)
	return objects*objectSize + (objects+arrays+commas)*valueSize + len(text)
}

// count returns how many objects and arrays a JSON text has, and how many commas between values.
func count(text []byte) (objects, arrays, commas int) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{':
			objects++
		case c == '[':
			arrays++
		case c == ',':
			commas++
		}
	}
	return objects, arrays, commas
}

// FoldName returns a form of name that is the same for all names that differ only in case.
func FoldName(name string) string { return strings.ToLower(strings.ToUpper(name)) }

// hasDuplicates reports whether an object has two members for whose names fold returns the same
// text.
func hasDuplicates(text []byte, fold func(name string) string) bool {
	type object struct {
		names map[string]bool // names seen so far; nil for an array
		next  bool            // a name comes next
	}
	if bytes.Count(text, []byte(":")) < 2 {
		return false
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.UseNumber()
	for open := []object{{}}; ; {
		token, err := in.Token()
		if err != nil {
			return false
		}
		top := &open[len(open)-1]
		if name, ok := token.(string); ok && top.next {
			name = fold(name)
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
