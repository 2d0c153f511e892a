package userdb_test

import (
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/recordkey"
)

func (x *machine) bio(t *rapid.T) {
	h, uid := x.hint(t)
	text, a := x.users.String(h, "bio"), x.m.accounts[uid]
	value := rapid.SampledFrom(append([]string{""}, values...)).Draw(t, "text")
	remove := rapid.Bool().Draw(t, "remove")
	var err error
	var gone bool
	if remove {
		gone, err = text.Remove(x.ctx)
	} else {
		err = text.Put(x.ctx, value)
	}
	if !x.tertiary(t, uid, err) {
		return
	}
	if remove && gone != (a.bio != nil) {
		t.Fatalf("removing the bio: got %v, want %v", gone, a.bio != nil)
	}
	if a.bio = &value; remove {
		a.bio = nil
	}
	got, has, err := text.Get(x.ctx)
	if err != nil || has == remove || has && got != value {
		t.Fatalf("bio: got %q, %v, %v; want %q", got, has, err, value)
	}
}

// keys wants all record keys of the view, and those of what lies in it.
func (x *machine) keys(t *rapid.T) {
	kind := rapid.SampledFrom([]string{"*", "user/uid:*", "user/name:*", "user/*/~prks", "order/*"}).Draw(t, "pattern")
	var got []string
	for k, err := range x.db.Keys(x.ctx, kind) {
		must(t, err)
		if !strings.HasPrefix(k, "~") {
			got = append(got, k)
		}
	}
	slices.Sort(got)
	var want []string
	for _, k := range append(slices.Collect(maps.Keys(x.m.records())), x.orders()...) {
		if k = strings.TrimPrefix(k, x.m.ns.String()); matches(kind, k) {
			want = append(want, k)
		}
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("keys %s: got %q, want %q", kind, got, want)
	}
}

// orders are the keys of the order that lies beside the users.
func (x *machine) orders() []string {
	return []string{x.m.ns.String() + "order/id:u1", x.m.ns.String() + "order/code:ann/~prk"}
}

// matches knows the few patterns that the machine uses: text with at most one star.
func matches(pattern, key string) bool {
	before, after, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == key
	}
	return len(key) >= len(before)+len(after) && strings.HasPrefix(key, before) && strings.HasSuffix(key, after)
}

// removeKeys removes records by pattern: entries go whole, tags with their index members, and what
// belongs to a live entry stays.
func (x *machine) removeKeys(t *rapid.T) {
	uid := rapid.SampledFrom(uids).Draw(t, "uid")
	prk, err := recordkey.PRK("user", "uid", uid)
	must(t, err)
	a, want := x.m.accounts[uid], 0
	exact := recordkey.Glob(prk.String())
	patterns := map[string]func(){
		exact: func() {
			if a != nil {
				delete(x.m.accounts, uid)
				want = 1
			}
		},
		exact + "/tags": func() {
			if a != nil && len(a.tags) > 0 {
				clear(a.tags)
				want = 1
			}
		},
		exact + "/notes": func() {
			if a != nil && len(a.notes) > 0 {
				a.notes = nil
				want = 1
			}
		},
		"user/name:*/~prk": func() {}, "user/job:*": func() {}, "user/tags:*/~prks": func() {}, "~/*": func() {},
		"": func() {},
	}
	pattern := rapid.SampledFrom(slices.Sorted(maps.Keys(patterns))).Draw(t, "pattern")
	patterns[pattern]()
	if got, err := x.db.RemoveKeys(x.ctx, pattern); err != nil || got != want {
		t.Fatalf("removing %q: got %d, %v; want %d", pattern, got, err, want)
	}
}
