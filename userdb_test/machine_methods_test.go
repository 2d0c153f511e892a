package userdb_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

func itoa(n int) string { return strconv.Itoa(n) }

func splitLines(s string) []string { return strings.Split(s, "\n") }

// A form returns a hint, and the UID that it identifies, even if no account has that UID.
type form func() (hints.Hint, string, error)

// forms returns all forms of a hint for one drawn UID, field and value.
func (x *machine) forms(t *rapid.T) map[string]form {
	uid := rapid.SampledFrom(uids).Draw(t, "hinted uid")
	field := rapid.SampledFrom(secondaries).Draw(t, "hinted field")
	value := rapid.SampledFrom(values).Draw(t, "hinted value")
	any, one := x.m.owner(value, secondaries...), x.m.owner(value, field)
	prk, err := recordkey.PRK("user", "uid", uid)
	must(t, err)
	srk, err := recordkey.SRK("user", field, value)
	must(t, err)
	fixed := func(h hints.Hint, uid string) form { return func() (hints.Hint, string, error) { return h, uid, nil } }
	parsed := func(h string, uid string) form {
		return func() (hints.Hint, string, error) { h, err := hints.Parse(h); return h, uid, err }
	}
	fromJSON := func(uid string, v jsonTexts) form {
		return func() (hints.Hint, string, error) {
			text, err := json.Marshal(v)
			if err != nil {
				return hints.Hint{}, "", err
			}
			h, err := hints.ParseJSON(text)
			return h, uid, err
		}
	}
	return map[string]form{
		"Any": fixed(hints.Any(value), any), "Field": fixed(hints.Field(field, value), one),
		"UID": fixed(hints.UID(uid), uid), "primary field": fixed(hints.Field("uid", uid), uid),
		"PRK": fixed(hints.Key(prk), uid), "SRK": fixed(hints.Key(srk), one),
		"entry by UID":        fixed(hints.Facets(schema.Texts("uid", uid, "name", value)), uid),
		"entry by two facets": x.pair(t, field, value),
		"text *":              parsed("*="+value, any), "text field": parsed(field+"="+value, one),
		"text PRK": parsed(prk.String(), uid), "text SRK": parsed(srk.String(), one),
		"JSON triplet": fromJSON(one, jsonTexts{"user", field, value}), "JSON triplet *": fromJSON(any, jsonTexts{"user", "*", value}),
		"JSON pair": fromJSON(one, jsonTexts{field, value}), "JSON pair *": fromJSON(any, jsonTexts{"*", value}),
		"JSON type": fromJSON(uid, jsonTexts{"user", uid}), "typed": fixed(hints.UID(uid).Of("user"), uid),
	}
}

// A jsonTexts is a list of texts in JSON.
type jsonTexts []string

// pair returns a hint with two secondary facets, and the UID of the account that has both, or "" if
// none has.
func (x *machine) pair(t *rapid.T, field, value string) form {
	other := rapid.SampledFrom(secondaries).Draw(t, "other field")
	second := rapid.SampledFrom(values).Draw(t, "other value")
	part := map[string]string{field: value, other: second}
	uid := x.m.owner(value, field)
	if other != field && x.m.owner(second, other) != uid {
		uid = ""
	}
	if other == field {
		uid = x.m.owner(second, field)
	}
	return func() (hints.Hint, string, error) { return hints.Facets(asFacets(part)), uid, nil }
}

func (x *machine) find(t *rapid.T) {
	h, uid := x.hint(t)
	e, err := x.users.Find(x.ctx, h)
	there, existsErr := x.users.Exists(x.ctx, h)
	if existsErr != nil || there != (uid != "") {
		t.Fatalf("exists: got %v, %v; want %v", there, existsErr, uid != "")
	}
	if uid == "" {
		wantErr(t, "find", err, userdb.ErrNotFound)
		return
	}
	must(t, err)
	x.wantEntry(t, e, uid)
	x.seen = append(x.seen, e)
	e, err = x.db.Find(x.ctx, h.Of("user"))
	must(t, err)
	x.wantEntry(t, e, uid)
}

func (x *machine) findAll(t *rapid.T) {
	var hs []hints.Hint
	var want []string
	for range rapid.IntRange(0, 5).Draw(t, "hints") {
		h, uid := x.hint(t)
		hs, want = append(hs, h), append(want, uid)
	}
	i := 0
	for e, err := range x.users.FindAll(x.ctx, hs...) {
		if want[i] == "" {
			wantErr(t, "find all", err, userdb.ErrNotFound)
		} else {
			must(t, err)
			x.wantEntry(t, e, want[i])
		}
		i++
	}
	if i != len(hs) {
		t.Fatalf("got %d answers for %d hints, want one for each", i, len(hs))
	}
}

// query draws a query, and returns it with the UIDs that it selects.
func (x *machine) query(t *rapid.T) (userdb.Query, []string) {
	q, tests := userdb.Query{}, []func(*account) bool{}
	if rapid.Bool().Draw(t, "by job") {
		job := rapid.SampledFrom(jobs).Draw(t, "job")
		q.Where = schema.Texts("job", job)
		tests = append(tests, func(a *account) bool { return a.facets["job"] == job })
	}
	if rapid.IntRange(0, 3).Draw(t, "by value") == 0 {
		field := rapid.SampledFrom(secondaries).Draw(t, "field")
		value := rapid.SampledFrom(values).Draw(t, "value")
		if q.Where == nil {
			q.Where = schema.Facets{}
		}
		q.Where[field] = schema.Text(value)
		tests = append(tests, func(a *account) bool {
			v, has := a.facets[field]
			return has && x.m.canonical(v) == x.m.canonical(value)
		})
	}
	for _, tag := range rapid.SliceOfN(rapid.SampledFrom(tags), 0, 2).Draw(t, "has") {
		q.Tags = append(q.Tags, tag)
		tests = append(tests, func(a *account) bool { return a.tags[tag] })
	}
	var uids []string
	for uid, a := range x.m.accounts {
		if !slices.ContainsFunc(tests, func(holds func(*account) bool) bool { return !holds(a) }) {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return q, uids
}

func (x *machine) list(t *rapid.T) {
	q, want := x.query(t)
	var got []string
	for e, err := range x.users.All(x.ctx, q) {
		must(t, err)
		x.wantEntry(t, e, e.UID())
		got = append(got, e.UID())
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Fatalf("%+v: got %q, want %q", q, got, want)
	}
	for _, c := range []struct {
		q    userdb.Query
		want int
	}{{q, len(want)}, {userdb.Query{}, len(x.m.accounts)}} {
		if n, err := x.users.Count(x.ctx, c.q); err != nil || n.Entries != int64(c.want) {
			t.Fatalf("count of %+v: got %v, %v; want %d", c.q, n, err, c.want)
		}
	}
}

func (x *machine) page(t *rapid.T) {
	q, want := x.query(t)
	q.Limit = rapid.IntRange(1, 3).Draw(t, "limit")
	var got []string
	for {
		page, err := x.users.Page(x.ctx, q)
		must(t, err)
		for _, e := range page.Entries {
			x.wantEntry(t, e, e.UID())
			got = append(got, e.UID())
		}
		if len(page.Entries) > q.Limit || len(page.Entries) < q.Limit && page.Next != "" {
			t.Fatalf("got a page of %d entries with the next %q; want %d entries, or fewer on the last page", len(page.Entries), page.Next, q.Limit)
		}
		if q.After = page.Next; page.Next == "" {
			break
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Fatalf("%+v: got %q, want %q", q, got, want)
	}
}

// checkTertiary checks the error of a method on a tertiary record of an account. It must be
// ErrNotFound if uid is "", which means that there is no account. checkTertiary reports whether
// there is one.
func (x *machine) checkTertiary(t *rapid.T, uid string, err error) bool {
	if uid == "" {
		wantErr(t, "tertiary", err, userdb.ErrNotFound)
		return false
	}
	must(t, err)
	return true
}

func (x *machine) tags(t *rapid.T) {
	h, uid := x.hint(t)
	some := rapid.SliceOfN(rapid.SampledFrom(tags), 1, 3).Draw(t, "tags")
	set, a := x.users.Tags(h), x.m.accounts[uid]
	before, miscount := 0, 0
	if a != nil {
		before = len(a.tags)
	}
	if rapid.Bool().Draw(t, "add") {
		n, err := set.Add(x.ctx, some...)
		if !x.checkTertiary(t, uid, err) {
			return
		}
		for _, tag := range some {
			a.tags[tag] = true
		}
		miscount = len(a.tags) - before - int(n)
	} else {
		n, err := set.Remove(x.ctx, some...)
		if !x.checkTertiary(t, uid, err) {
			return
		}
		for _, tag := range some {
			delete(a.tags, tag)
		}
		miscount = before - len(a.tags) - int(n)
	}
	got, err := set.Members(x.ctx)
	must(t, err)
	has, err := set.Has(x.ctx, some[0])
	must(t, err)
	if miscount != 0 || !slices.Equal(got, slices.Sorted(maps.Keys(a.tags))) || has != a.tags[some[0]] {
		t.Fatalf("tags: got %q, has %q: %v, count off by %d; want %v", got, some[0], has, miscount, a.tags)
	}
}

func (x *machine) notes(t *rapid.T) {
	h, uid := x.hint(t)
	list, a := x.users.List(h, "notes"), x.m.accounts[uid]
	note := rapid.SampledFrom(values).Draw(t, "note")
	method := rapid.SampledFrom([]string{"append", "prepend", "first", "last", "remove"}).Draw(t, "method")
	var err error
	var got string
	switch method {
	case "append":
		_, err = list.Append(x.ctx, note, "more")
	case "prepend":
		_, err = list.Prepend(x.ctx, note)
	case "first":
		got, _, err = list.PopFirst(x.ctx)
	case "last":
		got, _, err = list.PopLast(x.ctx)
	case "remove":
		_, err = list.Remove(x.ctx, note)
	}
	if !x.checkTertiary(t, uid, err) {
		return
	}
	if want := a.note(method, note); got != want {
		t.Fatalf("%s: got %q, want %q", method, got, want)
	}
	items, err := list.Items(x.ctx, 0, -1)
	if err != nil || !slices.Equal(items, a.notes) {
		t.Fatalf("notes: got %q, %v; want %q", items, err, a.notes)
	}
}

// note applies a method to the notes of a model's account, and returns the note that it removed
// from either end, if any.
func (a *account) note(method, note string) (taken string) {
	switch n := len(a.notes); {
	case method == "append":
		a.notes = append(a.notes, note, "more")
	case method == "prepend":
		a.notes = append([]string{note}, a.notes...)
	case method == "remove":
		a.notes = slices.DeleteFunc(a.notes, func(s string) bool { return s == note })
	case n > 0 && method == "first":
		taken, a.notes = a.notes[0], a.notes[1:]
	case n > 0 && method == "last":
		taken, a.notes = a.notes[n-1], a.notes[:n-1]
	}
	return taken
}

func (x *machine) scores(t *rapid.T) {
	h, uid := x.hint(t)
	set, a := x.users.SortedSet(h, "scores"), x.m.accounts[uid]
	member := rapid.SampledFrom(values).Draw(t, "member")
	score := float64(rapid.IntRange(-3, 3).Draw(t, "score")) / 2
	var err error
	sum := score
	method := rapid.SampledFrom([]string{"put", "increase", "remove"}).Draw(t, "method")
	switch method {
	case "put":
		err = set.Put(x.ctx, score, member)
	case "increase":
		sum, err = set.Increment(x.ctx, score, member)
	case "remove":
		_, err = set.Remove(x.ctx, member)
	}
	if !x.checkTertiary(t, uid, err) {
		return
	}
	switch method {
	case "put":
		a.scores[member] = score
	case "increase":
		a.scores[member] += score
	case "remove":
		delete(a.scores, member)
		sum = 0
	}
	got, _, err := set.Score(x.ctx, member)
	if err != nil || got != a.scores[member] || method == "increase" && sum != got {
		t.Fatalf("%s %q: got score %v, sum %v, %v; want %v", method, member, got, sum, err, a.scores[member])
	}
	all, err := set.Range(x.ctx, 0, -1)
	must(t, err)
	var shown []string
	for _, s := range all {
		shown = append(shown, fmt.Sprintf("%v=%v", s.Member, s.Score))
	}
	if !slices.Equal(shown, ranked(a.scores)) {
		t.Fatalf("got %q, want %q", shown, ranked(a.scores))
	}
}

func (x *machine) settings(t *rapid.T) {
	h, uid := x.hint(t)
	hash, a := x.users.Hash(h, "settings"), x.m.accounts[uid]
	name, value := rapid.SampledFrom(values).Draw(t, "name"), rapid.SampledFrom(values).Draw(t, "value")
	remove := rapid.Bool().Draw(t, "remove")
	var err error
	if remove {
		_, err = hash.Remove(x.ctx, name)
	} else {
		err = hash.Put(x.ctx, name, value)
	}
	if !x.checkTertiary(t, uid, err) {
		return
	}
	if a.settings[name] = value; remove {
		delete(a.settings, name)
	}
	all, err := hash.All(x.ctx)
	got, has, getErr := hash.Get(x.ctx, name)
	if errors.Join(err, getErr) != nil || !maps.Equal(all, a.settings) || got != a.settings[name] || has == remove {
		t.Fatalf("settings: got %q, %v; %q: %q, %v; %v; want %q", all, err, name, got, has, getErr, a.settings)
	}
}
