package query

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// A Query selects entries of a type. Package userdb has a type with the same fields and documents
// them.
type Query struct {
	Where schema.Facets
	Tags  []string
	Has   map[string][]string

	WithSets []string

	Limit int

	After, Before string
	MaxRead       int
	MaxBytes      int

	Disabled *bool

	Order   string
	Reverse bool
	Skip    int64

	GT, GTE, LT, LTE *schema.Value
	Start, End       *schema.Value
	Prefix           string
}

// A Selection is a checked query, together with the indexes in which to look for candidates.
type Selection struct {
	Type     *change.Type
	one      *store.Lookup // not nil if the query names a unique value, which at most one entry has
	indexes  []recordkey.Key
	where    map[string]string // wire forms of facets, or canonical secondary values
	members  []setMember
	disabled *bool
	field    string      // the field whose values determine the order; "" means no order
	order    store.Order // only if field is set
	skip     int64       // how many positions to pass over at the beginning; only if field is set
	from     string      // the continuation to start at; "" means the beginning
	left     *int        // how many more entries may be read; nil means no limit
	bytes    *int        // how many more bytes of entries may be read; nil means no limit
}

// A setMember is a member that a tertiary set of the entries must have.
type setMember struct{ set, value string }

// keysPerRead is the number of scanned keys that count as much as one entry read.
const keysPerRead = 100

// countScanned counts scanned keys toward the limit on reads.
func (s Selection) countScanned(keys int) {
	if s.left != nil {
		*s.left -= keys / keysPerRead
	}
}

// checksPerRead is the number of checks that count as much as one entry read. A check reads only
// one field of an entry.
const checksPerRead = 10

// checks returns how many entries to check at a time.
func (s Selection) checks() int {
	if s.left == nil {
		return scanBatch
	}
	return min(scanBatch, max(checksPerRead, *s.left*checksPerRead))
}

// onlyDisabled reports whether all selected entries are disabled.
func (s Selection) onlyDisabled() bool { return s.disabled != nil && *s.disabled }

// MayRead reports whether a page may read more entries.
func (s Selection) MayRead() bool {
	return (s.left == nil || *s.left > 0) && (s.bytes == nil || *s.bytes > 0)
}

// sizedBatch is the number of entries that a page with a limit on bytes reads at a time. Their
// sizes are known only when they have been read.
const sizedBatch = 16

// batch returns how many of n entries to read at a time.
func (s Selection) batch(n int) int {
	if s.bytes != nil {
		return min(n, sizedBatch)
	}
	return n
}

// countRead subtracts the size of the entries in found from the bytes that may still be read.
func (s Selection) countRead(found []store.Found) {
	if s.bytes == nil {
		return
	}
	for _, f := range found {
		for field, wire := range f.Record.Fields {
			*s.bytes -= len(field) + len(wire)
		}
	}
}

// Select checks a query. It refuses fields that are neither indexed nor unique, because finding
// their values would take reading every entry.
func Select(t *change.Type, q Query) (Selection, error) {
	s := Selection{Type: t, where: map[string]string{}, disabled: q.Disabled}
	for _, field := range slices.Sorted(maps.Keys(q.Where)) {
		if err := s.selectField(field, q.Where[field]); err != nil {
			return Selection{}, err
		}
	}
	if err := s.selectMembers(change.TagsName, q.Tags); err != nil {
		return Selection{}, err
	}
	for _, set := range slices.Sorted(maps.Keys(q.Has)) {
		if err := s.selectMembers(set, q.Has[set]); err != nil {
			return Selection{}, err
		}
	}
	for _, set := range q.WithSets {
		if err := t.CheckTertiary(set, "set"); err != nil {
			return Selection{}, err
		}
	}
	if q.MaxRead > 0 {
		s.left = &q.MaxRead
	}
	if q.MaxBytes > 0 {
		s.bytes = &q.MaxBytes
	}
	s.from = cmp.Or(q.After, q.Before)
	if q.After != "" && q.Before != "" || s.Backwards() != (q.Before != "") {
		return Selection{}, store.ErrCursor
	}
	return s, s.orderBy(q)
}

// selectMembers adds the members that a tertiary set of the entries must have.
func (s *Selection) selectMembers(set string, members []string) error {
	switch {
	case len(members) == 0:
		return nil
	case !s.Type.Schema.Tertiary[set].Indexed:
		return change.Invalid(set, "query", "the schema declares no indexed set of that name")
	case s.Type.Building.Has(set, schema.RoleIndexed):
		return errBuilding(set)
	}
	for _, member := range members {
		key, ok := s.Type.IndexKey(set, member)
		if !ok {
			return change.Invalid(set, "key", "not a member that an index can hold")
		}
		s.indexes, s.members = append(s.indexes, key), append(s.members, setMember{set, member})
	}
	return nil
}

// joinFields returns a list of fields for the end of an error message.
func joinFields(fields ...[]string) string {
	names := slices.Concat(fields...)
	slices.Sort(names)
	if names = slices.Compact(names); len(names) == 0 {
		return ": none"
	}
	for i, name := range names {
		names[i] = strconv.Quote(name)
	}
	return ": " + strings.Join(names, ", ")
}

func (s *Selection) selectField(field string, v schema.Value) error {
	t := s.Type
	wire := v.Wire()
	var key recordkey.Key
	ok, holder := false, "a record key"
	switch {
	case field == t.Schema.Primary:
		var err error
		key, err = t.PRK(wire)
		s.one, ok = &store.Lookup{PRK: key}, err == nil
	case slices.Contains(t.Secondary, field) && !t.Building.Has(field, schema.RoleSecondary):
		if wire, ok = t.Schema.Identifier(wire); ok {
			key, ok = t.SRK(field, wire)
		}
		s.one = &store.Lookup{SRKs: []recordkey.Key{key}}
	case slices.Contains(t.Indexed, field) && !t.Building.Has(field, schema.RoleIndexed):
		key, ok = t.IndexKey(field, wire)
		s.indexes, holder = append(s.indexes, key), "an index"
	case t.Building.Has(field, schema.RoleSecondary|schema.RoleIndexed):
		return errBuilding(field)
	default:
		return change.Invalid(field, "query", "neither an indexed nor a secondary field; fields to select by"+joinFields(t.Indexed, t.Secondary))
	}
	if !ok {
		return change.Invalid(field, "key", "not a value that "+holder+" can hold")
	}
	s.where[field] = wire
	return nil
}

// errBuilding returns the error for a query by an index that is still being built.
func errBuilding(name string) error {
	return fmt.Errorf("%w: of %s", store.ErrIndexBuilding, strconv.Quote(name))
}

// ByIndex reports whether the result depends on an index that may still lack entries.
func (s Selection) ByIndex() bool {
	return len(s.indexes) > 0 || s.field != "" || s.one != nil && !s.one.PRK.IsValid()
}

// DecidingIndex returns the index whose members are exactly the selected entries, or the zero Key
// if there is none.
func (s Selection) DecidingIndex() recordkey.Key {
	t := s.Type
	switch {
	case s.from != "" || s.one != nil || s.disabled != nil || s.skip > 0:
	case s.field == "" && len(s.indexes) == 1:
		return s.indexes[0]
	case s.field != "" && len(s.where)+len(s.indexes) == 0 && !s.order.Min.Set && !s.order.Max.Set &&
		t.Schema.ListsUnset() && !t.Building.PlacesUnset(s.field):
		return s.order.Key
	}
	return recordkey.Key{}
}

// Range returns the part of an ordered index whose members are exactly the selected entries. It
// reports false if there is none, or if it is the whole index.
func (s Selection) Range() (part store.Order, ok bool) {
	bounded := s.order.Min.Set || s.order.Max.Set
	unconditional := s.from == "" && s.disabled == nil && len(s.where)+len(s.indexes) == 0
	return s.order, bounded && unconditional
}

// SelectsAll reports whether every entry of the type is selected.
func (s Selection) SelectsAll() bool {
	return len(s.indexes) == 0 && s.from == "" && s.one == nil && s.disabled == nil && s.field == ""
}

// source returns the scan for the candidates of a selection: the smallest of its index sets, or all
// PRKs.
func (rd *Reader) source(ctx context.Context, s Selection) (store.Scan, error) {
	if len(s.indexes) == 0 {
		return store.Scan{Pattern: s.Type.Guard.Entries}, nil
	}
	sizes, err := rd.Engine.Cardinalities(ctx, s.indexes)
	if err != nil {
		return store.Scan{}, err
	}
	return store.Scan{Index: s.indexes[slices.Index(sizes, slices.Min(sizes))]}, nil
}

// candidates returns the next PRKs of a scan, and the cursor for the rest.
func (rd *Reader) candidates(ctx context.Context, s Selection, from store.Scan) ([]recordkey.Key, string, error) {
	keys, next, err := rd.Engine.Scan(ctx, from)
	return rd.scanned(s, from, keys), next, err
}

// scanned returns the PRKs among what a scan returned.
func (rd *Reader) scanned(s Selection, from store.Scan, keys []string) []recordkey.Key {
	if from.Index.IsValid() {
		for i := range keys {
			keys[i] = rd.NS.String() + keys[i]
		}
	}
	return rd.PRKs(s.Type, keys)
}

// filter returns the candidates that are entries of the type and match the selection. It drops
// index members whose entry is not live or has another value (I4, I5).
func (rd *Reader) filter(ctx context.Context, s Selection, candidates ...store.Lookup) ([]store.Found, error) {
	if len(candidates) == 0 {
		return nil, nil
	}
	if s.left != nil {
		*s.left -= len(candidates)
	}
	found, err := rd.FindMany(ctx, candidates)
	if err != nil {
		return nil, err
	}
	s.countRead(found)
	found = slices.DeleteFunc(found, func(f store.Found) bool {
		return f.Err == store.ErrNotFound || f.Err == nil && !s.matches(f.Record)
	})
	return rd.withMembers(ctx, s, found)
}

func lookups(prks []recordkey.Key) []store.Lookup {
	all := make([]store.Lookup, len(prks))
	for i, prk := range prks {
		all[i].PRK = prk
	}
	return all
}

func (s Selection) matches(r store.Record) bool {
	if s.disabled != nil && *s.disabled != (r.Fields[store.FieldDisabled] != "") {
		return false
	}
	for field, wire := range s.where {
		matches := r.HasWritten(field, wire)
		if slices.Contains(s.Type.Secondary, field) && !s.Type.Building.Has(field, schema.RoleSecondary) {
			matches = r.HasValue(field, wire)
		}
		if !matches {
			return false
		}
	}
	return true
}

// withMembers returns the entries whose sets have all members of the selection.
func (rd *Reader) withMembers(ctx context.Context, s Selection, found []store.Found) ([]store.Found, error) {
	if len(s.members) == 0 {
		return found, nil
	}
	var members []store.Member
	for _, f := range found {
		if f.Err != nil {
			continue
		}
		for _, m := range s.members {
			set, err := f.Record.Key.Tertiary(m.set)
			if err != nil {
				return nil, err
			}
			members = append(members, store.Member{Set: set, Value: m.value})
		}
	}
	has, err := rd.Engine.HasMembers(ctx, members, false)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(found, func(f store.Found) bool {
		if f.Err != nil {
			return false
		}
		hasAll := has[:len(s.members)] // the answers for this entry
		has = has[len(s.members):]
		return slices.Contains(hasAll, false)
	}), nil
}
