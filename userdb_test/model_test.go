package userdb_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/maintain/inspect"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// A model holds the expected content of a store, in plain maps.
type model struct {
	ns       recordkey.Namespace
	fold     schema.Fold
	accounts map[string]*account // by UID
}

type account struct {
	rev      string
	facets   map[string]string // including the UID
	tags     map[string]bool
	notes    []string
	scores   map[string]float64
	settings map[string]string
	bio      *string
}

// There are few values, and many of them have the same canonical form, so that they collide.
var (
	secondaries = []string{"email", "name", "nick"}
	uids        = []string{"u1", "u2", "u/3 {x}", "ann"}
	jobs        = []string{"Cook", "cook", "C:k +"}
	tags        = []string{"a", "A", "b/c *", "ann"}
	folded      = map[string]string{ // the values and their case folding, written by hand
		"ann": "ann", "Ann": "ann", " ANN ": "ann", "ａｎｎ": "ann", "bob": "bob", "BOB": "bob",
		"a  b": "a b", "A b": "a b", "u1": "u1", "x/~prk": "x/~prk", "*": "*", "straße": "strasse",
	}
	values = slices.Sorted(maps.Keys(folded))
)

func (m *model) canonical(value string) string {
	if m.fold == schema.FoldExact {
		return value
	}
	return folded[value]
}

// owner returns the UID of the account that has a value in one of the fields, or "" if none has.
func (m *model) owner(value string, fields ...string) string {
	for uid, a := range m.accounts {
		for _, f := range fields {
			if v, has := a.facets[f]; has && m.canonical(v) == m.canonical(value) {
				return uid
			}
		}
	}
	return ""
}

// takenFields returns the fields whose values belong to accounts other than uid.
func (m *model) takenFields(uid string, facets map[string]string) []string {
	var fields []string
	for _, f := range secondaries {
		v, has := facets[f]
		if !has {
			continue
		}
		if owner := m.owner(v, secondaries...); owner != "" && owner != uid {
			fields = append(fields, f)
		}
	}
	return fields
}

// records returns all records that the store must have, except tombstones and the store's own.
func (m *model) records() map[string]string {
	all := map[string]record{}
	for uid, a := range m.accounts {
		prk, err := recordkey.PRK("user", "uid", uid)
		if err != nil {
			panic(err)
		}
		text := prk.String()
		fields := maps.Clone(a.facets)
		fields["~isa"], fields["~prk"] = "user", text
		for _, f := range secondaries {
			v, has := a.facets[f]
			if !has {
				continue
			}
			if c := m.canonical(v); c != v {
				fields["~skv:"+f] = c
			}
			srk, err := recordkey.SRK("user", f, m.canonical(v))
			if err != nil {
				panic(err)
			}
			all[srk.In(m.ns).String()] = record{kind: "string", text: text}
		}
		all[prk.In(m.ns).String()] = record{kind: "hash", fields: fields}
		m.index(all, text, "job", a.facets["job"])
		for tag := range a.tags {
			m.index(all, text, "tags", tag)
		}
		m.tertiary(all, prk.In(m.ns), a)
	}
	return formatRecords(all, "")
}

func (m *model) index(all map[string]record, prk, field, value string) {
	if value == "" {
		return
	}
	key, err := recordkey.Index("user", field, value)
	if err != nil {
		panic(err)
	}
	r := all[key.In(m.ns).String()]
	r.kind = "set"
	r.items = slices.Sorted(slices.Values(append(r.items, prk)))
	all[key.In(m.ns).String()] = r
}

func (m *model) tertiary(all map[string]record, prk recordkey.Key, a *account) {
	put := func(name string, r record) {
		key, err := prk.Tertiary(name)
		if err != nil {
			panic(err)
		}
		all[key.String()] = r
	}
	if len(a.tags) > 0 {
		put("tags", record{kind: "set", items: slices.Sorted(maps.Keys(a.tags))})
	}
	if len(a.notes) > 0 {
		put("notes", record{kind: "list", items: a.notes})
	}
	if len(a.settings) > 0 {
		put("settings", record{kind: "hash", fields: a.settings})
	}
	if a.bio != nil {
		put("bio", record{kind: "string", text: *a.bio})
	}
	if len(a.scores) > 0 {
		put("scores", record{kind: "zset", items: ranked(a.scores)})
	}
}

// ranked returns the members of a sorted set in its order, as MEMBER=SCORE.
func ranked(scores map[string]float64) []string {
	names := slices.SortedFunc(maps.Keys(scores), func(x, y string) int {
		if scores[x] != scores[y] {
			if scores[x] < scores[y] {
				return -1
			}
			return 1
		}
		return strings.Compare(x, y)
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%v=%v", name, scores[name])
	}
	return names
}

// formatLikeModel returns the records of a store in the form of model.records.
func formatLikeModel(records map[string]record, ns recordkey.Namespace) map[string]string {
	shown := map[string]record{}
	for key, r := range records {
		rest, inside := strings.CutPrefix(key, ns.String())
		if !inside || strings.HasPrefix(rest, "~") || r.kind == "hash" && r.expires {
			continue
		}
		if prk, _, claimed := strings.Cut(r.text, " "); claimed && strings.HasSuffix(key, "/~prk") {
			r.text = prk
		}
		if r.kind == "hash" {
			r.fields = maps.Clone(r.fields)
			delete(r.fields, "~rev")
			delete(r.fields, "~epoch") // only entries created over a tombstone have one
		}
		shown[key] = r
	}
	return formatRecords(shown, "")
}

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
	if !x.checkTertiary(t, uid, err) {
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

// keys checks the record keys that match a pattern.
func (x *machine) keys(t *rapid.T) {
	pattern := rapid.SampledFrom([]string{"*", "user/uid:*", "user/name:*", "user/*/~prks", "order/*"}).Draw(t, "pattern")
	var got []string
	for k, err := range inspect.Keys(x.ctx, x.db, pattern) {
		must(t, err)
		if !strings.HasPrefix(k, "~") {
			got = append(got, k)
		}
	}
	slices.Sort(got)
	var want []string
	for _, k := range append(slices.Collect(maps.Keys(x.m.records())), x.orders()...) {
		if k = strings.TrimPrefix(k, x.m.ns.String()); matches(pattern, k) {
			want = append(want, k)
		}
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("keys %s: got %q, want %q", pattern, got, want)
	}
}

// orders returns the keys of the order that addSiblings created.
func (x *machine) orders() []string {
	return []string{x.m.ns.String() + "order/id:u1", x.m.ns.String() + "order/code:ann/~prk"}
}

// matches reports whether a key matches a pattern with at most one star.
func matches(pattern, key string) bool {
	before, after, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == key
	}
	return len(key) >= len(before)+len(after) && strings.HasPrefix(key, before) && strings.HasSuffix(key, after)
}

// removeKeys removes records by pattern. An entry must go with all its records, and tags with their
// index members. SRKs and indexes of live entries must stay.
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
	if got, err := inspect.RemoveKeys(x.ctx, x.db, pattern); err != nil || got != want {
		t.Fatalf("removing %q: got %d, %v; want %d", pattern, got, err, want)
	}
}
