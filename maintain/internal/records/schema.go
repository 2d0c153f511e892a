package records

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// Fields of ~/schema/TYPE.
const (
	FieldFingerprint = "fingerprint"
	FieldSchema      = "schema"
)

// What is stored at ~/schema/TYPE while a schema changes: a fingerprint that no handle has, so that
// nobody else writes; the schema that the records still follow; and the one that they are brought to.
//
//	fingerprint  ~1f0c…>a93e…
//	schema       {"primary":"uid","fold":"exact",…}
//	next         {"primary":"uid",…}
const FieldNext = "next"

const AnotherSchema = "the schema is not the one that the fingerprint is of"

// IsAnother reports whether a stored schema is not what was stored. While a change is under way the fingerprint is none.
func IsAnother(t schema.Type, fields map[string]string) bool {
	return fields[FieldNext] == "" && t.Fingerprint() != fields[FieldFingerprint]
}

func Corrupt(key recordkey.Key, reason string) error {
	return &store.CorruptError{Key: key.String(), Reason: reason}
}

// ParseSchema reads the JSON of types by their names.
func ParseSchema(stored map[string]string) (schema.Schema, error) {
	if len(stored) == 0 {
		return schema.Schema{}, nil
	}
	types := map[string]json.RawMessage{}
	for name, text := range stored {
		if !json.Valid([]byte(text)) {
			return schema.Schema{}, fmt.Errorf("the stored schema of type %s is no JSON", Quoted(name))
		}
		types[name] = json.RawMessage(text)
	}
	text, err := json.Marshal(map[string]map[string]json.RawMessage{"types": types})
	if err != nil {
		return schema.Schema{}, err
	}
	s, err := schema.Load(bytes.NewReader(text))
	if err != nil {
		return schema.Schema{}, fmt.Errorf("the stored schema cannot be read: %w", err)
	}
	for name, t := range s.Types {
		s.Types[name] = t.FromStore()
	}
	return s, nil
}
