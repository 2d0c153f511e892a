package recordkey

import (
	"cmp"
	"strconv"
	"strings"
)

// Kind says which kind of record a key names. The zero Kind is invalid.
type Kind uint8

// The kinds of keys, in the order in which Compare puts keys of the same type, field and value.
const (
	KindPRK      Kind = iota + 1 // user/uid:9a4c, an entry
	KindSRK                      // user/name:bob/~prk, the PRK of the entry with that name
	KindTertiary                 // user/uid:9a4c/tags, other data of an entry
	KindIndex                    // user/job:Cook/~prks, the PRKs of the entries with that job
	KindOwn                      // ~/schema/user or ~/token/{user/uid:9a4c}, of the store itself
)

// String returns the name of the kind for people: "PRK", "SRK", "tertiary key", "index key" or "own
// key".
func (k Kind) String() string {
	switch k {
	case KindPRK:
		return "PRK"
	case KindSRK:
		return "SRK"
	case KindTertiary:
		return "tertiary key"
	case KindIndex:
		return "index key"
	case KindOwn:
		return "own key"
	}
	return "invalid kind " + strconv.Itoa(int(k))
}

// Endings of keys, which follow the value. They cannot be tertiary names, because no tertiary name
// begins with a tilde.
const (
	srkEnding   = "/~prk"
	indexEnding = "/~prks"
)

// A Key represents a parsed record key. Keys are comparable with ==, can be used as map keys, and
// are equal if and only if their texts are. A Key is immutable and safe for concurrent use.
//
// The zero Key is not a valid key: IsValid returns false, and AppendText refuses it.
type Key struct {
	kind              Kind
	ns                Namespace
	typ, field, value string

	// name is the name of a tertiary record. For KindOwn it holds all parts, escaped and joined,
	// without the key of the entry.
	name string
}

// PRK returns the key of an entry: typ/field:value. The field must be the primary field of the
// type. The error is a *SyntaxError if a part is empty or too long, or if typ or field begins with
// a tilde.
func PRK(typ, field, value string) (Key, error) {
	return newFacetKey("PRK", KindPRK, typ, field, value)
}

// SRK returns the key that holds the PRK of the entry with a secondary value: typ/field:value/~prk.
// The value must already be canonical. SRK returns the same errors as PRK.
func SRK(typ, field, value string) (Key, error) {
	return newFacetKey("SRK", KindSRK, typ, field, value)
}

// Index returns the key of the set of PRKs of all entries with a value in an indexed field, or with
// a member in an indexed tertiary set: typ/field:value/~prks. It returns the same errors as PRK.
func Index(typ, field, value string) (Key, error) {
	return newFacetKey("Index", KindIndex, typ, field, value)
}

func newFacetKey(fn string, kind Kind, typ, field, value string) (Key, error) {
	if err := checkName(fn, "type", typ); err != nil {
		return Key{}, err
	}
	if err := checkName(fn, "field", field); err != nil {
		return Key{}, err
	}
	if err := checkCrumb(fn, "value", value); err != nil {
		return Key{}, err
	}
	return Key{kind: kind, typ: typ, field: field, value: value}, nil
}

// checkName checks a part of a key that must not begin with a tilde: a type, a field or a name.
func checkName(fn, what, name string) error {
	if strings.HasPrefix(name, "~") {
		return &SyntaxError{Func: fn, Input: name, Reason: what + tildeReason}
	}
	return checkCrumb(fn, what, name)
}

// checkCrumb checks the length of a crumb, which is one part of a key.
func checkCrumb(fn, what, crumb string) error {
	if crumb == "" {
		return &SyntaxError{Func: fn, Reason: what + emptyReason}
	}
	if len(crumb) > MaxCrumb {
		return &SyntaxError{Func: fn, Input: crumb, At: MaxCrumb, Reason: what + longReason}
	}
	return nil
}

const (
	emptyReason = " is empty"
	tildeReason = " begins with ~"
	longReason  = " is over 1024 bytes"
)

// Tertiary returns the key of the tertiary record called name of entry k: PRK/name. The error is a
// *SyntaxError if k is not a PRK, or if name is empty, too long or begins with a tilde.
func (k Key) Tertiary(name string) (Key, error) {
	if k.kind != KindPRK {
		return Key{}, &SyntaxError{Func: "Tertiary", Input: k.String(), Reason: k.kind.String() + ", want PRK"}
	}
	if err := checkName("Tertiary", "name", name); err != nil {
		return Key{}, err
	}
	k.kind, k.name = KindTertiary, name
	return k, nil
}

// Own returns the key of one of the store's own records: ~/part/part. Parts may begin with a tilde.
// The error is a *SyntaxError if there are no parts or more than 16, or if one is empty or too
// long.
func Own(parts ...string) (Key, error) {
	name, err := joinParts(parts)
	if err != nil {
		return Key{}, err
	}
	return Key{kind: KindOwn, name: name}, nil
}

// Own returns the key of one of the store's own records about entry k: ~/part/part/{PRK}. The text
// between the braces is the whole key of the entry, including its namespace. Redis Cluster hashes
// only that text, so the record has the same slot as the entry. The error is a *SyntaxError if k is
// not a PRK or if the function Own refuses the parts.
func (k Key) Own(parts ...string) (Key, error) {
	if k.kind != KindPRK {
		return Key{}, &SyntaxError{Func: "Own", Input: k.String(), Reason: k.kind.String() + ", want PRK"}
	}
	name, err := joinParts(parts)
	if err != nil {
		return Key{}, err
	}
	k.kind, k.name = KindOwn, name
	return k, nil
}

// joinParts escapes the parts of a KindOwn key and joins them with slashes.
func joinParts(parts []string) (string, error) {
	if len(parts) == 0 {
		return "", &SyntaxError{Func: "Own", Reason: "no parts"}
	}
	if len(parts) > maxDepth {
		return "", &SyntaxError{Func: "Own", Input: parts[maxDepth], Reason: "more than 16 parts"}
	}
	var buf [stackKeySize]byte
	b := buf[:0]
	for i, part := range parts {
		if err := checkCrumb("Own", "part", part); err != nil {
			return "", err
		}
		if i > 0 {
			b = append(b, '/')
		}
		b = appendEscaped(b, part)
	}
	return string(b), nil
}

// In returns k moved to namespace ns, whatever its namespace was. In a key with braces it also
// moves the key of the entry between them. In returns the zero Key unchanged.
func (k Key) In(ns Namespace) Key {
	if k.IsValid() {
		k.ns = ns
	}
	return k
}

// PRK returns the PRK of the entry to which a tertiary key or a key with braces belongs. It returns
// k if k is a PRK, and the zero Key for keys that belong to no entry.
func (k Key) PRK() Key {
	if k.kind != KindPRK && k.kind != KindTertiary && !k.isOwnOfEntry() {
		return Key{}
	}
	k.kind, k.name = KindPRK, ""
	return k
}

// isOwnOfEntry reports whether k is a result of Key.Own: it has the key of an entry between braces.
func (k Key) isOwnOfEntry() bool { return k.kind == KindOwn && k.typ != "" }

// IsValid reports whether k is not the zero Key.
func (k Key) IsValid() bool { return k.kind != 0 }

// Kind returns the kind of record that k names.
func (k Key) Kind() Kind { return k.kind }

// Namespace returns the namespace of k. It is zero for a key outside any namespace.
func (k Key) Namespace() Namespace { return k.ns }

// Type returns the type of the entry, unescaped, or "" for a KindOwn key without an entry.
func (k Key) Type() string { return k.typ }

// Field returns the primary, secondary or indexed field, unescaped, or "" for a KindOwn key without
// an entry.
func (k Key) Field() string { return k.field }

// Value returns the value of the field, unescaped, or "" for a KindOwn key without an entry.
func (k Key) Value() string { return k.value }

// Name returns the unescaped name of a tertiary record, or "" for other kinds.
func (k Key) Name() string {
	if k.kind != KindTertiary {
		return ""
	}
	return k.name
}

// Parts returns the parts that were passed to Own, or nil for other kinds.
func (k Key) Parts() []string {
	if k.kind != KindOwn {
		return nil
	}
	parts := strings.Split(k.name, "/")
	for i, part := range parts {
		n, _ := rawLen(part) // cannot fail, because part was checked when k was made
		parts[i] = unescape(part, n)
	}
	return parts
}

// Compare orders keys by namespace, type, field, value, kind and name or parts. It compares
// namespaces and parts in their escaped form, and everything else unescaped, byte by byte.
// Because the kind comes after the value, tertiary keys and own keys of an entry follow the key of
// the entry. This is not the order of the keys' texts. Compare returns 0 only for equal keys; the
// zero Key comes first.
func (k Key) Compare(o Key) int {
	return cmp.Or(
		strings.Compare(k.ns.path, o.ns.path),
		strings.Compare(k.typ, o.typ),
		strings.Compare(k.field, o.field),
		strings.Compare(k.value, o.value),
		cmp.Compare(k.kind, o.kind),
		strings.Compare(k.name, o.name),
	)
}
