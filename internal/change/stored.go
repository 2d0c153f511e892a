package change

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// Stored describes the schema of a type as the database stores it.
type Stored struct {
	Generation string // "" if nothing is stored
	Text       string // the schema as it is stored
	Type       schema.Type
	Next       string          // the new schema, during a change that stops writers; "" for none
	written    map[string]bool // tertiary records that were ever written, declared or not
}

// FieldNext is a field of ~/schema/TYPE. While a schema change stops all other writers, it holds
// the schema to which the change brings the records. The other fields then hold the schema that the
// records still follow, and a generation that no program has, so that every write is refused.
//
//	fingerprint  ~1f0c…>a93e…
//	schema       {"primary":"uid","fold":"exact",…}
//	next         {"primary":"uid",…}
const FieldNext = store.FieldNext

// ErrFingerprint reports a stored schema that does not match the generation stored with it.
var ErrFingerprint = errors.New("the stored schema does not match its fingerprint")

// ParseStored parses the fields of ~/schema/TYPE. Its error is a message for people that says why
// the fields cannot be what userdb stored.
func ParseStored(name string, fields map[string]string) (s Stored, err error) {
	s = Stored{Generation: fields[store.FieldFingerprint], Text: fields[store.FieldSchema], Next: fields[FieldNext]}
	if len(fields) == 0 {
		return s, nil
	}
	s.written = store.TertiaryNames(fields)
	if s.Type, err = ParseType(name, s.Text); err == nil && !s.ChangeUnderWay() && !s.hasGeneration(s.Generation) {
		err = ErrFingerprint
	}
	return s, err
}

// Compare compares a program's declaration with the stored schema, as [schema.Type.Compare] does.
// It also returns Builds for an indexed set that the stored schema lacks, but that entries have
// because a program with an earlier schema wrote it.
func (s Stored) Compare(claim schema.Type) (schema.Relation, string) {
	relation, difference := claim.Compare(s.Type)
	if relation != schema.Adds {
		return relation, difference
	}
	for _, name := range claim.TertiaryNames() {
		_, has := s.Type.Tertiary[name]
		if claim.Tertiary[name].Indexed && !has && s.written[name] {
			return schema.Builds, "tertiary record " + strconv.Quote(name) + ": indexed: not stored, and entries have it"
		}
	}
	return relation, difference
}

// ChangeUnderWay reports whether a schema change that stops all other writers is in progress.
func (s Stored) ChangeUnderWay() bool { return s.Next != "" }

// OtherForm reports whether the records use another version of the canonical form than this
// program.
func (s Stored) OtherForm() bool { return s.Type.Fold != schema.FoldExact && s.Type.Form != "" }

// hasGeneration reports whether the schema has the given generation. Earlier versions of this
// program stored the fingerprint of the layout instead.
func (s Stored) hasGeneration(generation string) bool {
	return generation == Generation(s.Text) || generation == s.Type.Fingerprint()
}

// Generation returns the digest of a stored schema. Every change compares it, to notice that the
// schema has changed.
func Generation(stored string) string {
	sum := sha256.Sum256([]byte("generation\x00" + stored))
	return hex.EncodeToString(sum[:8])
}

// StoredText returns the JSON in which a schema is stored, which leaves out defaults and the former
// names of fields.
func StoredText(t schema.Type) string {
	t.Fields = maps.Clone(t.Fields)
	for name, f := range t.Fields {
		if f.Was = ""; f.IsTyped() {
			f.Typed = nil
		}
		t.Fields[name] = f
	}
	text, _ := json.Marshal(t) // cannot fail for texts and numbers
	return string(text)
}

// NextText returns the JSON that FieldNext holds. It has the former names of fields, so that an
// interrupted schema change continues to rename them.
func NextText(t schema.Type) string {
	text, _ := json.Marshal(t) // cannot fail for texts and numbers
	return string(text)
}

// ParseType parses the JSON of a type's schema.
func ParseType(name, stored string) (schema.Type, error) {
	file, err := json.Marshal(map[string]map[string]json.RawMessage{"types": {name: json.RawMessage(stored)}})
	if err != nil {
		return schema.Type{}, fmt.Errorf("the stored schema of type %s is not JSON", strconv.Quote(name))
	}
	s, err := schema.Load(bytes.NewReader(file))
	if err != nil {
		return schema.Type{}, fmt.Errorf("the stored schema cannot be read: %w", err)
	}
	return s.Types[name].FromStore(), nil
}

// WithSchema returns t with another stored schema. It keeps the program's own declaration.
func (t *Type) WithSchema(in schema.Type, generation, text string) (*Type, error) {
	next, err := newType(t.Name, in, t.ns)
	if err != nil {
		return nil, err
	}
	next.declared, next.Building = t.declared, in.Building
	next.Typed = slices.DeleteFunc(next.Typed, in.Building.BecomesTyped)
	next.Many = slices.DeleteFunc(next.Many, in.Building.BecomesMany)
	next.SetCompared()
	next.Guard.Fingerprint, next.Guard.JSON = generation, text
	return next, nil
}

// Adopting returns the type as if the program had declared the stored schema. It returns t itself
// if the program declared exactly that.
func (t *Type) Adopting(stored schema.Type) (*Type, error) {
	stored.Orders = "" // as in Compile
	next, err := newType(t.Name, stored, t.ns)
	if err != nil || StoredText(next.declared) == StoredText(t.declared) {
		return t, err
	}
	return next, nil
}

// Declared returns the program's own declaration of the type.
func (t *Type) Declared() schema.Type { return t.declared }

// Replacing returns a copy of ts in which others replace the types of the same names.
func (ts *Types) Replacing(others ...*Type) *Types {
	next := &Types{Schema: schema.Schema{Types: maps.Clone(ts.Schema.Types)}, NS: ts.NS, ByName: maps.Clone(ts.ByName)}
	for _, t := range others {
		next.ByName[t.Name], next.Schema.Types[t.Name] = t, t.Schema
	}
	return next
}

// SchemaKey returns the key of the record that holds the schema of a type.
func SchemaKey(ns recordkey.Namespace, name string) (recordkey.Key, error) {
	key, err := recordkey.Own("schema", name)
	return key.In(ns), err
}

// Compared reports whether t agreed with the stored schema when they were last compared.
func (t *Type) Compared() bool { return t.compared.Load() }

// SetCompared records that t agrees with the stored schema.
func (t *Type) SetCompared() { t.compared.Store(true) }
