// Package migrate converts the records of an account store to another schema, and copies and drops
// namespaces. Most schema changes are made online, while programs write: a field is building until
// all entries have what the new schema asks for. The others stop the writers of the type.
package migrate

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

// A Change converts the records of a view's namespace to another schema. It leaves types that the
// new schema does not name as they are.
type Change struct {
	// Types lists the types that differ from the stored schema, by name. It is empty if there is
	// nothing to do.
	Types []TypeChange
	db    *userdb.DB // with the new schema
}

// A TypeChange describes the schema change of one type.
type TypeChange struct {
	Type string `json:"type"`
	// What describes the difference in words. It is empty if the difference affects no record, such
	// as a reserved value.
	What      string `json:"what"`
	UnderWay  bool   `json:"under_way"` // the schema change was started and not finished
	Entries   int64  `json:"entries"`   // entries of the type
	Rewritten int64  `json:"rewritten"` // entries whose fields change
	SRKs      int64  `json:"srks"`      // SRKs to create
	// Online reports whether the schema only adds to the stored one. Programs then continue to
	// write, and Apply keeps what others add to the schema meanwhile.
	Online bool `json:"online"`
	// Stops reports whether Apply keeps all other programs from writing entries of the type.
	Stops bool `json:"stops_writers"`
	// Retired lists names that are removed. Programs that declare them are refused from then on.
	Retired []string `json:"retired,omitempty"`
	// RetiredValues counts the entries with a value in each retired field. The values stay, but
	// nobody is found by them.
	RetiredValues map[string]int64 `json:"retired_values,omitempty"`
	// LostValues counts the further values that become ~lost:FIELD, by field: those of a field that
	// is no longer secondary, and those that are the same as another value of the entry under the
	// new schema and differ only in spelling.
	LostValues map[string]int64 `json:"lost_values,omitempty"`
	// Collisions lists at most 1000 collisions, which must be resolved before Apply can succeed.
	Collisions []Collision `json:"collisions,omitempty"`
}

// A Collision prevents a schema from being applied.
type Collision struct {
	Field string `json:"field"`
	// Value is canonical under the new schema. It may hold any bytes.
	Value  string `json:"value"`
	Reason string `json:"message"` // explanation in one line of printable text
	// Entries lists the relative PRKs of the entries with the value, at most 100.
	Entries []recordkey.Key `json:"entries"`
}

const (
	maxCollisions = 1000
	maxOwners     = 100
)

// Plan determines how to convert the records of the view's namespace to another schema. It writes
// nothing. It reads all entries of the types that change, twice if values collide. The stored
// schema is the one that the entries were written with. If none is stored, Plan assumes that
// CoffeeNode UserDB, the original program, wrote the entries: with exact values, and with SRKs of
// any field. Plan treats a field with Was as renamed.
//
// The primary field cannot change: Plan then returns a *schema.Error. If a change to yet another
// schema is under way, Plan returns ErrSchemaMismatch.
func Plan(ctx context.Context, db *userdb.DB, to schema.Schema) (Change, error) {
	next, err := db.With(to)
	if err != nil {
		return Change{}, err
	}
	ch := Change{db: next}
	for _, name := range to.Names() {
		s, err := newMigration(ctx, view.Of(next), name, nil)
		if err != nil {
			return ch, err
		}
		if !s.needsApply() {
			continue
		}
		tc, err := s.survey(ctx)
		if err != nil {
			return ch, err
		}
		tc.Online, tc.Stops = s.online, !s.online && s.stopsWriters()
		ch.Types = append(ch.Types, tc)
	}
	return ch, nil
}

// describe returns the difference between the schemas in words.
func (s *migration) describe() string {
	var words []string
	switch d := s.currentType().Schema.Difference(s.from.WithoutBuilding()); {
	case !s.stored:
		words = append(words, "no schema is stored yet")
	case d != "":
		words = append(words, strings.ReplaceAll(d, "; here ", "; now "))
		fallthrough
	default:
		words = append(words, s.describeOther(words)...)
	}
	for old, name := range s.renames {
		words = append(words, records.Quoted(old)+" becomes "+records.Quoted(name))
	}
	for _, field := range s.newUnset {
		words = append(words, "the order by "+records.Quoted(field)+" gets the entries without a value")
	}
	for _, field := range slices.Concat(s.moreValues, s.fewerValues) {
		limit := "one value"
		if n := s.currentType().Schema.Fields[field].MaxValues(); n > 1 {
			limit = fmt.Sprintf("up to %d values", n)
		}
		words = append(words, records.Quoted(field)+" may have "+limit)
	}
	for _, field := range s.newTyped {
		words = append(words, records.Quoted(field)+" is typed from now on: its values are compared with those of other fields")
	}
	for _, field := range s.newUntyped {
		words = append(words, records.Quoted(field)+" is untyped from now on: programs that declare it as typed can no longer write")
	}
	switch retire := s.currentType().Schema.Retire; {
	case s.stored && retire && !s.from.Retire:
		words = append(words, "UIDs of entries that are deleted from now on are not reused")
	case s.stored && !retire && s.from.Retire:
		words = append(words, "UIDs of entries that are deleted from now on may be reused")
	}
	switch factors := s.currentType().Schema.Factors; {
	case s.stored && factors && !s.from.Factors:
		words = append(words, "entries may enrol second factors: deploy this version everywhere first, as programs of earlier versions can no longer write")
	case s.stored && !factors && s.from.Factors:
		words = append(words, "no entry may enrol another second factor: entries that have one keep it and need it")
	}
	if s.stored && len(s.moreValues) > 0 && !allowsMany(s.from.WithoutBuilding()) {
		words = append(words, "programs of versions without several values in a field are refused from now on")
	}
	for _, field := range s.newRequired {
		words = append(words, records.Quoted(field)+" is required from now on: programs that do not know it can no longer create entries")
	}
	slices.Sort(words)
	return strings.Join(words, ", and ")
}

// describeOther returns the differences that affect no keys of records.
func (s *migration) describeOther(described []string) (words []string) {
	before := s.from.WithoutBuilding()
	before.Retired = nil // a name that comes back counts as new
	relation, text := s.currentType().Schema.Compare(before)
	switch relation {
	case schema.Adds:
		text = strings.ReplaceAll(text, ": not stored", " is new")
	case schema.Differs:
		text = strings.ReplaceAll(text, "; here ", "; now ")
	default: // requirements, renames and retired names are described elsewhere
		return nil
	}
	for _, word := range strings.Split(text, ", and ") {
		if !strings.Contains(strings.Join(described, ", and "), word) {
			words = append(words, word)
		}
	}
	return words
}

// survey counts what has to be done, and finds collisions.
func (s *migration) survey(ctx context.Context) (TypeChange, error) {
	tc := TypeChange{Type: s.currentType().Name, What: s.describe(), UnderWay: s.resumed || s.from.Building != nil}
	tc.Retired = difference(removedNames(s.from, s.currentType().Schema), s.from.Retired)
	live := func(r store.Record) map[string]string {
		if !r.Live() {
			return nil
		}
		return s.renamedFacets(r)
	}
	var digests []uint64
	err := records.EachEntry(ctx, s.View, s.currentType(), s.progress, func(r store.Record) {
		if r.Live() {
			s.countEntry(&tc, r)
		}
		for _, text := range s.currentType().UniqueTexts(live(r)) {
			digests = append(digests, records.Digest(s.currentType().Name, text))
		}
	})
	if err != nil {
		return tc, err
	}
	wanted := map[uint64]bool{}
	slices.Sort(digests)
	for i := 1; i < len(digests); i++ {
		if digests[i] == digests[i-1] && len(wanted) < maxCollisions {
			wanted[digests[i]] = true
		}
	}
	found, err := records.Contests(ctx, s.View, s.currentType(), wanted, live, s.progress)
	for _, k := range found {
		tc.addCollision(k)
	}
	return tc, err
}

func (tc *TypeChange) addCollision(k *records.Contest) {
	// A contest has at least two owners.
	names := records.Map(k.Owners[:2], func(prk recordkey.Key) string { return records.Printable(prk.String()) })
	if more := len(k.Owners) - 2; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	tc.add(Collision{
		Field: k.SRK.Field(), Value: k.SRK.Value(), Entries: k.Owners[:min(maxOwners, len(k.Owners))],
		Reason: strings.Join(names, " and ") + " would both have the value " + records.Quoted(k.SRK.Value()),
	})
}

func (tc *TypeChange) add(c Collision) {
	if len(tc.Collisions) < maxCollisions {
		tc.Collisions = append(tc.Collisions, c)
	}
}

// countFields adds one to the count of each field, and returns counts.
func countFields(counts map[string]int64, fields []string) map[string]int64 {
	for _, field := range fields {
		if counts == nil {
			counts = map[string]int64{}
		}
		counts[field]++
	}
	return counts
}

// renamedFacets returns the facets of an entry under their new names.
func (s *migration) renamedFacets(r store.Record) map[string]string {
	return change.RenameFacets(r, s.renames)
}

// countEntry adds to tc the work for one entry, and what prevents its conversion.
func (s *migration) countEntry(tc *TypeChange, r store.Record) {
	tc.Entries++
	tc.RetiredValues = countFields(tc.RetiredValues, slices.DeleteFunc(slices.Clone(tc.Retired), func(name string) bool {
		_, has := r.Fields[name]
		return !has
	}))
	claimed := func(srk recordkey.Key) bool {
		return s.wasSecondary(srk.Field()) && r.HasValue(srk.Field(), srk.Value())
	}
	c, due := s.currentType().Reshape(r, s.renames, claimed)
	lost := s.currentType().LostFields(r, c, s.renames)
	if tc.SRKs += int64(len(c.Claim)); due && len(c.Set)+len(c.Unset) > 0 || len(lost) > 0 {
		tc.Rewritten++
	}
	tc.LostValues = countFields(tc.LostValues, lost)
	s.addRefused(tc, r)
}

// addRefused adds to tc what prevents the conversion of an entry, such as a value that no record
// can hold.
func (s *migration) addRefused(tc *TypeChange, r store.Record) {
	prk := r.Key.In(recordkey.Namespace{})
	refuse := func(field, value, reason string) {
		text := fmt.Sprintf("%s: %s: %s", records.Printable(prk.String()), records.Quoted(field), reason)
		tc.add(Collision{Field: field, Value: value, Reason: text, Entries: []recordkey.Key{prk}})
	}
	for old, name := range s.renames {
		_, has := r.Fields[old]
		if wire, both := r.Fields[name]; has && both {
			refuse(name, wire, "it also has a facet "+records.Quoted(old)+": one of the two would be lost")
		}
	}
	facets := s.renamedFacets(r)
	for _, field := range s.fewerValues {
		limit := s.currentType().Schema.Fields[field].MaxValues()
		if n := s.currentType().CountValues(facets, field); n > limit {
			refuse(field, "", fmt.Sprintf("it has %d values, more than %d", n, limit))
		}
	}
	for _, f := range store.FurtherIn(facets, "") {
		canonical := s.currentType().Schema.Canonical(f.Written)
		_, named := s.currentType().SRK(f.Field, f.Canonical)
		if _, keyable := s.currentType().SRK(f.Field, canonical); named && !keyable && slices.Contains(s.currentType().Secondary, f.Field) {
			refuse(f.Field, canonical, "no key can hold one of its values: it is "+records.Unkeyable(canonical))
		}
	}
	for _, field := range s.fieldsWithNewKeys(r) {
		value, has := facets[field]
		if slices.Contains(s.currentType().Secondary, field) {
			value = s.currentType().Schema.Canonical(value)
		}
		if _, keyable := s.currentType().SRK(field, value); has && !keyable {
			refuse(field, value, "no key can hold it: it is "+records.Unkeyable(value))
		}
	}
	for _, field := range s.newRequired {
		if _, has := facets[field]; !has {
			refuse(field, "", "it has none, but the field becomes required")
		}
	}
	unreadable := s.unreadable(facets)
	for _, field := range slices.Sorted(maps.Keys(unreadable)) {
		refuse(field, facets[field], "the new codec cannot read it: "+unreadable[field])
	}
	_, unordered := s.currentType().Positions(store.Record{Key: r.Key, Fields: facets})
	for _, field := range unordered {
		if slices.Contains(s.newOrders, field) && !slices.Contains(s.newUnset, field) && unreadable[field] == "" {
			refuse(field, facets[field], "it cannot be ordered: it is over 1 KiB or cannot be decoded")
		}
	}
}

// unreadable returns the facets that the old codec can read and the new one cannot, with reasons.
// Nobody could read an entry with such a facet, and its owner could not log in.
func (s *migration) unreadable(facets map[string]string) (reasons map[string]string) {
	for name := range s.currentType().Schema.Fields {
		wire, has := facets[name]
		was, is := s.from.WithoutBuilding().Codec(s.nameBefore(name)), s.currentType().Schema.Codec(name)
		if !has || !s.stored || was == is {
			continue
		}
		if _, err := schema.Decode(was, wire); err != nil {
			continue
		}
		var wrong *schema.ValueError
		if _, err := schema.Decode(is, wire); errors.As(err, &wrong) {
			if reasons == nil {
				reasons = map[string]string{}
			}
			reasons[name] = wrong.Reason
		}
	}
	return reasons
}

// fieldsWithNewKeys returns the fields in which an entry needs a new SRK or index member. A value
// that had no key under the old schema may stay without one, but a value that had one must not lose
// it.
func (s *migration) fieldsWithNewKeys(r store.Record) (fields []string) {
	for _, field := range s.currentType().Secondary {
		_, named := s.currentType().SRK(field, r.SKV(field))
		if s.stored && (!s.wasSecondary(field) || named && s.currentType().Schema.Fold != schema.FoldExact) {
			fields = append(fields, field)
		}
	}
	for _, field := range s.newIndexes {
		if slices.Contains(s.currentType().Indexed, field) { // not a tertiary set
			fields = append(fields, field)
		}
	}
	return fields
}

// wasSecondary reports whether a field was secondary under the old schema.
func (s *migration) wasSecondary(field string) bool {
	return s.from.WithoutBuilding().Fields[field].Role.Has(schema.RoleSecondary)
}

// allowsMany reports whether some field of a type may have several values.
func allowsMany(t schema.Type) bool {
	for _, f := range t.Fields {
		if f.MaxValues() > 1 {
			return true
		}
	}
	return false
}
