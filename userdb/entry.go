package userdb

import (
	"cmp"
	"encoding/json"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// An Entry holds a copy of an entry as it was read. Put, Drop and SetDisabled change only this
// copy; Update and Save write it. An Entry never holds the password hash, so that printing, logging
// or marshaling it reveals nothing. The zero Entry represents no entry.
type Entry struct {
	key    recordkey.Key
	t      *change.Type
	fields map[string]string // every field as read, except the password; never modified

	edits edits // made by Put and Drop

	// texts holds all values of the secondary fields that SetTexts and similar methods have
	// changed; edits holds the first value of each. The map is never modified.
	texts map[string][]string

	// labels holds the labels that SetLabel has set, by field and value. The maps are never
	// modified.
	labels map[string]map[string]string

	disable *bool // the argument of the last SetDisabled

	sets    map[string][]string // known members of tertiary sets; never modified
	newSets map[string][]string // the arguments of SetMembers; never modified

	readable bool // all facets in fields can be read by t

	proved bool // Prove, or a method that checks as much, returned the entry
	ended  bool // CreateOnce repeated a request, and all sessions have ended since the first one
	// verified and verifiedLevel2 are the times that a new session takes over from the session that
	// it replaces. A zero time stands for now.
	verified, verifiedLevel2 time.Time
}

// Key returns the key, relative to the namespace of the view that read the entry.
func (e Entry) Key() recordkey.Key { return e.key }

// Type returns the name of the entry's type.
func (e Entry) Type() string { return e.key.Type() }

// UID returns the primary value.
func (e Entry) UID() string { return e.key.Value() }

// Rev returns the revision, which is new with every change of the entry. It is "" if only the
// original, coffeenode-userdb 0.0.10, has written the entry.
func (e Entry) Rev() string { return store.Rev(e.fields[store.FieldRev]) }

// PasswordChanged returns when the password was last set, or the zero time if that is not known.
// Applications with sessions of their own can store this time when Login returns the entry, and end
// the session when the entry has another time.
func (e Entry) PasswordChanged() time.Time {
	return change.PasswordChangedAt(store.Record{Fields: e.fields})
}

// Disabled reports whether the entry may not log in.
func (e Entry) Disabled() bool {
	if e.disable != nil {
		return *e.disable
	}
	return e.fields[store.FieldDisabled] != ""
}

// Unproven reports whether the entry was self-registered and nobody has proved yet that they own
// its address; see NewEntry.SelfRegistered.
func (e Entry) Unproven() bool { return e.fields[store.FieldUnproven] != "" }

// Members returns the members of a tertiary set in sorted order, or nil if there are none. They are
// known if Query.WithSets named the set when the entry was read, or if SetMembers has set them, and
// stay known in the entry that Update or Save returns. Otherwise Members also returns nil; see
// [Set.Members].
func (e Entry) Members(set string) []string { return append([]string(nil), e.knownSets()[set]...) }

// SetMembers sets the members of a tertiary set. Update and Save then replace the set in the same
// change as the facets, as [Set.Replace] does.
func (e *Entry) SetMembers(set string, members ...string) {
	e.newSets = maps.Clone(e.newSets)
	if e.newSets == nil {
		e.newSets = map[string][]string{}
	}
	e.newSets[set] = distinct(members)
}

// knownSets returns the members of all sets that are known, with those that SetMembers has set.
func (e Entry) knownSets() map[string][]string {
	if len(e.newSets) == 0 {
		return e.sets
	}
	all := maps.Clone(e.sets)
	if all == nil {
		all = map[string][]string{}
	}
	maps.Copy(all, e.newSets)
	return all
}

// SetDisabled disables or enables the entry in this copy. Update and Save then do what Disable or
// Enable does, in the same change as the facets.
func (e *Entry) SetDisabled(disabled bool) { e.disable = &disabled }

// Verified reports whether the owner of the entry has proved that they receive mail at the address
// in this facet, by AcceptInvitation, a token of PurposeChange or PurposeAdd, or a token from
// IssueFor. A new value is not verified. VerifiedText reports the same for one of several values.
func (e Entry) Verified(field string) bool {
	_, edited := e.edits.of(field)
	if _, several := e.texts[field]; edited && !several {
		return false
	}
	return (edited || e.fields[store.FieldVerified(field)] != "") && e.VerifiedText(field, e.Text(field))
}

// Fields returns the names of the facets in sorted order.
func (e Entry) Fields() iter.Seq[string] {
	return slices.Values(slices.Sorted(maps.Keys(e.Facets())))
}

// Facets returns the facets by name, including the primary one. The caller may modify the map. For
// the zero Entry it is empty.
func (e Entry) Facets() schema.Facets {
	facets := make(schema.Facets, len(e.fields))
	for field := range e.fields {
		if v, has := e.Get(field); has {
			facets[field] = v
		}
	}
	for _, ed := range e.edits {
		if !ed.drop {
			facets[ed.field] = ed.v
		}
	}
	return facets
}

// encodedFields returns the encoded facets with the edits applied, together with the store's own
// fields. The caller must not modify the map.
func (e Entry) encodedFields() map[string]string {
	if len(e.edits) == 0 {
		return e.fields
	}
	encoded := make(map[string]string, len(e.fields)+len(e.edits))
	maps.Copy(encoded, e.fields)
	for _, ed := range e.edits {
		if delete(encoded, ed.field); !ed.drop {
			encoded[ed.field] = ed.v.Wire()
		}
	}
	return encoded
}

// Get returns a facet and reports whether the entry has it.
func (e Entry) Get(field string) (schema.Value, bool) {
	if ed, ok := e.edits.of(field); ok {
		return ed.v, !ed.drop
	}
	wire, ok := e.fields[field]
	if !ok || store.OwnField(field) {
		return schema.Value{}, false
	}
	v, err := schema.Decode(e.t.Schema.Codec(field), wire)
	return v, err == nil
}

// Text returns a facet as text, or "" if the entry does not have it.
func (e Entry) Text(field string) string {
	v, _ := e.Get(field)
	return v.Text()
}

// Put sets a facet in this copy. Earlier copies of e do not change. If the field has several
// values, Put replaces only the first; after Drop, it sets the only one.
func (e *Entry) Put(field string, v schema.Value) { e.edit(field, &v) }

// Drop removes a facet and all other values of the field from this copy. Earlier copies of e do not
// change. Drop also removes a value that Flat returns as ~lost:FIELD.
func (e *Entry) Drop(field string) { e.edit(field, nil) }

func (e *Entry) edit(field string, v *schema.Value) {
	ed := edit{field: field, drop: v == nil}
	if v != nil {
		ed.v = *v
	}
	e.edits = e.edits.with(ed)
	e.putText(ed)
}

// An edit describes a facet that Put has set or, with drop, that Drop has removed.
type edit struct {
	field string
	v     schema.Value
	drop  bool
}

// An edits holds at most one edit of each field, sorted by field. It is never modified.
type edits []edit

// find returns the index of the edit of a field, or the index at which to insert one, and reports
// whether there is one.
func (es edits) find(field string) (int, bool) {
	return slices.BinarySearchFunc(es, field, func(ed edit, field string) int { return strings.Compare(ed.field, field) })
}

// of returns the edit of a field, and reports whether there is one.
func (es edits) of(field string) (edit, bool) {
	i, has := es.find(field)
	if !has {
		return edit{}, false
	}
	return es[i], true
}

// with returns the edits with another one, which replaces that of the same field.
func (es edits) with(ed edit) edits {
	i, has := es.find(ed.field)
	after := make(edits, 0, len(es)+1)
	after = append(append(after, es[:i]...), ed)
	if has {
		i++
	}
	return append(after, es[i:]...)
}

// MarshalJSON returns the facets of Flat as JSON.
func (e Entry) MarshalJSON() ([]byte, error) { return json.Marshal(e.Flat()) }

// fieldValues is the name under which Flat returns all values of the fields that may have several.
const fieldValues = "~values"

// Flat returns the entry as one flat object: the facets by name, ~isa, ~prk and ~rev, and
// "~disabled":true if the entry is disabled. If the type has fields that may have several values,
// ~values holds what Values returns, as JSON. A value that a repair removed from a field, because
// another entry has it, is ~lost:FIELD. For the zero Entry, Flat is empty.
func (e Entry) Flat() schema.Facets {
	if !e.key.IsValid() {
		return schema.Facets{}
	}
	flat := e.Facets()
	for field, wire := range e.fields {
		if _, dropped := e.edits.of(field); store.IsLost(field) && !dropped {
			flat[field] = schema.Text(wire)
		}
	}
	if e.Disabled() {
		flat[store.FieldDisabled] = schema.Bool(true)
	}
	if all := e.Values(); len(all) > 0 {
		text, _ := json.Marshal(all) // marshaling strings cannot fail
		flat[fieldValues], _ = schema.Decode(schema.CodecJSON, string(text))
	}
	flat[store.FieldType] = schema.Text(e.Type())
	flat[store.FieldPRK] = schema.Text(e.key.String())
	if rev := e.Rev(); rev != "" {
		flat[store.FieldRev] = schema.Text(rev)
	}
	return flat
}

// String returns the entry as JSON.
func (e Entry) String() string {
	text, err := e.MarshalJSON()
	if err != nil {
		return e.key.String()
	}
	return string(text)
}

// GoString returns the same as String, so that %#v does not print the store's own fields.
func (e Entry) GoString() string { return e.String() }

// LogValue returns only the Key, as facets are personal data that do not belong in a log.
func (e Entry) LogValue() slog.Value { return slog.StringValue(e.key.String()) }

// entry converts a record and an error to the results of a method. It removes the password hash
// from the record's fields and uses them for the Entry.
func (t *Type) entry(r store.Record, err error) (Entry, error) {
	if committed(err) {
		err = cmp.Or(t.declared.CheckReadable(r), err)
	}
	return t.entryAsWritten(r, err)
}

// entryAsWritten does the same as entry for a record whose facets were checked before they were
// written.
func (t *Type) entryAsWritten(r store.Record, err error) (Entry, error) {
	if !committed(err) {
		return Entry{}, err
	}
	e := t.entryUnchecked(r)
	e.readable = true
	return e, err
}

// entryUnchecked converts a record to an Entry without checking that its facets can be read.
func (t *Type) entryUnchecked(r store.Record) Entry {
	delete(r.Fields, store.FieldPassword)
	delete(r.Fields, factor.FieldHash)
	return Entry{key: r.Key.In(recordkey.Namespace{}), t: t.declared, fields: r.Fields}
}

// checkReadable checks that all facets can be read, with the edits applied.
func (e Entry) checkReadable() error {
	r := store.Record{Key: e.key, Fields: e.fields}
	err := e.t.CheckReadable(r)
	if err == nil || len(e.edits) == 0 {
		return err
	}
	r.Fields = maps.Clone(e.fields)
	for _, ed := range e.edits {
		delete(r.Fields, ed.field)
	}
	return e.t.CheckReadable(r)
}
