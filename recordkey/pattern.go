package recordkey

import "strings"

// A Pattern selects keys of one kind, for SCAN. Its parts are plain text, never globs, and an empty
// part matches anything. The zero Pattern matches all keys of the whole store.
type Pattern struct {
	Namespace Namespace

	// Kind is the kind of the keys. Zero selects all keys of the namespace and of those nested in
	// it, and the fields below are ignored.
	Kind               Kind
	Type, Field, Value string

	// Name is the name of a tertiary record. For KindOwn it is the first part of the key's name,
	// which further parts or an entry's key must follow.
	Name string
}

// String returns the pattern for Redis. Its stars also match slashes and colons, so SCAN may return
// other keys as well: check them with Match.
func (p Pattern) String() string {
	b := []byte(Glob(p.Namespace.path))
	switch p.Kind {
	case 0:
		return string(append(b, '*'))
	case KindOwn:
		b = append(b, ownPrefix...)
		if p.Name != "" {
			b = append(appendGlobPart(b, p.Name), '/')
		}
		return string(append(b, '*'))
	}
	b = append(appendGlobPart(b, p.Type), '/')
	b = append(appendGlobPart(b, p.Field), ':')
	b = appendGlobPart(b, p.Value)
	switch p.Kind {
	case KindSRK:
		b = append(b, srkEnding...)
	case KindIndex:
		b = append(b, indexEnding...)
	case KindTertiary:
		b = appendGlobPart(append(b, '/'), p.Name)
	}
	return string(b)
}

func appendGlobPart(b []byte, part string) []byte {
	if part == "" {
		return append(b, '*')
	}
	return append(b, Glob(Escape(part))...)
}

// Match reports whether p selects k.
func (p Pattern) Match(k Key) bool {
	switch p.Kind {
	case 0:
		return k.IsValid() && strings.HasPrefix(k.ns.path, p.Namespace.path)
	case KindOwn:
		return k.kind == KindOwn && k.ns == p.Namespace &&
			(p.Name == "" || k.isOwnOfEntry() && k.name == Escape(p.Name) || strings.HasPrefix(k.name, Escape(p.Name)+"/"))
	}
	return k.kind == p.Kind && k.ns == p.Namespace && matchesPart(p.Type, k.typ) &&
		matchesPart(p.Field, k.field) && matchesPart(p.Value, k.value) && matchesPart(p.Name, k.Name())
}

// Glob escapes text so that a SCAN pattern matches it literally. It does not escape it for a key:
// for a part of a key, such as a value, call Glob(Escape(part)).
func Glob(text string) string {
	if !strings.ContainsAny(text, globChars) {
		return text
	}
	b := make([]byte, 0, 2*len(text))
	for i := range len(text) {
		switch c := text[i]; {
		case strings.HasPrefix(text[i:], regexpEnd):
			b = append(b, `[\\]`...)
		case strings.IndexByte(globChars, c) >= 0:
			b = append(b, '\\', c)
		default:
			b = append(b, c)
		}
	}
	return string(b)
}

const globChars = `*?[]^-\`

// regexpEnd must not be escaped with a second backslash. miniredis, which many tests use, turns a
// pattern into a regular expression, in which a backslash before an E would end the literal text.
const regexpEnd = `\E`

func matchesPart(want, got string) bool { return want == "" || want == got }
