package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coffeenode/userdb/internal/store/history"
	"github.com/coffeenode/userdb/internal/store/session"
	"github.com/coffeenode/userdb/internal/store/throttle"
	"github.com/coffeenode/userdb/internal/store/token"
	"github.com/coffeenode/userdb/recordkey"
)

// A Change describes everything that one operation, such as a create, does to one entry. All its
// keys are in the namespace of Key.
type Change struct {
	Key recordkey.Key // the PRK
	// Create requires that the entry is not live. Any other change requires it to be as Expected
	// and, without Repair, to be live.
	Create bool
	Fresh  bool // for a create: no entry ever had the key, because it is random
	// Delete leaves a tombstone. Of the lists below, it uses only Release, Hold, Unindex, Unrank,
	// Drop, and Set for FieldRetired and FieldHeld.
	Delete   bool
	Repair   bool    // the entry may lack ~isa if it has facets
	Expected Version // the state of the entry when it was read
	Set      []Facet
	Unset    []string
	Claim    []recordkey.Key // SRKs that must name the entry afterwards
	// Elsewhere holds the SRKs of the claimed values under the other secondary fields. No other
	// entry may have or hold one of these values.
	Elsewhere []recordkey.Key
	Release   []recordkey.Key // SRKs of values that the entry gives up and that become free
	Hold      []HeldKey       // SRKs of values that the entry gives up and that are held
	Index     []recordkey.Key // index sets to join
	Unindex   []recordkey.Key // index sets to leave
	Rank      []Ranked        // positions in ordered indexes to take
	Unrank    []Ranked        // positions in ordered indexes to leave
	Add       []Members       // tertiary records to write
	Drop      []Container     // tertiary records to delete, before Add is written
	Tokens    token.Ending
	Note      history.Note
	Schema    Guard

	// Replicas is how many replicas of each server that holds records of the change must confirm it
	// within ReplicaTime. If it is 0, the change does not wait.
	Replicas    int
	ReplicaTime time.Duration
}

// A Ranked is a member of the ordered index Key, a sorted set of texts.
type Ranked struct {
	Key    recordkey.Key
	Member string
	Facet  Facet // the facet that determines the position
	Unset  bool  // the entry has the position because it lacks Facet.Field; Facet.Wire is ""
}

// Members holds values for the tertiary record Key. For an indexed set, Index holds one index key
// for each member.
type Members struct {
	Key    recordkey.Key
	Kind   string // set (or ""), list, zset, hash or string
	Values []string
	Index  []recordkey.Key
}

// writeCommands maps a kind of record to the Redis command that writes its values.
var writeCommands = map[string]string{"": "SADD", "set": "SADD", "list": "RPUSH", "zset": "ZADD", "hash": "HSET", "string": "SET"}

// Command returns the Redis command that writes the values into the record.
func (m Members) Command() string { return writeCommands[m.Kind] }

// Replaces reports whether m replaces the existing record. A set is not replaced, but keeps its
// members, unless the same change drops it.
func (c Change) Replaces(m Members) bool {
	return m.Kind != "" && m.Kind != "set" ||
		slices.ContainsFunc(c.Drop, func(d Container) bool { return d.Key == m.Key })
}

// Sets reports whether the change sets a field.
func (c *Change) Sets(field string) bool {
	return slices.ContainsFunc(c.Set, func(f Facet) bool { return f.Field == field })
}

// RedundantCanonicals returns the fields of canonical values (FieldSKV) that the change removes
// because their facets are now in canonical form, each with the new value of its facet. Such a
// field is written together with the facet and then removed. If the server refuses the removal, the
// field repeats the facet, and nobody else can take the value (I1, I2).
func (c *Change) RedundantCanonicals() (all []Facet) {
	for _, field := range c.Unset {
		facet, ok := strings.CutPrefix(field, FieldSKV(""))
		if !ok {
			continue
		}
		for _, f := range c.Set {
			if f.Field == facet {
				all = append(all, Facet{field, f.Wire})
			}
		}
	}
	return all
}

// OnlyDisables reports whether the change disables the entry and does nothing else, apart from
// ending the entry's sessions and tokens. Engines make such a change even if a server has no memory
// left, because it takes access away and needs next to no memory.
func (c *Change) OnlyDisables() bool {
	if c.Create || c.Delete || c.Repair ||
		len(c.Unset)+len(c.Claim)+len(c.Release)+len(c.Hold)+len(c.Index)+len(c.Unindex)+len(c.Rank)+len(c.Unrank)+len(c.Add)+len(c.Drop) > 0 {
		return false
	}
	disables := false
	for _, f := range c.Set {
		if f.Field != FieldDisabled && f.Field != session.FieldEpoch {
			return false
		}
		disables = disables || f.Field == FieldDisabled
	}
	return disables
}

// CheckFields returns an error if the change sets and unsets the same field. Engines would differ
// in which of the two wins.
func (c *Change) CheckFields() error {
	if len(c.Unset) == 0 || len(c.Set) == 0 {
		return nil
	}
	unset := make(map[string]struct{}, len(c.Unset))
	for _, field := range c.Unset {
		unset[field] = struct{}{}
	}
	for _, f := range c.Set {
		if _, both := unset[f.Field]; both {
			return errors.New("a change sets and unsets the same field")
		}
	}
	return nil
}

// A Container identifies a tertiary record. Indexed reports whether its members are in index sets.
// Silent says that histories and events do not mention that a change drops the record, because it
// has no members.
type Container struct {
	Key     recordkey.Key
	Indexed bool
	Silent  bool
}

// A KeySet holds the PRKs and SRKs that changes take, give up, or require to be absent. To save
// memory, it stores a digest of each key. If two keys share a digest, the later change runs on its
// own.
type KeySet map[uint64]struct{}

var keySeed = maphash.MakeSeed()

// Add adds the keys of a change, and reports whether all of them are new and distinct.
func (s KeySet) Add(c *Change) bool {
	before := len(s)
	s[maphash.Comparable(keySeed, c.Key)] = struct{}{}
	for _, keys := range [...][]recordkey.Key{c.Claim, c.Elsewhere, c.Release} {
		for _, k := range keys {
			s[maphash.Comparable(keySeed, k)] = struct{}{}
		}
	}
	return len(s) == before+1+len(c.Claim)+len(c.Elsewhere)+len(c.Release)
}

// Intersects reports whether two sets have a key in common.
func (s KeySet) Intersects(other KeySet) bool {
	for k := range s {
		if _, ok := other[k]; ok {
			return true
		}
	}
	return false
}

// ApplyEach calls f with the index of every change, and makes up to atOnce calls at a time. Creates
// that need a key of an earlier create run last, one by one in order, so that the first of them
// wins.
func ApplyEach(cs []Change, atOnce int, f func(i int)) {
	var group errgroup.Group
	group.SetLimit(atOnce)
	var later []int
	needs := KeySet{}
	for i := range cs {
		if cs[i].Create && !needs.Add(&cs[i]) {
			later = append(later, i)
			continue
		}
		group.Go(func() error { f(i); return nil })
	}
	_ = group.Wait()
	for _, i := range later {
		f(i)
	}
}

// Fields of ~/schema/TYPE, the record that holds a schema.
const (
	FieldFingerprint = "fingerprint"
	FieldSchema      = "schema"
	FieldNext        = "next" // see change.FieldNext
)

// A Guard describes the schema that ~/schema/TYPE must hold. Every change checks it.
type Guard struct {
	Key         recordkey.Key
	Types       recordkey.Key // the set of types whose schema is stored
	Fingerprint string
	// JSON is the schema itself. The first change stores it beside the fingerprint.
	JSON string
	// Tertiary maps the name of each tertiary record that the schema declares to whether it is
	// indexed.
	Tertiary map[string]bool
	// MayStore allows the first schema to be stored even if entries already exist. It is set for
	// the fold "exact" without ordered fields, and for a namespace that no other program writes.
	// Otherwise, the schema is stored only after a scan has found no entries.
	MayStore bool
	// Entries is the pattern of the keys that the scan visits.
	Entries string
}

// Containers returns the tertiary records of an entry that the schema declares, ordered by name. It
// leaves out names that cannot be part of a key.
func (g Guard) Containers(prk recordkey.Key) []Container {
	if len(g.Tertiary) == 0 {
		return nil
	}
	all := make([]Container, 0, len(g.Tertiary))
	for name, indexed := range g.Tertiary {
		if key, err := prk.Tertiary(name); err == nil {
			all = append(all, Container{Key: key, Indexed: indexed})
		}
	}
	slices.SortFunc(all, func(a, b Container) int { return strings.Compare(a.Key.Name(), b.Key.Name()) })
	return all
}

// Leftovers returns the records that an earlier entry with the key of a create may have left
// behind: those that the schema declares, and the counters of logins. They do not belong to the new
// entry.
func (c *Change) Leftovers() []Container {
	all := c.Schema.Containers(c.Key)
	if counters, err := throttle.Key(c.Key); err == nil {
		all = append(all, Container{Key: counters})
	}
	return all
}

// CheckNoEntries returns a MismatchError if the key of any entry, or a key that cannot be parsed,
// matches pattern, which is the Entries of a Guard. Callers use it before they store the first
// schema, because no stored schema describes such an entry.
func CheckNoEntries(ctx context.Context, e Indexes, pattern string) error {
	for keys, err := range e.ScanAll(ctx, Scan{Pattern: pattern, Count: 5000}) {
		if err != nil {
			return err
		}
		for _, k := range keys {
			if key, err := recordkey.Parse(k); err != nil || key.Kind() == recordkey.KindPRK {
				return &MismatchError{}
			}
		}
	}
	return nil
}

// A delete drops the tertiary records of every name that any program ever used, because programs
// whose schemas have the same fingerprint may declare different names. ~/schema/TYPE has a field
// for each name, written before the first record of that name or together with it.

// tertiaryPrefix is the prefix of such a field. The escaped name follows.
const tertiaryPrefix = "tertiary:"

// TertiaryFields returns the fields for the names that the guard's own schema declares.
func (g Guard) TertiaryFields() []string {
	fields := slices.Sorted(maps.Keys(g.Tertiary))
	for i, name := range fields {
		fields[i] = tertiaryPrefix + recordkey.Escape(name)
	}
	return fields
}

// IsIndexed reports whether a set is indexed under the schema in the fields of ~/schema/TYPE or,
// during a schema change, under the next one.
func IsIndexed(fields map[string]string, name string) bool {
	var declared struct {
		Tertiary map[string]struct{ Indexed bool } `json:"tertiary"`
	}
	_ = json.Unmarshal([]byte(cmp.Or(fields[FieldNext], fields[FieldSchema])), &declared)
	return declared.Tertiary[name].Indexed
}

// TertiaryNames returns the names of tertiary records that the fields of ~/schema/TYPE contain.
func TertiaryNames(fields map[string]string) map[string]bool {
	names := map[string]bool{}
	for field := range fields {
		escaped, ok := strings.CutPrefix(field, tertiaryPrefix)
		if name, err := recordkey.Unescape(escaped); ok && err == nil {
			names[name] = true
		}
	}
	return names
}

// StoredSchema holds the parts of ~/schema/TYPE that a delete needs.
type StoredSchema struct {
	JSON   string   // the stored schema
	Fields []string // names of the record's fields; only those with tertiaryPrefix matter
}

// MoreDrops returns the tertiary records that a delete must drop in addition to those of the
// change. It covers every name that the stored schema declares, if that schema can be parsed, and
// every name that was ever used. None of these records is indexed, because all programs that may
// write agree on what is indexed.
func (s StoredSchema) MoreDrops(c Change) []Container {
	var declared struct {
		Tertiary map[string]json.RawMessage `json:"tertiary"`
	}
	_ = json.Unmarshal([]byte(s.JSON), &declared)
	names := slices.Collect(maps.Keys(declared.Tertiary))
	for _, field := range s.Fields {
		escaped, ok := strings.CutPrefix(field, tertiaryPrefix)
		if name, err := recordkey.Unescape(escaped); ok && err == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var more []Container
	for _, name := range slices.Compact(names) {
		key, err := c.Key.Tertiary(name)
		if err == nil && !slices.ContainsFunc(c.Drop, func(d Container) bool { return d.Key == key }) {
			more = append(more, Container{Key: key})
		}
	}
	return more
}
