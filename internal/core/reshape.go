package core

import (
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// Renamed are the facets of a record, those of the fields old in renames under their new names.
func Renamed(r store.Record, renames map[string]string) map[string]string {
	if len(renames) == 0 {
		return r.Fields
	}
	facets := make(map[string]string, len(r.Fields))
	for field, wire := range r.Fields {
		if name, is := renames[field]; is {
			field = name
		}
		facets[field] = wire
	}
	return facets
}

// Reshape makes the change that brings a live entry to the schema of t, from whatever it was written
// by: renamed facets (old name → new name), canonical values and their SRKs. What it was found by
// before stays in ~was:FIELD, and so do its old SRKs, until Tidy. held are the SRKs that name it. The
// second result is false where that was done before.
func (t *Type) Reshape(old store.Record, renames map[string]string, held func(recordkey.Key) bool) (store.Change, bool) {
	c := store.Change{Key: old.Key, Version: old.Version(), Schema: t.guard}
	facets := Renamed(old, renames)
	for from, to := range renames {
		if wire, has := old.Fields[from]; has {
			c.Set = append(c.Set, store.Facet{Field: to, Wire: wire})
			c.Unset = append(c.Unset, from)
			t.leave(&c, old, from)
		}
	}
	for _, field := range t.Secondary {
		facet, has := facets[field]
		if !has {
			continue
		}
		canonical := t.Schema.Canonical(facet)
		if _, had := old.Fields[field]; had && old.SKV(field) != canonical {
			t.leave(&c, old, field)
		}
		skv, had := old.Fields[store.FieldSKV(field)]
		switch {
		case canonical != facet && (!had || skv != canonical):
			c.Set = append(c.Set, store.Facet{Field: store.FieldSKV(field), Wire: canonical})
		case canonical == facet && had && skv != canonical:
			c.Unset = append(c.Unset, store.FieldSKV(field))
		}
		if srk, ok := t.srk(field, canonical); ok && !held(srk) {
			c.Claim = append(c.Claim, srk)
		}
	}
	t.aside(&c)
	return c, len(c.Set)+len(c.Unset)+len(c.Claim) > 0
}

// leave keeps what an entry was found by under a field.
func (t *Type) leave(c *store.Change, old store.Record, field string) {
	c.Set = append(c.Set, store.Facet{Field: store.FieldWas(field), Wire: old.SKV(field)})
	if _, had := old.Fields[store.FieldSKV(field)]; had && !slices.Contains(t.Secondary, field) {
		c.Unset = append(c.Unset, store.FieldSKV(field))
	}
}

// Tidy makes the change that removes from an entry what only another schema needed.
func (t *Type) Tidy(old store.Record) (store.Change, bool) {
	c := store.Change{Key: old.Key, Version: old.Version(), Schema: t.guard}
	was, skv := store.FieldWas(""), store.FieldSKV("")
	for field := range old.Fields {
		of, is := strings.CutPrefix(field, skv)
		if strings.HasPrefix(field, was) || is && !slices.Contains(t.Secondary, of) {
			c.Unset = append(c.Unset, field)
		}
	}
	slices.Sort(c.Unset)
	return c, len(c.Unset) > 0
}
