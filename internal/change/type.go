// Package change builds changes: from a schema and a record as it was read to what is to be written. It asks no clock
// and no server. internal/store carries a change out.
package change

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/validate"
)

// Types are the declared types of a schema, whose records lie in one namespace.
type Types struct {
	Schema schema.Schema
	NS     recordkey.Namespace
	ByName map[string]*Type
}

// Compile checks a schema.
func Compile(s schema.Schema, ns recordkey.Namespace) (*Types, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	ts := &Types{Schema: s, NS: ns, ByName: make(map[string]*Type, len(s.Types))}
	for name, st := range s.Types {
		t, err := newType(name, st, ns)
		if err != nil {
			return nil, err
		}
		ts.ByName[name] = t
	}
	return ts, nil
}

// Type returns a declared type, or a *schema.Error.
func (ts *Types) Type(name string) (*Type, error) {
	if t, ok := ts.ByName[name]; ok {
		return t, nil
	}
	return nil, &schema.Error{Path: "types." + name, Reason: "no such type in the schema"}
}

// Of is the declared type of a key, in the namespace of the key.
func (ts *Types) Of(key recordkey.Key) (*Type, error) {
	t, err := ts.Type(key.Type())
	if err != nil || key.Namespace() == ts.NS {
		return t, err
	}
	return newType(t.Name, t.Schema, key.Namespace())
}

// A Type is a declared type, with what is computed of it once.
type Type struct {
	Name      string
	Schema    schema.Type
	Rules     *validate.Rules
	Secondary []string // sorted
	Indexed   []string
	Ordered   []string
	Required  []string
	cast      map[string]schema.Codec // of the fields whose codec cannot read every text
	Guard     store.Guard             // what a write to the type's records compares
	Building  *schema.Building        // what no query answers by yet
	Waits     bool                    // a change is under way that Building is of, and not what is stored
	compared  *atomic.Bool            // it is as the stored schema says
	claim     schema.Type             // what the program itself declares, where that is not Schema
	ns        recordkey.Namespace
}

// TagsName is the tertiary set that the tag verbs mean.
const TagsName = "tags"

func newType(name string, st schema.Type, ns recordkey.Namespace) (*Type, error) {
	st = st.InForm()
	st.Building = nil // in a program's schema it means nothing
	rules, err := validate.Compile(st)
	if err != nil {
		return nil, fmt.Errorf("type %s: %w", name, err)
	}
	guard, err := newGuard(name, st, ns)
	if err != nil {
		return nil, fmt.Errorf("type %s: %w", name, err)
	}
	t := &Type{
		Name: name, Schema: st, Rules: rules, Guard: guard, claim: st, compared: &atomic.Bool{}, ns: ns,
		Secondary: st.Secondary(), Indexed: st.Indexed(), Ordered: st.Ordered(), Required: st.Required(), cast: map[string]schema.Codec{},
	}
	for field := range st.Fields {
		if codec := st.Codec(field); codec != schema.CodecText && codec != schema.CodecIdentity {
			t.cast[field] = codec
		}
	}
	return t, nil
}

// newGuard is what every change of the type compares with the schema in the database.
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
		Exact: st.Fold == schema.FoldExact, Entries: entries.String(),
	}, nil
}

// Own is the key of a record of the store's own that belongs to the type: ~/WHAT/TYPE/….
func (t *Type) Own(what string, parts ...string) (recordkey.Key, error) {
	k, err := recordkey.Own(append([]string{what, t.Name}, parts...)...)
	return k.In(t.ns), err
}

// Counters is where the failed logins of an entry are counted.
func (t *Type) Counters(r store.Record) (recordkey.Key, error) {
	return store.CountersKey(r.Key)
}

// Under is the type with another guard: for a change of the schema.
func (t *Type) Under(g store.Guard) *Type {
	under := *t
	under.Guard = g
	return &under
}
