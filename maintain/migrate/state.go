package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

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
	_, s.stored = s.fields[records.FieldFingerprint]
	next, changing := s.fields[records.FieldNext]
	if s.changing = changing; changing && next != storedForm(t.Schema) {
		return s, fmt.Errorf("%w: type %s: a change to another schema is under way; finish it with that one first", store.ErrSchemaMismatch, records.Quoted(t.Name))
	}
	if !s.stored {
		s.from = schema.Type{Primary: t.Schema.Primary, Fold: schema.FoldExact}
		return s, nil
	}
	stored, err := records.ParseSchema(map[string]string{t.Name: s.fields[records.FieldSchema]})
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
	t       *change.Type      // by the new schema
	renames map[string]string // old name → new name
	indexed []string          // fields and tertiary sets whose index is new
	ordered []string          // fields whose ordered index is new
	undone  undone
}

// undone is what the old schema kept and the new one does not: fields of SRKs, of index sets and of
// ordered indexes.
type undone struct{ srks, indexes, orders []string }

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
	p.undone = undone{without(from.Secondary(), to.Secondary()), without(before, after), without(from.Ordered(), to.Ordered())}
	for old := range p.renames {
		if !slices.Contains(p.undone.srks, old) {
			p.undone.srks = append(p.undone.srks, old)
		}
	}
	return p
}

func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(some, s) })
}

// moves says whether records have to change, not only what is stored of the schema.
func (p *step) moves() bool {
	return p.changing || p.t.Schema.Fingerprint() != p.from.Fingerprint() || len(p.renames)+len(p.ordered) > 0
}

// due says whether there is anything to do.
func (p *step) due() bool {
	return p.moves() || p.fields[records.FieldSchema] != storedForm(p.t.Schema)
}

// under is what the one who changes the schema writes under, and nobody else.
func (p *step) under() store.Guard {
	g := p.t.Guard()
	g.Fingerprint, g.Exact = "~"+p.from.Fingerprint()+">"+p.t.Schema.Fingerprint(), false
	if p.changing {
		g.Fingerprint = p.fields[records.FieldFingerprint]
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
