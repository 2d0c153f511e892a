package change

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// A Draft is a new entry.
type Draft struct {
	UID      string
	Facets   map[string]string // on the wire; the primary one may be among them, as the UID
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
	facets := d.Facets
	if facets[t.Schema.Primary] != d.UID {
		facets = make(map[string]string, len(d.Facets)+1)
		maps.Copy(facets, d.Facets)
		facets[t.Schema.Primary] = d.UID
	}
	c, err := t.difference(store.Record{Key: prk}, facets)
	if err != nil {
		return store.Change{}, err
	}
	c.Create = true
	for _, field := range slices.Sorted(maps.Keys(d.Own)) {
		c.Set = append(c.Set, store.Facet{Field: field, Wire: d.Own[field]})
	}
	relative := prk.In(recordkey.Namespace{}).String()
	c.Set = append(c.Set, store.Facet{Field: store.FieldType, Wire: t.Name}, store.Facet{Field: store.FieldPRK, Wire: relative})
	return c, t.addContents(&c, d.Tertiary)
}

// Update is the change from a record as it was read to the facets that it shall have, and to own
// fields of the store's: "" removes one, and of ~tokens ends all single-use tokens. The second result is
// false where there is nothing to change.
func (t *Type) Update(old store.Record, facets, own map[string]string) (store.Change, bool, error) {
	if facets[t.Schema.Primary] != old.Fields[t.Schema.Primary] {
		return store.Change{}, false, Invalid(t.Schema.Primary, "primary", "the primary facet cannot change")
	}
	c, err := t.difference(old, facets)
	c.Seen, c.Tokens.Known = old.Seen(), old.HasTokens()
	ends, named := own[store.FieldTokens]
	c.Tokens.All = named && ends == ""
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
	c := store.Change{Key: old.Key, Delete: true, Seen: old.Seen(), Schema: t.guard}
	c.Tokens.Known = old.HasTokens()
	for _, f := range t.Secondary {
		c.Release = t.appendSRK(c.Release, f, old.SKV(f))
	}
	for _, f := range t.Indexed {
		c.Unindex = t.appendIndex(c.Unindex, f, old.Fields[f])
	}
	c.Unrank, _ = t.Places(old)
	for _, name := range slices.Sorted(maps.Keys(t.Schema.Tertiary)) {
		if key, err := old.Key.Tertiary(name); err == nil {
			c.Drop = append(c.Drop, store.Container{Key: key, Indexed: t.Schema.Tertiary[name].Indexed})
		}
	}
	if counters, err := t.Counters(old); err == nil {
		c.Drop = append(c.Drop, store.Container{Key: counters})
	}
	return c
}

// difference compares an entry as it is with the facets it shall have, which Encode has checked.
func (t *Type) difference(old store.Record, facets map[string]string) (store.Change, error) {
	c := store.Change{Key: old.Key, Schema: t.guard}
	if len(old.Fields) == 0 {
		c.Set = make([]store.Facet, 0, len(facets)+ownRoom)
		c.Claim = make([]recordkey.Key, 0, len(t.Secondary))
	}
	for field, wire := range facets {
		if was, had := old.Fields[field]; !had || was != wire {
			c.Set = append(c.Set, store.Facet{Field: field, Wire: wire})
		}
	}
	for field := range old.Fields {
		if _, stays := facets[field]; !stays && !store.OwnField(field) {
			c.Unset = append(c.Unset, field)
		}
	}
	if err := checkSize(facets); err != nil {
		return c, err
	}
	if err := t.secondaries(&c, old, facets); err != nil {
		return c, err
	}
	if err := t.indexes(&c, old, facets); err != nil {
		return c, err
	}
	return c, t.ranks(&c, old, facets)
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
			c.Release = t.appendSRK(c.Release, field, was)
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
	case keep && was != canonical:
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

// indexes moves the entry between index sets (I5).
func (t *Type) indexes(c *store.Change, old store.Record, facets map[string]string) error {
	for _, field := range t.Indexed {
		is, has := facets[field]
		was, had := old.Fields[field]
		if has == had && is == was {
			continue
		}
		if had {
			c.Unindex = t.appendIndex(c.Unindex, field, was)
		}
		if !has {
			continue
		}
		key, ok := t.Index(field, is)
		if !ok {
			return Invalid(field, "key", "not a value that an index can hold: it is empty or over 1 KiB")
		}
		c.Index = append(c.Index, key)
	}
	return nil
}

// ranks moves the entry between places in ordered indexes (I5).
func (t *Type) ranks(c *store.Change, old store.Record, facets map[string]string) error {
	for _, field := range t.Ordered {
		is, has := facets[field]
		was, had := old.Fields[field]
		if has == had && is == was {
			continue
		}
		if p, ok := t.Place(old.Key, field, was); had && ok {
			c.Unrank = append(c.Unrank, p)
		}
		if !has {
			continue
		}
		p, ok := t.Place(old.Key, field, is)
		if !ok {
			return Invalid(field, "key", "not a value that an ordered index can hold: it is over 1 KiB")
		}
		c.Rank = append(c.Rank, p)
	}
	return nil
}

func (t *Type) appendSRK(keys []recordkey.Key, field, value string) []recordkey.Key {
	if value == "" {
		return keys
	}
	if srk, ok := t.SRK(field, value); ok {
		keys = append(keys, srk)
	}
	return keys
}

func (t *Type) appendIndex(keys []recordkey.Key, field, value string) []recordkey.Key {
	if value == "" {
		return keys
	}
	if key, ok := t.Index(field, value); ok {
		keys = append(keys, key)
	}
	return keys
}

// A Content is a tertiary record: its values are as in store.Members.
type Content struct {
	Name, Kind string
	Values     []string
}

// Replace adds to a change of a live entry that tertiary records take the place of those it has; one
// without values only goes.
func (t *Type) Replace(c *store.Change, contents []Content) error {
	for _, content := range contents {
		key, _, err := t.Tertiary(c.Key, content.Name, content.Kind, nil)
		if err != nil {
			return err
		}
		c.Drop = append(c.Drop, store.Container{Key: key, Indexed: t.Schema.Tertiary[content.Name].Indexed})
	}
	return t.addContents(c, contents)
}

// addContents adds tertiary records to a change. What Redis would refuse in the middle of it is found here.
func (t *Type) addContents(c *store.Change, contents []Content) error {
	for _, content := range contents {
		values, err := elements(content)
		if err != nil {
			return err
		}
		var indexed []string
		if content.Kind == "set" {
			values = slices.Compact(slices.Sorted(slices.Values(values)))
			indexed = values
		}
		key, index, err := t.Tertiary(c.Key, content.Name, content.Kind, indexed)
		if err != nil {
			return err
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

// After is the record that a change of a record with these fields has left.
func After(c store.Change, rev string, fields map[string]string) store.Record {
	after := make(map[string]string, len(fields)+len(c.Set)+1)
	maps.Copy(after, fields)
	for _, f := range c.Unset {
		delete(after, f)
	}
	for _, f := range c.Set {
		after[f.Field] = f.Wire
	}
	after[store.FieldRev] = rev
	delete(after, store.FieldFence)
	if c.Tokens.All {
		delete(after, store.FieldTokens)
	}
	return store.Record{Key: c.Key, Fields: after}
}

// SetPassword adds to the facets and the own fields that a record shall have what another hash brings with it:
// the time, which is after that of the last one, and the end of its single-use tokens. A hash that was only renewed is
// not another one.
func SetPassword(now store.Record, at time.Time, hash string, facets, own map[string]string) {
	if last := ChangedAt(now); !at.Truncate(time.Millisecond).After(last) {
		at = last.Add(time.Millisecond)
	}
	facets[store.FieldPassword] = hash
	own[store.FieldChanged] = schema.Date(at).Wire()
	own[store.FieldTokens] = ""
}

// Disable adds to the own fields that a record shall have what keeps its entry from logging in, and ends its tokens.
func Disable(now store.Record, at time.Time, own map[string]string) {
	own[store.FieldDisabled] = cmp.Or(now.Fields[store.FieldDisabled], schema.Date(at).Wire())
	own[store.FieldTokens] = ""
}

// ChangedAt is when the password of a record was last set; the zero time where that is not known.
func ChangedAt(r store.Record) time.Time {
	v, err := schema.Decode(schema.CodecDate, r.Fields[store.FieldChanged])
	if err != nil {
		return time.Time{}
	}
	at, _ := v.Time()
	return at
}
