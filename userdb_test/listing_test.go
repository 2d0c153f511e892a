package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// addSteady creates entries that stay while others are created and deleted, and returns their UIDs.
func addSteady(t *testing.T, s *site, users *userdb.Type) []string {
	t.Helper()
	n := 300
	switch {
	case !s.has(cheapWrites):
		n = 40
	case testing.Short():
		n = 60
	}
	uids := make([]string, n)
	for i := range uids {
		uids[i] = fmt.Sprintf("steady%03d", i)
		_, err := users.Create(t.Context(), userdb.NewEntry{
			UID: uids[i], Facets: schema.Texts("name", uids[i], "job", "steady"), Tags: []string{"t"},
		})
		must(t, err)
	}
	return uids
}

// churn creates and deletes entries until over is set.
func churn(t *testing.T, users *userdb.Type, over *atomic.Bool) error {
	r := rand.New(rand.NewPCG(3, 4))
	for i := 0; !over.Load(); i++ {
		uid := "other" + itoa(r.IntN(400))
		err := users.Delete(t.Context(), hints.UID(uid))
		if errors.Is(err, userdb.ErrNotFound) {
			_, err = users.Create(t.Context(), userdb.NewEntry{UID: uid, Facets: schema.Texts("job", "steady"), Tags: []string{"t"}})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// TestListDuringChanges lists entries while others are created and deleted. Every listing must have
// all entries that exist the whole time.
func TestListDuringChanges(t *testing.T) {
	queries := map[string]userdb.Query{
		"all": {}, "by index": {Where: schema.Texts("job", "steady")}, "by tag": {Tags: []string{"t"}},
	}
	eachStoreAndRights(t, func(t *testing.T, s *site) {
		users := s.wide()
		want := addSteady(t, s, users)
		var over atomic.Bool
		errs := runConcurrently(2, func(i int) error {
			if i == 0 {
				return churn(t, users, &over)
			}
			defer over.Store(true)
			for name, q := range queries {
				if err := checkListing(t, users, q, want); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				for _, limit := range []int{1, 7, 50, 1000} {
					if limit == 1 && len(want) > 100 && name != "all" {
						continue // slow, and "all" tests it already
					}
					q.Limit = limit
					if err := checkPages(t, users, q, want); err != nil {
						return fmt.Errorf("%s, pages of %d: %w", name, limit, err)
					}
				}
			}
			return nil
		})
		must(t, errors.Join(errs...))
	})
}

func checkListing(t *testing.T, users *userdb.Type, q userdb.Query, want []string) error {
	got := map[string]bool{}
	for e, err := range users.All(t.Context(), q) {
		if err != nil {
			return err
		}
		got[e.UID()] = true
	}
	return findMissing(got, want)
}

func checkPages(t *testing.T, users *userdb.Type, q userdb.Query, want []string) error {
	got := map[string]bool{}
	for pages := 0; ; pages++ {
		page, err := users.Page(t.Context(), q)
		if err != nil {
			return err
		}
		if len(page.Entries) > q.Limit {
			return fmt.Errorf("a page has %d entries, want at most %d", len(page.Entries), q.Limit)
		}
		for _, e := range page.Entries {
			got[e.UID()] = true
		}
		if q.After = page.Next; page.Next == "" {
			return findMissing(got, want)
		}
		if pages > 10_000 {
			return errors.New("the listing has more than 10,000 pages")
		}
	}
}

func findMissing(got map[string]bool, want []string) error {
	for _, uid := range want {
		if !got[uid] {
			return fmt.Errorf("%s existed the whole time but was not listed", uid)
		}
	}
	return nil
}

// TestPageSizes checks that every page but the last has exactly as many entries as the limit, and
// that each entry is on one page.
func TestPageSizes(t *testing.T) {
	eachStoreAndRights(t, func(t *testing.T, s *site) {
		users := s.wide()
		want := addSteady(t, s, users)
		for _, limit := range []int{1, 2, 9, 100, 299, 300, 301, 5000} {
			var got []string
			for after := ""; ; {
				page, err := users.Page(t.Context(), userdb.Query{Limit: limit, After: after})
				must(t, err)
				if page.Next != "" && len(page.Entries) != limit || len(page.Entries) > limit {
					t.Fatalf("got a page of %d entries with the next %q; want %d entries, or fewer on the last page", len(page.Entries), page.Next, limit)
				}
				for _, e := range page.Entries {
					got = append(got, e.UID())
				}
				if after = page.Next; page.Next == "" {
					break
				}
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("pages of %d have %d entries, want %d, each once", limit, len(got), len(want))
			}
		}
		page, err := users.Page(t.Context(), userdb.Query{})
		if want := min(100, len(want)); err != nil || len(page.Entries) != want {
			t.Errorf("a page without a limit has %d entries, %v; want %d", len(page.Entries), err, want)
		}
		n := 0
		for range users.All(t.Context(), userdb.Query{Limit: 3}) {
			n++
		}
		if n != 3 {
			t.Errorf("a list with limit 3 has %d entries, want 3", n)
		}
	})
}

// TestMaxRead checks that a page ends after MaxRead entries were read, even if none was selected,
// and that the pages together have all selected entries.
func TestMaxRead(t *testing.T) {
	eachStoreAndRights(t, func(t *testing.T, s *site) {
		users := typeOf(t, s.open(userdb.Options{Schema: orderedSchema()}), "user")
		var want []string
		for i := range 200 {
			uid := fmt.Sprintf("m%03d", i)
			add(t, users, uid, "name", "most "+uid, "last", uid)
			if i == 150 || i == 199 {
				must(t, users.Disable(t.Context(), hints.UID(uid)))
				want = append(want, uid)
			}
		}
		yes := true
		for name, q := range map[string]userdb.Query{"no order": {}, "in order": {Order: "last"}, "reverse": {Order: "last", Reverse: true}} {
			q.Disabled, q.Limit, q.MaxRead = &yes, 10, 3
			var got []string
			empty, pages := 0, 0
			for more := true; more && pages < 1000; more = q.After != "" {
				page, err := users.Page(t.Context(), q)
				must(t, err)
				for _, e := range page.Entries {
					got = append(got, e.UID())
				}
				if pages++; len(page.Entries) == 0 && page.Next != "" {
					empty++
				}
				q.After = page.Next
			}
			if slices.Sort(got); !slices.Equal(slices.Compact(got), want) || empty < 3 || pages < 5 {
				t.Errorf("%s: %d pages, %d of them empty, with %q; want %q", name, pages, empty, got, want)
			}
		}
	})
}

// TestDisabledIsCheap checks that an ordered page of the disabled entries does not read the enabled
// ones.
func TestDisabledIsCheap(t *testing.T) {
	eachStoreAndRights(t, func(t *testing.T, s *site) {
		users := typeOf(t, s.open(userdb.Options{Schema: orderedSchema()}), "user")
		for i := range 100 {
			add(t, users, fmt.Sprintf("m%03d", i), "last", fmt.Sprint(i))
		}
		for _, uid := range []string{"m007", "m093"} {
			must(t, users.Disable(t.Context(), hints.UID(uid)))
		}
		yes := true
		for name, q := range map[string]userdb.Query{"no order": {}, "in order": {Order: "last"}, "reverse": {Order: "last", Reverse: true}} {
			q.Disabled, q.Limit, q.MaxRead, q.MaxBytes = &yes, 25, 500, 8<<20
			trips := s.tap.count(func() {
				page, err := users.Page(t.Context(), q)
				must(t, err)
				if len(page.Entries) != 2 || page.Next != "" && q.Order != "" {
					t.Errorf("%s: a page has %d entries, next %q; want all 2", name, len(page.Entries), page.Next)
				}
			})
			if trips > 8 && q.Order != "" { // a scan of a cluster has several steps
				t.Errorf("%s: a page takes %d round trips, want at most 8", name, trips)
			}
		}
	})
}

// TestMaxBytes checks that a page of large entries ends after MaxBytes, and that the pages together
// have all entries.
func TestMaxBytes(t *testing.T) {
	eachStoreAndRights(t, func(t *testing.T, s *site) {
		sc := orderedSchema()
		sc.Types["user"].Fields["motto"] = schema.Field{}
		users := typeOf(t, s.open(userdb.Options{Schema: sc}), "user")
		var want []string
		for i := range 60 {
			uid := fmt.Sprintf("m%03d", i)
			add(t, users, uid, "name", "large "+uid, "last", uid, "motto", strings.Repeat("x", 10_000))
			want = append(want, uid)
		}
		for name, q := range map[string]userdb.Query{"no order": {}, "in order": {Order: "last"}, "reverse": {Order: "last", Reverse: true}} {
			for maxBytes, perPage := range map[int]int{1: 16, 170_000: 32, 1 << 30: 50} {
				q.Limit, q.MaxBytes, q.After = 50, maxBytes, ""
				var got []string
				for more := true; more && len(got) < 1000; more = q.After != "" {
					page, err := users.Page(t.Context(), q)
					must(t, err)
					if len(page.Entries) > perPage || q.Order != "" && page.Next != "" && len(page.Entries) < perPage/2 {
						t.Errorf("%s, MaxBytes %d: a page has %d entries, want about %d", name, maxBytes, len(page.Entries), perPage)
					}
					for _, e := range page.Entries {
						got = append(got, e.UID())
					}
					q.After = page.Next
				}
				if slices.Sort(got); !slices.Equal(slices.Compact(got), want) {
					t.Errorf("%s, MaxBytes %d: got %q, want %q", name, maxBytes, got, want)
				}
			}
		}
	})
}

// TestSparseListing lists one entry among many other records. However small the page, the listing
// must read many keys in each round trip, and a page that ends early must have a cursor to continue
// from. All and Count do not end early.
func TestSparseListing(t *testing.T) {
	eachStoreAndRights(t, func(t *testing.T, s *site) {
		s.needs(cheapWrites)
		users := s.users()
		each := func(do func(pipe redis.Pipeliner, key string)) {
			for at := 0; at < 30_000; at += 1000 {
				pipe := s.raw.Pipeline()
				for i := range 1000 {
					do(pipe, fmt.Sprint("other/", at+i))
				}
				_, err := pipe.Exec(context.Background())
				must(t, err)
			}
		}
		each(func(pipe redis.Pipeliner, key string) { pipe.Set(t.Context(), key, "x", 0) })
		// No type declares these records, so the final check would report them.
		defer each(func(pipe redis.Pipeliner, key string) { pipe.Unlink(t.Context(), key) })
		add(t, users, "u", "name", "n")
		for _, maxRead := range []int{0, 100} {
			q := userdb.Query{Limit: 1, MaxRead: maxRead}
			var found []userdb.Entry
			pages := 0
			trips := s.tap.count(func() {
				for more := true; more && pages < 1000; more = q.After != "" {
					page, err := users.Page(t.Context(), q)
					must(t, err)
					found, q.After = append(found, page.Entries...), page.Next
					pages++
				}
			})
			if len(found) != 1 || trips > 100 || pages > 10 {
				t.Errorf("MaxRead %d: found %d entries in %d pages and %d round trips; want 1 in at most 10 and 100",
					maxRead, len(found), pages, trips)
			}
		}
		no, n := false, 0
		q := userdb.Query{Disabled: &no, MaxRead: 1, MaxBytes: 1} // the limits are only for pages
		for _, err := range users.All(t.Context(), q) {
			must(t, err)
			n++
		}
		if total, err := users.Count(t.Context(), q); n != 1 || total.Entries != 1 || err != nil {
			t.Errorf("All yields %d entries and Count returns %d, %v; want 1", n, total.Entries, err)
		}
	})
}

// TestCursors continues listings from cursors that no listing returned. Each must be refused.
func TestCursors(t *testing.T) {
	eachStoreAndRights(t, func(t *testing.T, s *site) {
		users := s.wide()
		addSteady(t, s, users)
		add(t, users, "u", "name", "n")
		page, err := users.Page(t.Context(), userdb.Query{Limit: 2})
		must(t, err)
		good := page.Next
		garbage := []string{
			"x", ".", "..", "...", "0", "-1", "1.2", "a.b.c", "1.!.", "..!", "1..A", "9999999999999999999999..", " ", "\x00", good + ".",
			good + "x", "." + good, strings.Repeat("A", 2<<20), "..." + good, "🙂", "user/uid:u",
		}
		queries := map[string]userdb.Query{
			"all": {}, "by index": {Where: schema.Texts("job", "steady")}, "by tag": {Tags: []string{"t"}},
			"by name": {Where: schema.Texts("name", "n")}, "by UID": {Where: schema.Texts("uid", "u")},
		}
		for name, q := range queries {
			for _, after := range garbage {
				q.After = after
				_, err := users.Page(t.Context(), q)
				wantErr(t, fmt.Sprintf("page of %s after %.30q", name, after), err, userdb.ErrCursor)
				for _, err = range users.All(t.Context(), q) {
					wantErr(t, fmt.Sprintf("list of %s after %.30q", name, after), err, userdb.ErrCursor)
				}
			}
		}
	})
}

// TestRefusedQueries makes queries by fields without an index, by values that no entry can have,
// and by the store's own fields. Each must be refused with an error that names the field.
func TestRefusedQueries(t *testing.T) {
	eachStoreAndRights(t, func(t *testing.T, s *site) {
		db := s.open(userdb.Options{Schema: wideSchema(schema.FoldCasefold)})
		users, orders := typeOf(t, db, "user"), typeOf(t, db, "order")
		long := strings.Repeat("x", 1025)
		cases := []struct {
			typ   *userdb.Type
			q     userdb.Query
			field string
		}{
			{users, userdb.Query{Where: schema.Texts("age", "1")}, "age"},
			{users, userdb.Query{Where: schema.Texts("nobody", "1")}, "nobody"},
			{users, userdb.Query{Where: schema.Texts("job", "")}, "job"},
			{users, userdb.Query{Where: schema.Texts("job", long)}, "job"},
			{users, userdb.Query{Where: schema.Texts("name", " ")}, "name"},
			{users, userdb.Query{Where: schema.Texts("uid", "")}, "uid"},
			{users, userdb.Query{Tags: []string{""}}, "tags"},
			{users, userdb.Query{Tags: []string{long}}, "tags"},
			{orders, userdb.Query{Tags: []string{"a"}}, "tags"},
			{users, userdb.Query{Has: map[string][]string{"nobody": {"a"}}}, "nobody"},
			{users, userdb.Query{Has: map[string][]string{"tags": {""}}}, "tags"},
			{users, userdb.Query{Where: schema.Texts("~isa", "user")}, "~isa"},
			{users, userdb.Query{Where: schema.Texts("password", "x")}, "password"},
		}
		for _, c := range cases {
			_, err := c.typ.Page(t.Context(), c.q)
			wantField(t, fmt.Sprintf("page %.60v", c.q), err, userdb.ErrInvalid, c.field)
			n := 0
			for _, err := range c.typ.All(t.Context(), c.q) {
				n++
				wantField(t, fmt.Sprintf("list %.60v", c.q), err, userdb.ErrInvalid, c.field)
			}
			if n != 1 {
				t.Errorf("list %.60v yields %d times, want one error", c.q, n)
			}
		}
	})
}

// TestHas checks queries for members of an indexed set other than the tags, alone and together with
// tags.
func TestHas(t *testing.T) {
	withInterests := wideSchemaWith(func(t *schema.Type) { t.Tertiary["interests"] = schema.Tertiary{Kind: "set", Indexed: true} })
	eachStore(t, func(t *testing.T, s *site) {
		ctx, users := t.Context(), typeOf(t, s.open(userdb.Options{Schema: withInterests}), "user")
		for uid, interests := range map[string][]string{"ann": {"chess", "go"}, "bob": {"go"}, "cleo": nil} {
			must(t, errOf(users.Create(ctx, userdb.NewEntry{UID: uid, Tags: []string{"chess"}})))
			must(t, users.Set(hints.UID(uid), "interests").Replace(ctx, interests...))
		}
		must(t, users.Tags(hints.UID("bob")).Replace(ctx, "staff"))
		for _, tt := range []struct {
			q    userdb.Query
			want []string
		}{
			{userdb.Query{Has: map[string][]string{"interests": {"go"}}}, []string{"ann", "bob"}},
			{userdb.Query{Has: map[string][]string{"interests": {"go", "chess"}}}, []string{"ann"}},
			{userdb.Query{Has: map[string][]string{"interests": {"go"}, "tags": {"staff"}}}, []string{"bob"}},
			{userdb.Query{Has: map[string][]string{"interests": {"go"}}, Tags: []string{"chess"}}, []string{"ann"}},
			{userdb.Query{Has: map[string][]string{"interests": nil}, Tags: []string{"chess"}}, []string{"ann", "cleo"}},
			{userdb.Query{Has: map[string][]string{"interests": {"staff"}}}, nil},
		} {
			var got []string
			for e, err := range users.All(ctx, tt.q) {
				must(t, err)
				got = append(got, e.UID())
			}
			if slices.Sort(got); !slices.Equal(got, tt.want) {
				t.Errorf("%v: got %v, want %v", tt.q, got, tt.want)
			}
		}
	})
}

// TestWithSets checks that listings return the sets that a query names together with the entries,
// including all members of large sets, and that they read each set only once.
func TestWithSets(t *testing.T) {
	withInterests := wideSchemaWith(func(t *schema.Type) { t.Tertiary["interests"] = schema.Tertiary{Kind: "set"} })
	eachStore(t, func(t *testing.T, s *site) {
		ctx, users := t.Context(), typeOf(t, s.open(userdb.Options{Schema: withInterests}), "user")
		var many []string
		for n := range 2500 {
			many = append(many, fmt.Sprintf("m%04d", n))
		}
		want := map[string][]string{} // the tags of each entry, by UID
		for n := range 100 {          // more than are read in one round trip
			uid, tags := fmt.Sprintf("u%02d", n), []string{"a", fmt.Sprint("t", n)}
			if n%10 == 0 {
				tags = nil
			}
			must(t, errOf(users.Create(ctx, userdb.NewEntry{UID: uid, Facets: schema.Texts("name", "name "+uid), Tags: tags})))
			want[uid] = tags
		}
		must(t, users.Set(hints.UID("u07"), "interests").Replace(ctx, many...))
		q := userdb.Query{WithSets: []string{"tags", "interests"}, Limit: 90}
		check := func(what string, e userdb.Entry) {
			t.Helper()
			if got := e.Members("tags"); !slices.Equal(got, want[e.UID()]) {
				t.Errorf("%s: %s has the tags %q, want %q", what, e.UID(), got, want[e.UID()])
			}
			if got := e.Members("interests"); e.UID() == "u07" && !slices.Equal(got, many) || e.UID() != "u07" && len(got) > 0 {
				t.Errorf("%s: %s has %d interests, want %d of u07 and none of others", what, e.UID(), len(got), len(many))
			}
			if got := e.Members("nobody"); got != nil {
				t.Errorf("%s: got %q of a set that was not asked for", what, got)
			}
		}
		seen := 0
		for q.After = ""; seen == 0 || q.After != ""; {
			page, err := users.Page(ctx, q)
			must(t, err)
			for _, e := range page.Entries {
				seen++
				check("page", e)
			}
			q.After = page.Next
		}
		for e, err := range users.All(ctx, userdb.Query{WithSets: q.WithSets}) {
			must(t, err)
			seen++
			check("all", e)
		}
		if seen != 200 {
			t.Errorf("listed %d entries, want each of 100 twice", seen)
		}
		e, err := users.Find(ctx, hints.UID("u01"))
		if must(t, err); e.Members("tags") != nil {
			t.Errorf("Find read the tags %q, want no set", e.Members("tags"))
		}
		page, err := users.Page(ctx, userdb.Query{Where: schema.Texts("name", "name u01"), WithSets: []string{"tags"}})
		if must(t, err); len(page.Entries) != 1 || !slices.Equal(page.Entries[0].Members("tags"), want["u01"]) {
			t.Errorf("a query by name: got %v, want u01 with its tags", page.Entries)
		}
		one := keysOf(s, "/tags", func() { must(t, drain(users.All(ctx, userdb.Query{WithSets: []string{"tags"}, Limit: 1}))) })
		twice := keysOf(s, "/tags", func() { must(t, drain(users.All(ctx, userdb.Query{WithSets: []string{"tags", "tags"}, Limit: 1}))) })
		if len(one) == 0 || len(slices.Compact(slices.Clone(one))) != 1 || len(twice) != len(one) {
			t.Errorf("a listing of one entry read the sets %q, and with the name given twice %q; want one set, equally often", one, twice)
		}
		for _, set := range []string{"nobody", "log", "name"} {
			if _, err := users.Page(ctx, userdb.Query{WithSets: []string{set}}); !errors.Is(err, schema.ErrSchema) {
				t.Errorf("a set %q that the schema does not declare: got %v, want ErrSchema", set, err)
			}
		}
	})
}

// keysOf calls do, and returns the keys with the given ending in the commands that it sends.
func keysOf(s *site, ending string, do func()) (keys []string) {
	var mu sync.Mutex
	s.tap.set(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		mu.Lock()
		defer mu.Unlock()
		for _, cmd := range cmds {
			for _, arg := range cmd.Args() {
				if key := argument(arg); strings.HasSuffix(key, ending) {
					keys = append(keys, key)
				}
			}
		}
		return send()
	})
	defer s.tap.set(nil)
	do()
	return keys
}

// TestWithSetsKind checks that a record that should be a set but is not one counts as an error of
// its entry alone, and not as an empty set.
func TestWithSetsKind(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		ctx, users := t.Context(), typeOf(t, s.open(userdb.Options{Schema: fanSchema(t)}), "user")
		fans := must1(userdb.Of[fan](users))(t)
		ann := must1(users.Create(ctx, userdb.NewEntry{UID: "ann", Facets: schema.Texts("name", "Ann")}))(t)
		must(t, errOf(users.Create(ctx, userdb.NewEntry{UID: "bob", Facets: schema.Texts("name", "Bob"), Tags: []string{"x"}})))
		key := must1(ann.Key().Tertiary("tags"))(t).String()
		must(t, s.raw.Set(ctx, key, "text", 0).Err())
		want := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, userdb.ErrCorrupt) || !strings.Contains(fmt.Sprint(err), key+": a string, not a set") {
				t.Errorf("%s: got %v, want ErrCorrupt with the key", what, err)
			}
		}
		q := userdb.Query{WithSets: []string{"interests", "tags"}}
		var uids []string
		for e, err := range users.All(ctx, q) {
			if uids = append(uids, e.UID()); e.UID() == "" {
				want("all", err)
			}
		}
		if slices.Sort(uids); !slices.Equal(uids, []string{"", "bob"}) {
			t.Errorf("all: got %q, want bob and one error", uids)
		}
		page, err := users.Page(ctx, q)
		if want("page", err); len(page.Entries) != 1 || page.Entries[0].UID() != "bob" {
			t.Errorf("page: got %v, want bob", page.Entries)
		}
		want("find", errOf(fans.Find(ctx, hints.UID("ann"))))
		want("update", errOf(fans.Update(ctx, hints.UID("ann"), func(f *fan) error { f.Tags = []string{"x"}; return nil })))
		must(t, s.raw.Del(ctx, key).Err())
	})
}

// TestListMemory lists many entries, and checks that the heap does not grow with their number.
func TestListMemory(t *testing.T) {
	s := startServer(t)
	users, ctx := s.wide(), t.Context()
	n := 50_000
	if testing.Short() {
		n = 5_000
	}
	add(t, users, "first") // stores the schema
	for i := 0; i < n; i += 1000 {
		pipe := s.raw.Pipeline()
		for j := i; j < i+1000; j++ {
			uid := "u" + itoa(j)
			pipe.HSet(ctx, "user/uid:"+uid, "~isa", "user", "~prk", "user/uid:"+uid, "uid", uid, "text", strings.Repeat("x", 200))
		}
		s.send(ctx, pipe)
	}
	var before, peak, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	seen := 0
	for _, err := range users.All(ctx, userdb.Query{}) {
		must(t, err)
		if seen++; seen%(n/20) == 0 {
			runtime.GC()
			runtime.ReadMemStats(&now)
			peak.HeapAlloc = max(peak.HeapAlloc, now.HeapAlloc)
		}
	}
	if seen < n+1 {
		t.Errorf("listed %d entries, want %d", seen, n+1)
	}
	if grown := int64(peak.HeapAlloc) - int64(before.HeapAlloc); grown > 8<<20 {
		t.Errorf("the heap grew by %d bytes while %d entries of 300 bytes were listed, want at most 8 MiB", grown, n)
	}
	s.command("flushall")
	clear(s.views)
}

// TestListingAcrossRestart restarts the server in the middle of a listing. The restart changes the
// order of the server's hash tables. A listing of all entries and one by an index must still have
// every entry that exists the whole time.
func TestListingAcrossRestart(t *testing.T) {
	const entries = 2500
	s := startServer(t, redistest.AppendOnly("no"))
	users := s.wide()
	var all sync.WaitGroup
	for part := range 10 {
		all.Go(func() {
			for i := part; i < entries; i += 10 {
				_, err := users.Create(t.Context(), userdb.NewEntry{
					UID: fmt.Sprintf("u%04d", i), Facets: schema.Texts("name", fmt.Sprintf("name %d", i), "job", "cook"),
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for _, q := range []userdb.Query{{}, {Where: schema.Texts("job", "cook")}} {
		seen, n := map[string]bool{}, 0
		for e, err := range users.All(t.Context(), q) {
			must(t, err)
			if seen[e.UID()] = true; n == 10 {
				s.server.Stop() // the server saves its records
				s.server.Restart()
			}
			n++
		}
		if len(seen) != entries {
			t.Errorf("%v: listed %d of %d entries, want all", q.Where, len(seen), entries)
		}
	}
	s.inspect(t)
}
