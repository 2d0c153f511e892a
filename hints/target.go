package hints

import (
	"bytes"
	"encoding/json"

	"github.com/coffeenode/userdb/recordkey"
)

// Target is what a hint means: records to look at. The zero Target is none.
type Target struct {
	// Type, Field and Value say what is looked for: Field is a primary or secondary field, or
	// "*" for every secondary one; Value is canonical if it is a secondary value. Of several
	// secondary facets of an entry they are the first by name.
	Type, Field, Value string
	// Keys are a PRK; an SRK; for "*" the SRKs of all secondary fields, by name, of which the
	// first that leads to an entry is enough; or, with All, several SRKs. They lie in no
	// namespace.
	Keys []recordkey.Key
	// All means that every key must lead to one and the same entry. Else nothing is found.
	All bool
	// Pattern finds, by SCAN, the SRKs of Value under every field, also those that the schema
	// lacks. It is empty but for "*". In a namespace put recordkey.Glob of its String before it.
	Pattern string
}

// MarshalJSON writes ["prk",KEY,TYPE,FIELD,VALUE], or "srk" with the first key, or for "*"
// ["any",[SRK…],TYPE,"*",VALUE,PATTERN].
func (t Target) MarshalJSON() ([]byte, error) {
	if t.Field != "*" {
		return t.quintuplet().MarshalJSON()
	}
	srks := make([]string, len(t.Keys))
	for i, k := range t.Keys {
		srks[i] = k.String()
	}
	return marshal([]any{"any", srks, t.Type, t.Field, t.Value, t.Pattern})
}

func (t Target) quintuplet() Quintuplet {
	if len(t.Keys) == 0 {
		return Quintuplet{}
	}
	return quintuplet(t.Keys[0])
}

// Quintuplet is the original's answer about a hint or a key: "prk" or "srk", the key, the type,
// the field and the value.
type Quintuplet [5]string

func quintuplet(k recordkey.Key) Quintuplet {
	kind := "prk"
	if k.Kind() == recordkey.KindSRK {
		kind = "srk"
	}
	return Quintuplet{kind, k.String(), k.Type(), k.Field(), k.Value()}
}

// MarshalJSON writes a list of five texts.
func (q Quintuplet) MarshalJSON() ([]byte, error) { return marshal(q[:]) }

// marshal leaves it to the encoder around it whether < and > are escaped.
func marshal[T any](list []T) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(list)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
