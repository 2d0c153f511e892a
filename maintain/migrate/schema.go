package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// StoredSchema is the schema in the database: the types that entries of the view's namespace were
// written by. It is the zero Schema where nothing was written yet, or only by the original.
// userdb.ErrCorrupt says that it cannot be read, as that of a newer version, or is not the one that its fingerprint is of.
func StoredSchema(ctx context.Context, db *userdb.DB) (schema.Schema, error) {
	return storedIn(ctx, db, store.FieldSchema)
}

// BegunSchema is the schema that Apply has begun to bring records to, of the types that it is not
// done with; the zero Schema where there is none. Errors are those of StoredSchema.
func BegunSchema(ctx context.Context, db *userdb.DB) (schema.Schema, error) {
	return storedIn(ctx, db, records.FieldNext)
}

// storedIn reads the types that have a schema in a field of ~/schema/TYPE.
func storedIn(ctx context.Context, db *userdb.DB, field string) (schema.Schema, error) {
	c := view.Of(db)
	types, err := recordkey.Own("types")
	if err != nil {
		return schema.Schema{}, err
	}
	raws, err := store.Inspect(ctx, c.Engine, []string{types.In(c.NS).String()}, 0)
	if err != nil {
		return schema.Schema{}, err
	}
	names := raws[0].Items
	if kind := raws[0].Type; kind != store.KindNone && kind != "set" {
		return schema.Schema{}, records.Corrupt(types, "not a set")
	}
	keys := make([]recordkey.Key, len(names))
	for i, name := range names {
		key, err := recordkey.Own("schema", name)
		if err != nil {
			return schema.Schema{}, records.Corrupt(types, "it names a type that no key can name")
		}
		keys[i] = key.In(c.NS)
	}
	hashes, err := store.Hashes(ctx, c.Engine, records.Texts(keys))
	if err != nil {
		return schema.Schema{}, err
	}
	stored := map[string]string{}
	for i, h := range hashes {
		text, is := h.Fields[field]
		if is || field == store.FieldSchema && (h.Other || len(h.Fields) > 0) { // else nothing was stored but the name
			stored[names[i]] = text
		}
	}
	s, err := records.ParseSchema(stored)
	if err != nil {
		return schema.Schema{}, records.Corrupt(types, err.Error())
	}
	for i, h := range hashes {
		if t, is := s.Types[names[i]]; is && field == store.FieldSchema && records.IsAnother(t, h.Fields) {
			return schema.Schema{}, records.Corrupt(keys[i], records.AnotherSchema)
		}
	}
	return s, nil
}

// A state is what is stored of the schema of a type.
type state struct {
	fields   map[string]string
	from     schema.Type // of an unstored one: as the original writes, as far as that is known
	stored   bool
	changing bool
}

// stateOf reads what is stored for a type that shall be brought to a schema.
func stateOf(ctx context.Context, c *view.View, t *change.Type) (state, error) {
	hashes, err := store.Hashes(ctx, c.Engine, []string{t.Guard().Key.String()})
	if err != nil {
		return state{}, err
	}
	s := state{fields: hashes[0].Fields}
	_, s.stored = s.fields[store.FieldFingerprint]
	next, changing := s.fields[records.FieldNext]
	if s.changing = changing; changing && next != storedForm(t.Schema) {
		return s, fmt.Errorf("%w: type %s: a change to another schema is under way; finish it with that one first", store.ErrSchemaMismatch, records.Quoted(t.Name))
	}
	if !s.stored {
		s.from = schema.Type{Primary: t.Schema.Primary, Fold: schema.FoldExact}
		return s, nil
	}
	stored, err := records.ParseSchema(map[string]string{t.Name: s.fields[store.FieldSchema]})
	if err != nil {
		return s, records.Corrupt(t.Guard().Key, err.Error())
	}
	s.from = stored.Types[t.Name]
	return s, nil
}

// storedForm is a schema as it is stored: what a field was called before is done with.
func storedForm(t schema.Type) string {
	fields := make(map[string]schema.Field, len(t.Fields))
	for name, f := range t.Fields {
		f.Was = ""
		fields[name] = f
	}
	if len(fields) > 0 {
		t.Fields = fields
	}
	text, _ := json.Marshal(t) // of texts and numbers: it cannot fail
	return string(text)
}

// A step is how one type gets to its new schema.
type step struct {
	state
	t        *change.Type      // by the new schema
	renames  map[string]string // old name → new name
	indexed  []string          // fields and tertiary sets whose index is new
	ordered  []string          // fields whose ordered index is new
	obsolete obsolete
}

// An obsolete is what the old schema kept and the new one does not: fields of SRKs, of index sets and of
// ordered indexes.
type obsolete struct{ srks, indexes, orders []string }

func newStep(t *change.Type, s state) *step {
	p := &step{state: s, t: t, renames: map[string]string{}}
	from, to := s.from, t.Schema
	for name, f := range to.Fields {
		if _, had := from.Fields[name]; f.Was != "" && !had {
			p.renames[f.Was] = name
		}
	}
	before := append(from.Indexed(), from.IndexedTertiary()...)
	after := append(to.Indexed(), to.IndexedTertiary()...)
	p.indexed = without(after, before)
	for _, field := range to.Ordered() {
		if from.Fields[field].Role != schema.RoleOrdered || from.Codec(field) != to.Codec(field) {
			p.ordered = append(p.ordered, field)
		}
	}
	p.obsolete = obsolete{without(from.Secondary(), to.Secondary()), without(before, after), without(from.Ordered(), to.Ordered())}
	for old := range p.renames {
		if !slices.Contains(p.obsolete.srks, old) {
			p.obsolete.srks = append(p.obsolete.srks, old)
		}
	}
	return p
}

func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(some, s) })
}

// moves reports whether records have to change, not only what is stored of the schema.
func (p *step) moves() bool {
	return p.changing || p.t.Schema.Fingerprint() != p.from.Fingerprint() || len(p.renames)+len(p.ordered) > 0
}

// due reports whether there is anything to do.
func (p *step) due() bool {
	return p.moves() || p.fields[store.FieldSchema] != storedForm(p.t.Schema)
}

// under is the guard of the change itself: nothing else writes under it.
func (p *step) under() store.Guard {
	g := p.t.Guard()
	g.Fingerprint, g.Exact = "~"+p.from.Fingerprint()+">"+p.t.Schema.Fingerprint(), false
	if p.changing {
		g.Fingerprint = p.fields[store.FieldFingerprint]
	}
	return g
}

// facets are those of an entry as they will be called.
func (p *step) facets(_ *change.Type, r store.Record) map[string]string {
	return change.Renamed(r, p.renames)
}

// claimed are the SRKs that an entry has by the old schema.
func (p *step) claimed(r store.Record) func(recordkey.Key) bool {
	held := map[recordkey.Key]bool{}
	for _, field := range p.from.Secondary() {
		if srk, err := recordkey.SRK(p.t.Name, field, r.SKV(field)); err == nil {
			held[srk.In(r.Key.Namespace())] = true
		}
	}
	return func(k recordkey.Key) bool { return held[k] }
}

var (
	// ErrCollision is a schema by which two entries would have one secondary value, or that needs a key
	// that no record can have. Nothing was changed.
	ErrCollision = errors.New("the records do not fit the schema")
	// ErrNamespace is a namespace that cannot be copied or dropped.
	ErrNamespace = errors.New("not a namespace for this")
	// ErrNotEmpty is a namespace to copy to that holds records.
	ErrNotEmpty = errors.New("the namespace holds records already")
)
