package userdb

import (
	"maps"
	"slices"
	"time"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/token"
	"github.com/coffeenode/userdb/internal/typed"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// Texts returns the values of a secondary field, which may have several if the schema sets Many.
// The first one is the facet, which Text returns. Texts returns nil if there is none. For any other
// text field, it returns the facet.
func (e Entry) Texts(field string) []string {
	if texts, edited := e.texts[field]; edited {
		return slices.Clone(texts)
	}
	first, has := e.Get(field)
	if !has || !change.IsText(first.Codec()) {
		return nil
	}
	texts, canonical := []string{first.Text()}, e.t.Schema.Canonical(first.Text())
	for i, f := range e.t.Values(e.fields, field) {
		if i > 0 && f.Canonical != canonical {
			texts = append(texts, f.Written)
		}
	}
	return texts
}

// Values returns the values of all fields that may have several, by field. Fields without a value
// are missing.
func (e Entry) Values() map[string][]string {
	if e.t == nil {
		return nil
	}
	all := map[string][]string{}
	for _, field := range e.t.Many {
		if texts := e.Texts(field); len(texts) > 0 {
			all[field] = texts
		}
	}
	return all
}

// A FieldValue is one value of a field that may have several, with what is known about it.
type FieldValue struct {
	Text string

	// Verified is when the value was verified. It is zero for unverified values, and always for the
	// facet. Entry.Verified reports whether the facet is verified.
	Verified time.Time

	// Unverified reports whether the value is a mail address that was added beside another one and
	// then became the facet without being verified. Nobody can sign in with such an address, and no
	// secrets are sent to it. The same is true of a further address whose Verified is zero,
	// although its Unverified is false.
	Unverified bool

	// Label is the owner's name for the kind of value, such as "work", or "".
	Label string
}

// FieldValues returns the values that Values returns, with what is known about each.
func (e Entry) FieldValues() map[string][]FieldValue {
	if e.t == nil || len(e.t.Many) == 0 {
		return nil
	}
	all := map[string][]FieldValue{}
	for field, texts := range e.Values() {
		known := e.t.Values(e.fields, field)
		for i, text := range texts {
			v := FieldValue{Text: text}
			at := slices.IndexFunc(known, func(f store.Further) bool { return f.Written == text })
			if at >= 0 {
				v.Label = known[at].Label
			}
			if i > 0 && at > 0 && known[at].Verified > 0 {
				v.Verified = time.Unix(known[at].Verified, 0).UTC()
			}
			stored := store.Record{Fields: e.fields}
			v.Unverified = i == 0 && text == e.fields[field] && stored.FacetUnverified(field) && e.t.Schema.Fields[field].HasAddresses()
			all[field] = append(all[field], v)
		}
	}
	return all
}

// SetTexts replaces all values of a secondary field in this copy. The first text becomes the facet.
// Without texts, the field has no value. Save and Update refuse more texts than the schema allows,
// and texts with the same canonical form. Earlier copies of e do not change.
func (e *Entry) SetTexts(field string, texts ...string) {
	all := maps.Clone(e.texts)
	if all == nil {
		all = map[string][]string{}
	}
	all[field] = slices.Clone(texts)
	var first *schema.Value
	if len(texts) > 0 {
		first = new(schema.Text(texts[0]))
	}
	e.edit(field, first)
	e.texts = all
}

// AddText adds a value to a secondary field in this copy, after the others. It does nothing if the
// field has the value already, in any spelling. A new value is not verified.
func (e *Entry) AddText(field, text string) {
	if texts := e.Texts(field); e.indexOf(texts, text) < 0 {
		e.SetTexts(field, append(texts, text)...)
	}
}

// DropText removes a value of a secondary field from this copy, in any spelling. If that was the
// facet, the next verified value becomes the facet, or the next value if none is verified.
func (e *Entry) DropText(field, text string) {
	texts := e.Texts(field)
	i := e.indexOf(texts, text)
	if i < 0 {
		return
	}
	texts = slices.Delete(texts, i, i+1)
	if i == 0 && len(texts) > 1 && e.t != nil {
		values := e.t.Values(e.fields, field)
		verified := slices.IndexFunc(texts, func(text string) bool {
			return slices.ContainsFunc(values, func(f store.Further) bool { return f.Verified > 0 && f.Written == text })
		})
		if verified > 0 {
			text = texts[verified]
			texts = slices.Insert(slices.Delete(texts, verified, verified+1), 0, text)
		}
	}
	e.SetTexts(field, texts...)
}

// PutFirst makes a value of a secondary field the facet in this copy. The other values follow in
// their order. A value that the field does not have yet is added. If an unverified mail address of
// the entry becomes the facet, it still has to be verified before anybody can sign in with it or
// secrets are sent to it.
func (e *Entry) PutFirst(field, text string) {
	texts := e.Texts(field)
	if i := e.indexOf(texts, text); i >= 0 {
		text = texts[i]
		texts = slices.Delete(texts, i, i+1)
	}
	e.SetTexts(field, append([]string{text}, texts...)...)
}

// A TextValue is one value of a secondary field.
type TextValue struct {
	Text     string
	Label    string // the owner's name for the kind of value, such as "work", or ""
	Verified bool   // see VerifiedText
}

// TextValues returns the values that Texts returns, with their labels and marks of verification.
func (e Entry) TextValues(field string) (all []TextValue) {
	if e.t == nil {
		return nil
	}
	known := map[string]store.Further{}
	for _, f := range e.t.Values(e.fields, field) {
		known[f.Canonical] = f
	}
	for _, text := range e.Texts(field) {
		f := known[e.t.Schema.Canonical(text)]
		v := TextValue{Text: text, Label: f.Label, Verified: f.Verified > 0 && f.Written == text}
		if label, set := e.labels[field][text]; set {
			v.Label = label
		}
		all = append(all, v)
	}
	return all
}

// SetLabel labels a value of a secondary field in this copy; "" removes its label. It does nothing
// if the field does not have the value. A label has at most 64 bytes and is not a hyphen alone.
// Earlier copies of e do not change.
func (e *Entry) SetLabel(field, text, label string) {
	texts := e.Texts(field)
	i := e.indexOf(texts, text)
	if i < 0 {
		return
	}
	if _, edited := e.texts[field]; !edited {
		e.SetTexts(field, texts...)
	}
	labels, ofField := maps.Clone(e.labels), maps.Clone(e.labels[field])
	if labels == nil {
		labels = map[string]map[string]string{}
	}
	if ofField == nil {
		ofField = map[string]string{}
	}
	ofField[texts[i]] = label
	labels[field] = ofField
	e.labels = labels
}

// indexOf returns the index of the text with the same canonical form, or -1.
func (e Entry) indexOf(texts []string, text string) int {
	if i := slices.Index(texts, text); i >= 0 || e.t == nil {
		return i
	}
	canonical := e.t.Schema.Canonical(text)
	return slices.IndexFunc(texts, func(other string) bool { return e.t.Schema.Canonical(other) == canonical })
}

// VerifiedText reports whether the owner of the entry has proved that they receive mail at a value
// of a field, the facet or another one; see Verified.
func (e Entry) VerifiedText(field, text string) bool {
	texts := e.Texts(field)
	i := e.indexOf(texts, text)
	return i >= 0 && slices.ContainsFunc(e.t.Values(e.fields, field), func(f store.Further) bool {
		return f.Verified > 0 && f.Written == texts[i]
	})
}

// putText applies Put or Drop of a facet to the values that other methods have set. Drop removes
// all values, and a later Put does not bring them back.
func (e *Entry) putText(ed edit) {
	field := ed.field
	texts, edited := e.texts[field]
	drops := ed.drop && e.t != nil && slices.Contains(e.t.Secondary, field)
	several := (edited || drops) && len(store.FurtherIn(e.fields, field)) > 0
	if !edited && !several {
		return
	}
	all := maps.Clone(e.texts)
	if all == nil {
		all = map[string][]string{}
	}
	switch {
	case ed.drop:
		all[field] = nil
	case len(texts) == 0 && !several:
		delete(all, field)
	default:
		rest := slices.Clone(texts[min(1, len(texts)):])
		if i := e.indexOf(rest, ed.v.Text()); i >= 0 {
			rest = slices.Delete(rest, i, i+1)
		}
		all[field] = append([]string{ed.v.Text()}, rest...)
	}
	e.texts = all
}

// source returns e as a source for structs.
func (e Entry) source() typed.Source {
	from := typed.Source{Wires: e.encodedFields()}
	if len(e.t.Many) > 0 {
		read := e // e.Texts would move e to the heap for every type
		from.Texts = read.Texts
	}
	return from
}

// signsIn reports whether the owner of r may sign in with the identifier by which l has found it. A
// value that somebody else or a directory entered may be the address of another person. Further
// values of a field with mail addresses therefore count only if they are verified, as does a facet
// that was one of them.
func (t *Type) signsIn(l store.Lookup, r store.Record) bool {
	if len(l.SRKs) == 0 {
		return l.Matches(r)
	}
	return slices.ContainsFunc(l.SRKs, func(srk recordkey.Key) bool {
		field, value := srk.Field(), srk.Value()
		if !r.HasValue(field, value) {
			return false
		}
		f, further := r.FurtherValue(field, value)
		if r.SKV(field) == value || !further {
			return !t.facetUnverified(r, field)
		}
		return f.Verified > 0 || !t.declared.Schema.Fields[field].HasAddresses()
	})
}

// facetUnverified reports whether a facet is a mail address that was a further value of the field,
// and that nobody has verified.
func (t *Type) facetUnverified(r store.Record, field string) bool {
	return r.FacetUnverified(field) && t.declared.Schema.Fields[field].HasAddresses()
}

// bond returns the name by which a token is bound to a value of the record: the field, or the value
// itself if the field may have several.
func (t *Type) bond(field, written string) string {
	if written == "" || t.declared.Schema.Fields[field].MaxValues() < 2 {
		return field
	}
	return token.Value{Field: field, Written: written}.Bond()
}

// addressFor returns the value of a field that a secret is sent to, or "" if the entry has none
// that may receive it. It prefers the value that a visitor entered, given in its canonical form, if
// that may receive a secret. Otherwise it returns the facet, or, if the facet must be verified
// first, the first further value that is verified.
func (t *Type) addressFor(r store.Record, field, canonical string) string {
	if written, ok := t.receivingAddress(r, field, canonical); ok {
		return written
	}
	if !r.FacetUnverified(field) {
		return r.Fields[field]
	}
	for _, f := range store.FurtherIn(r.Fields, field) {
		if f.Verified > 0 && f.Canonical != r.SKV(field) {
			return f.Written
		}
	}
	return ""
}

// receivingAddress returns the stored spelling of the value with a canonical form. It returns false
// if the entry lacks the value or if no secrets may be sent to it. It computes no canonical forms,
// because the time would reveal whether the entry has further values.
func (t *Type) receivingAddress(r store.Record, field, canonical string) (written string, ok bool) {
	if r.SKV(field) == canonical {
		return r.Fields[field], !r.FacetUnverified(field)
	}
	f, has := r.FurtherValue(field, canonical)
	return f.Written, has && f.Verified > 0
}
