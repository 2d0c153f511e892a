package store

import (
	"hash/maphash"
	"math/bits"

	"golang.org/x/sync/errgroup"

	"github.com/coffeenode/userdb/recordkey"
)

// Needs are keys that creates need to be absent, as digests: of two keys with one digest the later only
// takes the longer way. The zero Needs is empty.
type Needs struct {
	slots []uint64 // 0: free; a digest stands in the first free one behind its place
	n     int
}

var needSeed = maphash.MakeSeed()

// Add notes the keys that a create needs, or that another change takes or gives back. It says whether none of
// them was noted before.
func (n *Needs) Add(c *Change) bool {
	if most := n.n + 1 + len(c.Claim) + len(c.Aside) + len(c.Release); 2*most > len(n.slots) {
		n.grow(most)
	}
	alone := n.add(digest(&c.Key))
	for _, keys := range [...][]recordkey.Key{c.Claim, c.Aside, c.Release} {
		for i := range keys {
			alone = n.add(digest(&keys[i])) && alone
		}
	}
	return alone
}

// Has says whether a key of a change was noted.
func (n *Needs) Has(c *Change) bool {
	var one Needs
	one.Add(c)
	return one.Meets(n)
}

func digest(k *recordkey.Key) uint64 { return max(1, maphash.Comparable(needSeed, *k)) }

// Clear forgets all.
func (n *Needs) Clear() {
	clear(n.slots)
	n.n = 0
}

// Meets says whether two sets have a key in common.
func (n *Needs) Meets(o *Needs) bool {
	if o.n == 0 {
		return false
	}
	for _, d := range n.slots {
		if d != 0 && o.slots[o.place(d)] == d {
			return true
		}
	}
	return false
}

// place is where a digest stands, or would stand.
func (n *Needs) place(d uint64) int {
	last := uint64(len(n.slots) - 1)
	i := d & last
	for n.slots[i] != 0 && n.slots[i] != d {
		i = (i + 1) & last
	}
	return int(i)
}

func (n *Needs) add(d uint64) (fresh bool) {
	i := n.place(d)
	if n.slots[i] == d {
		return false
	}
	n.slots[i] = d
	n.n++
	return true
}

// grow makes room, so that no more than half of it is taken.
func (n *Needs) grow(most int) {
	old := n.slots
	n.slots, n.n = make([]uint64, max(64, 1<<bits.Len(uint(2*most)))), 0
	for _, d := range old {
		if d != 0 {
			n.add(d)
		}
	}
}

// Each runs f for every change, many at a time, but for creates that need a key which one before them needs:
// they come last, in their order, so that the first is made.
func Each(cs []Change, atOnce int, f func(i int)) {
	var group errgroup.Group
	group.SetLimit(atOnce)
	var later []int
	var needs Needs
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
