package change

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// Stored is what the database says about a type: its schema in force.
type Stored struct {
	Generation string // "" where nothing is stored
	Text       string // the schema as it is stored
	Type       schema.Type
	Next       string          // the schema that records are being brought to while nobody else may write; "": none
	named      map[string]bool // tertiary records that were written, whether the schema declares them or not
}

// FieldNext is the field of ~/schema/TYPE with the schema that records are being brought to by a change that stops all writers.
// Beside it are the schema that they still follow, and a generation that no handle has.
//
//	fingerprint  ~1f0c…>a93e…
//	schema       {"primary":"uid","fold":"exact",…}
//	next         {"primary":"uid",…}
const FieldNext = store.FieldNext

// ErrAnother is a stored schema that is not the one that the generation beside it is of.
var ErrAnother = errors.New("the schema is not the one that the fingerprint is of")

// ParseStored reads the fields of ~/schema/TYPE. The error says, for people, why they cannot be what was stored.
func ParseStored(name string, fields map[string]string) (s Stored, err error) {
	s = Stored{Generation: fields[store.FieldFingerprint], Text: fields[store.FieldSchema], Next: fields[FieldNext]}
	if len(fields) == 0 {
		return s, nil
	}
	s.named = store.NamedIn(fields)
	if s.Type, err = ParseType(name, s.Text); err == nil && !s.UnderWay() && !s.isOf(s.Generation) {
		err = ErrAnother
	}
	return s, err
}

// Against is how a program's declaration stands to what is stored: see [schema.Type.Against]. An indexed set that the stored schema
// does not have, and that was written all the same, by a program of an earlier version, is one that records must be brought to.
func (s Stored) Against(claim schema.Type) (schema.Relation, string) {
	relation, difference := claim.Against(s.Type)
	if relation != schema.Adds {
		return relation, difference
	}
	for _, name := range claim.TertiaryNames() {
		_, has := s.Type.Tertiary[name]
		if claim.Tertiary[name].Indexed && !has && s.named[name] {
			return schema.Builds, "tertiary record " + strconv.Quote(name) + ": indexed: not stored, and entries have it"
		}
	}
	return relation, difference
}

// UnderWay reports whether a change is under way that lets nobody else write.
func (s Stored) UnderWay() bool { return s.Next != "" }

// OtherForm reports whether the records have another version of the canonical form than this program gives.
func (s Stored) OtherForm() bool { return s.Type.Fold != schema.FoldExact && s.Type.Form != "" }

// isOf reports whether the schema has a generation. Earlier versions of this program stored that of the layout.
func (s Stored) isOf(generation string) bool {
	return generation == Generation(s.Text) || generation == s.Type.Fingerprint()
}

// Generation is what every change compares: new with every change of a stored schema.
func Generation(stored string) string {
	sum := sha256.Sum256([]byte("generation\x00" + stored))
	return hex.EncodeToString(sum[:8])
}

// StoredText is a schema as it is stored: without what its fields were called before.
func StoredText(t schema.Type) string {
	t.Fields = maps.Clone(t.Fields)
	for name, f := range t.Fields {
		f.Was = ""
		t.Fields[name] = f
	}
	text, _ := json.Marshal(t) // of texts and numbers: it cannot fail
	return string(text)
}

// ParseType reads the JSON of a type's schema.
func ParseType(name, stored string) (schema.Type, error) {
	file, err := json.Marshal(map[string]map[string]json.RawMessage{"types": {name: json.RawMessage(stored)}})
	if err != nil {
		return schema.Type{}, fmt.Errorf("the stored schema of type %s is no JSON", strconv.Quote(name))
	}
	s, err := schema.Load(bytes.NewReader(file))
	if err != nil {
		return schema.Type{}, fmt.Errorf("the stored schema cannot be read: %w", err)
	}
	return s.Types[name].FromStore(), nil
}

// Follow is the type by another schema in force, with what the program itself declares of it.
func (t *Type) Follow(in schema.Type, generation, text string) (*Type, error) {
	next, err := newType(t.Name, in, t.ns)
	if err != nil {
		return nil, err
	}
	next.claim, next.Building = t.claim, in.Building
	next.SetCompared()
	next.Guard.Fingerprint, next.Guard.JSON = generation, text
	return next, nil
}

// Claim is what the program itself declares of the type.
func (t *Type) Claim() schema.Type { return t.claim }

// With is ts with other types of the same names.
func (ts *Types) With(others ...*Type) *Types {
	next := &Types{Schema: schema.Schema{Types: maps.Clone(ts.Schema.Types)}, NS: ts.NS, ByName: maps.Clone(ts.ByName)}
	for _, t := range others {
		next.ByName[t.Name], next.Schema.Types[t.Name] = t, t.Schema
	}
	return next
}

// SchemaKey is where the schema of a type is stored.
func SchemaKey(ns recordkey.Namespace, name string) (recordkey.Key, error) {
	key, err := recordkey.Own("schema", name)
	return key.In(ns), err
}

// Compared reports whether t is known to be as the stored schema says, or said when it was looked at.
func (t *Type) Compared() bool { return t.compared.Load() }

// SetCompared says that it is.
func (t *Type) SetCompared() { t.compared.Store(true) }
