package change

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// A secondary field may have further values besides its facet; see store.Further. In the arguments
// of Create and Update, they are among the store's own fields. All functions here know the further
// values of every record, whatever the schema says: a program may change an entry under a schema
// that does not have them yet.

// hasFurther reports whether fields contain a further value.
func hasFurther(fields map[string]string) bool {
	for name := range fields {
		if store.IsFurther(name) {
			return true
		}
	}
	return false
}

// completeFurther returns own with the changes of further values that a change of facets causes.
// Further values go if their facet goes, and a further value that becomes the facet is no longer a
// further one. It takes its mark of verification along.
func (t *Type) completeFurther(old store.Record, facets, own map[string]string) map[string]string {
	if !hasFurther(old.Fields) && !hasFurther(own) {
		return own
	}
	own = maps.Clone(own)
	if own == nil {
		own = map[string]string{}
	}
	for _, f := range store.FurtherIn(furtherAfter(old.Fields, own), "") {
		facet, has := facets[f.Field]
		switch {
		case !has:
			own[f.Name()] = ""
		case t.Schema.Canonical(facet) == f.Canonical:
			own[f.Name()] = ""
			mark := store.FieldVerified(f.Field)
			if _, given := own[mark]; !given && f.Verified > 0 && f.Written == facet {
				own[mark] = store.Verified(facet)
			}
		}
	}
	return own
}

// furtherAfter returns the fields that hold the further values of an entry after a change of the
// store's own fields. An empty field in own removes the value.
func furtherAfter(old, own map[string]string) map[string]string {
	if !hasFurther(old) && !hasFurther(own) {
		return nil
	}
	after := map[string]string{}
	for name, text := range old {
		if store.IsFurther(name) {
			after[name] = text
		}
	}
	for name, text := range own {
		switch {
		case !store.IsFurther(name):
		case text == "":
			delete(after, name)
		default:
			after[name] = text
		}
	}
	return after
}

// WithFurther returns the facets of an entry and its further values after a change of the store's
// own fields.
func WithFurther(old store.Record, facets, own map[string]string) map[string]string {
	further := furtherAfter(old.Fields, own)
	if len(further) == 0 {
		return facets
	}
	maps.Copy(further, facets)
	return further
}

// checkCounts returns an error if an entry has more values in a field than the schema allows, or
// too many over all fields. An entry that already has more may keep what it has.
func (t *Type) checkCounts(old store.Record, after []store.Further) error {
	before := store.FurtherIn(old.Fields, "")
	if len(after) > max(store.MaxFurther, len(before)) {
		return Invalid(after[0].Field, "many", "over "+strconv.Itoa(store.MaxFurther)+" further values in all fields")
	}
	count := func(all []store.Further, field string) (n int) {
		for _, f := range all {
			if f.Field == field {
				n++
			}
		}
		return n
	}
	for i, f := range after {
		if i > 0 && after[i-1].Field == f.Field {
			continue
		}
		limit := t.Schema.Fields[f.Field].MaxValues()
		if n := 1 + count(after, f.Field); n > max(limit, 1+count(before, f.Field)) {
			return Invalid(f.Field, "many", "over "+strconv.Itoa(limit)+" values")
		}
	}
	return nil
}

// A fieldValue is a value of an entry in a field: a canonical value of a secondary field, or a
// value as it is written.
type fieldValue struct{ field, value string }

// moved returns the values that are only in before, and those that are only in after.
func moved(before, after []fieldValue) (left, joined []fieldValue) {
	for _, v := range before {
		if !slices.Contains(after, v) {
			left = append(left, v)
		}
	}
	for i, v := range after {
		if !slices.Contains(before, v) && !slices.Contains(after[:i], v) {
			joined = append(joined, v)
		}
	}
	return left, joined
}

// writtenValues returns the values of an entry in some fields, as they are written.
func writtenValues(fields []string, facets map[string]string, further []store.Further) (all []fieldValue) {
	for _, field := range fields {
		if wire, has := facets[field]; has {
			all = append(all, fieldValue{field, wire})
		}
	}
	for _, f := range further {
		if slices.Contains(fields, f.Field) {
			all = append(all, fieldValue{f.Field, f.Written})
		}
	}
	return all
}

// IndexedValues returns the written values of the indexed fields of an entry. The entry is in the
// index set of each of them.
func (t *Type) IndexedValues(fields map[string]string) (all []store.Facet) {
	for _, v := range writtenValues(t.Indexed, fields, store.FurtherIn(fields, "")) {
		all = append(all, store.Facet{Field: v.field, Wire: v.value})
	}
	return all
}

// Values returns the values of a secondary field of an entry, the first of which is the facet. It
// leaves out the values that only another schema knows.
func (t *Type) Values(fields map[string]string, field string) (all []store.Further) {
	facet, has := fields[field]
	if !has {
		return nil
	}
	first := store.Further{Field: field, Canonical: t.Schema.Canonical(facet), Written: facet}
	if fields[store.FieldVerified(field)] == store.Verified(facet) {
		first.Verified = 1
	}
	all = append(all, first)
	for _, f := range store.FurtherIn(fields, field) {
		if f.Canonical != first.Canonical && t.Schema.Canonical(f.Written) == f.Canonical {
			all = append(all, f)
		}
	}
	return all
}

// HasCanonical reports whether an entry has a value in a secondary field whose canonical form under
// the schema of t is the argument.
func (t *Type) HasCanonical(fields map[string]string, field, canonical string) bool {
	facet, has := fields[field]
	if has && t.Schema.Canonical(facet) == canonical {
		return true
	}
	f, has := (store.Record{Fields: fields}).FurtherValue(field, canonical)
	return has && t.Schema.Canonical(f.Written) == canonical
}

// SetTexts adds to facets and own everything that makes texts the values of a secondary field, in
// this order. The first of them becomes the facet. Without texts, the field has no value. Values
// that the entry has as the same text keep their marks of verification, and further values their
// labels; now is the time for the mark of a facet that becomes a further value. New texts must obey
// the rules of the field.
func (t *Type) SetTexts(old store.Record, facets, own map[string]string, field string, texts []string, now time.Time) error {
	if !slices.Contains(t.Secondary, field) {
		return Invalid(field, "many", "not a secondary field")
	}
	delete(facets, field)
	for _, f := range store.FurtherIn(old.Fields, field) {
		own[f.Name()] = ""
	}
	before := t.Values(old.Fields, field)
	all, isNew := make([]store.Further, 0, len(texts)), make([]bool, 0, len(texts))
	for i, text := range texts {
		known := map[string]string{}
		if slices.ContainsFunc(before, func(f store.Further) bool { return f.Written == text }) {
			known[field] = text
		}
		encoded := map[string]string{}
		if err := t.EncodeFacet(encoded, field, schema.Text(text), known); err != nil {
			return err
		}
		f := store.Further{Field: field, Canonical: t.Schema.Canonical(encoded[field]), Written: encoded[field]}
		if slices.ContainsFunc(all, func(other store.Further) bool { return other.Canonical == f.Canonical }) {
			return Invalid(field, "many", "the same value twice")
		}
		was := slices.IndexFunc(before, func(b store.Further) bool { return b.Canonical == f.Canonical })
		if was >= 0 {
			f.Place, f.Label = before[was].Place, before[was].Label
			if before[was].Written == f.Written {
				f.Verified = before[was].Verified
			}
			if was == 0 && f.Verified > 0 {
				f.Verified = max(1, now.Unix())
			}
		}
		if i == 0 {
			facets[field] = f.Written
			if f.Verified > 0 {
				own[store.FieldVerified(field)] = store.Verified(f.Written)
			}
			continue
		}
		all, isNew = append(all, f), append(isNew, was <= 0)
	}
	if len(texts) > 0 && slices.ContainsFunc(all, func(f store.Further) bool { return f.Canonical == t.Schema.Canonical(facets[field]) }) {
		return Invalid(field, "many", "the same value twice")
	}
	store.SetPlaces(all, func(i int) bool { return isNew[i] })
	for _, f := range all {
		if _, ok := t.SRK(field, f.Canonical); !ok {
			return Invalid(field, "key", "not a value that a record key can hold")
		}
		own[f.Name()] = f.Text()
	}
	return nil
}

// VerifyValue adds to own the mark that a value of a field is verified, the facet or a further
// value.
func (t *Type) VerifyValue(fields, facets, own map[string]string, field, written string, now time.Time) {
	if facets[field] == written {
		Verify(field, written, own)
		return
	}
	for _, f := range store.FurtherIn(furtherAfter(fields, own), field) {
		if f.Written == written {
			f.Verified = max(1, now.Unix())
			own[f.Name()] = f.Text()
		}
	}
}

// gone returns the bonds of tokens to the values that an entry loses.
func gone(left []fieldValue) (bonds []string) {
	for _, v := range left {
		bonds = append(bonds, store.ValueBond(v.field, v.value))
	}
	return bonds
}

// keysOf returns the keys of values, and the first value that has none.
func keysOf(values []fieldValue, key func(field, value string) (recordkey.Key, bool)) (keys []recordkey.Key, without *fieldValue) {
	for i, v := range values {
		k, ok := key(v.field, v.value)
		if !ok {
			if without == nil {
				without = &values[i]
			}
			continue
		}
		keys = append(keys, k)
	}
	return keys, without
}
