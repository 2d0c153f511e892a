package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A corruption damages the entry u (name n, e-mail e, job j, tag t), directly in Redis.
type corruption struct {
	name   string
	do     func(ctx context.Context, c redis.UniversalClient) error
	expect []string // what audit and check.Run must find, such as "I1 user/name:n/~prk"
	find   error    // the error that Find by UID must return, or nil
	words  string   // the words that this error must contain
}

// orphaned is the damage if no hash is left at the entry's key.
var orphaned = []string{
	"I3 user/uid:u", "I4 user/name:n/~prk", "I4 user/email:e/~prk",
	"I4 user/job:j/~prks", "I4 user/tags:t/~prks", "I4 user/uid:u/tags",
}

var corruptions = []corruption{
	{
		"a string under the entry's key", func(ctx context.Context, c redis.UniversalClient) error {
			return errors.Join(c.Del(ctx, "user/uid:u").Err(), c.Set(ctx, "user/uid:u", "x", 0).Err())
		},
		orphaned,
		userdb.ErrCorrupt, "WRONGTYPE",
	},
	{
		"a list under the entry's key", func(ctx context.Context, c redis.UniversalClient) error {
			return errors.Join(c.Del(ctx, "user/uid:u").Err(), c.RPush(ctx, "user/uid:u", "x").Err())
		},
		orphaned,
		userdb.ErrCorrupt, "WRONGTYPE",
	},
	{
		"a hash without ~isa", func(ctx context.Context, c redis.UniversalClient) error {
			return c.HDel(ctx, "user/uid:u", "~isa").Err()
		},
		[]string{"I3 user/uid:u"},
		userdb.ErrCorrupt, "~isa",
	},
	{
		"an ~isa of another type", func(ctx context.Context, c redis.UniversalClient) error {
			return c.HSet(ctx, "user/uid:u", "~isa", "order").Err()
		},
		[]string{"I3 user/uid:u"},
		userdb.ErrCorrupt, "~isa",
	},
	{
		"a facet that cannot be decoded", func(ctx context.Context, c redis.UniversalClient) error {
			return c.HSet(ctx, "user/uid:u", "rating", "{").Err()
		},
		[]string{"I0 user/uid:u"},
		userdb.ErrCorrupt, "rating",
	},
	{
		"an SRK that is a list", func(ctx context.Context, c redis.UniversalClient) error {
			return errors.Join(c.Del(ctx, "user/name:n/~prk").Err(), c.RPush(ctx, "user/name:n/~prk", "x").Err())
		},
		[]string{"I4 user/name:n/~prk", "I1 user/name:n/~prk"},
		nil, "",
	},
	{
		"a missing SRK", func(ctx context.Context, c redis.UniversalClient) error { return c.Del(ctx, "user/name:n/~prk").Err() },
		[]string{"I1 user/name:n/~prk"},
		nil, "",
	},
	{
		"an index that is a string", func(ctx context.Context, c redis.UniversalClient) error {
			return errors.Join(c.Del(ctx, "user/tags:t/~prks").Err(), c.Set(ctx, "user/tags:t/~prks", "x", 0).Err())
		},
		[]string{"I5 user/tags:t/~prks"},
		nil, "",
	},
	{
		"tags that are a string", func(ctx context.Context, c redis.UniversalClient) error {
			return errors.Join(c.Del(ctx, "user/uid:u/tags").Err(), c.Set(ctx, "user/uid:u/tags", "x", 0).Err())
		},
		[]string{"I0 user/uid:u/tags", "I5 user/tags:t/~prks"},
		nil, "",
	},
}

// createDamaged fills the store with a damaged entry u and an undamaged entry v.
func createDamaged(t *testing.T, s *site, d corruption) *userdb.Type {
	t.Helper()
	s.wipeIfOpen()
	users := s.wide()
	for _, n := range []userdb.NewEntry{
		{UID: "u", Facets: schema.Texts("name", "n", "email", "e", "job", "j"), Tags: []string{"t"}},
		{UID: "v", Facets: schema.Texts("name", "w", "job", "j"), Tags: []string{"t"}},
	} {
		must(t, errOf(users.Create(t.Context(), n)))
	}
	if strings.Contains(d.name, "index") { // d replaces the tag's index, so v must not be in it
		must(t, users.Delete(t.Context(), hints.UID("v")))
		add(t, users, "v", "name", "w", "job", "j")
	}
	must(t, d.do(t.Context(), s.raw))
	return users
}

// TestDamage finds and lists entries, one of which is damaged. Only the damaged entry may fail,
// with an error that names the damage, and the audit of the tests and check.Run must find all of
// the damage.
func TestDamage(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		for _, d := range corruptions {
			t.Run(d.name, func(t *testing.T) {
				users, ctx := createDamaged(t, s, d), t.Context()
				_, err := users.Find(ctx, hints.UID("u"))
				if d.find != nil {
					wantErr(t, "find", err, d.find, "user/uid:u", d.words)
				} else if err != nil {
					t.Errorf("find: %v", err)
				}
				_, err = users.Login(ctx, "n", "x", userdb.Attempt{})
				wantErr(t, "login", err, userdb.ErrLogin)
				wantListings(t, users, d)
				s.expected = map[string]bool{}
				s.expect(d.expect...)
				s.inspect(t)
			})
		}
		s.wipeIfOpen()
		clear(s.expected)
	})
}

// wantListings checks that every listing contains the undamaged entry, that the damaged one causes
// no error other than ErrCorrupt, or ErrNotFound where it is looked up, and that counts are right.
func wantListings(t *testing.T, users *userdb.Type, d corruption) {
	t.Helper()
	ctx := t.Context()
	got := map[string]int{}
	for e, err := range users.All(ctx, userdb.Query{}) {
		if err != nil {
			wantErr(t, "list", err, userdb.ErrCorrupt, "user/uid:u")
		}
		got[e.UID()]++
	}
	for e, err := range users.FindAll(ctx, hints.Any("n"), hints.UID("u"), hints.Any("w"), hints.UID("v")) {
		if err != nil && !errors.Is(err, userdb.ErrNotFound) {
			wantErr(t, "find all", err, userdb.ErrCorrupt)
		}
		got[e.UID()]++
	}
	page, pageErr := users.Page(ctx, userdb.Query{Limit: 10})
	if page.Next != "" || pageErr != nil && !errors.Is(pageErr, userdb.ErrCorrupt) {
		t.Errorf("page: got next %q and error %v, want no next page, and no error or ErrCorrupt", page.Next, pageErr)
	}
	for _, e := range page.Entries {
		got[e.UID()]++
	}
	if got["v"] != 4 {
		t.Errorf("the undamaged entry was read %d times, want 4: %v", got["v"], got)
	}
	// A count of all entries includes the damaged one.
	if n, err := users.Count(ctx, userdb.Query{}); n.Entries != 2 || err != nil {
		t.Errorf("count of all entries: %v, %v; want 2", n, err)
	}
	n, err := users.Count(ctx, userdb.Query{Disabled: new(false)})
	want := int64(len(page.Entries))
	if d.words == "rating" { // Count does not read facets
		want++
	}
	if n.Entries != want || errors.Is(err, userdb.ErrCorrupt) != (pageErr != nil && d.words != "rating") {
		t.Errorf("count of enabled entries: got %v, %v; want %d; the page had %d and error %v", n, err, want, len(page.Entries), pageErr)
	}
}

// writesOverDamage lists calls that write to the damaged entry, or compete with it for a value.
var writesOverDamage = map[string]func(ctx context.Context, users *userdb.Type) error{
	"delete": func(ctx context.Context, users *userdb.Type) error { return users.Delete(ctx, hints.UID("u")) },
	"create under the UID": func(ctx context.Context, users *userdb.Type) error {
		_, err := users.Create(ctx, userdb.NewEntry{UID: "u", Facets: schema.Texts("name", "other")})
		return err
	},
	"create with the name": func(ctx context.Context, users *userdb.Type) error {
		_, err := users.Create(ctx, userdb.NewEntry{UID: "x", Facets: schema.Texts("name", "n", "job", "j"), Tags: []string{"t"}})
		return err
	},
	"create with the name in the other field": func(ctx context.Context, users *userdb.Type) error {
		_, err := users.Create(ctx, userdb.NewEntry{UID: "x", Facets: schema.Texts("nick", "n")})
		return err
	},
	"rename": func(ctx context.Context, users *userdb.Type) error {
		_, err := users.Update(ctx, hints.UID("u"), putText("name", "m"))
		return err
	},
	"add a tag": func(ctx context.Context, users *userdb.Type) error {
		_, err := users.Tags(hints.UID("u")).Add(ctx, "t", "t2")
		return err
	},
}

// TestWritesOverDamage writes to and next to damaged records. Each call must do all of its work, or
// refuse with a clear error and do none.
func TestWritesOverDamage(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		for _, d := range corruptions {
			for name, method := range writesOverDamage {
				t.Run(name+"/"+d.name, func(t *testing.T) {
					users := createDamaged(t, s, d)
					before := formatRecords(s.dump(t.Context()), "")
					if err := method(t.Context(), users); err != nil {
						s.wantCleanRefusal(t, name, before, err)
						return
					}
					s.wantNoNewDamage(t, name, d)
				})
			}
		}
		s.wipeIfOpen()
	})
}

// TestEmptyISAIsDeleted checks that an entry whose ~isa is empty counts as deleted, whatever other
// fields remain: each call must do what it does after a delete.
func TestEmptyISAIsDeleted(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		ctx := t.Context()
		for name, method := range writesOverDamage {
			users := createDamaged(t, s, corruption{do: func(context.Context, redis.UniversalClient) error { return nil }})
			must(t, users.Delete(ctx, hints.UID("u")))
			want := fmt.Sprint(method(ctx, users))
			users = createDamaged(t, s, corruption{do: func(ctx context.Context, c redis.UniversalClient) error {
				return c.HSet(ctx, "user/uid:u", "~isa", "").Err()
			}})
			if got := fmt.Sprint(method(ctx, users)); got != want {
				t.Errorf("%s: got %s, want %s as after a delete", name, got, want)
			}
		}
		s.wipeIfOpen()
		users := s.wide()
		add(t, users, "v", "name", "w")
		must(t, s.raw.HSet(ctx, "user/uid:u", "~isa", "", "~rev", "abcdefghijkl").Err())
		add(t, users, "u", "name", "n")
	})
}

// wantCleanRefusal checks that err is a clear error and that the method has not written anything.
func (s *site) wantCleanRefusal(t *testing.T, method string, before map[string]string, err error) {
	t.Helper()
	kinds := []error{userdb.ErrCorrupt, userdb.ErrNotFound, userdb.ErrDuplicate}
	if !slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) }) {
		t.Errorf("got %v, want ErrCorrupt, ErrNotFound or ErrDuplicate", err)
	}
	if !s.has(oneScript) && method == "add a tag" {
		return // the tags are not on the node of the damaged index, and were written first
	}
	if diff := diffRecords(before, formatRecords(s.dump(t.Context()), "")); diff != "" {
		t.Errorf("got %v, but records were written:\n%s", err, diff)
	}
}

// wantNoNewDamage checks that a method added no damage to that of d, apart from damage that no
// writer could have prevented.
func (s *site) wantNoNewDamage(t *testing.T, method string, d corruption) {
	t.Helper()
	allowed := map[string]bool{}
	for _, e := range d.expect {
		allowed[e] = true
	}
	switch d.name {
	case "a missing SRK", "an ~isa of another type": // the value counts as free
		allowed["I1 user/name:n/~prk"] = true
		allowed["I2 user/name:n/~prk"], allowed["I2 user/nick:n/~prk"] = true, true
	case "tags that are a string": // the names of the indexes that contain the entry are lost
		allowed["I4 user/tags:t/~prks"] = true
	}
	for _, found := range audit(s.dump(t.Context()), view.Of(s.first).NS, s.first.Schema()) {
		if !allowed[found] {
			t.Errorf("%s succeeded but did damage: %s", method, found)
		}
	}
}

// TestSharedValue gives two entries the same value, as could happen with the original program. The
// entry that the SRK names must keep the value, whatever happens to the other.
func TestSharedValue(t *testing.T) {
	changes := map[string]func(ctx context.Context, users *userdb.Type) error{
		"delete": func(ctx context.Context, users *userdb.Type) error { return users.Delete(ctx, hints.UID("u")) },
		"rename": func(ctx context.Context, users *userdb.Type) error {
			_, err := users.Update(ctx, hints.UID("u"), putText("name", "m"))
			return err
		},
		"rename and change the job": func(ctx context.Context, users *userdb.Type) error {
			_, err := users.Update(ctx, hints.UID("u"), func(e *userdb.Entry) error {
				e.Put("name", schema.Text("m"))
				e.Put("job", schema.Text("k"))
				return nil
			})
			return err
		},
		"drop the name": func(ctx context.Context, users *userdb.Type) error {
			_, err := users.Update(ctx, hints.UID("u"), func(e *userdb.Entry) error { e.Drop("name"); return nil })
			return err
		},
	}
	eachStore(t, func(t *testing.T, s *site) {
		for name, change := range changes {
			s.wipeIfOpen()
			users, ctx := s.wide(), t.Context()
			add(t, users, "u", "name", "n", "job", "j")
			add(t, users, "v", "name", "w")
			must(t, s.raw.HSet(ctx, "user/uid:v", "name", "n").Err())
			must(t, s.raw.Set(ctx, "user/name:n/~prk", "user/uid:v", 0).Err())
			must(t, s.raw.Del(ctx, "user/name:w/~prk").Err())
			must(t, change(ctx, users))
			if e, err := users.Find(ctx, hints.Any("n")); err != nil || e.UID() != "v" {
				t.Errorf("%s of the other entry: found %v, %v; want v", name, e, err)
			}
			s.inspect(t)
		}
	})
}

// TestNotCompactUntilReload checks that docs/memory.md is right: a hash that was once large stays
// in the larger encoding until Redis loads its data again.
func TestNotCompactUntilReload(t *testing.T) {
	s := startServer(t, redistest.Config("enable-debug-command local"))
	users := s.users()
	add(t, users, "u", "name", "n", "job", strings.Repeat("x", 65))
	size := func(want string) int64 {
		t.Helper()
		if got := s.raw.ObjectEncoding(t.Context(), "user/uid:u").Val(); got != want {
			t.Errorf("the hash is encoded as %s, want %s", got, want)
		}
		return s.raw.MemoryUsage(t.Context(), "user/uid:u", 0).Val()
	}
	large := size("hashtable")
	must(t, s.raw.(*redis.Client).HSet(t.Context(), "user/uid:u", "job", "short").Err())
	size("hashtable")
	s.command("DEBUG", "RELOAD")
	if small := size("listpack"); small*3 > large*2 {
		t.Errorf("the compact hash takes %d bytes, the large one %d; want at most two thirds", small, large)
	}
}
