// Package structs reads structs whose fields have `userdb` tags: the grammar of a tag, the tagged fields of a struct, and
// which codecs hold a Go type. It knows no schema: roles and codecs are names here, those of package schema.
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

// RevName is the one name that is no facet: the revision of the entry.
const RevName = "~rev"

// The options that are no roles.
const (
	Primary    = "primary"
	Required   = "required"
	kindPrefix = "kind=" // with the name of a kind behind it
)

// options are what may follow the name in a tag, each in the schema's own word.
var options = []string{"indexed", "ordered", Primary, Required, "secondary"}

// A Tag is what a tag says: the name of a facet, and what From makes of its field.
type Tag struct {
	Name    string
	Options []string // without the kind, in the order of the tag
	Kind    string   // ""; none is named
}

// ParseTag reads the value of a tag: a name, then options after commas. The error says what is wrong with it.
func ParseTag(text string) (Tag, error) {
	parts := strings.Split(text, ",")
	t := Tag{Name: parts[0]}
	if reason := nameProblem(t.Name); reason != "" {
		return Tag{}, fmt.Errorf("tag %q: %s", text, reason)
	}
	for _, option := range parts[1:] {
		kind, isKind := strings.CutPrefix(option, kindPrefix)
		switch {
		case t.Name == RevName:
			return Tag{}, fmt.Errorf("tag %q: %s has no options", text, RevName)
		case isKind && kind != "" && t.Kind == "":
			t.Kind = kind
		case slices.Contains(t.Options, option) || isKind && t.Kind != "":
			return Tag{}, fmt.Errorf("tag %q: the option %q appears twice", text, option)
		case slices.Contains(options, option):
			t.Options = append(t.Options, option)
		default:
			return Tag{}, fmt.Errorf("tag %q: unknown option %q; want one of %s, kind=NAME", text, option, strings.Join(options, ", "))
		}
	}
	return t, nil
}

// nameProblem says what is wrong with the name in any schema, "" where nothing is.
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

// Lookup finds our key in the tag of a struct field. Unlike reflect.StructTag.Lookup it refuses a tag that names the key
// and cannot be read: the field would be left out without a word.
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
		value, _ = strconv.Unquote(quoted) // it is a quoted prefix
		found = true
	}
	return value, found, nil
}

// isKey reports whether reflect takes a text as the key in a tag.
func isKey(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == '"' || r == 0x7f })
}
