package userdb

import (
	"cmp"
	"encoding/json"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// An Entry is what an entry was when it was read. It never holds the password hash, so that
// printing, logging or marshalling one gives nothing away. Put and Drop change this copy only;
// Update and Save write. The zero Entry is no entry.
type Entry struct {
	key   recordkey.Key
	t     *change.Type
	was   map[string]string        // every field as read, but the password; never changed
	edits map[string]*schema.Value // what Put and Drop have changed since, nil what is dropped; never changed itself

	disable *bool // what SetDisabled has changed since
}

// Key is the PRK, relative to the namespace of the view that read the entry.
func (e Entry) Key() recordkey.Key { return e.key }

// Type is the value of ~isa.
func (e Entry) Type() string { return e.key.Type() }

// UID is the primary value.
func (e Entry) UID() string { return e.key.Value() }

// Rev is new with every change of the entry; "" for one that only the original has written.
func (e Entry) Rev() string { return store.Rev(e.was[store.FieldRev]) }

// PasswordChanged is when the password was last set; the zero time where it is not known. A session that
// keeps it, as it was in the entry that Login returned, is one to end when the entry's is another.
func (e Entry) PasswordChanged() time.Time { return change.ChangedAt(store.Record{Fields: e.was}) }

// Disabled reports whether the entry may not log in.
func (e Entry) Disabled() bool {
	if e.disable != nil {
		return *e.disable
	}
	return e.was[store.FieldDisabled] != ""
}

// SetDisabled has this copy be one that may not log in, or one that may: Update and Save do what Disable and Enable do, in one
// change with the facets.
func (e *Entry) SetDisabled(disabled bool) { e.disable = &disabled }

// Verified reports whether the owner of the entry has proved to read what is sent to the address in this facet: by Accept, by a
// token of PurposeChange, or by one that IssueFor made. A new value is not verified.
func (e Entry) Verified(field string) bool {
	_, edited := e.edits[field]
	mark := e.was[store.FieldVerified(field)]
	return mark != "" && !edited && mark == store.Verified(e.was[field])
}

// Fields gives the names of the facets, sorted.
func (e Entry) Fields() iter.Seq[string] {
	return slices.Values(slices.Sorted(maps.Keys(e.Facets())))
}

// Facets are the facets by name, the primary one among them: a copy, which the caller may change. The zero Entry has none.
func (e Entry) Facets() schema.Facets {
	facets := make(schema.Facets, len(e.was))
	for field := range e.was {
		if v, has := e.Get(field); has {
			facets[field] = v
		}
	}
	for field, v := range e.edits {
		if v != nil {
			facets[field] = *v
		}
	}
	return facets
}

// wires are the facets as they are written, and fields of the store's own besides. They are not changed.
func (e Entry) wires() map[string]string {
	if len(e.edits) == 0 {
		return e.was
	}
	wires := make(map[string]string, len(e.was)+len(e.edits))
	maps.Copy(wires, e.was)
	for field, v := range e.edits {
		if delete(wires, field); v != nil {
			wires[field] = v.Wire()
		}
	}
	return wires
}

// Get returns a facet, and whether there is one.
func (e Entry) Get(field string) (schema.Value, bool) {
	switch v, is := e.edits[field]; {
	case v != nil:
		return *v, true
	case is:
		return schema.Value{}, false
	}
	wire, ok := e.was[field]
	if !ok || store.OwnField(field) {
		return schema.Value{}, false
	}
	v, err := schema.Decode(e.t.Schema.Codec(field), wire)
	return v, err == nil
}

// Text is a facet as text, "" when it is absent.
func (e Entry) Text(field string) string {
	v, _ := e.Get(field)
	return v.Text()
}

// Put sets a facet of this copy. Earlier copies of e keep theirs.
func (e *Entry) Put(field string, v schema.Value) { e.edit(field, &v) }

// Drop unsets a facet of this copy.
func (e *Entry) Drop(field string) { e.edit(field, nil) }

func (e *Entry) edit(field string, v *schema.Value) {
	edits := make(map[string]*schema.Value, len(e.edits)+1)
	maps.Copy(edits, e.edits)
	edits[field] = v
	e.edits = edits
}

// MarshalJSON gives what Flat has, cast.
func (e Entry) MarshalJSON() ([]byte, error) { return json.Marshal(e.Flat()) }

// Flat is the entry as one flat object: the facets by name, and ~isa, ~prk, ~rev and, where it is so,
// "~disabled":true. The zero Entry is {}.
func (e Entry) Flat() schema.Facets {
	if !e.key.IsValid() {
		return schema.Facets{}
	}
	flat := e.Facets()
	if e.Disabled() {
		flat[store.FieldDisabled] = schema.Bool(true)
	}
	flat[store.FieldType] = schema.Text(e.Type())
	flat[store.FieldPRK] = schema.Text(e.key.String())
	if rev := e.Rev(); rev != "" {
		flat[store.FieldRev] = schema.Text(rev)
	}
	return flat
}

// String is the entry as JSON.
func (e Entry) String() string {
	text, err := e.MarshalJSON()
	if err != nil {
		return e.key.String()
	}
	return string(text)
}

// GoString is String: what the store keeps besides the facets is not shown.
func (e Entry) GoString() string { return e.String() }

// LogValue is the entry's PRK: facets are personal data, and a log is no place for them.
func (e Entry) LogValue() slog.Value { return slog.StringValue(e.key.String()) }

// entry is what a verb returns of a record, whose fields it takes over without the password, beside its error.
func (t *Type) entry(r store.Record, err error) (Entry, error) {
	if done(err) {
		err = cmp.Or(t.declared.Readable(r), err)
	}
	if !done(err) {
		return Entry{}, err
	}
	return t.bare(r), err
}

// bare is entry for a record that is not checked.
func (t *Type) bare(r store.Record) Entry {
	delete(r.Fields, store.FieldPassword)
	return Entry{key: r.Key.In(recordkey.Namespace{}), t: t.declared, was: r.Fields}
}

// readable checks that all facets can be read, those that were changed as they are now.
func (e Entry) readable() error {
	r := store.Record{Key: e.key, Fields: e.was}
	err := e.t.Readable(r)
	if err == nil || len(e.edits) == 0 {
		return err
	}
	r.Fields = maps.Clone(e.was)
	for field := range e.edits {
		delete(r.Fields, field)
	}
	return e.t.Readable(r)
}
