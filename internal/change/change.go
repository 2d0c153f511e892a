package change

import (
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/validate"
)

// A Draft is a new entry.
type Draft struct {
	UID      string
	Facets   map[string]string // on the wire; the draft's own, to which Create adds the primary one
	Own      map[string]string // fields of the store's own
	Tertiary []Content         // tertiary records that are born with the entry
}

// Create is the change that makes an entry of a draft.
func (t *Type) Create(d Draft) (store.Change, error) {
	prk, err := t.PRK(d.UID)
	if err != nil {
		return store.Change{}, Invalid(t.Schema.Primary, "key", "not a value that a record key can hold")
	}
	if err := t.Rules.Facet(t.Schema.Primary, schema.Text(d.UID)); err != nil {
		return store.Change{}, refused(err)
	}
	d.Facets[t.Schema.Primary] = d.UID
	c, err := t.difference(store.Record{Key: prk}, d.Facets)
	if err != nil {
		return store.Change{}, err
	}
	c.Create = true
	for field, wire := range d.Own {
		c.Set = append(c.Set, store.Facet{Field: field, Wire: wire})
	}
	c.Set = append(c.Set, store.Facet{Field: store.FieldType, Wire: t.Name},
		store.Facet{Field: store.FieldPRK, Wire: prk.In(recordkey.Namespace{}).String()})
	return c, t.Replace(&c, d.Tertiary)
}

// Update is the change from a record as it was read to the facets that it shall have, and to own
// fields of the store's: "" removes one, and with ~tokens all single-use tokens end. The second result is
// false where there is nothing to change.
func (t *Type) Update(old store.Record, facets, own map[string]string) (store.Change, bool, error) {
	if facets[t.Schema.Primary] != old.Fields[t.Schema.Primary] {
		return store.Change{}, false, Invalid(t.Schema.Primary, "primary", "the primary facet cannot change")
	}
	c, err := t.difference(old, facets)
	c.Seen, c.Tokens.Known = old.Seen(), old.HasTokens()
	_, c.Tokens.All = own[store.FieldTokens]
	for mark := range old.Fields {
		field := store.VerifiedField(mark)
		if _, anew := own[mark]; field != "" && !anew && facets[field] != old.Fields[field] {
			c.Unset = append(c.Unset, mark)
		}
	}
	for _, field := range slices.Sorted(maps.Keys(own)) {
		switch was, had := old.Fields[field]; {
		case field == store.FieldTokens: // the engine knows whether there are any by now
		case own[field] == "" && had:
			c.Unset = append(c.Unset, field)
		case own[field] != was:
			c.Set = append(c.Set, store.Facet{Field: field, Wire: own[field]})
		}
	}
	return c, len(c.Set)+len(c.Unset) > 0 || c.Tokens.All && c.Tokens.Known, err
}

// Delete is the change that ends an entry and all that belongs to it.
func (t *Type) Delete(old store.Record) store.Change {
	c := store.Change{Key: old.Key, Delete: true, Seen: old.Seen(), Schema: t.Guard}
	c.Tokens.Known = old.HasTokens()
	for _, f := range t.Secondary {
		c.Release = appendKey(c.Release, t.SRK, f, old.SKV(f))
	}
	c.Unindex, _, _ = moves(t.Indexed, old.Fields, nil, t.Index, "")
	c.Unrank, _ = t.Places(old)
	c.Drop = t.Guard.Containers(old.Key)
	if counters, err := t.Counters(old); err == nil {
		c.Drop = append(c.Drop, store.Container{Key: counters})
	}
	if sessions, err := store.SessionsKey(old.Key); err == nil && old.Fields[store.FieldEpoch] != "" {
		c.Drop = append(c.Drop, store.Container{Key: sessions})
	}
	return c
}

// OwnFields is about how many fields of the store's own join the facets of an entry.
const OwnFields = 6

// maxFacets is how many facets an entry of an open type gets.
const maxFacets = 10_000

// difference compares an entry as it is with the facets it shall have, which Encode has checked.
func (t *Type) difference(old store.Record, facets map[string]string) (store.Change, error) {
	c := store.Change{Key: old.Key, Schema: t.Guard}
	if len(old.Fields) == 0 {
		c.Set = make([]store.Facet, 0, len(facets)+OwnFields)
		c.Claim = make([]recordkey.Key, 0, len(t.Secondary))
	}
	size := 0
	for field, wire := range facets {
		size += len(field) + len(wire)
		if was, had := old.Fields[field]; !had || was != wire {
			c.Set = append(c.Set, store.Facet{Field: field, Wire: wire})
		}
	}
	for field := range old.Fields {
		if _, stays := facets[field]; !stays && !store.OwnField(field) {
			c.Unset = append(c.Unset, field)
		}
	}
	if size > validate.MaxEntry {
		return c, Invalid("", "size", "an entry of over 1 MiB")
	}
	if len(facets) > maxFacets && len(facets) > len(old.Fields) {
		return c, Invalid("", "size", "an entry of over "+strconv.Itoa(maxFacets)+" facets")
	}
	if missing := t.Missing(old, facets); len(missing) > 0 {
		return c, missing[0]
	}
	err := t.secondaries(&c, old, facets)
	if err == nil {
		const refusal = "not a value that an index can hold: it is empty or over 1 KiB"
		c.Unindex, c.Index, err = moves(t.Indexed, old.Fields, facets, t.Index, refusal)
	}
	if err == nil {
		place := func(field, wire string) (store.Ranked, bool) { return t.Place(old.Key, field, wire) }
		const refusal = "not a value that an ordered index can hold: it is over 1 KiB"
		c.Unrank, c.Rank, err = moves(t.Ordered, old.Fields, facets, place, refusal)
	}
	return c, err
}

// Missing refuses, for each of them, the required fields that an entry is made without, or loses. One that never had it can be
// changed still.
func (t *Type) Missing(old store.Record, facets map[string]string) (errs []error) {
	for _, field := range t.Required {
		_, has := facets[field]
		_, had := old.Fields[field]
		if !has && (had || len(old.Fields) == 0) {
			errs = append(errs, Invalid(field, schema.RequiredRule, "the type requires it"))
		}
	}
	return errs
}

// secondaries claims and releases the difference over (field, canonical value). The old canonical
// values are those that were written, never computed anew.
func (t *Type) secondaries(c *store.Change, old store.Record, facets map[string]string) error {
	for _, field := range t.Secondary {
		written, has := facets[field]
		canonical := ""
		if has {
			canonical = t.Schema.Canonical(written)
		}
		was := old.SKV(field)
		if canonical != was {
			if has {
				srk, ok := t.SRK(field, canonical)
				if !ok {
					return Invalid(field, "key", "not a value that a record key can hold")
				}
				c.Claim = append(c.Claim, srk)
			}
			c.Release = appendKey(c.Release, t.SRK, field, was)
		}
		keepSKV(c, old, field, canonical, has && canonical != written)
	}
	t.lookElsewhere(c)
	return nil
}

// keepSKV writes or removes ~skv:FIELD where that is not as it must be.
func keepSKV(c *store.Change, old store.Record, field, canonical string, keep bool) {
	if !keep && len(old.Fields) == 0 {
		return
	}
	name := store.FieldSKV(field)
	was, had := old.Fields[name]
	switch {
	case keep && (!had || was != canonical):
		c.Set = append(c.Set, store.Facet{Field: name, Wire: canonical})
	case had && !keep:
		c.Unset = append(c.Unset, name)
	}
}

// lookElsewhere names the SRKs of the claimed values under the other secondary fields (I2).
func (t *Type) lookElsewhere(c *store.Change) {
	if len(c.Claim) == 0 || len(t.Secondary) == 1 {
		return
	}
	c.Elsewhere = make([]recordkey.Key, 0, len(c.Claim)*(len(t.Secondary)-1))
	for _, claim := range c.Claim {
		for _, field := range t.Secondary {
			if field == claim.Field() {
				continue
			}
			if srk, ok := t.SRK(field, claim.Value()); ok && !slices.Contains(c.Claim, srk) {
				c.Elsewhere = append(c.Elsewhere, srk)
			}
		}
	}
}

// moves are the keys that an entry leaves, and those that it joins, where facets of these fields differ (I5).
func moves[K any](
	fields []string, old, facets map[string]string, key func(field, value string) (K, bool), refusal string,
) (leave, join []K, err error) {
	for _, field := range fields {
		is, has := facets[field]
		was, had := old[field]
		if has == had && is == was {
			continue
		}
		if had {
			if k, ok := key(field, was); ok {
				leave = append(leave, k)
			}
		}
		if has {
			k, ok := key(field, is)
			if !ok {
				return nil, nil, Invalid(field, "key", refusal)
			}
			join = append(join, k)
		}
	}
	return leave, join, nil
}

// appendKey appends the key of a value, if there is a value that a key can name.
func appendKey(keys []recordkey.Key, of func(field, value string) (recordkey.Key, bool), field, value string) []recordkey.Key {
	if value == "" {
		return keys
	}
	if key, ok := of(field, value); ok {
		keys = append(keys, key)
	}
	return keys
}

// PRK is the record key of the type's entry uid, in the namespace of the Types.
func (t *Type) PRK(uid string) (recordkey.Key, error) {
	k, err := recordkey.PRK(t.Name, t.Schema.Primary, uid)
	return k.In(t.ns), err
}

// SRK is the SRK of a canonical value; false for one that no key can name.
func (t *Type) SRK(field, value string) (recordkey.Key, bool) {
	k, err := recordkey.SRK(t.Name, field, value)
	return k.In(t.ns), err == nil
}

// Index is the key of the index set of a value; false for one that no key can name.
func (t *Type) Index(field, value string) (recordkey.Key, bool) {
	k, err := recordkey.Index(t.Name, field, value)
	return k.In(t.ns), err == nil
}

// EncodeFacet puts a facet on the wire, by the codec that its field declares, for an entry that has the fields was (nil
// for a new one). Only what changes is held to the rules, so that an entry older than a rule can still be changed.
func (t *Type) EncodeFacet(wires map[string]string, field string, v schema.Value, was map[string]string) error {
	if field == store.FieldPassword {
		return Invalid(field, "name", "a password is set by its own verb")
	}
	wire := v.Wire()
	if old, had := was[field]; !had || old != wire {
		if err := t.Rules.Facet(field, v); err != nil {
			return refused(err)
		}
		if reason := t.Refuses(field); reason != "" {
			return Invalid(field, "undeclared", reason)
		}
	}
	wires[field] = wire
	return nil
}

// TooMany returns the error that refuses members of a tertiary record beyond its limit.
func (t *Type) TooMany(name string) error {
	return Invalid(name, "max", "over "+strconv.Itoa(t.Schema.Tertiary[name].Limit())+" members")
}

// A Content is a tertiary record: its values are as in store.Members.
type Content struct {
	Name, Kind string
	Values     []string
}

// members returns how many members so many values are.
func (c Content) members(values int) int {
	if c.Kind == "zset" || c.Kind == "hash" {
		return values / 2
	}
	return values
}

// Replace adds tertiary records to a change: with a new entry they are born, and of a live one they take the place of
// those it has, where one without values only goes. What Redis would refuse in the middle of it is found here.
func (t *Type) Replace(c *store.Change, contents []Content) error {
	for _, content := range contents {
		values, err := elements(content)
		if err != nil {
			return err
		}
		if content.Kind == "set" {
			values = slices.Compact(slices.Sorted(slices.Values(values)))
		}
		if limit := t.Schema.Tertiary[content.Name].Limit(); limit > 0 && content.members(len(values)) > limit {
			return t.TooMany(content.Name)
		}
		key, index, err := t.Tertiary(c.Key, content.Name, content.Kind, values)
		if err != nil {
			return err
		}
		if !c.Create {
			c.Drop = append(c.Drop, store.Container{Key: key, Indexed: t.Schema.Tertiary[content.Name].Indexed})
		}
		if len(values) > 0 {
			c.Add = append(c.Add, store.Members{Key: key, Kind: content.Kind, Values: values, Index: index})
		}
	}
	return nil
}

// elements are a record's values as Redis takes them.
func elements(c Content) ([]string, error) {
	for _, v := range c.Values {
		if len(v) > schema.MaxFacet {
			return nil, Invalid(c.Name, "size", "an element of over 64 KiB")
		}
	}
	paired := c.Kind == "zset" || c.Kind == "hash"
	switch {
	case paired && len(c.Values)%2 != 0, c.Kind == "string" && len(c.Values) > 1:
		return nil, Invalid(c.Name, "kind", "not the elements of a "+c.Kind)
	case c.Kind != "zset":
		return c.Values, nil
	}
	values := slices.Clone(c.Values)
	for i := 0; i < len(values); i += 2 {
		score, err := strconv.ParseFloat(values[i], 64)
		if err != nil || math.IsNaN(score) {
			return nil, Invalid(c.Name, "kind", "a score is no number")
		}
		values[i] = strconv.FormatFloat(score, 'g', -1, 64)
	}
	return values, nil
}

// Tertiary is the key of an entry's tertiary record and, for an indexed set, the index sets of the
// members given. The schema must declare the name with that Redis type.
func (t *Type) Tertiary(prk recordkey.Key, name, kind string, members []string) (recordkey.Key, []recordkey.Key, error) {
	declared, ok := t.Schema.Tertiary[name]
	if !ok || declared.Kind != kind {
		return recordkey.Key{}, nil, &schema.Error{
			Path: "types." + t.Name + ".tertiary." + name, Reason: "the schema declares no " + kind + " of that name",
		}
	}
	key, err := prk.Tertiary(name)
	if err != nil || !declared.Indexed {
		return key, nil, err
	}
	index := make([]recordkey.Key, len(members))
	for i, m := range members {
		if index[i], ok = t.Index(name, m); !ok {
			return key, nil, Invalid(name, "key", "not a member that an index can hold: it is empty or over 1 KiB")
		}
	}
	return key, index, nil
}
