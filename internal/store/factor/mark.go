package factor

import (
	"slices"
	"strings"
)

// Fields of an entry that has a factor.
const (
	// FieldMark lists the factors of an entry, as a Mark. In an entry that has this field, a first
	// step alone, such as a password, signs nobody in. Factors that are stored but not listed have
	// no effect: they are leftovers of removed factors or of an earlier entry.
	FieldMark = "~factor"
	// FieldHash holds the password hash of such an entry.
	FieldHash = "~password2"
	// HashMarker replaces the hash in the password facet of such an entry. No verifier accepts it,
	// so that processes of versions that do not know factors accept no password.
	HashMarker = "*factor"
)

// A Mark lists the factors of an entry: the names of their members in its record, sorted, with
// commas between them. The zero Mark belongs to an entry without a factor.
type Mark string

// Any reports whether the entry has a factor. Even a damaged mark counts.
func (m Mark) Any() bool { return m != "" }

// Names returns the names of factors in the mark. It leaves out malformed ones.
func (m Mark) Names() (names []string) {
	for name := range strings.SplitSeq(string(m), ",") {
		if kind, id, _ := strings.Cut(name, "/"); isKind(kind) && id != "" {
			names = append(names, name)
		}
	}
	return names
}

// Methods returns the methods by which the second step can be taken, sorted: the kinds of factors.
func (m Mark) Methods() (methods []string) {
	for _, name := range m.Names() {
		kind, _, _ := strings.Cut(name, "/")
		methods = append(methods, kind)
	}
	slices.Sort(methods)
	return slices.Compact(methods)
}

// With returns the mark with further factors.
func (m Mark) With(names ...string) Mark {
	names = append(m.Names(), names...)
	slices.Sort(names)
	return Mark(strings.Join(slices.Compact(names), ","))
}

// Without returns the mark without a factor. Recovery codes alone are no factor: if nothing else is
// left, the mark is empty.
func (m Mark) Without(name string) Mark {
	names := slices.DeleteFunc(m.Names(), func(n string) bool { return n == name })
	if !slices.ContainsFunc(names, func(n string) bool { return !strings.HasPrefix(n, Recovery+"/") }) {
		return ""
	}
	return Mark(strings.Join(names, ","))
}
