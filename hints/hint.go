package hints

import (
	"bytes"
	"encoding/json"
	"maps"

	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// MaxValue is the greatest length of a value in a hint, in bytes, before it is made canonical.
const MaxValue = 4 << 10

// Hint points at an entry. The zero Hint is no hint, and resolves to nothing but an error.
type Hint struct {
	form         form
	typ          string // "": named by nothing but what is inside the hint
	field, value string
	key          recordkey.Key
	part         schema.Facets
}

type form uint8

const (
	formNone   form = iota
	formAny         // value, under every secondary field
	formField       // resolveField and value
	formUID         // value, under the primary field
	formText        // value, an operator's text that is no key: a UID
	formPair        // field, or perhaps a type, and value
	formKey         // resolveKey
	formFacets      // part
)

// What an entry says of itself beside its facets.
const (
	facetType = "~isa"
	facetPRK  = "~prk"
)

// Any points at the entry that has value in one of its secondary fields, whichever. The value may come from a visitor:
// it is never taken for a key or a pattern.
func Any(value string) Hint { return Hint{form: formAny, value: value} }

// Field points at the entry that has value in the primary or a secondary field. The value may come from a visitor: it
// is never taken for a key. The field must not.
func Field(field, value string) Hint { return Hint{form: formField, field: field, value: value} }

// UID points at the entry with that primary value.
func UID(value string) Hint { return Hint{form: formUID, value: value} }

// Key points at the entry with that PRK, or at the one whose PRK is kept under that SRK. The key must lie in no
// namespace: views have relative keys.
func Key(k recordkey.Key) Hint { return Hint{form: formKey, key: k} }

// Facets points at an entry by the entry itself or a part of it: by ~prk or the primary facet if it has one, else by
// all its secondary facets, which must be those of one entry. ~isa names the type. Other facets are ignored, as are
// those that are null. f is copied.
func Facets(f schema.Facets) Hint { return Hint{form: formFacets, part: maps.Clone(f)} }

// Of is h, meant for entries of type typ. It is for hints that do not say the type themselves; where one names another,
// Resolve refuses. In a pair such as ["order","7"] the first may be a type: then that counts, and typ is ignored.
func (h Hint) Of(typ string) Hint {
	h.typ = typ
	return h
}

// Word is the value of a hint that is a bare word to Parse, which points at the entry with that UID; false for any other hint.
func (h Hint) Word() (string, bool) { return h.value, h.form == formText }

// IsZero reports whether h is the zero Hint.
func (h Hint) IsZero() bool { return h.form == formNone && h.typ == "" }

// Type is the type that h names, or "" if it names none. A pair such as ["user","17c0"] has none as yet, for only the
// schema tells whether it begins with a type or a field.
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

// String is h for people and logs: no more than Error.Hint says.
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
		return "entry"
	}
	return "zero Hint"
}

// Target is what a hint means: records to look at. The zero Target has no records.
type Target struct {
	// Type, Field and Value say what is looked for: Field is a primary or secondary field, or "*" for every secondary
	// one; Value is canonical if it is a secondary value. Of several secondary facets of an entry they are the first by
	// name.
	Type, Field, Value string
	// Keys are a PRK; an SRK; for "*" the SRKs of all secondary fields, by name, of which the first that leads to an
	// entry is enough; or, with All, several SRKs. They lie in no namespace.
	Keys []recordkey.Key
	// All means that every key must lead to one and the same entry. Else nothing is found.
	All bool
	// Pattern finds, by SCAN, the SRKs of Value under every field, also those that the schema lacks. It is empty but
	// for "*". In a namespace put recordkey.Glob of its String before it.
	Pattern string
}

// MarshalJSON writes ["prk",KEY,TYPE,FIELD,VALUE], or "srk" with the first key, or for "*"
// ["any",[SRK…],TYPE,"*",VALUE,PATTERN].
func (t Target) MarshalJSON() ([]byte, error) {
	list := any(Quintuplet{})
	switch {
	case t.Field == "*":
		srks := make([]string, len(t.Keys))
		for i, k := range t.Keys {
			srks[i] = k.String()
		}
		list = []any{"any", srks, t.Type, t.Field, t.Value, t.Pattern}
	case len(t.Keys) > 0:
		list = quintuplet(t.Keys[0])
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // whether < and > are escaped is left to the encoder around this one
	err := enc.Encode(list)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// Quintuplet is the original's answer about a hint or a key: "prk" or "srk", the key, the type, the field and the
// value. In JSON it is a list of five texts.
type Quintuplet [5]string

func quintuplet(k recordkey.Key) Quintuplet {
	kind := "prk"
	if k.Kind() == recordkey.KindSRK {
		kind = "srk"
	}
	return Quintuplet{kind, k.String(), k.Type(), k.Field(), k.Value()}
}
