package change

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// A secondary field may have further values besides its facet; see store.Further. In the arguments
// of Create and Update, they are among the store's own fields. A change also keeps and counts
// further values that the schema does not have, because a program may change an entry under a
// schema that does not have them yet.

// hasFurther reports whether fields contain a further value.
func hasFurther(fields map[string]string) bool {
	for name := range fields {
		if store.IsFurther(name) {
			return true
		}
	}
	return false
}

// completeFurther returns own with the changes of further values, labels and marks of verification
// that a change of facets causes. Further values are removed with their facet, and a further
// value that becomes the facet is no longer a further one. A further value that repeated the old
// facet had no meaning and is removed.
func (t *Type) completeFurther(old store.Record, facets, own map[string]string) map[string]string {
	if !hasAttributes(old) && !hasFurther(own) {
		return own
	}
	own = maps.Clone(own)
	if own == nil {
		own = map[string]string{}
	}
	for _, f := range store.FurtherIn(furtherAfter(old.Fields, own), "") {
		facet, has := facets[f.Field]
		_, given := own[f.Name()]
		if !has || t.Schema.Canonical(facet) == f.Canonical || !given && old.SKV(f.Field) == f.Canonical {
			own[f.Name()] = ""
		}
	}
	for _, field := range t.Secondary {
		if facet, has := facets[field]; has && facet != old.Fields[field] {
			t.keepAttributes(old, field, facet, own)
		}
	}
	return own
}

// hasAttributes reports whether a record has further values, the label of a facet, or the mark of a
// facet that is not verified.
func hasAttributes(r store.Record) bool {
	for name, text := range r.Fields {
		if store.IsFurther(name) || store.FieldOfLabel(name) != "" ||
			store.FieldOfVerified(name) != "" && strings.HasPrefix(text, "-") {
			return true
		}
	}
	return false
}

// keepAttributes adds to own the label and the mark of verification that the new facet of an entry
// had before, as a further value or in another spelling.
func (t *Type) keepAttributes(old store.Record, field, facet string, own map[string]string) {
	canonical := t.Schema.Canonical(facet)
	f, has := old.FurtherValue(field, canonical)
	if f.Written != facet {
		f.Verified = 0
	}
	marked := has
	if old.SKV(field) == canonical {
		f, has, marked = store.Further{Label: old.Label(field)}, true, old.FacetUnverified(field)
	}
	if !has {
		return
	}
	f.Field, f.Written = field, facet
	mark := t.verifiedMark(f)
	if old.SKV(field) == canonical {
		mark.Wire = store.Unverified(facet) // used if marked: the other spelling was not verified
	}
	if marked && mark.Wire != "" && own[mark.Field] == "" {
		own[mark.Field] = mark.Wire
	}
	if _, given := own[store.FieldLabel(field)]; f.Label != "" && !given {
		own[store.FieldLabel(field)] = store.LabelText(facet, f.Label)
	}
}

// verifiedMark returns the mark of verification of a further value that becomes the facet. For an
// unverified mail address, the mark says that it is not verified. Wire is "" if there is no mark.
func (t *Type) verifiedMark(f store.Further) store.Facet {
	mark := store.Facet{Field: store.FieldVerified(f.Field)}
	switch {
	case f.Verified > 0:
		mark.Wire = store.Verified(f.Written)
	case t.Schema.Fields[f.Field].HasAddresses():
		mark.Wire = store.Unverified(f.Written)
	}
	return mark
}

// checkDigests returns an error if a change removes the digest of a passkey from an entry that
// keeps the passkey. Otherwise another entry could get the digest.
func (t *Type) checkDigests(old store.Record, facets, own map[string]string) error {
	mark, changes := own[factor.FieldMark]
	if !changes {
		mark = old.Fields[factor.FieldMark]
	}
	names := factor.Mark(mark).Passkeys()
	if len(names) == 0 {
		return nil
	}
	before := appendWritten(nil, t.Secondary, old.Fields, store.FurtherIn(old.Fields, ""))
	after := appendWritten(nil, t.Secondary, facets, store.FurtherIn(furtherAfter(old.Fields, own), ""))
	for v := range onlyIn(before, after) {
		if slices.ContainsFunc(names, func(name string) bool { return factor.IsOfDigest(name, v.value) }) {
			return Invalid(v.field, "passkey", "the value belongs to a passkey: remove the passkey instead")
		}
	}
	return nil
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
// own fields. It ignores these fields in facets.
func WithFurther(old store.Record, facets, own map[string]string) map[string]string {
	all := maps.Clone(facets)
	maps.DeleteFunc(all, func(field, _ string) bool { return store.OwnField(field) })
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, furtherAfter(old.Fields, own))
	return all
}

// checkCounts returns an error if an entry has more values in a field than the schema allows, or
// too many over all fields. before and after are the further values of the entry. An entry that
// already has more may keep them.
func (t *Type) checkCounts(before, after []store.Further) error {
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
		limit := t.MaxValues(f.Field)
		if n := 1 + count(after, f.Field); n > max(limit, 1+count(before, f.Field)) {
			if t.Building.BecomesMany(f.Field) {
				return Invalid(f.Field, "many", "several values are not allowed until 'userdb schema apply' is done")
			}
			return tooManyValues(f.Field, limit)
		}
	}
	return nil
}

// A fieldValue is a value of an entry in a field: a canonical value of a secondary field, or a
// value as it is written.
type fieldValue struct{ field, value string }

// enoughValues is the number of secondary values that are compared without allocating. Few entries
// have more.
const enoughValues = 8

// onlyIn yields each value that is in all and not in others, once.
func onlyIn(all, others []fieldValue) iter.Seq[fieldValue] {
	return func(yield func(fieldValue) bool) {
		for i, v := range all {
			if !slices.Contains(others, v) && !slices.Contains(all[:i], v) && !yield(v) {
				return
			}
		}
	}
}

// appendWritten appends the values of an entry in some fields, as they are written.
func appendWritten(all []fieldValue, fields []string, facets map[string]string, further []store.Further) []fieldValue {
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
	for _, v := range appendWritten(nil, t.Indexed, fields, store.FurtherIn(fields, "")) {
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
	first.Label = store.Record{Fields: fields}.Label(field)
	all = append(all, first)
	for _, f := range store.FurtherIn(fields, field) {
		if f.Canonical != first.Canonical && t.Schema.Canonical(f.Written) == f.Canonical {
			all = append(all, f)
		}
	}
	return all
}

// CountValues returns how many different values a secondary field of an entry has under the schema
// of t, whatever schema wrote them.
func (t *Type) CountValues(fields map[string]string, field string) int {
	values := map[string]bool{}
	if facet, has := fields[field]; has {
		values[t.Schema.Canonical(facet)] = true
	}
	for _, f := range store.FurtherIn(fields, field) {
		values[t.Schema.Canonical(f.Written)] = true
	}
	return len(values)
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

// A Value is a value of a secondary field to set, and what its caller knows about it.
type Value struct {
	Text     string
	Label    string // "" keeps the label that the entry has for the value
	Verified int64  // when it was verified, in seconds since 1970; 0 keeps the mark of the entry
	// Unverified says that nobody can sign in with the value before it is verified, even if it is
	// the first. It has no effect on a value that is marked as verified, or that already is the
	// first.
	Unverified bool
}

// SetTexts calls SetValues for values about which nothing else is known.
func (t *Type) SetTexts(old store.Record, facets, own map[string]string, field string, texts []string, now time.Time) error {
	values := make([]Value, len(texts))
	for i, text := range texts {
		values[i].Text = text
	}
	return t.SetValues(old, facets, own, field, values, now)
}

// SetValues sets the values of a secondary field, in this order, in facets and own. The first of
// them becomes the facet. Without values, the field has none. Values that the entry already has
// keep their labels and, if the text is the same, their marks of verification; now is the time for
// the mark of a facet that becomes a further value. New values must obey the rules of the field.
// Values that only another schema knows do not change.
func (t *Type) SetValues(old store.Record, facets, own map[string]string, field string, values []Value, now time.Time) error {
	if !slices.Contains(t.Secondary, field) {
		if reason := t.RefusalReason(field); reason != "" {
			return Invalid(field, "undeclared", reason)
		}
		return Invalid(field, "many", "only a secondary field can have several values")
	}
	if limit := t.Schema.Fields[field].MaxValues(); len(values) > max(limit, 1+len(store.FurtherIn(old.Fields, field))) {
		return tooManyValues(field, limit)
	}
	delete(facets, field)
	before := t.Values(old.Fields, field)
	for _, f := range before[min(1, len(before)):] {
		own[f.Name()] = ""
	}
	if len(values) == 0 {
		return nil
	}
	all, isNew := make([]store.Further, 0, len(values)), make([]bool, 0, len(values))
	for i, v := range values {
		f, was, err := t.encodeValue(field, v, before, now)
		if err != nil {
			return numberError(err, i, len(values))
		}
		if same := indexOf(all, f); same >= 0 {
			return Invalid(field, "many", fmt.Sprintf("values %d and %d are the same", same+1, i+1))
		}
		all, isNew = append(all, f), append(isNew, was <= 0)
	}
	t.setFirst(old, facets, own, all[0], values[0])
	all, isNew = all[1:], isNew[1:]
	store.SetPositions(all, func(i int) bool { return isNew[i] })
	for _, f := range all {
		own[f.Name()] = f.Text()
	}
	return nil
}

// encodeValue returns a value of a field as it is stored. before holds the values that the entry
// has, the facet first. If v is one of them, was is its index, and v keeps its position, its label
// and, if the text is the same, its mark of verification. Otherwise was is -1.
func (t *Type) encodeValue(field string, v Value, before []store.Further, now time.Time) (f store.Further, was int, err error) {
	known, encoded := map[string]string{}, map[string]string{}
	if slices.ContainsFunc(before, func(f store.Further) bool { return f.Written == v.Text }) {
		known[field] = v.Text
	}
	if err := t.EncodeFacet(encoded, field, schema.Text(v.Text), known); err != nil {
		return f, 0, err
	}
	f = store.Further{Field: field, Canonical: t.Schema.Canonical(encoded[field]), Written: encoded[field]}
	if _, ok := t.SRK(field, f.Canonical); !ok {
		return f, 0, Invalid(field, "key", "not a value that a record key can hold")
	}
	if was = indexOf(before, f); was >= 0 {
		f.Position, f.Label = before[was].Position, before[was].Label
		if before[was].Written == f.Written {
			f.Verified = before[was].Verified
		}
		if was == 0 && f.Verified > 0 {
			f.Verified = max(1, now.Unix())
		}
	}
	f.Label = cmp.Or(v.Label, f.Label)
	if v.Verified > 0 {
		f.Verified = v.Verified
	}
	return f, was, nil
}

// indexOf returns the index of the value in all that has the field and canonical form of f, or -1.
func indexOf(all []store.Further, f store.Further) int {
	return slices.IndexFunc(all, func(other store.Further) bool { return other.Field == f.Field && other.Canonical == f.Canonical })
}

// SetLabels adds to own the labels of values of a field that SetTexts has added to facets and own.
// An empty label removes the label of a value. Labels of other values have no effect.
func (t *Type) SetLabels(old store.Record, facets, own map[string]string, field string, labels map[string]string) error {
	first, has := facets[field]
	for text, label := range labels {
		if !store.IsLabel(label) {
			return Invalid(field, "label", "a label of over 64 bytes, or of a hyphen alone")
		}
		if t.Schema.Fields[field].HasAddresses() {
			text = strings.TrimSpace(text) // as EncodeFacet does
		}
		canonical := t.Schema.Canonical(text)
		if has && t.Schema.Canonical(first) == canonical {
			if label != "" {
				own[store.FieldLabel(field)] = store.LabelText(first, label)
			} else if len(old.Fields) > 0 { // an update removes what is empty
				own[store.FieldLabel(field)] = ""
			}
			continue
		}
		name := store.FieldAlso(field, canonical)
		if own[name] == "" {
			continue
		}
		f, _ := store.ParseFurther(name, own[name])
		f.Label = label
		own[name] = f.Text()
	}
	return nil
}

// setFirst makes f, which was given as v, the facet of its field in facets and own.
func (t *Type) setFirst(old store.Record, facets, own map[string]string, f store.Further, v Value) {
	facets[f.Field] = f.Written
	mark := store.FieldVerified(f.Field)
	switch {
	case f.Verified > 0:
		own[mark] = store.Verified(f.Written)
	case v.Unverified && own[mark] == "" && old.Fields[f.Field] != f.Written:
		own[mark] = store.Unverified(f.Written)
	}
	if v.Label != "" {
		own[store.FieldLabel(f.Field)] = store.LabelText(f.Written, v.Label)
	}
}

// numberError adds the number of the value to an error about it, if there are several values.
func numberError(err error, i, values int) error {
	wrong, ok := errors.AsType[*store.FieldError](err)
	if !ok || values < 2 {
		return err
	}
	numbered := *wrong
	numbered.Reason = fmt.Sprintf("value %d: %s", i+1, wrong.Reason)
	return &numbered
}

// tooManyValues returns the error for more values than the schema allows in a field.
func tooManyValues(field string, limit int) error {
	if limit < 2 {
		return Invalid(field, "many", `more than one value; the schema has no "many" for the field`)
	}
	return Invalid(field, "many", "over "+strconv.Itoa(limit)+" values")
}

// VerifyValue changes own so that a value of a field, the facet or a further value, is verified.
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

// keysOnlyIn returns the keys of the values that are in all and not in others. without is the field
// of the first such value that no key can name, or "" if there is none.
func keysOnlyIn(all, others []fieldValue, keyOf func(field, value string) (recordkey.Key, bool)) (keys []recordkey.Key, without string) {
	for v := range onlyIn(all, others) {
		key, ok := keyOf(v.field, v.value)
		switch {
		case !ok:
			without = cmp.Or(without, v.field)
		case keys == nil:
			keys = append(make([]recordkey.Key, 0, len(all)), key)
		default:
			keys = append(keys, key)
		}
	}
	return keys, without
}
