package embedded

import (
	"slices"
	"strings"

	"github.com/tidwall/btree"
)

// maxSmall is the number of elements up to which a table is a sorted slice. Most records have
// fewer, and a slice takes half the memory of a tree. Tests change it.
var maxSmall = 64

// A table maps texts to values and keeps them sorted. A copy shares the elements until one of the
// two changes.
type table[V any] struct {
	small  []pair[V]
	shared bool // a copy also uses small
	big    *btree.Map[string, V]
}

type pair[V any] struct {
	key   string
	value V
}

func (t *table[V]) len() int {
	if t.big != nil {
		return t.big.Len()
	}
	return len(t.small)
}

func (t *table[V]) find(key string) (int, bool) {
	return slices.BinarySearchFunc(t.small, key, func(p pair[V], key string) int { return strings.Compare(p.key, key) })
}

func (t *table[V]) get(key string) (value V, found bool) {
	if t.big != nil {
		return t.big.Get(key)
	}
	i, found := t.find(key)
	if found {
		value = t.small[i].value
	}
	return value, found
}

func (t *table[V]) set(key string, value V) {
	if t.big != nil {
		t.big.Set(key, value)
		return
	}
	t.own()
	i, found := t.find(key)
	switch {
	case found:
		t.small[i].value = value
	case len(t.small) < maxSmall:
		t.small = slices.Insert(t.small, i, pair[V]{key, value})
	default:
		t.big = btree.NewMap[string, V](treeDegree)
		for _, p := range t.small {
			t.big.Load(p.key, p.value)
		}
		t.small = nil
		t.big.Set(key, value)
	}
}

func (t *table[V]) delete(key string) {
	if t.big != nil {
		t.big.Delete(key)
		return
	}
	if i, found := t.find(key); found {
		t.own()
		t.small = slices.Delete(t.small, i, i+1)
	}
}

// own makes small belong to t alone.
func (t *table[V]) own() {
	if t.shared {
		t.small, t.shared = slices.Clone(t.small), false
	}
}

// ascend calls yield for each element, beginning at the key from, until yield returns false.
func (t *table[V]) ascend(from string, yield func(key string, value V) bool) {
	if t.big != nil {
		t.big.Ascend(from, yield)
		return
	}
	i, _ := t.find(from)
	for _, p := range t.small[i:] {
		if !yield(p.key, p.value) {
			return
		}
	}
}

// descend calls yield for each element, from the last to the first, until yield returns false.
func (t *table[V]) descend(yield func(key string, value V) bool) {
	if t.big != nil {
		t.big.Reverse(yield)
		return
	}
	for _, p := range slices.Backward(t.small) {
		if !yield(p.key, p.value) {
			return
		}
	}
}

// descendFrom does what descend does, beginning with the last element whose key is not after from.
func (t *table[V]) descendFrom(from string, yield func(key string, value V) bool) {
	if t.big != nil {
		t.big.Descend(from, yield)
		return
	}
	i, found := t.find(from)
	if found {
		i++
	}
	for _, p := range slices.Backward(t.small[:i]) {
		if !yield(p.key, p.value) {
			return
		}
	}
}

// keyAt returns the key of the element at an index.
func (t *table[V]) keyAt(i int) string {
	if t.big == nil {
		return t.small[i].key
	}
	key, _, _ := t.big.GetAt(i)
	return key
}

// slice returns a copy of the elements with indexes from first up to, but not including, last.
func (t *table[V]) slice(first, last int) []pair[V] {
	if t.big == nil {
		return slices.Clone(t.small[first:last])
	}
	pairs := make([]pair[V], 0, last-first)
	if first == last {
		return pairs
	}
	from, _, _ := t.big.GetAt(first)
	t.big.Ascend(from, func(key string, value V) bool {
		pairs = append(pairs, pair[V]{key, value})
		return len(pairs) < last-first
	})
	return pairs
}

func (t *table[V]) keys() []string {
	keys := make([]string, 0, t.len())
	t.ascend("", func(key string, _ V) bool {
		keys = append(keys, key)
		return true
	})
	return keys
}

func (t *table[V]) copy() *table[V] {
	if t.big != nil {
		return &table[V]{big: t.big.Copy()}
	}
	t.shared = true
	return &table[V]{small: t.small, shared: true}
}

// treeDegree is half the number of elements of a node. Every node on the way to a changed element
// is copied once for each write to the file.
const treeDegree = 16
