package store

import (
	"slices"
	"strconv"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/recordkey"
)

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

// TestNeeds compares Needs with a map.
func TestNeeds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		needs := [2]KeySet{{}, {}}
		want := [2]map[string]bool{{}, {}}
		for range rapid.IntRange(0, 200).Draw(t, "creates") {
			i := rapid.IntRange(0, 1).Draw(t, "set")
			c := createOf(t, rapid.IntRange(0, 300).Draw(t, "uid"), rapid.SliceOfN(rapid.IntRange(0, 500), 0, 5).Draw(t, "values")...)
			alone := true
			for _, k := range append(slices.Concat(c.Claim, c.Elsewhere), c.Key) {
				alone = alone && !want[i][k.String()]
				want[i][k.String()] = true
			}
			// A create that names a value twice needs it twice.
			if twice := len(slices.Compact(slices.Sorted(keyTexts(c)))) < len(c.Claim)+len(c.Elsewhere); needs[i].Add(c) != (alone && !twice) {
				t.Fatalf("%v: alone %v, twice %v", c, alone, twice)
			}
		}
		meet := false
		for k := range want[0] {
			meet = meet || want[1][k]
		}
		if needs[0].Intersects(needs[1]) != meet || needs[1].Intersects(needs[0]) != meet {
			t.Fatalf("they meet: %v", meet)
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

// TestEach checks that the first of several conflicting creates runs first.
func TestEach(t *testing.T) {
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
			t.Fatalf("%d calls for %d changes", calls, len(cs))
		}
		for i := range slices.Backward(cs) {
			if first, has := owner[cs[i].Claim[0]]; cs[i].Create && (!has || first > i) {
				t.Fatalf("%v is given to %d, not to %d", cs[i].Claim[0], first, i)
			}
		}
	})
}
