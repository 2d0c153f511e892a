package core

import (
	"maps"
	"slices"
	"strconv"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// A Mending says what an entry's change may do.
type Mending struct {
	Claim func(srk recordkey.Key) bool // whether a value that the entry has may be claimed for it
	Lose  func(value string) bool      // whether a canonical value belongs to another entry; nil: none
}

// Mend makes the change that brings an entry in line with its key and its facets (I1, I3), whatever
// is wrong with it but what only a person can decide. No facet goes: one that is lost to another entry,
// and a primary facet that is not the key's, stay under ~lost:FIELD. The second result is false
// where there is nothing to do.
func (t *Type) Mend(old store.Record, m Mending) (store.Change, bool) {
	c := store.Change{Key: old.Key, Mend: true, Version: old.Version(), Schema: t.guard}
	sound := t.mendIdentity(&c, old)
	for _, field := range t.Secondary {
		t.mendSecondary(&c, old, field, sound, m)
	}
	t.aside(&c)
	if len(c.Set)+len(c.Unset)+len(c.Claim) == 0 {
		return c, false
	}
	if sound && !old.Live() {
		for _, field := range t.Indexed {
			c.Index = t.appendIndex(c.Index, field, old.Fields[field])
		}
	}
	return c, true
}

// mendIdentity sets what an entry says of itself to what its key says. What is missing is certain;
// what says otherwise is so only if it stands alone against the key and another witness.
func (t *Type) mendIdentity(c *store.Change, old store.Record) (sound bool) {
	agree, wrong := 0, []store.Facet{}
	against := 0
	for _, want := range []store.Facet{
		{Field: store.FieldType, Wire: t.Name},
		{Field: store.FieldPRK, Wire: old.Key.In(recordkey.Namespace{}).String()},
		{Field: t.Schema.Primary, Wire: old.Key.Value()},
	} {
		switch old.Fields[want.Field] {
		case want.Wire:
			agree++
			continue
		case "":
		default:
			against++
		}
		wrong = append(wrong, want)
	}
	if against > 1 || against == 1 && agree == 0 {
		return false
	}
	for _, want := range wrong {
		if is := old.Fields[want.Field]; is != "" && !store.OwnField(want.Field) {
			c.Set = append(c.Set, lost(old, want.Field, is))
		}
		c.Set = append(c.Set, want)
	}
	return true
}

// lost is where a facet is kept that goes from its field.
func lost(old store.Record, field, wire string) store.Facet {
	name := store.FieldLost(field)
	for n := 2; ; n++ {
		if was, taken := old.Fields[name]; !taken || was == wire {
			return store.Facet{Field: name, Wire: wire}
		}
		name = store.FieldLost(field) + ":" + strconv.Itoa(n)
	}
}

func (t *Type) mendSecondary(c *store.Change, old store.Record, field string, sound bool, m Mending) {
	facet, has := old.Fields[field]
	canonical := ""
	if has {
		canonical = t.Schema.Canonical(facet)
	}
	srk, keyable := t.srk(field, canonical)
	if has && m.Lose != nil && m.Lose(canonical) {
		c.Set, c.Unset = append(c.Set, lost(old, field, facet)), append(c.Unset, field)
		c.Release = t.appendSRK(c.Release, field, canonical)
		has = false
	}
	switch skv, had := old.Fields[store.FieldSKV(field)]; {
	case has && canonical != facet && (!had || skv != canonical):
		c.Set = append(c.Set, store.Facet{Field: store.FieldSKV(field), Wire: canonical})
	case had && (!has || canonical == facet && skv != canonical):
		c.Unset = append(c.Unset, store.FieldSKV(field))
	}
	if has && keyable && sound && m.Claim(srk) {
		c.Claim = append(c.Claim, srk)
	}
}

// Secondaries are the SRKs of the values that facets have, those that a key can name.
func (t *Type) Secondaries(facets map[string]string) []recordkey.Key {
	var srks []recordkey.Key
	for _, field := range t.Secondary {
		if facet, has := facets[field]; has {
			srks = t.appendSRK(srks, field, t.Schema.Canonical(facet))
		}
	}
	return srks
}

// Values are the canonical secondary values of facets that a key can name, each once.
func (t *Type) Values(facets map[string]string) []string {
	values := map[string]bool{}
	for _, srk := range t.Secondaries(facets) {
		values[srk.Value()] = true
	}
	return slices.Sorted(maps.Keys(values))
}
