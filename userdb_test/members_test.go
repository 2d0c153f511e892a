package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// usersWithLimit opens type user of a wideSchema in which tertiary records have at most the given
// number of members.
func (s *site) usersWithLimit(limit int) *userdb.Type {
	sc := wideSchema(schema.FoldCasefold)
	for name, r := range sc.Types["user"].Tertiary {
		if r.Kind != "string" {
			r.Max = limit
			sc.Types["user"].Tertiary[name] = r
		}
	}
	return typeOf(s.t, s.open(userdb.Options{Schema: sc}), "user")
}

// wantFull checks that err reports that a record would have more members than its limit.
func wantFull(t testingT, what string, err error, field string, limit int) {
	t.Helper()
	wantField(t, what, err, userdb.ErrInvalid, field)
	var fe *userdb.FieldError
	if errors.As(err, &fe) && (fe.Rule != "max" || !strings.Contains(err.Error(), fmt.Sprintf("over %d members", limit))) {
		t.Errorf("%s: got %q by rule %q, want the limit of %d", what, err, fe.Rule, limit)
	}
}

// TestMemberLimits adds members to records of every kind up to their limit, and beyond it. A full
// record must refuse new members, but not changes of those that it has.
func TestMemberLimits(t *testing.T) {
	const limit = 3
	eachStore(t, func(t *testing.T, s *site) {
		users, ctx := s.usersWithLimit(limit), t.Context()
		_, err := users.Create(ctx, userdb.NewEntry{UID: "u", Tags: numbered("t", limit+1)})
		wantFull(t, "create", err, "tags", limit)
		must1(users.Create(ctx, userdb.NewEntry{UID: "u", Tags: numbered("t", limit)}))(t)
		h := hints.UID("u")
		tags, notes, scores, settings := users.Tags(h), users.List(h, "notes"), users.SortedSet(h, "scores"), users.Hash(h, "settings")
		for i := range int64(limit) {
			must1(notes.Append(ctx, fmt.Sprint(i)))(t)
			must(t, scores.Put(ctx, float64(i), fmt.Sprint(i)))
			must(t, settings.Put(ctx, fmt.Sprint(i), "v"))
		}
		for _, full := range []struct {
			field string
			add   func() error
		}{
			{"tags", func() error { _, err := tags.Add(ctx, "x"); return err }},
			{"tags", func() error { _, err := tags.Add(ctx, "t00001", "x"); return err }},
			{"tags", func() error { _, err := tags.Add(ctx, numbered("x", limit+1)...); return err }},
			{"tags", func() error { return tags.Replace(ctx, numbered("x", limit+1)...) }},
			{"notes", func() error { _, err := notes.Append(ctx, "x"); return err }},
			{"notes", func() error { _, err := notes.Prepend(ctx, "x"); return err }},
			{"scores", func() error { return scores.Put(ctx, 1, "x") }},
			{"scores", func() error { _, err := scores.Increment(ctx, 1, "x"); return err }},
			{"settings", func() error { return settings.Put(ctx, "x", "v") }},
		} {
			wantFull(t, "adding to a full record", full.add(), full.field, limit)
		}
		must1(tags.Add(ctx, "t00001"))(t) // the set has this member already
		must(t, scores.Put(ctx, 7, "0"))
		must1(scores.Increment(ctx, 1, "0"))(t)
		must(t, settings.Put(ctx, "0", "other"))
		must1(tags.Remove(ctx, "t00001"))(t)
		must1(tags.Add(ctx, "x"))(t)
		must1(notes.Remove(ctx, "0"))(t)
		must1(notes.Prepend(ctx, "x"))(t)
		must1(scores.Remove(ctx, "0"))(t)
		must(t, scores.Put(ctx, 1, "x"))
		must1(settings.Remove(ctx, "0"))(t)
		must(t, settings.Put(ctx, "x", "v"))
		must(t, tags.Replace(ctx, "y"))
		if got := must1(tags.Members(ctx))(t); !slices.Equal(got, []string{"y"}) {
			t.Errorf("after Replace: got tags %q, want y", got)
		}
	})
}

// must1 returns a function that returns the value, and stops the test if err is not nil.
func must1[V any](v V, err error) func(*testing.T) V {
	return func(t *testing.T) V {
		t.Helper()
		must(t, err)
		return v
	}
}

// TestMembersOverTheLimit removes members from a record that has more than its schema allows. No
// new member may be added until the record has fewer than its limit.
func TestMembersOverTheLimit(t *testing.T) {
	const limit = 3
	eachStore(t, func(t *testing.T, s *site) {
		users, ctx := s.usersWithLimit(limit), t.Context()
		must1(users.Create(ctx, userdb.NewEntry{UID: "u"}))(t)
		friends := users.Set(hints.UID("u"), "friends")
		must1(friends.Add(ctx, "f00000"))(t)
		all := numbered("f", limit+2)
		must(t, s.raw.SAdd(ctx, "user/uid:u/friends", redisArgs(all)...).Err())
		if got := must1(friends.Members(ctx))(t); !slices.Equal(got, all) {
			t.Errorf("read %q, want %q", got, all)
		}
		for left := len(all); left > limit; left-- {
			_, err := friends.Add(ctx, "x")
			wantFull(t, fmt.Sprint(left, " members"), err, "friends", limit)
			must1(friends.Add(ctx, all[0]))(t)
			must1(friends.Remove(ctx, all[left-1]))(t)
		}
		_, err := friends.Add(ctx, "x")
		wantFull(t, "at the limit", err, "friends", limit)
		must1(friends.Remove(ctx, all[1]))(t)
		must1(friends.Add(ctx, "x"))(t)
		must(t, friends.Replace(ctx, "y"))
		must(t, users.Delete(ctx, hints.UID("u")))
	})
}

func redisArgs(texts []string) []any {
	all := make([]any, len(texts))
	for i := range texts {
		all[i] = texts[i]
	}
	return all
}

// TestMemberLimitRaces lets many callers add members at once. Each record must have exactly as many
// as its limit.
func TestMemberLimitRaces(t *testing.T) {
	const limit, callers, each = 10, 8, 5
	eachStore(t, func(t *testing.T, s *site) {
		users, ctx := s.usersWithLimit(limit), t.Context()
		must1(users.Create(ctx, userdb.NewEntry{UID: "u"}))(t)
		tags, notes := users.Tags(hints.UID("u")), users.List(hints.UID("u"), "notes")
		var wait sync.WaitGroup
		var added [2]atomic.Int64
		for c := range callers {
			wait.Go(func() {
				for i := range each {
					_, err := tags.Add(ctx, fmt.Sprint(c, "-", i))
					_, err2 := notes.Append(ctx, fmt.Sprint(c, "-", i))
					for j, err := range []error{err, err2} {
						if err == nil {
							added[j].Add(1)
						} else if !errors.Is(err, userdb.ErrInvalid) {
							t.Error(err)
						}
					}
				}
			})
		}
		wait.Wait()
		n, m := must1(tags.Len(ctx))(t), must1(notes.Len(ctx))(t)
		if n != limit || m != limit || added[0].Load() != limit || added[1].Load() != limit {
			t.Errorf("%d tags after %d were added, %d notes after %d; want %d", n, added[0].Load(), m, added[1].Load(), limit)
		}
	})
}

// A meter records the largest number of members in one call or its reply.
type meter struct{ largest atomic.Int64 }

func (m *meter) note(n int) {
	for {
		largest := m.largest.Load()
		if int64(n) <= largest || m.largest.CompareAndSwap(largest, int64(n)) {
			return
		}
	}
}

func (m *meter) pass(_ context.Context, cmds []redis.Cmder, send func() error) error {
	err := send()
	for _, cmd := range cmds {
		members := 0
		for _, a := range cmd.Args() {
			text, ok := a.(*string)
			if ok && strings.HasPrefix(*text, "m0") {
				members++
			}
		}
		m.note(members)
		if c, ok := cmd.(interface{ Val() any }); ok {
			m.note(lengthOf(c.Val()))
		}
	}
	return err
}

func lengthOf(reply any) int {
	list, _ := reply.([]any)
	n := len(list)
	for _, item := range list {
		n = max(n, lengthOf(item))
	}
	return n
}

// TestLargeRecords replaces, reads and deletes records with more members than one call handles.
// Afterwards, readers must see none of them, another entry with the UID must not inherit any, and
// no record may be left over.
func TestLargeRecords(t *testing.T) {
	const n = 2500
	eachStore(t, func(t *testing.T, s *site) {
		users, ctx, h := s.usersWithLimit(n), t.Context(), hints.UID("u")
		large := numbered("m0", n)
		must1(users.Create(ctx, userdb.NewEntry{UID: "u", Tags: large}))(t)
		m := &meter{}
		// In an embedded store, no other client waits for a long call.
		if s.server != nil || s.has(interleaves) && !s.has(oneScript) {
			s.tap.set(m.pass)
		}
		if got := must1(users.Tags(h).Members(ctx))(t); !reflect.DeepEqual(got, large) {
			t.Errorf("read %d members, want %d", len(got), n)
		}
		must(t, users.Tags(h).Replace(ctx, "m02499", "other"))
		if got := must1(users.Tags(h).Members(ctx))(t); !slices.Equal(got, []string{"m02499", "other"}) {
			t.Errorf("after a replace: got %.3q, want m02499 and other", got)
		}
		s.tap.set(nil)
		for has, want := range map[string]int{"m00000": 0, "m02499": 1, "other": 1} {
			found := 0
			for _, err := range users.All(ctx, userdb.Query{Tags: []string{has}}) {
				must(t, err)
				found++
			}
			if found != want {
				t.Errorf("%d entries have %s, want %d", found, has, want)
			}
		}
		must(t, users.Tags(h).Replace(ctx, large...))
		if s.server != nil {
			s.tap.set(m.pass)
		}
		must(t, users.Delete(ctx, h))
		must1(users.Create(ctx, userdb.NewEntry{UID: "u"}))(t)
		if got := must1(users.Tags(h).Len(ctx))(t); got != 0 {
			t.Errorf("the next entry with the UID has %d tags, want none", got)
		}
		s.tap.set(nil)
		if largest := m.largest.Load(); largest > 2*store.MemberBatch {
			t.Errorf("one call handled %d members, want at most about %d", largest, store.MemberBatch)
		}
		if keys := s.raw.Keys(ctx, "~/drop/*").Val(); len(keys) > 0 {
			t.Errorf("records of deleted sets are left over: %q", keys)
		}
	})
}

// TestLargeRanges reads ranges of lists and sorted sets, and hashes, with more members than one
// call handles. No member may be missing.
func TestLargeRanges(t *testing.T) {
	const n = 2*store.MemberBatch + 1
	eachStore(t, func(t *testing.T, s *site) {
		users, ctx, h := s.usersWithLimit(n), t.Context(), hints.UID("u")
		must1(users.Create(ctx, userdb.NewEntry{UID: "u"}))(t)
		items, list, scores, settings := numbered("i", n), users.List(h, "notes"), users.SortedSet(h, "scores"), users.Hash(h, "settings")
		must1(list.Append(ctx, items...))(t)
		must(t, scores.Put(ctx, 0, items[0]))
		must(t, settings.Put(ctx, items[0], "v"))
		var members []redis.Z
		pairs := map[string]any{}
		for i, item := range items {
			members = append(members, redis.Z{Score: float64(i), Member: item})
			pairs[item] = "v"
		}
		must(t, s.raw.ZAdd(ctx, "user/uid:u/scores", members...).Err())
		must(t, s.raw.HSet(ctx, "user/uid:u/settings", pairs).Err())
		for _, r := range [][2]int64{
			{0, -1},
			{0, n},
			{1, -2},
			{-n, -1},
			{-n - 5, -1},
			{5, 1200},
			{-1500, n - 1},
			{n, n + 5},
			{3, 1},
			{0, -n - 5},
			{-2, 0}, // empty
		} {
			want := rangeOf(items, r[0], r[1])
			if got := must1(list.Items(ctx, r[0], r[1]))(t); !slices.Equal(got, want) {
				t.Errorf("list items %d: got %d, want %d", r, len(got), len(want))
			}
			got := must1(scores.Range(ctx, r[0], r[1]))(t)
			if len(got) != len(want) || len(got) > 0 && got[len(got)-1].Member != want[len(want)-1] {
				t.Errorf("sorted set range %d: got %d members, want %d", r, len(got), len(want))
			}
		}
		if got := must1(scores.Between(ctx, 1, n))(t); len(got) != n-1 || got[n-2].Member != items[n-1] {
			t.Errorf("sorted set by score: got %d members, want %d", len(got), n-1)
		}
		if got := must1(settings.All(ctx))(t); len(got) != n {
			t.Errorf("hash: got %d pairs, want %d", len(got), n)
		}
	})
}

// rangeOf returns the items from start to stop, inclusive. As in Redis, negative positions count
// from the end.
func rangeOf(items []string, start, stop int64) []string {
	n := int64(len(items))
	if start < 0 {
		start = max(0, start+n)
	}
	if stop < 0 {
		stop += n
	}
	if stop = min(stop, n-1); start > stop {
		return nil
	}
	return items[start : stop+1]
}

// TestCheckDropsMovedSet renames a set to a key under which it waits to be dropped, as if a process
// had then died before it dropped any members. A check must report the set, and a repair must drop
// it.
func TestCheckDropsMovedSet(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		users, ctx := s.usersWithLimit(10), t.Context()
		e := must1(users.Create(ctx, userdb.NewEntry{UID: "u", Tags: []string{"a", "b", "c"}}))(t)
		tags := must1(e.Key().Tertiary("tags"))(t)
		must(t, s.raw.Rename(ctx, tags.String(), store.DropKey(tags, store.NewRev())).Err())
		must1(users.Tags(hints.UID("u")).Add(ctx, "b"))(t)
		run := func(o check.Options) (codes []string) {
			for p, err := range check.Run(store.WithoutOtherWriters(ctx), s.first, o) {
				must(t, err)
				if p.Code != "field_missing" { // the entry has only tags
					codes = append(codes, p.Code)
				}
			}
			return codes
		}
		if codes := run(check.Options{}); !slices.Contains(codes, "drop_waiting") {
			t.Errorf("a check found %q, want drop_waiting", codes)
		}
		run(check.Options{Repair: true})
		if codes := run(check.Options{}); len(codes) > 0 {
			t.Errorf("after a repair a check found %q, want nothing", codes)
		}
		if got := must1(users.Tags(hints.UID("u")).Members(ctx))(t); !slices.Equal(got, []string{"b"}) {
			t.Errorf("got tags %q, want b", got)
		}
	})
}
