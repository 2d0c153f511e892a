package store

import (
	"cmp"
	"context"
	"encoding/json"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coffeenode/userdb/recordkey"
)

// A Change is all that one verb does to one entry. Every key in it lies in the namespace of Key.
type Change struct {
	Key       recordkey.Key // the PRK
	Create    bool          // the entry must not be live; otherwise it must be, as Seen
	Fresh     bool          // of a create: no entry ever had the key, which is random
	Delete    bool          // leaves a tombstone; only Release, Unindex, Unrank and Drop go with it
	Mend      bool          // the entry may lack ~isa, if it has facets
	Seen      Seen          // what the entry was when it was read
	Set       []Facet
	Unset     []string
	Claim     []recordkey.Key // SRKs that shall name the entry
	Elsewhere []recordkey.Key // SRKs of the claimed values under the other secondary fields: no entry may hold them
	Release   []recordkey.Key // SRKs of values that go
	Index     []recordkey.Key // index sets to be in
	Unindex   []recordkey.Key // index sets to leave
	Rank      []Ranked        // places in ordered indexes to take
	Unrank    []Ranked        // and to leave
	Add       []Members       // tertiary records that are born with the entry
	Drop      []Container     // tertiary records that go with it, or before Add
	Tokens    Ending
	Note      Note
	Schema    Guard

	// So many replicas of each server that has records of the change must have it within ReplicaTime; 0: the change does not wait.
	Replicas    int
	ReplicaTime time.Duration
}

// A Ranked is a member of the ordered index Key, a sorted set of texts.
type Ranked struct {
	Key    recordkey.Key
	Member string
	Facet  Facet // the facet that gives the place
}

// Members are put into the tertiary record Key; Index holds, for an indexed set, one index key a member.
type Members struct {
	Key    recordkey.Key
	Kind   string // set (or ""), list, zset, hash or string
	Values []string
	Index  []recordkey.Key
}

// commands put values into records.
var commands = map[string]string{"": "SADD", "set": "SADD", "list": "RPUSH", "zset": "ZADD", "hash": "HSET", "string": "SET"}

// Command is the Redis command that puts the values into the record.
func (m Members) Command() string { return commands[m.Kind] }

// Replaces reports whether the change puts members in place of what is there: always, but in the case of a
// set that is not dropped in the same change.
func (c Change) Replaces(m Members) bool {
	return m.Kind != "" && m.Kind != "set" ||
		slices.ContainsFunc(c.Drop, func(d Container) bool { return d.Key == m.Key })
}

// Canonicals returns, for each canonical value that goes because its facet is written in that form
// now, its field with the new value. It is written with the facet, and removed after that: if the
// server refuses the removal, it only repeats the facet, and nobody else can take the value (I1,
// I2).
func (c *Change) Canonicals() (all []Facet) {
	for _, field := range c.Unset {
		of, is := strings.CutPrefix(field, FieldSKV(""))
		if !is {
			continue
		}
		for _, f := range c.Set {
			if f.Field == of {
				all = append(all, Facet{field, f.Wire})
			}
		}
	}
	return all
}

// A Container is a tertiary record; Indexed says that its members stand in index sets.
type Container struct {
	Key     recordkey.Key
	Indexed bool
}

// Needs are the keys that changes take or give back, and that creates need to be absent. They are kept as digests, an
// eighth of their size: where two keys have one digest, the later change only goes by itself.
type Needs map[uint64]struct{}

var needSeed = maphash.MakeSeed()

// Add notes the keys of a change, and reports whether none of them was noted before.
func (n Needs) Add(c *Change) bool {
	before := len(n)
	n[maphash.Comparable(needSeed, c.Key)] = struct{}{}
	for _, keys := range [...][]recordkey.Key{c.Claim, c.Elsewhere, c.Release} {
		for _, k := range keys {
			n[maphash.Comparable(needSeed, k)] = struct{}{}
		}
	}
	return len(n) == before+1+len(c.Claim)+len(c.Elsewhere)+len(c.Release)
}

// Meets reports whether two sets have a key in common.
func (n Needs) Meets(o Needs) bool {
	for k := range n {
		if _, is := o[k]; is {
			return true
		}
	}
	return false
}

// Each runs f for every change, many at a time, but for creates that need a key which one before them needs:
// they come last, in their order, so that the first is made.
func Each(cs []Change, atOnce int, f func(i int)) {
	var group errgroup.Group
	group.SetLimit(atOnce)
	var later []int
	needs := Needs{}
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

// Fields of the record that keeps a schema, ~/schema/TYPE.
const (
	FieldFingerprint = "fingerprint"
	FieldSchema      = "schema"
	FieldNext        = "next" // see change.FieldNext
)

// A Guard is compared with what ~/schema/TYPE says, in every change.
type Guard struct {
	Key         recordkey.Key
	Types       recordkey.Key // the set of types that have a schema stored
	Fingerprint string
	JSON        string          // the schema itself, stored beside the fingerprint by the first change
	Tertiary    map[string]bool // names of the tertiary records that the schema declares; true for indexed ones
	Exact       bool            // may be stored where entries exist that no fingerprint describes
	Entries     string          // the SCAN pattern of such entries
}

// Containers returns the tertiary records of an entry that the schema declares, by name. What no
// key can name is left out.
func (g Guard) Containers(prk recordkey.Key) []Container {
	if len(g.Tertiary) == 0 {
		return nil
	}
	all := make([]Container, 0, len(g.Tertiary))
	for _, name := range slices.Sorted(maps.Keys(g.Tertiary)) {
		if key, err := prk.Tertiary(name); err == nil {
			all = append(all, Container{Key: key, Indexed: g.Tertiary[name]})
		}
	}
	return all
}

// Before returns the records that an earlier entry at the key of a create may have left, as far as
// the schema declares them: none of them is the new one's.
func (c *Change) Before() []Container {
	all := c.Schema.Containers(c.Key)
	if counters, err := CountersKey(c.Key); err == nil {
		all = append(all, Container{Key: counters})
	}
	return all
}

// NoEntries answers a MismatchError where entries match the pattern of a Guard: entries that no stored
// schema describes.
func NoEntries(ctx context.Context, e Engine, pattern string) error {
	for keys, err := range ScanAll(ctx, e, Scan{Pattern: pattern, Count: 1000}) {
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

// A delete drops the tertiary records of every name that any program ever wrote under: programs whose schemas lay
// records out in the same way may declare others. ~/schema/TYPE has a field for each such name, which is there
// before the first record, or with it.

// fieldTertiary is what such a field begins with; the name follows, escaped.
const fieldTertiary = "tertiary:"

// Named are those fields for the names that the guard's own schema declares.
func (g Guard) Named() []string {
	fields := slices.Sorted(maps.Keys(g.Tertiary))
	for i, name := range fields {
		fields[i] = fieldTertiary + recordkey.Escape(name)
	}
	return fields
}

// Indexes reports whether the schema in the fields of ~/schema/TYPE, or the one that records are being brought to, indexes a set.
func Indexes(fields map[string]string, name string) bool {
	var declared struct {
		Tertiary map[string]struct{ Indexed bool } `json:"tertiary"`
	}
	_ = json.Unmarshal([]byte(cmp.Or(fields[FieldNext], fields[FieldSchema])), &declared)
	return declared.Tertiary[name].Indexed
}

// NamedIn are the names of tertiary records that the fields of ~/schema/TYPE have.
func NamedIn(fields map[string]string) map[string]bool {
	names := map[string]bool{}
	for field := range fields {
		escaped, is := strings.CutPrefix(field, fieldTertiary)
		if name, err := recordkey.Unescape(escaped); is && err == nil {
			names[name] = true
		}
	}
	return names
}

// Stored is what a delete must know of ~/schema/TYPE.
type Stored struct {
	JSON  string   // the schema as it is stored
	Named []string // fields of names; others are passed over
}

// Drops are the tertiary records of an entry that a delete must drop besides those of a change: of the names that the stored
// schema declares, as far as it can be read, and of those that were written under. None of them is indexed: in that, all who
// may write agree.
func (s Stored) Drops(c Change) []Container {
	var declared struct {
		Tertiary map[string]json.RawMessage `json:"tertiary"`
	}
	_ = json.Unmarshal([]byte(s.JSON), &declared)
	names := slices.Collect(maps.Keys(declared.Tertiary))
	for _, field := range s.Named {
		escaped, is := strings.CutPrefix(field, fieldTertiary)
		if name, err := recordkey.Unescape(escaped); is && err == nil {
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
