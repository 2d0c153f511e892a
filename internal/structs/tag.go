// Package structs reads structs whose fields have `userdb` tags. It parses tags, collects the
// tagged fields of a struct, and knows which codecs support a Go type. It does not import package
// schema: roles and codecs are strings here, with the names of package schema.
package structs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Key is the key of a tag, as in `userdb:"email,secondary"`.
const Key = "userdb"

// RevName is the name for the revision of the entry. Every other name is that of a facet or of a
// tertiary set.
const RevName = "~rev"

// The options that are not roles.
const (
	Primary    = "primary"
	Required   = "required"
	Untyped    = "untyped"
	Set        = "set"   // a tertiary set, not a facet
	kindPrefix = "kind=" // followed by the name of a kind
	manyPrefix = "many=" // followed by a number of values
)

// options lists the words that may follow the name in a tag. They are those of the schema.
var options = []string{"indexed", "ordered", Primary, Required, "secondary", Set, Untyped}

// A Tag holds the contents of a tag: the name of a facet or a tertiary set and its options.
type Tag struct {
	Name    string
	Options []string // without the kind and the number, in the order of the tag
	Kind    string   // "" if the tag names none
	Many    int      // how many values the facet may have; 0 if the tag does not say
}

// ParseTag parses the value of a tag: a name, followed by options separated by commas.
func ParseTag(text string) (Tag, error) {
	parts := strings.Split(text, ",")
	t := Tag{Name: parts[0]}
	if reason := nameProblem(t.Name); reason != "" {
		return Tag{}, fmt.Errorf("tag %q: %s", text, reason)
	}
	for _, option := range parts[1:] {
		if option == "identifier" { // the other name of the role, as in a schema
			option = "secondary"
		}
		kind, isKind := strings.CutPrefix(option, kindPrefix)
		number, isMany := strings.CutPrefix(option, manyPrefix)
		many, _ := strconv.Atoi(number)
		switch {
		case t.Name == RevName:
			return Tag{}, fmt.Errorf("tag %q: %s has no options", text, RevName)
		case isKind && kind != "" && t.Kind == "":
			t.Kind = kind
		case isMany && many > 0 && strconv.Itoa(many) == number && t.Many == 0:
			t.Many = many
		case slices.Contains(t.Options, option) || isKind && t.Kind != "" || isMany && t.Many > 0:
			return Tag{}, fmt.Errorf("tag %q: the option %q appears twice", text, option)
		case slices.Contains(options, option):
			t.Options = append(t.Options, option)
		default:
			return Tag{}, fmt.Errorf("tag %q: unknown option %q; want one of %s, kind=NAME, many=N", text, option, strings.Join(options, ", "))
		}
	}
	return t, nil
}

// IsSet reports whether a tag declares a tertiary set.
func (t Tag) IsSet() bool { return slices.Contains(t.Options, Set) }

// SetProblem returns why a field of a struct with the option set is invalid, or "".
func (f Field) SetProblem() string {
	switch {
	case !IsTexts(f.Type):
		return fmt.Sprintf("a set needs type []string, not %s", f.Type)
	case f.Kind != "" || f.Many > 0 || slices.ContainsFunc(f.Options, func(o string) bool { return o != Set && o != "indexed" }):
		return "a set may only be indexed"
	}
	return ""
}

// nameProblem returns why a name is invalid under every schema, or "" if it may be valid.
func nameProblem(name string) string {
	switch {
	case name == "":
		return "the name is empty"
	case name != RevName && strings.HasPrefix(name, "~"):
		return "names that begin with ~ are reserved for the store; the only one for structs is " + RevName
	case strings.TrimSpace(name) != name:
		return "white space around the name"
	case !utf8.ValidString(name):
		return "the name is not UTF-8"
	}
	return ""
}

// Lookup returns the value of Key in the tag of a struct field. Unlike reflect.StructTag.Lookup it
// returns an error if the tag contains the key but is malformed, because the field would otherwise
// be ignored silently.
func Lookup(tag string) (value string, found bool, err error) {
	for rest := strings.TrimLeft(tag, " "); rest != ""; rest = strings.TrimLeft(rest, " ") {
		key, after, _ := strings.Cut(rest, ":")
		quoted, bad := strconv.QuotedPrefix(after)
		if bad != nil || !isKey(key) || quoted[0] != '"' {
			if strings.Contains(rest, Key) {
				return "", false, fmt.Errorf("tag `%s` is not of the form `%s:\"name,option\"`", tag, Key)
			}
			return value, found, nil
		}
		rest = after[len(quoted):]
		if key != Key {
			continue
		}
		if found {
			return "", false, fmt.Errorf("tag `%s` has the key %s twice", tag, Key)
		}
		value, _ = strconv.Unquote(quoted) // cannot fail: quoted is a quoted prefix
		found = true
	}
	return value, found, nil
}

// isKey reports whether reflect accepts a text as a key in a tag.
func isKey(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == '"' || r == 0x7f })
}
