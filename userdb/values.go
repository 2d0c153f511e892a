package userdb

import (
	"maps"
	"slices"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/typed"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// Texts returns the values of a secondary field, which may have several if the schema says so with
// Many. The first one is the facet, which Text returns. Texts returns nil if there is none. For any
// other text field, it returns the facet.
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

// SetTexts replaces all values of a secondary field in this copy. The first text becomes the facet.
// Without texts, the field has no value. Save and Update refuse more texts than the schema allows,
// and two that are the same value. Earlier copies of e do not change.
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
// field has the value already, in whatever spelling. A new value is not verified.
func (e *Entry) AddText(field, text string) {
	if texts := e.Texts(field); e.indexOf(texts, text) < 0 {
		e.SetTexts(field, append(texts, text)...)
	}
}

// DropText removes a value of a secondary field from this copy, in whatever spelling. If that was
// the facet, the next value becomes the facet.
func (e *Entry) DropText(field, text string) {
	texts := e.Texts(field)
	if i := e.indexOf(texts, text); i >= 0 {
		e.SetTexts(field, slices.Delete(texts, i, i+1)...)
	}
}

// PutFirst makes a value of a secondary field the facet in this copy. The other values follow in
// their order. A value that the field does not have yet is added.
func (e *Entry) PutFirst(field, text string) {
	texts := e.Texts(field)
	if i := e.indexOf(texts, text); i >= 0 {
		text = texts[i]
		texts = slices.Delete(texts, i, i+1)
	}
	e.SetTexts(field, append([]string{text}, texts...)...)
}

// indexOf returns the index of the text that is the same value, or -1.
func (e Entry) indexOf(texts []string, text string) int {
	if e.t == nil {
		return slices.Index(texts, text)
	}
	canonical := e.t.Schema.Canonical(text)
	return slices.IndexFunc(texts, func(other string) bool { return e.t.Schema.Canonical(other) == canonical })
}

// VerifiedText reports whether the owner of the entry has proved that they receive what is sent to
// a value of a field, the facet or another one; see Verified.
func (e Entry) VerifiedText(field, text string) bool {
	texts := e.Texts(field)
	i := e.indexOf(texts, text)
	return i >= 0 && slices.ContainsFunc(e.t.Values(e.fields, field), func(f store.Further) bool {
		return f.Verified > 0 && f.Written == texts[i]
	})
}

// putText applies Put or Drop of a facet to the values that other methods have set.
func (e *Entry) putText(field string, v *schema.Value) {
	texts, edited := e.texts[field]
	if !edited {
		return
	}
	e.texts = maps.Clone(e.texts)
	switch {
	case v == nil:
		e.texts[field] = nil
	case len(texts) == 0:
		delete(e.texts, field)
	default:
		rest := slices.Clone(texts[1:])
		if i := e.indexOf(rest, v.Text()); i >= 0 {
			rest = slices.Delete(rest, i, i+1)
		}
		e.texts[field] = append([]string{v.Text()}, rest...)
	}
}

// source returns e as structs are read from it.
func (e Entry) source() typed.Source {
	from := typed.Source{Wires: e.encodedFields()}
	if len(e.t.Many) > 0 {
		read := e // taking the method of e itself would allocate it for every type
		from.Texts = read.Texts
	}
	return from
}

// signsIn reports whether its owner may sign in with the identifier that a lookup has found the
// entry by. A value that somebody else has entered, such as a directory, may be the address of
// another person. So the further values of a field with mail addresses count only if they are
// verified.
func (t *Type) signsIn(l store.Lookup, r store.Record) bool {
	if len(l.SRKs) == 0 {
		return l.Matches(r)
	}
	return slices.ContainsFunc(l.SRKs, func(srk recordkey.Key) bool {
		field, value := srk.Field(), srk.Value()
		if r.SKV(field) == value || !r.HasValue(field, value) {
			return r.SKV(field) == value
		}
		f, further := r.FurtherValue(field, value)
		return !further || f.Verified > 0 || !t.declared.Schema.Fields[field].HasAddresses()
	})
}

// bond returns the name by which a token is bound to a value of the record: the field, or the value
// itself if the field may have several.
func (t *Type) bond(field, written string) string {
	if written == "" || t.declared.Schema.Fields[field].MaxValues() < 2 {
		return field
	}
	return store.ValueBond(field, written)
}

// addressFor returns the value of a field that a visitor's secret is sent to: the one that the
// visitor typed if it is verified, else the first.
func (t *Type) addressFor(r store.Record, field, typed string) string {
	if canonical, ok := t.declared.Schema.Identifier(typed); ok {
		for _, f := range t.declared.Values(r.Fields, field) {
			if f.Canonical == canonical && f.Verified > 0 {
				return f.Written
			}
		}
	}
	return t.entryUnchecked(r).Text(field)
}
