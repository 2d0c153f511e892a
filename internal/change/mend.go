package change

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// RepairLimits limits what Repair may do to an entry.
type RepairLimits struct {
	Claim []recordkey.Key // SRKs that may be claimed for values that the entry has
	Lose  string          // the canonical value that belongs to another entry, "" for none
	From  []string        // the fields that lose it
}

// loses reports whether a field loses a canonical value.
func (m RepairLimits) loses(field, canonical string) bool {
	return m.Lose != "" && m.Lose == canonical && slices.Contains(m.From, field)
}

// Repair returns the change that brings an entry in line with its key and its facets (I1, I3), as
// far as that needs no decision by a person. It loses no facet: a facet whose value belongs to
// another entry, or a primary facet that differs from the key, is kept under ~lost:FIELD. Repair
// reports false if there is nothing to do.
func (t *Type) Repair(old store.Record, m RepairLimits) (store.Change, bool) {
	c := store.Change{Key: old.Key, Repair: true, Expected: old.Version(), Schema: t.Guard}
	sound := t.repairIdentity(&c, old)
	if !sound {
		m.Claim = nil
	}
	for _, field := range t.Secondary {
		t.repairSecondary(&c, old, field, m)
	}
	t.repairFurther(&c, old, m)
	for _, field := range t.Secondary {
		t.repairSKV(&c, old, field)
	}
	t.addElsewhere(&c)
	if len(c.Set)+len(c.Unset)+len(c.Claim) == 0 {
		return c, false
	}
	if sound && !old.Live() {
		c.Index, _ = keysOnlyIn(appendWritten(nil, t.Indexed, old.Fields, store.FurtherIn(old.Fields, "")), nil, t.IndexKey)
	}
	return c, true
}

// repairIdentity brings ~isa, ~prk and the primary facet in line with the key. It adds those that
// are missing. If exactly one of them differs, and at least one agrees with the key, it replaces
// the one that differs. It reports whether the identity is certain.
func (t *Type) repairIdentity(c *store.Change, old store.Record) (sound bool) {
	agree, against := 0, 0
	var wrong []store.Facet
	for _, want := range []store.Facet{
		{Field: store.FieldType, Wire: t.Name},
		{Field: store.FieldPRK, Wire: old.Key.In(recordkey.Namespace{}).String()},
		{Field: t.Schema.Primary, Wire: old.Key.Value()},
	} {
		was := old.Fields[want.Field]
		if was == want.Wire {
			agree++
			continue
		}
		if was != "" {
			against++
		}
		wrong = append(wrong, want)
	}
	if against > 1 || against == 1 && agree == 0 {
		return false
	}
	for _, want := range wrong {
		if was := old.Fields[want.Field]; was != "" && !store.OwnField(want.Field) {
			c.Set = append(c.Set, lostFacet(c, old, want.Field, was))
		}
		c.Set = append(c.Set, want)
	}
	return true
}

// lostFacet returns the facet that preserves a value that must leave its field. Its name is
// ~lost:FIELD, with a number appended if that field already has another value, or if c sets it.
func lostFacet(c *store.Change, old store.Record, field, wire string) store.Facet {
	name := store.FieldLost(field)
	for n := 2; ; n++ {
		if was, taken := old.Fields[name]; (!taken || was == wire) && !c.Sets(name) {
			return store.Facet{Field: name, Wire: wire}
		}
		name = store.FieldLost(field) + ":" + strconv.Itoa(n)
	}
}

// loseField removes a field and preserves its value as lostFacet says.
func loseField(c *store.Change, old store.Record, name, field, wire string) {
	c.Set, c.Unset = append(c.Set, lostFacet(c, old, field, wire)), append(c.Unset, name)
}

func (t *Type) repairSecondary(c *store.Change, old store.Record, field string, m RepairLimits) {
	facet, has := old.Fields[field]
	if !has {
		return
	}
	canonical := t.Schema.Canonical(facet)
	if m.loses(field, canonical) {
		loseField(c, old, field, field, facet)
		c.Release = appendKey(c.Release, t.SRK, field, canonical)
		return
	}
	t.repairClaim(c, field, canonical, m)
}

// repairClaim claims a value that the entry has, if the limits allow it.
func (t *Type) repairClaim(c *store.Change, field, canonical string, m RepairLimits) {
	if srk, ok := t.SRK(field, canonical); ok && slices.Contains(m.Claim, srk) {
		c.Claim = append(c.Claim, srk)
	}
}

// repairFurther repairs further values: afterwards, each is stored under its canonical form, none
// repeats the first value, and a field with values has a first one, preferably a verified one. A
// value that belongs to another entry is lost, as a facet would be.
func (t *Type) repairFurther(c *store.Change, old store.Record, m RepairLimits) {
	owned := map[fieldValue]bool{} // values that the entry has after the repair
	for _, field := range t.Secondary {
		if facet, has := old.Fields[field]; has && !slices.Contains(c.Unset, field) {
			owned[fieldValue{field, t.Schema.Canonical(facet)}] = true
		}
	}
	all := store.FurtherIn(old.Fields, "")
	slices.SortStableFunc(all, func(a, b store.Further) int {
		return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(min(b.Verified, 1), min(a.Verified, 1)))
	})
	for _, f := range all {
		canonical := t.Schema.Canonical(f.Written)
		switch value := (fieldValue{f.Field, canonical}); {
		case !slices.Contains(t.Secondary, f.Field):
		case m.loses(f.Field, canonical):
			loseField(c, old, f.Name(), f.Field, f.Written)
			c.Release = appendKey(c.Release, t.SRK, f.Field, f.Canonical)
		case owned[value]:
			c.Unset = append(c.Unset, f.Name())
		default:
			t.storeFurther(c, old, f, canonical)
			t.repairClaim(c, f.Field, canonical, m)
			owned[value] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(old.Fields)) {
		if text := old.Fields[name]; store.IsFurther(name) {
			if f, _ := store.ParseFurther(name, text); f.Canonical == "" { // it has no value
				loseField(c, old, name, f.Field, text)
			}
		}
	}
}

// storeFurther stores a further value under its canonical form, or as the facet if the field has
// none.
func (t *Type) storeFurther(c *store.Change, old store.Record, f store.Further, canonical string) {
	name := f.Name()
	if _, had := old.Fields[f.Field]; !c.Sets(f.Field) && (!had || slices.Contains(c.Unset, f.Field)) {
		c.Set, c.Unset = append(c.Set, store.Facet{Field: f.Field, Wire: f.Written}), append(c.Unset, name)
		c.Unset = slices.DeleteFunc(c.Unset, func(field string) bool { return field == f.Field })
		t.repairAttributes(c, old, f)
		return
	}
	moves := canonical != f.Canonical
	if moves {
		c.Unset = append(c.Unset, name)
	}
	f.Canonical, f.Position = canonical, min(f.Position, maxFurtherPosition)
	if moves || old.Fields[name] != f.Text() {
		c.Set = append(c.Set, store.Facet{Field: f.Name(), Wire: f.Text()})
	}
}

// repairAttributes adds to c the label and the mark of verification of a further value that becomes
// the facet, in place of those of the old facet.
func (t *Type) repairAttributes(c *store.Change, old store.Record, f store.Further) {
	label := store.Facet{Field: store.FieldLabel(f.Field)}
	if f.Label != "" {
		label.Wire = store.LabelText(f.Written, f.Label)
	}
	for _, next := range []store.Facet{t.verifiedMark(f), label} {
		if _, had := old.Fields[next.Field]; next.Wire != "" {
			c.Set = append(c.Set, next)
		} else if had {
			c.Unset = append(c.Unset, next.Field)
		}
	}
}

// maxFurtherPosition limits the position that a repair stores. A further value whose position
// cannot be read gets this one.
const maxFurtherPosition = 1 << 20

// repairSKV stores the canonical form of the facet that a secondary field has after c, as setSKV
// does. It does not remove a stored form that equals the facet.
func (t *Type) repairSKV(c *store.Change, old store.Record, field string) {
	facet, has := old.Fields[field]
	has = has && !slices.Contains(c.Unset, field)
	for _, f := range c.Set {
		if f.Field == field {
			facet, has = f.Wire, true
		}
	}
	canonical := t.Schema.Canonical(facet)
	was, had := old.Fields[store.FieldSKV(field)]
	setSKV(c, old, field, canonical, has && (canonical != facet || had && was == canonical))
}

// SRKs returns the SRKs of the secondary values in the fields of an entry that a key can name.
func (t *Type) SRKs(fields map[string]string) []recordkey.Key {
	var srks []recordkey.Key
	for _, field := range t.Secondary {
		if facet, has := fields[field]; has {
			srks = appendKey(srks, t.SRK, field, t.Schema.Canonical(facet))
		}
	}
	for _, f := range store.FurtherIn(fields, "") {
		if !slices.Contains(t.Secondary, f.Field) {
			continue
		}
		if srk, ok := t.SRK(f.Field, t.Schema.Canonical(f.Written)); ok && !slices.Contains(srks, srk) {
			srks = append(srks, srk)
		}
	}
	return srks
}

// UniqueTexts returns the UniqueText of each secondary value in facets that a key can name, sorted
// and without duplicates.
func (t *Type) UniqueTexts(facets map[string]string) []string {
	texts := map[string]bool{}
	for _, srk := range t.SRKs(facets) {
		texts[t.UniqueText(srk)] = true
	}
	return slices.Sorted(maps.Keys(texts))
}

// UniqueText returns the same text for two SRKs if only one entry may have their values.
func (t *Type) UniqueText(srk recordkey.Key) string {
	if slices.Contains(t.crossing, srk.Field()) {
		return ":" + srk.Value()
	}
	return recordkey.Escape(srk.Field()) + ":" + srk.Value()
}

// RenameFacets returns the facets and further values of a record, with those in renames (old name
// → new name) under their new names.
func RenameFacets(r store.Record, renames map[string]string) map[string]string {
	if len(renames) == 0 {
		return r.Fields
	}
	facets := make(map[string]string, len(r.Fields))
	for field, wire := range r.Fields {
		if name, ok := renames[field]; ok {
			field = name
		}
		if store.IsFurther(field) {
			f, _ := store.ParseFurther(field, wire)
			if name, ok := renames[f.Field]; ok && f.Canonical != "" {
				field = store.FieldAlso(name, f.Canonical)
			}
		}
		facets[field] = wire
	}
	return facets
}

// Reshape returns the change that converts a live entry to the schema of t: it renames facets (old
// name → new name), with their marks of verification and their labels, and updates canonical values
// and their SRKs. The values by which the entry was found before, and their SRKs, are kept in
// ~was:FIELD until RemoveOldForms removes them.
//
// namesEntry reports whether an SRK names the entry. Reshape claims the SRK of a value that the
// entry does not have yet even if the SRK names the entry, since another attempt may have claimed
// it and may still release it. Reshape reports false if the entry already follows the schema.
func (t *Type) Reshape(old store.Record, renames map[string]string, namesEntry func(recordkey.Key) bool) (store.Change, bool) {
	c := store.Change{Key: old.Key, Expected: old.Version(), Schema: t.Guard}
	facets := RenameFacets(old, renames)
	for from, to := range renames {
		t.renameFacet(&c, old, from, to)
	}
	for _, field := range t.Secondary {
		facet, has := facets[field]
		if !has {
			continue
		}
		canonical := t.Schema.Canonical(facet)
		if _, had := old.Fields[field]; had && old.SKV(field) != canonical {
			t.keepOldValue(&c, old, field)
		}
		t.repairSKV(&c, old, field)
		if srk, ok := t.SRK(field, canonical); ok && !(owns(old, field, canonical) && namesEntry(srk)) {
			c.Claim = append(c.Claim, srk)
		}
	}
	t.reshapeFurther(&c, old, facets, namesEntry)
	t.addElsewhere(&c)
	return c, len(c.Set)+len(c.Unset)+len(c.Claim) > 0
}

// renameFacet moves a facet to another field, with its mark of verification and its label.
func (t *Type) renameFacet(c *store.Change, old store.Record, from, to string) {
	if _, has := old.Fields[from]; !has {
		return
	}
	t.keepOldValue(c, old, from)
	for _, move := range [][2]string{
		{from, to}, {store.FieldVerified(from), store.FieldVerified(to)}, {store.FieldLabel(from), store.FieldLabel(to)},
	} {
		if text, has := old.Fields[move[0]]; has {
			c.Set = append(c.Set, store.Facet{Field: move[1], Wire: text})
			c.Unset = append(c.Unset, move[0])
		}
	}
}

// owns reports whether an entry has a canonical value in a field under the schema that wrote it.
func owns(r store.Record, field, canonical string) bool {
	_, further := r.FurtherValue(field, canonical)
	return further || r.SKV(field) == canonical
}

// reshapeFurther adds to c the further values of an entry as the schema of t has them. Their old
// forms stay, so that the entry is still found by them, until RemoveOldForms removes them. If
// several are the same value under the schema of t, the first is added. facets holds the entry's
// fields under their new names.
func (t *Type) reshapeFurther(c *store.Change, old store.Record, facets map[string]string, namesEntry func(recordkey.Key) bool) {
	for _, f := range store.FurtherIn(facets, "") {
		if !slices.Contains(t.Secondary, f.Field) {
			continue
		}
		canonical := t.Schema.Canonical(f.Written)
		srk, ok := t.SRK(f.Field, canonical)
		first, has := facets[f.Field]
		if !ok || has && t.Schema.Canonical(first) == canonical {
			continue
		}
		f.Canonical = canonical
		if _, had := old.Fields[f.Name()]; !had && !c.Sets(f.Name()) {
			c.Set = append(c.Set, store.Facet{Field: f.Name(), Wire: f.Text()})
		}
		if !(owns(old, f.Field, canonical) && namesEntry(srk)) && !slices.Contains(c.Claim, srk) {
			c.Claim = append(c.Claim, srk)
		}
	}
}

// isOldForm reports whether a further value of an entry means nothing under the schema of t.
func (t *Type) isOldForm(fields map[string]string, f store.Further) bool {
	first, has := fields[f.Field]
	return !slices.Contains(t.Secondary, f.Field) || t.Schema.Canonical(f.Written) != f.Canonical ||
		has && t.Schema.Canonical(first) == f.Canonical
}

// keepOldValue stores in ~was:FIELD the value by which an entry was found under a field.
func (t *Type) keepOldValue(c *store.Change, old store.Record, field string) {
	c.Set = append(c.Set, store.Facet{Field: store.FieldOldSKV(field), Wire: old.SKV(field)})
	if _, had := old.Fields[store.FieldSKV(field)]; had && !slices.Contains(t.Secondary, field) {
		c.Unset = append(c.Unset, store.FieldSKV(field))
	}
}

// RemoveOldForms returns the change that removes from an entry the fields that only another schema
// needed, after Reshape with the same renames. It ends the holds of fields that are no longer
// secondary, and keeps a further value as ~lost:FIELD if the field does not have it under the
// schema of t, or only in another spelling. It reports false if there is nothing to remove.
func (t *Type) RemoveOldForms(old store.Record, renames map[string]string) (store.Change, bool) {
	c := store.Change{Key: old.Key, Expected: old.Version(), Schema: t.Guard}
	was, skv := store.FieldOldSKV(""), store.FieldSKV("")
	for field := range old.Fields {
		name, ofSecondary := strings.CutPrefix(field, skv)
		if h, held := store.ParseHeld(field); held {
			name, ofSecondary = h.Field, true
		}
		if strings.HasPrefix(field, was) || ofSecondary && !slices.Contains(t.Secondary, name) {
			c.Unset = append(c.Unset, field)
		}
	}
	t.removeOldFurther(&c, old, renames)
	slices.Sort(c.Unset)
	return c, len(c.Unset) > 0
}

// LostFields returns the field of each further value that becomes ~lost:FIELD if an entry gets the
// change c of Reshape and then that of RemoveOldForms.
func (t *Type) LostFields(old store.Record, c store.Change, renames map[string]string) (fields []string) {
	if !hasFurther(old.Fields) {
		return nil
	}
	c, _ = t.RemoveOldForms(Apply(c, "", old.Fields), renames)
	for _, f := range c.Set {
		if lost, ok := strings.CutPrefix(f.Field, store.FieldLost("")); ok {
			field, _, _ := strings.Cut(lost, ":") // no such field has a colon in its name
			fields = append(fields, field)
		}
	}
	return fields
}

// removeOldFurther adds to c the removal of the further values that mean nothing under the schema
// of t. Of two spellings of a further value, it prefers one that is verified.
func (t *Type) removeOldFurther(c *store.Change, old store.Record, renames map[string]string) {
	further := store.FurtherIn(old.Fields, "")
	var kept, gone []store.Further
	for _, f := range further {
		if t.isOldForm(old.Fields, f) {
			gone = append(gone, f)
		} else {
			kept = append(kept, f)
		}
	}
	for _, f := range gone {
		c.Unset = append(c.Unset, f.Name())
		if name, ok := renames[f.Field]; ok {
			f.Field = name
		}
		f.Canonical = t.Schema.Canonical(f.Written)
		i := indexOf(kept, f)
		if i >= 0 && f.Written != kept[i].Written && f.Verified > 0 && kept[i].Verified == 0 {
			f.Position = kept[i].Position
			f, kept[i] = kept[i], f
			c.Set = append(c.Set, store.Facet{Field: kept[i].Name(), Wire: kept[i].Text()})
		}
		if old.Fields[f.Field] != f.Written && (i < 0 || kept[i].Written != f.Written) {
			c.Set = append(c.Set, lostFacet(c, old, f.Field, f.Written))
		}
	}
	if len(gone) > 0 {
		after := Apply(*c, "", old.Fields).Fields
		// diffIndexes omits values that no key can name.
		_ = t.diffIndexes(c, old, further, after, store.FurtherIn(after, ""))
	}
}
