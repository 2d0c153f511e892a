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
	Type      string `json:"type"`
	What      string `json:"what"`      // what differs, for people; "" where only what counts for no record does, such as a reserved value
	UnderWay  bool   `json:"under_way"` // it was begun, and is not finished
	Entries   int64  `json:"entries"`   // of the type
	Rewritten int64  `json:"rewritten"` // entries in which fields change
	SRKs      int64  `json:"srks"`      // SRKs to be created
	// Online says that the schema only has more than the stored one, so that programs go on to write, and Apply keeps what others
	// add to it meanwhile.
	Online bool `json:"online"`
	// Stops says that nobody else can write entries of the type from the beginning of Apply to its end.
	Stops      bool        `json:"stops_writers"`
	Retired    []string    `json:"retired,omitempty"`    // names that go: programs that declare them are refused from then on
	Collisions []Collision `json:"collisions,omitempty"` // what must be decided before; at most 1000 are listed
}

// A Collision keeps a schema from being applied.
type Collision struct {
	Field   string          `json:"field"`
	Value   string          `json:"value"`   // canonical, by the new schema; may hold any bytes
	Reason  string          `json:"message"` // for people, in one line of printable text
	Entries []recordkey.Key `json:"entries"` // relative PRKs of those who have the value; at most 100 are listed
}

const (
	maxCollisions = 1000
	maxHolders    = 100
)

// Plan says what it takes to bring the records of the view's namespace to another schema, and writes
// nothing. It goes over all entries of the types that change: twice, where values collide. What is
// stored in the database says by which schema they were written; where nothing is stored, they are
// taken for the original's: exact, with SRKs of any field. A field with Was is a renamed one.
//
// The primary field cannot change: that is a *schema.Error. A change to yet another schema that is
// under way is an ErrSchemaMismatch.
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
		tc.Online, tc.Stops = s.online, !s.online && s.changesRecords()
		tc.Retired = difference(removedNames(s.from, s.currentType().Schema), s.from.Retired)
		ch.Types = append(ch.Types, tc)
	}
	return ch, nil
}

// what names the difference.
func (s *migration) describe() string {
	var words []string
	switch d := s.currentType().Schema.Difference(s.from.Whole()); {
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
	for _, field := range s.newRequired {
		words = append(words, records.Quoted(field)+" is required from now on: programs that do not know it make no entries any more")
	}
	slices.Sort(words)
	return strings.Join(words, ", and ")
}

// whatElse names what differs besides, for which no keys of records do.
func (s *migration) describeOther(said []string) (words []string) {
	before := s.from.Whole()
	before.Retired = nil // what comes back is new
	relation, text := s.currentType().Schema.Against(before)
	switch relation {
	case schema.Adds:
		text = strings.ReplaceAll(text, ": not stored", " is new")
	case schema.Differs:
		text = strings.ReplaceAll(text, "; here ", "; now ")
	default: // what is required or renamed from now on is said elsewhere, and so is what is retired
		return nil
	}
	for _, word := range strings.Split(text, ", and ") {
		if !strings.Contains(strings.Join(said, ", and "), word) {
			words = append(words, word)
		}
	}
	return words
}

// survey counts what is to do, and finds collisions.
func (s *migration) survey(ctx context.Context) (TypeChange, error) {
	tc := TypeChange{Type: s.currentType().Name, What: s.describe(), UnderWay: s.resumed || s.from.Building != nil}
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
		for _, value := range s.currentType().Values(live(r)) {
			digests = append(digests, records.Digest(s.currentType().Name, value))
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
	names := records.Map(k.Holders[:2], func(prk recordkey.Key) string { return records.Printable(prk.String()) }) // two at least
	if more := len(k.Holders) - 2; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	tc.add(Collision{
		Field: k.Field, Value: k.Value, Entries: k.Holders[:min(maxHolders, len(k.Holders))],
		Reason: strings.Join(names, " and ") + " would both have the value " + records.Quoted(k.Value),
	})
}

func (tc *TypeChange) add(c Collision) {
	if len(tc.Collisions) < maxCollisions {
		tc.Collisions = append(tc.Collisions, c)
	}
}

// facets are those of an entry as they will be called.
func (s *migration) renamedFacets(r store.Record) map[string]string {
	return change.Renamed(r, s.renames)
}

// count counts what one entry takes, and finds what no record could hold.
func (s *migration) countEntry(tc *TypeChange, r store.Record) {
	tc.Entries++
	claimed := func(srk recordkey.Key) bool { return s.wasSecondary(srk.Field()) && srk.Value() == r.SKV(srk.Field()) }
	change, due := s.currentType().Reshape(r, s.renames, claimed)
	if tc.SRKs += int64(len(change.Claim)); due && len(change.Set)+len(change.Unset) > 0 {
		tc.Rewritten++
	}
	prk := r.Key.In(recordkey.Namespace{})
	refuse := func(field, value, reason string) {
		text := fmt.Sprintf("%s: %s: %s", records.Printable(prk.String()), records.Quoted(field), reason)
		tc.add(Collision{Field: field, Value: value, Reason: text, Entries: []recordkey.Key{prk}})
	}
	for old, name := range s.renames {
		_, has := r.Fields[old]
		if wire, both := r.Fields[name]; has && both {
			refuse(name, wire, "it has a facet "+records.Quoted(old)+", too: one of the two would be lost")
		}
	}
	facets := s.renamedFacets(r)
	for _, field := range s.fieldsWithNewKeys(r) {
		value, has := facets[field]
		if slices.Contains(s.currentType().Secondary, field) {
			value = s.currentType().Schema.Canonical(value)
		}
		if _, keyable := s.currentType().SRK(field, value); has && !keyable {
			refuse(field, value, "no key can name it: it is "+records.Unkeyable(value))
		}
	}
	for _, field := range s.newRequired {
		if _, has := facets[field]; !has {
			refuse(field, "", "it has none, and the field is to be required")
		}
	}
	_, without := s.currentType().Places(store.Record{Key: r.Key, Fields: facets})
	for _, field := range without {
		if slices.Contains(s.newOrders, field) {
			refuse(field, facets[field], "it has no place in an order: over 1 KiB, or not readable")
		}
	}
}

// newKeys are the fields of which an entry needs a new SRK or index member. A value that no key could name by the old
// schema stays as it is; one that was named must not be lost.
func (s *migration) fieldsWithNewKeys(r store.Record) (fields []string) {
	for _, field := range s.currentType().Secondary {
		_, named := s.currentType().SRK(field, r.SKV(field))
		if s.stored && (!s.wasSecondary(field) || named && s.currentType().Schema.Fold != schema.FoldExact) {
			fields = append(fields, field)
		}
	}
	for _, field := range s.newIndexes {
		if slices.Contains(s.currentType().Indexed, field) { // and not a tertiary set
			fields = append(fields, field)
		}
	}
	return fields
}

// wasKey reports whether a field was a secondary one by the old schema.
func (s *migration) wasSecondary(field string) bool {
	return s.from.Whole().Fields[field].Role.Has(schema.RoleSecondary)
}
