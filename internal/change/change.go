package change

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/factor"
	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/store/session"
	"github.com/coffeenode/userdb/internal/store/throttle"
	"github.com/coffeenode/userdb/internal/store/token"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/validate"
)

// A Draft describes a new entry.
type Draft struct {
	UID      string
	Facets   map[string]string // in wire form; Create adds the primary facet to this map
	Own      map[string]string // the store's own fields, such as ~epoch
	Tertiary []Content         // tertiary records that are created with the entry
}

// SetOwn sets one of the store's own fields.
func (d *Draft) SetOwn(field, wire string) {
	if d.Own == nil {
		d.Own = map[string]string{}
	}
	d.Own[field] = wire
}

// Fields returns the facets of the draft and its further values.
func (d Draft) Fields() map[string]string { return WithFurther(store.Record{}, d.Facets, d.Own) }

// Create returns the change that makes the entry of a draft.
func (t *Type) Create(d Draft) (store.Change, error) {
	prk, err := t.PRK(d.UID)
	if err != nil {
		return store.Change{}, Invalid(t.Schema.Primary, "key", "not a value that a record key can hold")
	}
	if err := t.Rules.Facet(t.Schema.Primary, schema.Text(d.UID)); err != nil {
		return store.Change{}, ruleError(err)
	}
	d.Facets[t.Schema.Primary] = d.UID
	d.Own = t.completeFurther(store.Record{}, d.Facets, d.Own)
	if d.Facets, d.Own = hideHash(store.Record{}, d.Facets, d.Own); d.Own[factor.FieldHash] == "" {
		delete(d.Own, factor.FieldHash)
	}
	c, err := t.diff(store.Record{Key: prk}, d.Facets, d.Own)
	if err != nil {
		return store.Change{}, err
	}
	c.Create = true
	for field, wire := range d.Own {
		if wire != "" || !store.IsFurther(field) {
			c.Set = append(c.Set, store.Facet{Field: field, Wire: wire})
		}
	}
	c.Set = append(c.Set, store.Facet{Field: store.FieldType, Wire: t.Name},
		store.Facet{Field: store.FieldPRK, Wire: prk.In(recordkey.Namespace{}).String()})
	err = t.SetTertiary(&c, d.Tertiary)
	return c, err
}

// Update returns the change that replaces all facets of an entry with the given ones, and sets the
// store's own fields in own. old is the entry as it was read. Update ignores the store's own fields
// in facets. In own, an empty value removes its field, and the field ~tokens revokes all single-use
// tokens. An unproven entry (see ErrUnproven) that gives up an address loses its tags. Update
// reports false if there is nothing to change.
func (t *Type) Update(old store.Record, facets, own map[string]string) (store.Change, bool, error) {
	if facets[t.Schema.Primary] != old.Fields[t.Schema.Primary] {
		return store.Change{}, false, Invalid(t.Schema.Primary, "primary", "the primary facet cannot change")
	}
	own = t.completeFurther(old, facets, own)
	if old.Fields[store.FieldUnproven] != "" {
		if err := t.CheckUnproven(old, facets, own); err != nil {
			return store.Change{}, false, err
		}
	}
	if err := t.checkDigests(old, facets, own); err != nil {
		return store.Change{}, false, err
	}
	givesUp := old.Fields[store.FieldUnproven] != "" && t.givesUpAddress(old, facets, own)
	facets, own = hideHash(old, facets, own)
	c, err := t.diff(old, facets, own)
	if err == nil && givesUp && t.Schema.Tertiary[TagsName].Kind == "set" {
		err = t.SetTertiary(&c, []Content{{Name: TagsName, Kind: "set"}})
		for i := range c.Drop {
			c.Drop[i].Silent = true // the caller sets it to false if the entry has tags
		}
	}
	c.Expected, c.Tokens.Known = old.Version(), old.Tokens().Any()
	_, c.Tokens.All = own[token.FieldTokens]
	for _, field := range sortedFields(own) {
		switch was, had := old.Fields[field]; {
		case field == token.FieldTokens: // only the engine knows whether there are tokens now
		case own[field] == "" && had:
			c.Unset = append(c.Unset, field)
		case own[field] != was:
			c.Set = append(c.Set, store.Facet{Field: field, Wire: own[field]})
		}
	}
	return c, len(c.Set)+len(c.Unset) > 0 || c.Tokens.All && c.Tokens.Known, err
}

func sortedFields(own map[string]string) []string {
	if len(own) == 0 { // as in most changes
		return nil
	}
	return slices.Sorted(maps.Keys(own))
}

// Delete returns the change that deletes an entry and everything that belongs to it. now is the
// time of the delete. The UID is retired and the values are held, if the schema says so.
func (t *Type) Delete(old store.Record, now time.Time) store.Change {
	c := t.removal(old, now)
	t.Hold(&c, old, now)
	return c
}

// DeleteFree returns the change that Delete returns, except that the values that the entry has are
// free at once. The tombstone keeps holding the values that the entry gave up earlier.
func (t *Type) DeleteFree(old store.Record, now time.Time) store.Change {
	c := t.removal(old, now)
	released := c.Release
	c.Release = nil
	for _, srk := range released {
		t.releaseUnlessHeld(&c, old, srk)
	}
	return c
}

// removal returns the change that deletes an entry and holds no values.
func (t *Type) removal(old store.Record, now time.Time) store.Change {
	c := store.Change{Key: old.Key, Delete: true, Expected: old.Version(), Schema: t.Guard}
	if t.Schema.Retire {
		c.Set = []store.Facet{{Field: store.FieldRetired, Wire: schema.Date(now).Wire()}}
	}
	c.Tokens.Known = old.Tokens().Any()
	further := store.FurtherIn(old.Fields, "")
	c.Release, _ = keysOnlyIn(appendOwned(nil, t.Secondary, old, further), nil, t.SRK)
	c.Unindex, _ = keysOnlyIn(appendWritten(nil, t.Indexed, old.Fields, further), nil, t.IndexKey)
	c.Unrank, _ = t.Positions(old)
	c.Drop = t.Guard.Containers(old.Key)
	if counters, err := throttle.Key(old.Key); err == nil {
		c.Drop = append(c.Drop, store.Container{Key: counters})
	}
	if sessions, err := session.Key(old.Key); err == nil && old.Fields[session.FieldEpoch] != "" {
		c.Drop = append(c.Drop, store.Container{Key: sessions})
	}
	// Enrolling a factor needs a session. A removed factor may have left members in the record.
	mayHaveFactors := old.Factors().Any() || old.Fields[session.FieldEpoch] != ""
	if factors, err := factor.Key(old.Key); err == nil && mayHaveFactors {
		c.Drop = append(c.Drop, store.Container{Key: factors})
	}
	if historyKey, err := history.Key(old.Key); err == nil { // other programs may write it
		c.Drop = append(c.Drop, store.Container{Key: historyKey})
	}
	return c
}

// OwnFields is the approximate number of fields of the store itself that an entry has in addition
// to its facets.
const OwnFields = 6

// maxFacets limits the number of facets and further values of an entry.
const maxFacets = 10_000

// Room for lost values in an entry of the maximum size: a repair that moves a value to ~lost:FIELD
// makes the entry slightly larger, and an export of it must still be importable.
const (
	lostFields = 100
	lostBytes  = 64 << 10
)

// An extent holds the number and the size of an entry's facets, further values and lost values. It
// excludes the password, since a new hash may be longer.
type extent struct {
	facets, facetBytes int // with the further values
	fields, bytes      int // also with the lost values
}

func (e *extent) add(field, wire string) {
	lost := store.IsLost(field)
	if field == store.FieldPassword || store.OwnField(field) && !lost && !store.IsFurther(field) {
		return
	}
	size := len(field) + len(wire)
	e.fields++
	e.bytes += size
	if !lost {
		e.facets++
		e.facetBytes += size
	}
}

// check returns an error if an entry is too large and larger than it was. An entry that other
// programs made too large can still be changed if it does not grow.
func (e extent) check(old store.Record) error {
	if e.facetBytes <= validate.MaxEntry && e.facets <= maxFacets && e.bytes <= validate.MaxEntry+lostBytes && e.fields <= maxFacets+lostFields {
		return nil
	}
	var was extent
	for field, wire := range old.Fields {
		was.add(field, wire)
	}
	switch {
	case e.facetBytes > max(validate.MaxEntry, was.facetBytes), e.bytes > max(validate.MaxEntry+lostBytes, was.bytes):
		return Invalid("", "size", "an entry of over 1 MiB")
	case e.facets > max(maxFacets, was.facets), e.fields > max(maxFacets+lostFields, was.fields):
		return Invalid("", "size", "an entry of over "+strconv.Itoa(maxFacets)+" facets")
	}
	return nil
}

// diff returns the change from old to an entry with the given facets, which EncodeFacet has
// checked. It ignores the store's own fields in facets. own holds new values of these fields, or ""
// for those to remove. They count towards the size of the entry, but callers add them to the
// change.
func (t *Type) diff(old store.Record, facets, own map[string]string) (store.Change, error) {
	room := OwnFields
	if len(old.Fields) == 0 {
		room += len(facets)
	}
	c := store.Change{Key: old.Key, Schema: t.Guard, Set: make([]store.Facet, 0, room)}
	size, several := diffFacets(&c, old, facets, own)
	if err := size.check(old); err != nil {
		return c, err
	}
	if missing := t.MissingErrors(old, facets); len(missing) > 0 {
		return c, missing[0]
	}
	var was, further []store.Further // before and after the change
	if several {
		was, further = store.FurtherIn(old.Fields, ""), store.FurtherIn(furtherAfter(old.Fields, own), "")
	}
	if err := t.checkCounts(was, further); err != nil {
		return c, err
	}
	if err := t.diffSecondaries(&c, old, was, facets, further); err != nil {
		return c, err
	}
	if err := t.diffIndexes(&c, old, was, facets, further); err != nil {
		return c, err
	}
	err := t.diffPositions(&c, old, facets)
	return c, err
}

// diffFacets sets and unsets the facets that differ, and removes the marks of verification and the
// labels of these facets. It returns the extent of the changed entry, and reports whether old or
// own has further values.
func diffFacets(c *store.Change, old store.Record, facets, own map[string]string) (size extent, further bool) {
	for field, wire := range facets {
		if store.OwnField(field) {
			continue
		}
		size.add(field, wire)
		if was, had := old.Fields[field]; !had || was != wire {
			c.Set = append(c.Set, store.Facet{Field: field, Wire: wire})
		}
	}
	for field, wire := range old.Fields {
		if !store.OwnField(field) {
			if _, stays := facets[field]; !stays {
				c.Unset = append(c.Unset, field)
			}
			continue
		}
		further = further || store.IsFurther(field)
		if _, replaced := own[field]; replaced {
			continue
		}
		size.add(field, wire)
		if of := cmp.Or(store.FieldOfVerified(field), store.FieldOfLabel(field)); of != "" && facets[of] != old.Fields[of] {
			c.Unset = append(c.Unset, field)
		}
	}
	for field, wire := range own {
		if wire != "" || len(old.Fields) == 0 { // an update removes empty fields
			size.add(field, wire)
		}
	}
	return size, further || hasFurther(own)
}

// MissingErrors returns an error for each required field that a new entry lacks or that an entry
// loses. An entry that never had the field can still be changed.
func (t *Type) MissingErrors(old store.Record, facets map[string]string) (errs []error) {
	for _, field := range t.Required {
		_, has := facets[field]
		_, had := old.Fields[field]
		if !has && (had || len(old.Fields) == 0) {
			errs = append(errs, Invalid(field, schema.RequiredRule, "the type requires it"))
		}
	}
	return errs
}

// appendOwned appends the canonical values of the given fields of an entry, and its further values,
// as they are stored. It does not recompute them.
func appendOwned(all []fieldValue, fields []string, r store.Record, further []store.Further) []fieldValue {
	for _, field := range fields {
		if value := r.SKV(field); value != "" {
			all = append(all, fieldValue{field, value})
		}
	}
	for _, f := range further {
		all = append(all, fieldValue{f.Field, f.Canonical})
	}
	return all
}

// diffSecondaries claims and releases the SRKs of canonical values that differ. was and further are
// the further values before and after the change. It does not compute the canonical form of a facet
// that stays as it is.
func (t *Type) diffSecondaries(c *store.Change, old store.Record, was []store.Further, facets map[string]string, further []store.Further) error {
	fields := t.Secondary
	var changed [enoughValues]string
	if len(was)+len(further) == 0 { // a facet that stays would be on both sides
		fields = changed[:0]
		for _, field := range t.Secondary {
			if !stays(old, facets, field) {
				fields = append(fields, field)
			}
		}
	}
	var space [2][enoughValues]fieldValue // so that values are compared without allocating
	before, after := appendOwned(space[0][:0], fields, old, was), space[1][:0]
	for _, field := range fields {
		if stays(old, facets, field) {
			if skv := old.SKV(field); skv != "" {
				after = append(after, fieldValue{field, skv})
			}
			continue
		}
		canonical := ""
		written, has := facets[field]
		if has {
			if canonical = t.Schema.Canonical(written); canonical != "" {
				after = append(after, fieldValue{field, canonical})
			}
		}
		setSKV(c, old, field, canonical, has && canonical != written)
	}
	for _, f := range further {
		after = append(after, fieldValue{f.Field, f.Canonical})
	}
	c.Release, _ = keysOnlyIn(before, after, t.SRK)
	var without string
	if c.Claim, without = keysOnlyIn(after, before, t.SRK); without != "" {
		return Invalid(without, "key", "not a value that a record key can hold")
	}
	before = appendWritten(before[:0], fields, old.Fields, was)
	after = appendWritten(after[:0], fields, facets, further)
	for v := range onlyIn(before, after) {
		c.Tokens.Gone = append(c.Tokens.Gone, token.Value{Field: v.field, Written: v.value})
	}
	t.addElsewhere(c)
	return nil
}

// stays reports whether an entry has a facet and keeps it as it is.
func stays(old store.Record, facets map[string]string, field string) bool {
	written, has := facets[field]
	stored, had := old.Fields[field]
	return has && had && written == stored
}

// diffIndexes removes the entry from the index sets of values that it loses, and adds it to those
// of values that it gets. It returns an error for a value that no key can name.
func (t *Type) diffIndexes(c *store.Change, old store.Record, was []store.Further, facets map[string]string, further []store.Further) error {
	if len(t.Indexed) == 0 {
		return nil
	}
	before, after := appendWritten(nil, t.Indexed, old.Fields, was), appendWritten(nil, t.Indexed, facets, further)
	c.Unindex, _ = keysOnlyIn(before, after, t.IndexKey)
	var without string
	if c.Index, without = keysOnlyIn(after, before, t.IndexKey); without != "" {
		return Invalid(without, "key", "not a value that an index can hold: it is empty or over 1 KiB")
	}
	return nil
}

// setSKV sets ~skv:FIELD to canonical if keep is true, and removes it otherwise.
func setSKV(c *store.Change, old store.Record, field, canonical string, keep bool) {
	if !keep && len(old.Fields) == 0 {
		return
	}
	was, had := old.Fields[store.FieldSKV(field)]
	switch {
	case keep && (!had || was != canonical):
		c.Set = append(c.Set, store.Facet{Field: store.FieldSKV(field), Wire: canonical})
	case had && !keep:
		c.Unset = append(c.Unset, store.FieldSKV(field))
	}
}

// addElsewhere adds the SRKs of the claimed values under the other fields in which no other entry
// may have them (I2).
func (t *Type) addElsewhere(c *store.Change) {
	if len(c.Claim) == 0 || len(t.crossing) < 2 {
		return
	}
	c.Elsewhere = make([]recordkey.Key, 0, len(c.Claim)*(len(t.crossing)-1))
	for _, claim := range c.Claim {
		for _, field := range t.Rivals(claim.Field()) {
			if field == claim.Field() {
				continue
			}
			if srk, ok := t.SRK(field, claim.Value()); ok && !slices.Contains(c.Claim, srk) {
				c.Elsewhere = append(c.Elsewhere, srk)
			}
		}
	}
}

// appendKey appends the key of a value, unless the value is empty or no key can name it.
func appendKey(keys []recordkey.Key, keyOf func(field, value string) (recordkey.Key, bool), field, value string) []recordkey.Key {
	if value == "" {
		return keys
	}
	if key, ok := keyOf(field, value); ok {
		keys = append(keys, key)
	}
	return keys
}

// PRK returns the record key of the type's entry uid.
func (t *Type) PRK(uid string) (recordkey.Key, error) {
	k, err := recordkey.PRK(t.Name, t.Schema.Primary, uid)
	return k.In(t.ns), err
}

// SRK returns the SRK of a canonical value. It reports false if no key can name the value.
func (t *Type) SRK(field, value string) (recordkey.Key, bool) {
	k, err := recordkey.SRK(t.Name, field, value)
	return k.In(t.ns), err == nil
}

// IndexKey returns the key of the index set of a value. It reports false if no key can name the
// value.
func (t *Type) IndexKey(field, value string) (recordkey.Key, bool) {
	k, err := recordkey.Index(t.Name, field, value)
	return k.In(t.ns), err == nil
}

// EncodeFacet adds the wire form of a facet to wires. It removes white space around a mail address.
// was holds the current fields of the entry, and is nil for a new entry. Only a value that changes
// must obey the rules, so that an entry older than a rule can still be changed.
func (t *Type) EncodeFacet(wires map[string]string, field string, v schema.Value, was map[string]string) error {
	if field == store.FieldPassword {
		return Invalid(field, "name", "a password cannot be set as a facet; use SetPassword")
	}
	if t.Schema.Fields[field].HasAddresses() && v.Codec() == schema.CodecText {
		v = schema.Text(strings.TrimSpace(v.Text())) // mail is sent to the stored text
	}
	wire := v.Wire()
	if old, had := was[field]; !had || old != wire {
		if err := t.Rules.Facet(field, v); err != nil {
			return ruleError(err)
		}
		if reason := t.RefusalReason(field); reason != "" {
			return Invalid(field, "undeclared", reason)
		}
	}
	wires[field] = wire
	return nil
}

// TooManyError returns the error for a tertiary record that would have more members than its limit.
func (t *Type) TooManyError(name string) error {
	return Invalid(name, "max", "over "+strconv.Itoa(t.Schema.Tertiary[name].Limit())+" members")
}

// A Content describes a tertiary record. Its values are as in store.Members.
type Content struct {
	Name, Kind string
	Values     []string
}

// memberCount returns the number of members that the given number of values represents.
func (c Content) memberCount(values int) int {
	if c.Kind == "zset" || c.Kind == "hash" {
		return values / 2
	}
	return values
}

// SetTertiary adds tertiary records to a change. A new entry is created with them. In a live entry
// they replace the records of the same names, and a Content without values only removes its record.
// SetTertiary refuses values that Redis would refuse in the middle of the change.
func (t *Type) SetTertiary(c *store.Change, contents []Content) error {
	for _, content := range contents {
		values, err := encodeElements(content)
		if err != nil {
			return err
		}
		if content.Kind == "set" {
			values = slices.Compact(slices.Sorted(slices.Values(values)))
		}
		if limit := t.Schema.Tertiary[content.Name].Limit(); limit > 0 && content.memberCount(len(values)) > limit {
			return t.TooManyError(content.Name)
		}
		key, index, err := t.TertiaryKey(c.Key, content.Name, content.Kind, values)
		if err != nil {
			return err
		}
		drops := slices.ContainsFunc(c.Drop, func(d store.Container) bool { return d.Key == key })
		if !c.Create && !drops {
			c.Drop = append(c.Drop, store.Container{Key: key, Indexed: t.Schema.Tertiary[content.Name].Indexed})
		}
		if len(values) > 0 {
			c.Add = append(c.Add, store.Members{Key: key, Kind: content.Kind, Values: values, Index: index})
		}
	}
	return nil
}

// encodeElements returns a record's values as Redis takes them, or an error if Redis would refuse
// them.
func encodeElements(c Content) ([]string, error) {
	for _, v := range c.Values {
		if len(v) > schema.MaxFacet {
			return nil, Invalid(c.Name, "size", "an element of over 64 KiB")
		}
	}
	switch {
	case c.Kind == "zset" && len(c.Values)%2 != 0:
		return nil, Invalid(c.Name, "kind", "the elements of a zset must be pairs of a score and a member")
	case c.Kind == "hash" && len(c.Values)%2 != 0:
		return nil, Invalid(c.Name, "kind", "the elements of a hash must be pairs of a field and a value")
	case c.Kind == "string" && len(c.Values) > 1:
		return nil, Invalid(c.Name, "kind", "a string has only one element")
	case c.Kind != "zset":
		return c.Values, nil
	}
	values := slices.Clone(c.Values)
	for i := 0; i < len(values); i += 2 {
		score, err := strconv.ParseFloat(values[i], 64)
		if err != nil || math.IsNaN(score) {
			return nil, Invalid(c.Name, "kind", "a score is not a number")
		}
		values[i] = strconv.FormatFloat(score, 'g', -1, 64)
	}
	return values, nil
}

// CheckTertiary checks that the schema declares a tertiary record of a kind.
func (t *Type) CheckTertiary(name, kind string) error {
	if t.Schema.Tertiary[name].Kind == kind {
		return nil
	}
	return &schema.Error{Path: "types." + t.Name + ".tertiary." + name, Reason: "the schema declares no " + kind + " of that name"}
}

// TertiaryKey returns the key of an entry's tertiary record and, for an indexed set, the index sets
// of the given members. The schema must declare the name with that Redis type.
func (t *Type) TertiaryKey(prk recordkey.Key, name, kind string, members []string) (recordkey.Key, []recordkey.Key, error) {
	if err := t.CheckTertiary(name, kind); err != nil {
		return recordkey.Key{}, nil, err
	}
	key, err := prk.Tertiary(name)
	if err != nil || !t.Schema.Tertiary[name].Indexed {
		return key, nil, err
	}
	index := make([]recordkey.Key, len(members))
	for i, m := range members {
		var ok bool
		if index[i], ok = t.IndexKey(name, m); !ok {
			return key, nil, Invalid(name, "key", "not a member that an index can hold: it is empty or over 1 KiB")
		}
	}
	return key, index, nil
}
