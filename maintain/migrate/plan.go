// Package migrate brings the records of an account store to another schema, and copies and drops namespaces.
package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/internal/records"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A Change brings the records of a view's namespace to another schema. Types that the new schema does
// not name are left as they are.
type Change struct {
	Types []TypeChange // that differ from what is stored, by name; none: nothing to do
	db    *userdb.DB   // by the new schema
}

// A TypeChange is what happens to one type.
type TypeChange struct {
	Type       string
	What       string      // what differs, for people; "" where only the stored text does
	UnderWay   bool        // it was begun, and is not finished
	Entries    int64       // of the type
	Rewritten  int64       // entries in which fields change
	SRKs       int64       // SRKs to be created
	Collisions []Collision // what must be decided before; at most 1000 are listed
}

// A Collision keeps a schema from being applied.
type Collision struct {
	Field   string
	Value   string          // canonical, by the new schema; may hold any bytes
	Reason  string          // for people, in one line of printable text
	Entries []recordkey.Key // relative PRKs of those who have the value; at most 100 are listed
}

const (
	mostCollisions = 1000
	mostHolders    = 100
)

// Plan says what it takes to bring the records of the view's namespace to another schema, and writes
// nothing. It goes over all entries of the types that change: twice, where values collide. What is
// stored in the database says by which schema they were written; where nothing is stored, they are
// taken for the original's: exact, with SRKs of any field. A field with Was is a renamed one.
//
// The primary field cannot change: that is a *schema.Error. A change to yet another schema that is
// under way is an ErrSchemaMismatch.
func Plan(ctx context.Context, db *userdb.DB, to schema.Schema) (Change, error) {
	return plan(ctx, db, to, nil)
}

func plan(ctx context.Context, db *userdb.DB, to schema.Schema, progress func(done, about int64)) (Change, error) {
	next, err := db.With(to)
	if err != nil {
		return Change{}, err
	}
	ch := Change{db: next}
	c := view.Of(next)
	for _, name := range to.Names() {
		p, err := stepOf(ctx, c, name)
		if err != nil {
			return ch, err
		}
		if !p.due() {
			continue
		}
		tc := TypeChange{Type: name, What: p.what(), UnderWay: p.changing}
		if err := p.survey(ctx, c, &tc, progress); err != nil {
			return ch, err
		}
		ch.Types = append(ch.Types, tc)
	}
	return ch, nil
}

func stepOf(ctx context.Context, c *view.View, name string) (*step, error) {
	t, err := c.Type(name)
	if err != nil {
		return nil, err
	}
	s, err := stateOf(ctx, c, t)
	if err != nil {
		return nil, err
	}
	if s.from.Primary != t.Schema.Primary {
		return nil, &schema.Error{Path: "types." + name + ".primary", Reason: "a primary field cannot change; it was " + s.from.Primary}
	}
	return newStep(t, s), nil
}

// what names the difference.
func (p *step) what() string {
	var words []string
	if p.stored {
		if d := p.t.Schema.Difference(p.from); d != "" {
			words = append(words, strings.ReplaceAll(d, "; here ", "; now "))
		}
	} else {
		words = append(words, "no schema is stored yet")
	}
	for old, name := range p.renames {
		words = append(words, records.Quoted(old)+" becomes "+records.Quoted(name))
	}
	slices.Sort(words)
	return strings.Join(words, ", and ")
}

// survey counts what is to do, and finds collisions.
func (p *step) survey(ctx context.Context, c *view.View, tc *TypeChange, progress func(done, about int64)) error {
	var digests []uint64
	of := []string{p.t.Name}
	*tc = TypeChange{Type: tc.Type, What: tc.What, UnderWay: tc.UnderWay}
	err := records.EachEntry(ctx, c, of, progress, func(t *change.Type, r store.Record) error {
		if !r.Live() {
			return nil
		}
		tc.Entries++
		p.count(tc, r)
		for _, value := range t.Values(p.facets(t, r)) {
			digests = append(digests, records.Digest(t.Name, value))
		}
		return nil
	})
	if err != nil {
		return err
	}
	wanted := map[uint64]bool{}
	slices.Sort(digests)
	for i := 1; i < len(digests); i++ {
		if digests[i] == digests[i-1] && len(wanted) < mostCollisions {
			wanted[digests[i]] = true
		}
	}
	live := func(t *change.Type, r store.Record) map[string]string {
		if !r.Live() {
			return nil
		}
		return p.facets(t, r)
	}
	found, err := records.Contests(ctx, c, of, wanted, live, progress)
	for _, d := range records.SortedContests(found) {
		tc.collide(found[d])
	}
	return err
}

func (tc *TypeChange) collide(k *records.Contest) {
	names := make([]string, 0, 3)
	for _, prk := range k.Holders[:min(2, len(k.Holders))] {
		names = append(names, records.Printable(prk.String()))
	}
	if more := len(k.Holders) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	tc.add(Collision{
		Field: k.Field, Value: k.Value, Entries: k.Holders[:min(mostHolders, len(k.Holders))],
		Reason: strings.Join(names, " and ") + " would both have the value " + records.Quoted(k.Value),
	})
}

func (tc *TypeChange) add(c Collision) {
	if len(tc.Collisions) < mostCollisions {
		tc.Collisions = append(tc.Collisions, c)
	}
}

// count counts what one entry takes, and finds what no record could hold.
func (p *step) count(tc *TypeChange, r store.Record) {
	change, due := p.t.Reshape(r, p.renames, p.claimed(r))
	if tc.SRKs += int64(len(change.Claim)); due && len(change.Set)+len(change.Unset) > 0 {
		tc.Rewritten++
	}
	prk := r.Key.In(recordkey.Namespace{})
	refuse := func(field, value, reason string) {
		text := fmt.Sprintf("%s: %s: %s", records.Printable(prk.String()), records.Quoted(field), reason)
		tc.add(Collision{Field: field, Value: value, Reason: text, Entries: []recordkey.Key{prk}})
	}
	for old, name := range p.renames {
		_, has := r.Fields[old]
		if wire, both := r.Fields[name]; has && both {
			refuse(name, wire, "it has a facet "+records.Quoted(old)+", too: one of the two would be lost")
		}
	}
	facets := p.facets(p.t, r)
	for _, field := range p.t.Secondary {
		p.keyable(facets, field, !slices.Contains(p.from.Secondary(), field) && p.stored || p.named(r, field), refuse)
	}
	if _, without := p.t.Places(store.Record{Key: r.Key, Fields: facets}); len(p.ordered) > 0 {
		for _, field := range without {
			if slices.Contains(p.ordered, field) {
				refuse(field, facets[field], "it has no place in an order: over 1 KiB, or not readable")
			}
		}
	}
	for _, field := range p.indexed {
		if slices.Contains(p.t.Indexed, field) {
			p.keyable(facets, field, true, refuse)
		}
	}
}

// named reports whether a key can name the value that an entry has by the old schema: then it must not lose it.
func (p *step) named(r store.Record, field string) bool {
	_, err := recordkey.SRK(p.t.Name, field, r.SKV(field))
	return err == nil && p.stored && p.t.Schema.Fold != schema.FoldExact
}

// keyable refuses a facet of a new key or index that no key can name. One that no key could name before
// stays what it is.
func (p *step) keyable(facets map[string]string, field string, isNew bool, refuse func(field, value, reason string)) {
	wire, has := facets[field]
	if !has || !isNew {
		return
	}
	value := wire
	if slices.Contains(p.t.Secondary, field) {
		value = p.t.Schema.Canonical(wire)
	}
	if _, err := recordkey.SRK(p.t.Name, field, value); err != nil {
		refuse(field, value, "no key can name it: it is "+records.Unkeyable(value))
	}
}
