// Package query reads entries. It turns hints into lookups, and lists the entries that a query
// selects, in pages and in order. A lookup names the records that may lead to an entry: its own
// key, or the SRKs of a value in each field that accepts it. A bookmark is the text with which a
// caller asks for the next page.
package query

import (
	"context"
	"errors"
	"slices"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// A Reader reads the entries of a store.
type Reader struct {
	*change.Types
	Engine store.Engine
}

// Target returns the target of a hint and its type. If typ is "", the hint must name the type.
func (rd *Reader) Target(h hints.Hint, typ string) (*change.Type, hints.Target, error) {
	target, err := h.Resolve(rd.Schema, typ)
	if err != nil {
		return nil, target, err
	}
	t, err := rd.Type(target.Type)
	return t, target, err
}

// Resolve returns the lookup for a hint, with at least one key. It narrows a search in any field to
// the only field that can have the value, if the rules show which. It returns ErrNotFound if there
// is no field to search, and ErrIndexBuilding if the hint names a field whose values are still
// being built.
func (rd *Reader) Resolve(h hints.Hint, typ string) (*change.Type, store.Lookup, error) {
	t, target, err := rd.Target(h, typ)
	if err != nil {
		return nil, store.Lookup{}, err
	}
	inAny := target.Field == "*"
	var candidates []string // fields that accept the value; nil means all
	if inAny {
		candidates = t.Rules.Candidates(target.Value)
	}
	l := store.Lookup{All: target.All}
	var unbuilt error
	for _, k := range target.Keys {
		switch {
		case k.Kind() == recordkey.KindSRK && t.Building.Has(k.Field(), schema.RoleSecondary):
			if !inAny { // a search in any field uses the other fields
				unbuilt = errBuilding(k.Field())
			}
		case k.Kind() == recordkey.KindPRK:
			return t, store.Lookup{PRK: k.In(rd.NS)}, nil
		case inAny && !slices.Contains(t.Typed, k.Field()): // becoming typed
		case candidates == nil || slices.Contains(candidates, k.Field()):
			l.SRKs = append(l.SRKs, k.In(rd.NS))
		}
	}
	switch {
	case unbuilt != nil:
		return nil, l, unbuilt
	case len(l.SRKs) == 0:
		return nil, l, store.ErrNotFound
	}
	return t, l, nil
}

// Find returns the entry that a hint identifies.
func (rd *Reader) Find(ctx context.Context, h hints.Hint, typ string) (*change.Type, store.Record, error) {
	t, l, err := rd.Resolve(h, typ)
	if err != nil {
		return nil, store.Record{}, err
	}
	r, err := rd.FindOne(ctx, l)
	return t, r, err
}

// FindOne returns the entry of one lookup.
func (rd *Reader) FindOne(ctx context.Context, l store.Lookup) (store.Record, error) {
	found, err := rd.FindMany(ctx, []store.Lookup{l})
	if err != nil {
		return store.Record{}, err
	}
	return found[0].Record, found[0].Err
}

// FindMany returns the entries of several lookups. It does not return an entry that has the
// looked-up value only under another version of the canonical form: until records are migrated,
// bob@strasse.de must not lead to the owner of bob@straße.de.
func (rd *Reader) FindMany(ctx context.Context, lookups []store.Lookup) ([]store.Found, error) {
	found, err := rd.Engine.Find(ctx, lookups)
	for i := range found {
		if found[i].Err == nil && !rd.matchesLookup(lookups[i], found[i].Record) {
			found[i] = store.Found{Err: store.ErrNotFound}
		}
	}
	return found, err
}

// matchesLookup reports whether the facets of a record have the values that it was looked up by. A
// facet may be missing if another schema has renamed the field.
func (rd *Reader) matchesLookup(l store.Lookup, r store.Record) bool {
	if l.PRK.IsValid() {
		return true
	}
	for _, srk := range l.SRKs {
		facet, has := r.Fields[srk.Field()]
		t, err := rd.Type(srk.Type())
		matches := err == nil && r.HasValue(srk.Field(), srk.Value()) &&
			(!has || t.Schema.Canonical(facet) == srk.Value() || t.HasCanonical(r.Fields, srk.Field(), srk.Value()))
		// With All, the first facet that does not match decides; otherwise the first that matches.
		if matches != l.All {
			return matches
		}
	}
	return l.All
}

// FindUndeclared looks for the value of a hint in fields that the schema does not declare. The hint
// must be made by hints.Any. FindUndeclared ignores declared fields that are not typed.
func (rd *Reader) FindUndeclared(ctx context.Context, h hints.Hint, typ string) (store.Record, error) {
	t, target, err := rd.Target(h, typ)
	if err == nil && target.Field != "*" {
		err = store.ErrNotFound
	}
	if err != nil {
		return store.Record{}, err
	}
	p := recordkey.Pattern{Namespace: rd.NS, Kind: recordkey.KindSRK, Type: target.Type, Value: target.Value}
	for keys, err := range rd.Engine.ScanAll(ctx, store.Scan{Pattern: p.String(), Count: 1000}) {
		if err != nil {
			return store.Record{}, err
		}
		for _, k := range keys {
			srk, err := recordkey.Parse(k)
			untyped := slices.Contains(t.Secondary, srk.Field()) && !slices.Contains(t.Typed, srk.Field())
			if err != nil || !p.Match(srk) || untyped {
				continue
			}
			r, err := rd.FindOne(ctx, store.Lookup{SRKs: []recordkey.Key{srk}})
			if !errors.Is(err, store.ErrNotFound) {
				return r, err
			}
		}
	}
	return store.Record{}, store.ErrNotFound
}
