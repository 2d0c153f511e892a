package recordkey

import (
	"cmp"
	"strconv"
	"strings"
)

// Kind says which record a key names. The zero Kind is no kind.
type Kind uint8

// The kinds of keys, in the order in which the keys of one entry sort.
const (
	KindPRK      Kind = iota + 1 // user/uid:9a4c, an entry
	KindSRK                      // user/name:bob/~prk, the PRK of the entry with that secondary value
	KindTertiary                 // user/uid:9a4c/tags, what else belongs to an entry
	KindIndex                    // user/job:Cook/~prks, the PRKs of the entries with that value
	KindOwn                      // ~/schema/user, the store's own; ~/token/{user/uid:9a4c}, that of an entry
)

// String names the kind, for people: "PRK", "SRK", "tertiary key", "index key", "own key".
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

// Endings of keys, after the value; no tertiary name begins with a tilde.
const (
	srkEnding   = "/~prk"
	indexEnding = "/~prks"
)

// Key is a record key taken apart. Keys are comparable with ==, can be keys of a map, and are equal exactly when their
// texts are. The zero Key is no key: IsValid is false, and it can be written nowhere. A Key is immutable and safe for
// concurrent use.
type Key struct {
	kind              Kind
	ns                Namespace
	typ, field, value string
	name              string // of a tertiary record; of an own key all its parts, escaped, but for the entry's key
}

// PRK is the key of an entry: typ/field:value, field being the type's primary field. A part that no key can hold
// (empty, too long, a type or field that begins with a tilde) is a *SyntaxError.
func PRK(typ, field, value string) (Key, error) {
	return newFacetKey("PRK", KindPRK, typ, field, value)
}

// SRK is the key under which the PRK of the entry with a secondary value is kept: typ/field:value/~prk. The value must
// be in its canonical form already. Errors as of PRK.
func SRK(typ, field, value string) (Key, error) {
	return newFacetKey("SRK", KindSRK, typ, field, value)
}

// Index is the key of the set of PRKs of all entries with a value in an indexed field, or with a member in an indexed
// tertiary set: typ/field:value/~prks. Errors as of PRK.
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

func checkName(fn, what, name string) error {
	if strings.HasPrefix(name, "~") {
		return &SyntaxError{Func: fn, Input: name, Reason: what + tildeReason}
	}
	return checkCrumb(fn, what, name)
}

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

// Tertiary is the key of what an entry keeps under name: PRK/name. A key that is no PRK, an empty or too long name and
// one that begins with a tilde are a *SyntaxError.
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

// Own is the key of one of the store's own records: ~/part/part. Any part may begin with a tilde. No part at all, an
// empty and a too long one are a *SyntaxError.
func Own(parts ...string) (Key, error) {
	name, err := joinParts(parts)
	if err != nil {
		return Key{}, err
	}
	return Key{kind: KindOwn, name: name}, nil
}

// Own is the key of one of the store's own records of an entry: ~/part/part/{PRK}, where the whole key of the entry,
// its namespace included, stands between braces. Redis Cluster makes the slot of what stands there, so the record lies
// in the entry's slot. A key that is no PRK is a *SyntaxError, and so are parts that the function Own refuses.
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

// joinParts puts the parts of an own key together.
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

// In is the same key in namespace ns, whatever the namespace of k was; an own key of an entry becomes that of the entry
// there. The zero Key stays the zero Key.
func (k Key) In(ns Namespace) Key {
	if k.IsValid() {
		k.ns = ns
	}
	return k
}

// PRK is the PRK of the entry that a tertiary key, or an own key, belongs to, k itself if it is a PRK, and otherwise
// the zero Key.
func (k Key) PRK() Key {
	if k.kind != KindPRK && k.kind != KindTertiary && !k.isOwnOfEntry() {
		return Key{}
	}
	k.kind, k.name = KindPRK, ""
	return k
}

// isOwnOfEntry reports whether k is the own key of an entry.
func (k Key) isOwnOfEntry() bool { return k.kind == KindOwn && k.typ != "" }

// IsValid is false for the zero Key alone.
func (k Key) IsValid() bool { return k.kind != 0 }

// Kind says which record k names.
func (k Key) Kind() Kind { return k.kind }

// Namespace is where k lies; zero in the whole store.
func (k Key) Namespace() Namespace { return k.ns }

// Type is the type of the entry, as it was before escaping; "" in an own key that is no entry's.
func (k Key) Type() string { return k.typ }

// Field is the primary, secondary or indexed field, as it was before escaping; "" in an own key that is no entry's.
func (k Key) Field() string { return k.field }

// Value is the field's value, as it was before escaping; "" in an own key that is no entry's.
func (k Key) Value() string { return k.value }

// Name is the name of a tertiary record, as it was before escaping, else "".
func (k Key) Name() string {
	if k.kind != KindTertiary {
		return ""
	}
	return k.name
}

// Parts are what Own was given, without the entry; nil for any other key.
func (k Key) Parts() []string {
	if k.kind != KindOwn {
		return nil
	}
	parts := strings.Split(k.name, "/")
	for i, part := range parts {
		n, _ := rawLen(part) // it was checked when k was made
		parts[i] = unescape(part, n)
	}
	return parts
}

// Compare orders keys by namespace, type, field, value, kind and name, each by its bytes before escaping, so that what
// belongs to an entry stands after it; it is not the order of their texts. It is 0 exactly for equal keys; the zero Key
// comes first.
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
