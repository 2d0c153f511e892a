package store

import (
	"hash/maphash"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coffeenode/userdb/recordkey"
)

// A Change is all that one verb does to one entry. Every key in it lies in the namespace of Key.
type Change struct {
	Key       recordkey.Key // the PRK
	Create    bool          // the entry must not be live; otherwise it must be, as Seen
	Delete    bool          // leaves a tombstone; only Release, Unindex and Drop go with it
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
	Schema    Guard

	// So many replicas of each server that has records of the change must have it within ReplicaTime; 0: nobody waits.
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

// Command is the Redis command that puts the values into the record.
func (m Members) Command() string {
	switch m.Kind {
	case "list":
		return "RPUSH"
	case "zset":
		return "ZADD"
	case "hash":
		return "HSET"
	case "string":
		return "SET"
	}
	return "SADD"
}

// Replaces reports whether the change puts members in place of what is there: always, but in the case of a
// set that is not dropped in the same change.
func (c Change) Replaces(m Members) bool {
	return m.Kind != "" && m.Kind != "set" ||
		slices.ContainsFunc(c.Drop, func(d Container) bool { return d.Key == m.Key })
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
