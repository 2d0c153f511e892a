package store

import (
	"slices"
	"strconv"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/recordkey"
)

// createOf returns a create that uses the values alternately: it claims every other one, and
// requires that no entry has the rest.
func createOf(t rapid.TB, uid int, values ...int) *Change {
	prk, err := recordkey.PRK("user", "uid", strconv.Itoa(uid))
	if err != nil {
		t.Fatal(err)
	}
	c := &Change{Key: prk, Create: true}
	for i, v := range values {
		srk, err := recordkey.SRK("user", "name", strconv.Itoa(v))
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			c.Claim = append(c.Claim, srk)
		} else {
			c.Elsewhere = append(c.Elsewhere, srk)
		}
	}
	return c
}

// TestKeySet compares a KeySet, which holds digests, with a map of the keys themselves.
func TestKeySet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sets := [2]KeySet{{}, {}}
		want := [2]map[string]bool{{}, {}}
		for range rapid.IntRange(0, 200).Draw(t, "creates") {
			i := rapid.IntRange(0, 1).Draw(t, "set")
			c := createOf(t, rapid.IntRange(0, 300).Draw(t, "uid"), rapid.SliceOfN(rapid.IntRange(0, 500), 0, 5).Draw(t, "values")...)
			allNew := true
			for _, k := range append(slices.Concat(c.Claim, c.Elsewhere), c.Key) {
				allNew = allNew && !want[i][k.String()]
				want[i][k.String()] = true
			}
			// If a create names a value twice, the second one is not new.
			twice := len(slices.Compact(slices.Sorted(keyTexts(c)))) < len(c.Claim)+len(c.Elsewhere)
			if got := sets[i].Add(c); got != (allNew && !twice) {
				t.Fatalf("Add(%v) = %v, want %v", c, got, allNew && !twice)
			}
		}
		common := false
		for k := range want[0] {
			common = common || want[1][k]
		}
		if sets[0].Intersects(sets[1]) != common || sets[1].Intersects(sets[0]) != common {
			t.Fatalf("Intersects returns %v and, the other way, %v; want %v", sets[0].Intersects(sets[1]), sets[1].Intersects(sets[0]), common)
		}
	})
}

func keyTexts(c *Change) func(func(string) bool) {
	return func(yield func(string) bool) {
		for _, k := range slices.Concat(c.Claim, c.Elsewhere) {
			if !yield(k.String()) {
				return
			}
		}
	}
}

// TestApplyEach checks that the first of several conflicting creates runs first.
func TestApplyEach(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var cs []Change
		for i := range rapid.IntRange(0, 40).Draw(t, "creates") {
			c := *createOf(t, i, rapid.IntRange(0, 20).Draw(t, "value"))
			c.Create = rapid.Bool().Draw(t, "create")
			cs = append(cs, c)
		}
		var mu sync.Mutex
		owner, calls := map[recordkey.Key]int{}, 0
		ApplyEach(cs, 4, func(i int) {
			mu.Lock()
			defer mu.Unlock()
			if calls++; !cs[i].Create {
				return
			}
			if _, taken := owner[cs[i].Claim[0]]; !taken {
				owner[cs[i].Claim[0]] = i
			}
		})
		if calls != len(cs) {
			t.Fatalf("got %d calls, want %d, one for each change", calls, len(cs))
		}
		for i := range slices.Backward(cs) {
			if first, has := owner[cs[i].Claim[0]]; cs[i].Create && (!has || first > i) {
				t.Fatalf("change %d took %v first, want change %d", first, cs[i].Claim[0], i)
			}
		}
	})
}

// TestCheckFields checks that CheckFields refuses a change that sets and unsets the same field.
func TestCheckFields(t *testing.T) {
	set := []Facet{{Field: "a", Wire: "1"}, {Field: "b", Wire: ""}}
	for _, tt := range []struct {
		unset []string
		both  bool
	}{{nil, false}, {[]string{"c"}, false}, {[]string{"c", "b"}, true}, {[]string{"a"}, true}} {
		c := Change{Set: set, Unset: tt.unset}
		if err := c.CheckFields(); (err != nil) != tt.both {
			t.Errorf("unset %q: got error %v, want an error: %v", tt.unset, err, tt.both)
		}
	}
}
