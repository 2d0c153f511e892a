package hints

import (
	"bytes"
	"encoding/json"
	"maps"

	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// MaxValue is the maximum length of a value in a hint, in bytes, before it is made canonical.
const MaxValue = schema.MaxValue

// A Hint identifies an entry. The zero Hint is not valid: Resolve returns an error.
type Hint struct {
	form         form
	typ          string // the type that Of names, or ""
	field, value string
	key          recordkey.Key
	part         schema.Facets
}

type form uint8

const (
	formNone   form = iota
	formAny         // value, in any secondary field
	formField       // field and value
	formUID         // value, in the primary field
	formText        // value: an operator's text that is not a key, so a UID
	formPair        // field, which may be a type instead, and value
	formKey         // key
	formFacets      // part
)

// Names under which an entry's JSON holds its type and its PRK.
const (
	facetType = "~isa"
	facetPRK  = "~prk"
)

// Any identifies the entry that has value in any of its secondary fields whose values people type;
// see schema.Field.Typed. The value may come from a visitor: it is never interpreted as a key or a
// pattern.
func Any(value string) Hint { return Hint{form: formAny, value: value} }

// Field identifies the entry that has value in the primary field or a secondary one. The value may
// come from a visitor: it is never interpreted as a key. The field must not come from a visitor.
func Field(field, value string) Hint { return Hint{form: formField, field: field, value: value} }

// UID identifies the entry with the given primary value.
func UID(value string) Hint { return Hint{form: formUID, value: value} }

// Key identifies the entry with the given PRK, or the entry that the given SRK leads to. The key
// must not lie in a namespace, because a hint is resolved within the namespace of the caller.
func Key(k recordkey.Key) Hint { return Hint{form: formKey, key: k} }

// Facets identifies an entry by all or some of its facets: by ~prk or the primary facet if f has
// one, and otherwise by all secondary facets in f, which must belong to the same entry. ~isa names
// the type. Facets ignores other facets and those that are null. It copies f.
func Facets(f schema.Facets) Hint { return Hint{form: formFacets, part: maps.Clone(f)} }

// Of returns h restricted to entries of type typ. It is meant for hints that do not name a type
// themselves; Resolve returns an error if h names another type. In a pair such as ["order","7"] the
// first element may be a type: in that case the pair's type counts and typ is ignored.
func (h Hint) Of(typ string) Hint {
	h.typ = typ
	return h
}

// Word returns the value of a hint that Parse read as a bare word, which means a UID. It returns
// false for all other hints.
func (h Hint) Word() (string, bool) { return h.value, h.form == formText }

// IsZero reports whether h is the zero Hint.
func (h Hint) IsZero() bool { return h.form == formNone && h.typ == "" }

// Type returns the type that h names, or "" if it names none. It returns "" for a pair such as
// ["user","17c0"], because only the schema can tell whether a pair begins with a type or a field.
func (h Hint) Type() string {
	switch h.form {
	case formKey:
		return h.key.Type()
	case formFacets:
		if isa, ok := h.part[facetType]; ok && !isa.IsNull() {
			return isa.Text()
		}
	}
	return h.typ
}

// String returns h for people and logs. It reveals no more than Error.Hint.
func (h Hint) String() string {
	switch h.form {
	case formAny:
		return "*"
	case formField:
		return "field " + quoted(h.field)
	case formUID:
		return "UID"
	case formText:
		return quoted(h.value)
	case formPair:
		return "pair of " + quoted(h.field)
	case formKey:
		return quoted(h.key.String())
	case formFacets:
		return "{…}"
	}
	return "zero Hint"
}

// A Target holds the records that a hint refers to. The zero Target has no records.
type Target struct {
	// Type, Field and Value describe what to look for. Field is a primary or secondary field, or
	// "*" for every typed secondary field. Value is canonical if Field is secondary. If an entry is
	// identified by several secondary facets, Field and Value are the first of them by name.
	Type, Field, Value string
	// Keys holds one PRK or one SRK, or several SRKs. For "*" it holds the SRKs of all typed
	// secondary fields, sorted by field, and any of them may lead to the entry. The keys lie in no
	// namespace.
	Keys []recordkey.Key
	// All means that the hint leads to an entry only if every key leads to it.
	All bool
}

// Pattern returns a pattern with which SCAN finds the SRKs of Value under every field, including
// fields that the schema lacks. It returns "" unless Field is "*". In a namespace, prefix it with
// recordkey.Glob of the namespace's String.
func (t Target) Pattern() string {
	if t.Field != "*" {
		return ""
	}
	return patternForAny(t.Type, t.Value)
}

// MarshalJSON writes ["prk",KEY,TYPE,FIELD,VALUE], or the same with "srk" and the first key. For
// "*" it writes ["any",[SRK…],TYPE,"*",VALUE,PATTERN].
func (t Target) MarshalJSON() ([]byte, error) {
	list := any(Quintuplet{})
	switch {
	case t.Field == "*":
		srks := make([]string, len(t.Keys))
		for i, k := range t.Keys {
			srks[i] = k.String()
		}
		list = []any{"any", srks, t.Type, t.Field, t.Value, t.Pattern()}
	case len(t.Keys) > 0:
		list = quintuplet(t.Keys[0])
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // the outer encoder decides whether to escape < and >
	err := enc.Encode(list)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// A Quintuplet is the form in which CoffeeNode UserDB describes a hint or a key: "prk" or "srk",
// the key, the type, the field and the value. Its JSON is a list of five strings.
type Quintuplet [5]string

func quintuplet(k recordkey.Key) Quintuplet {
	kind := "prk"
	if k.Kind() == recordkey.KindSRK {
		kind = "srk"
	}
	return Quintuplet{kind, k.String(), k.Type(), k.Field(), k.Value()}
}
