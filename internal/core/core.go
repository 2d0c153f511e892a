// Package core is what userdb and maintain share: an engine, a schema that was checked once, and the
// making of changes. It decides what a change consists of; internal/store carries it out.
package core

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/validate"
)

// A Core is a view of a store: its records under one namespace, read by one schema.
type Core struct {
	Engine store.Engine
	Schema schema.Schema
	NS     recordkey.Namespace
	Log    *slog.Logger
	Now    func() time.Time
	types  map[string]*Type

	// Replicas must have a change within ReplicaTime, or it is not confirmed; 0: nobody waits.
	Replicas    int
	ReplicaTime time.Duration

	// OwnClock has throttling go by Now instead of the server's clock: for tests.
	OwnClock bool
	// Spare is called before round trips, so that hashing leaves a processor free for the answer; not
	// before those of logins, which wait for hashing themselves.
	Spare func()
	// Secrets make and judge hashes of passwords.
	Secrets Secrets
	// HashWork says what was done for a type's passwords: rounds of bcrypt, and hashes of other algorithms.
	HashWork func(typ string) (rounds, foreign uint64)
}

// A Type is a declared type, made ready for use.
type Type struct {
	Name      string
	Schema    schema.Type
	Rules     *validate.Rules
	Secondary []string // sorted
	Indexed   []string
	Ordered   []string
	cast      []castField       // the fields whose wire is not any text
	skv       map[string]string // of secondary fields: the names of the fields that keep their canonical values
	guard     store.Guard
	ns        recordkey.Namespace
}

// TagsName is the tertiary set that the tag verbs mean.
const TagsName = "tags"

// New checks the schema and makes a core of it.
func New(e store.Engine, s schema.Schema, ns recordkey.Namespace, log *slog.Logger) (*Core, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	c := &Core{Engine: e, Schema: s, NS: ns, Log: log, Now: time.Now, Spare: func() {}, types: map[string]*Type{}}
	for name, st := range s.Types {
		t, err := newType(name, st, ns)
		if err != nil {
			return nil, err
		}
		c.types[name] = t
	}
	return c, nil
}

func newType(name string, st schema.Type, ns recordkey.Namespace) (*Type, error) {
	st = st.InForm()
	rules, err := validate.Compile(st)
	if err != nil {
		return nil, fmt.Errorf("type %s: %w", name, err)
	}
	guard, err := newGuard(name, st, ns)
	if err != nil {
		return nil, fmt.Errorf("type %s: %w", name, err)
	}
	return &Type{
		Name: name, Schema: st, Rules: rules, guard: guard, ns: ns,
		Secondary: st.Secondary(), Indexed: st.Indexed(), Ordered: st.Ordered(), cast: castFields(st), skv: skvFields(st),
	}, nil
}

// skvFields are the names of the fields that keep canonical values.
func skvFields(st schema.Type) map[string]string {
	names := map[string]string{}
	for _, field := range st.Secondary() {
		names[field] = store.FieldSKV(field)
	}
	return names
}

// A castField is a field with a codec that cannot read every text.
type castField struct {
	name  string
	codec schema.Codec
}

func castFields(st schema.Type) []castField {
	var cast []castField
	for field := range st.Fields {
		if codec := st.Codec(field); codec != schema.CodecText && codec != schema.CodecIdentity {
			cast = append(cast, castField{field, codec})
		}
	}
	return cast
}

// newGuard is what every change of the type compares with the schema in the database.
func newGuard(name string, st schema.Type, ns recordkey.Namespace) (store.Guard, error) {
	key, err := recordkey.Own("schema", name)
	if err != nil {
		return store.Guard{}, err
	}
	types, err := recordkey.Own("types")
	if err != nil {
		return store.Guard{}, err
	}
	text, err := json.Marshal(st)
	if err != nil {
		return store.Guard{}, err
	}
	entries := recordkey.Pattern{Namespace: ns, Kind: recordkey.KindPRK, Type: name, Field: st.Primary}
	tertiary := map[string]bool{}
	for name, t := range st.Tertiary {
		tertiary[name] = t.Indexed
	}
	return store.Guard{
		Key: key.In(ns), Types: types.In(ns), Fingerprint: st.Fingerprint(), JSON: string(text), Tertiary: tertiary,
		Exact: st.Fold == schema.FoldExact, Entries: entries.String(),
	}, nil
}

// Type returns a declared type, or a *schema.Error.
func (c *Core) Type(name string) (*Type, error) {
	if t, ok := c.types[name]; ok {
		return t, nil
	}
	return nil, &schema.Error{Path: "types." + name, Reason: "no such type in the schema"}
}

// Guard is what a write to the type's records compares.
func (t *Type) Guard() store.Guard { return t.guard }

// PRK is the record key of the type's entry uid, in the view's namespace.
func (t *Type) PRK(uid string) (recordkey.Key, error) {
	k, err := recordkey.PRK(t.Name, t.Schema.Primary, uid)
	return k.In(t.ns), err
}

// srk is the SRK of a canonical value; false for one that no key can name.
func (t *Type) srk(field, value string) (recordkey.Key, bool) {
	k, err := recordkey.SRK(t.Name, field, value)
	return k.In(t.ns), err == nil
}

func (t *Type) index(field, value string) (recordkey.Key, bool) {
	k, err := recordkey.Index(t.Name, field, value)
	return k.In(t.ns), err == nil
}

// Own is the key of a record of the store's own that belongs to the type: ~/WHAT/TYPE/….
func (t *Type) Own(what string, parts ...string) (recordkey.Key, error) {
	k, err := recordkey.Own(append([]string{what, t.Name}, parts...)...)
	return k.In(t.ns), err
}

// Under is the type with another guard: for the one who changes the schema.
func (t *Type) Under(g store.Guard) *Type {
	under := *t
	under.guard = g
	return &under
}
