// Package change builds changes. From a schema and a record as it was read, it computes the writes
// that a change needs. It uses neither a clock nor a server. Package store carries the changes out.
package change

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/validate"
)

// Types holds the declared types of a schema, whose records are in one namespace.
type Types struct {
	Schema schema.Schema
	NS     recordkey.Namespace
	ByName map[string]*Type
}

// Compile checks a schema and returns its types.
func Compile(s schema.Schema, ns recordkey.Namespace) (*Types, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	ts := &Types{Schema: s, NS: ns, ByName: make(map[string]*Type, len(s.Types))}
	for name, st := range s.Types {
		st.Orders = "" // has no meaning in a program's own schema
		t, err := newType(name, st, ns)
		if err != nil {
			return nil, err
		}
		ts.ByName[name] = t
	}
	return ts, nil
}

// Type returns a declared type. The error for any other name is a *schema.Error.
func (ts *Types) Type(name string) (*Type, error) {
	if t, ok := ts.ByName[name]; ok {
		return t, nil
	}
	return nil, &schema.Error{Path: "types." + name, Reason: "no such type in the schema"}
}

// TypeOf returns the declared type of a key, in the namespace of the key.
func (ts *Types) TypeOf(key recordkey.Key) (*Type, error) {
	t, err := ts.Type(key.Type())
	if err != nil || key.Namespace() == ts.NS {
		return t, err
	}
	return newType(t.Name, t.Schema, key.Namespace())
}

// A Type is a declared type, together with values computed once from the declaration.
type Type struct {
	Name           string
	Schema         schema.Type
	Rules          *validate.Rules
	Secondary      []string // sorted
	Typed          []string // of Secondary, the fields in which a search in any field looks
	crossing       []string // Typed, and the fields whose values are becoming typed
	Many           []string // of Secondary, the fields that may have several values
	Indexed        []string
	Ordered        []string
	orderKeys      map[string]recordkey.Key // of Ordered
	Required       []string
	mayHold        bool                    // a field may hold values; see Hold
	codecs         map[string]schema.Codec // of fields, except those that read every text
	Guard          store.Guard             // every write compares it with the stored schema
	Building       *schema.Building        // roles and rules of an unfinished migration
	ChangeUnderWay bool                    // a schema change is the reason for Building
	compared       *atomic.Bool            // known to agree with the stored schema
	declared       schema.Type             // by the program; may differ from Schema
	ns             recordkey.Namespace
}

// TagsName is the tertiary set that the methods for tags use.
const TagsName = "tags"

func newType(name string, st schema.Type, ns recordkey.Namespace) (*Type, error) {
	st = st.WithCurrentForm()
	st.Building = nil // has no meaning in a program's own schema
	rules, err := validate.Compile(st)
	if err != nil {
		return nil, fmt.Errorf("type %s: %w", name, err)
	}
	guard, err := newGuard(name, st, ns)
	if err != nil {
		return nil, fmt.Errorf("type %s: %w", name, err)
	}
	t := &Type{
		Name: name, Schema: st, Rules: rules, Guard: guard, declared: st, compared: &atomic.Bool{}, ns: ns,
		Secondary: st.Secondary(), Typed: st.Typed(), crossing: st.Typed(), Indexed: st.Indexed(), Ordered: st.Ordered(), Required: st.Required(), codecs: map[string]schema.Codec{},
	}
	t.Many = slices.DeleteFunc(slices.Clone(t.Secondary), func(field string) bool { return t.MaxValues(field) < 2 })
	t.orderKeys = make(map[string]recordkey.Key, len(t.Ordered))
	for _, field := range t.Ordered {
		if k, err := t.OrderKey(field); err == nil {
			t.orderKeys[field] = k
		}
	}
	for field, f := range st.Fields {
		t.mayHold = t.mayHold || f.Hold != 0
		if codec := st.Codec(field); codec != schema.CodecText && codec != schema.CodecIdentity {
			t.codecs[field] = codec
		}
	}
	return t, nil
}

// newGuard returns the guard that every change of the type compares with the stored schema.
func newGuard(name string, st schema.Type, ns recordkey.Namespace) (store.Guard, error) {
	key, badKey := SchemaKey(ns, name)
	types, badTypes := recordkey.Own("types")
	text := StoredText(st)
	if err := errors.Join(badKey, badTypes); err != nil {
		return store.Guard{}, err
	}
	entries := recordkey.Pattern{Namespace: ns, Kind: recordkey.KindPRK, Type: name, Field: st.Primary}
	tertiary := map[string]bool{}
	for name, t := range st.Tertiary {
		tertiary[name] = t.Indexed
	}
	return store.Guard{
		Key: key, Types: types.In(ns), Fingerprint: Generation(text), JSON: text, Tertiary: tertiary,
		MayStore: st.Fold == schema.FoldExact && !ordersAny(st), Entries: entries.String(),
	}, nil
}

// ordersAny reports whether a field is ordered. An ordered index holds every entry, so a schema
// with one cannot be stored beside entries that no index holds.
func ordersAny(st schema.Type) bool {
	for _, field := range st.Fields {
		if field.Role.Has(schema.RoleOrdered) {
			return true
		}
	}
	return false
}

// Rivals returns the fields, sorted, whose values are compared with those of a secondary field: no
// two entries have the same value in any of them. If the field is typed, they are all typed fields.
// Otherwise the field is alone.
func (t *Type) Rivals(field string) []string { return rivals(t.crossing, field) }

// SettledRivals returns the Rivals of a field without the fields that are becoming typed, in which
// another entry may still have the same value.
func (t *Type) SettledRivals(field string) []string { return rivals(t.Typed, field) }

func rivals(typed []string, field string) []string {
	if slices.Contains(typed, field) {
		return typed
	}
	return []string{field}
}

// MaxValues returns the maximum number of values of an entry in a field. It is one while some
// programs may not yet know that the schema allows more.
func (t *Type) MaxValues(field string) int {
	if t.Building.BecomesMany(field) {
		return 1
	}
	return t.Schema.Fields[field].MaxValues()
}

// WithGuard returns t with another guard, for a change of the schema.
func (t *Type) WithGuard(g store.Guard) *Type {
	guarded := *t
	guarded.Guard = g
	return &guarded
}
