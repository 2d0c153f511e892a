package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/single"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

// paths lists namespaces whose names have a common prefix, are nested, or contain special
// characters of keys and patterns.
var paths = []string{"a", "ab", "a/b", "~a", "a*", "[a]", "a+.b", "a/~+,"}

// fillNamespaces creates two entries with tags and notes in each namespace of paths and outside
// them. It deletes the second of each, which leaves a tombstone.
func (s *site) fillNamespaces(t testdb.Tester) {
	t.Helper()
	s.flush(t)
	for _, path := range append(paths, "") {
		in, err := s.DB.In(testdb.Space(t, path))
		if err != nil {
			t.Fatal(err)
		}
		view := newSite(&testdb.Site{Ctx: s.Ctx, Raw: s.Raw, NS: testdb.Space(t, path), DB: in})
		view.User(t, 1)
		view.User(t, 2)
		if err := view.Type(t, "user").Delete(s.Ctx, testdb.HintOf(testdb.Must(view.Type(t, "user").Find(s.Ctx, hints.UID("u2").Of("user"))))); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *site) listNamespaces(t testdb.Tester) []string {
	t.Helper()
	var got []string
	for _, n := range testdb.Must(migrate.Namespaces(s.Ctx, s.DB)) {
		got = append(got, fmt.Sprintf("%s %d", n.Namespace.Path(), n.Entries))
	}
	return got
}

// withPrefix returns the records whose keys begin with prefix, and removes prefix from the keys.
func withPrefix(all map[string]string, prefix string) map[string]string {
	some := map[string]string{}
	for k, v := range all {
		if rest, ok := strings.CutPrefix(k, prefix); ok {
			some[rest] = v
		}
	}
	return some
}

func onBothStores(t *testing.T, test func(t *testing.T, s *site)) {
	t.Run("embedded", func(t *testing.T) { test(t, openURL(t, "memory:")) })
	t.Run("redis", func(t *testing.T) {
		test(t, newSite(testdb.Open(t, testdb.ServerClient(t), recordkey.Namespace{}, testdb.DefaultSchema())))
	})
}

func TestNamespaces(t *testing.T) {
	onBothStores(t, func(t *testing.T, s *site) {
		s.fillNamespaces(t)
		var want []string
		for _, path := range paths {
			want = append(want, path+" 1")
		}
		testdb.Same(t, "listed", slices.Sorted(slices.Values(s.listNamespaces(t))), want)
		a := newSite(&testdb.Site{Ctx: s.Ctx, Raw: s.Raw, DB: testdb.Must(s.DB.In(testdb.Space(t, "a")))})
		testdb.Same(t, "listed inside a", a.listNamespaces(t), []string{"a/b 1", "a/~+, 1"})
		for _, n := range testdb.Must(migrate.Namespaces(s.Ctx, s.DB)) {
			all := withPrefix(s.allRecords(t), n.Namespace.String())
			maps.DeleteFunc(all, func(k, _ string) bool { return strings.HasPrefix(k, "~") && !strings.HasPrefix(k, "~/") })
			if n.Records != int64(len(all)) {
				t.Errorf("%s: %d records, want %d", n.Namespace.Path(), n.Records, len(all))
			}
		}
		s.Do(t, "SET", "~broken/user/name:\t/~prk", "x")
		s.Do(t, "SET", "~no slash", "x")
		if got := s.listNamespaces(t); !slices.Contains(got, "broken 0") || len(got) != len(want)+1 {
			t.Errorf("with keys that do not parse: got %q, want one more namespace, broken", got)
		}
	})
}

// A markedEngine acts as if a second copy began at the same time. Just before the tested copy marks
// its target, the engine marks it for a copy from another source.
type markedEngine struct{ store.Engine }

func (e markedEngine) Secret(ctx context.Context, key recordkey.Key, fresh string) (string, error) {
	if _, err := e.Engine.Secret(ctx, key, "another source"); err != nil {
		return "", err
	}
	return e.Engine.Secret(ctx, key, fresh)
}

// TestCopyMeetsAnotherCopy runs a copy into a namespace that was empty until a second copy marked
// it as its target. The first copy must fail and copy nothing.
func TestCopyMeetsAnotherCopy(t *testing.T) {
	onBothStores(t, func(t *testing.T, s *site) {
		s.fillNamespaces(t)
		to := testdb.Space(t, "x/y")
		db := testdb.Must(view.Reconfigure(s.DB, func(c *view.Config) { c.Engine = markedEngine{c.Engine} }))
		if n, err := migrate.CopyNamespace(s.Ctx, db, testdb.Space(t, "a"), to); !errors.Is(err, migrate.ErrNotEmpty) || n != 0 {
			t.Errorf("got %d records and error %v, want ErrNotEmpty", n, err)
		}
		if copied := withPrefix(s.allRecords(t), to.String()+"user/"); len(copied) > 0 {
			t.Errorf("the copy that failed has written %q, want nothing", copied)
		}
	})
}

func TestCopyAndDropNamespace(t *testing.T) {
	onBothStores(t, func(t *testing.T, s *site) {
		for _, path := range paths {
			s.fillNamespaces(t)
			from, to := testdb.Space(t, path), testdb.Space(t, "x/y")
			s.Do(t, "SET", from.String()+"~/session", "short", "EX", "1000")
			before := s.allRecords(t)
			source := withPrefix(before, from.String())
			n, err := migrate.CopyNamespace(s.Ctx, s.DB, from, to)
			if err != nil || n != int64(len(source)) {
				t.Errorf("%s: copied %d, %v; want %d", path, n, err, len(source))
			}
			after := s.allRecords(t)
			if copied := withPrefix(after, to.String()); !maps.Equal(copied, source) {
				t.Errorf("%s: the copy is\n%q\nwant\n%q", path, copied, source)
			}
			if ttl := s.Raw.TTL(s.Ctx, to.String()+"~/session").Val(); ttl <= 0 {
				t.Errorf("%s: the copied ~/session has the time to live %v, want more than 0", path, ttl)
			}
			copied := newSite(&testdb.Site{Ctx: s.Ctx, Raw: s.Raw, DB: testdb.Must(s.DB.In(to))})
			testdb.Same(t, path+": the copy", copied.Check(t, check.Options{}), nil)
			if _, err := migrate.CopyNamespace(s.Ctx, s.DB, from, to); !errors.Is(err, migrate.ErrNotEmpty) {
				t.Errorf("%s: copying again: got %v, want ErrNotEmpty", path, err)
			}

			n, err = migrate.DropNamespace(s.Ctx, s.DB, to)
			if err != nil || n != int64(len(source)) || !maps.Equal(s.allRecords(t), before) {
				t.Errorf("%s: dropping the copy: dropped %d records, want %d and no other; error %v", path, n, len(source), err)
			}
			outside := maps.Clone(before)
			maps.DeleteFunc(outside, func(k, _ string) bool { return strings.HasPrefix(k, from.String()) })
			if n, err = migrate.DropNamespace(s.Ctx, s.DB, from); err != nil || n != int64(len(source)) || !maps.Equal(s.allRecords(t), outside) {
				t.Errorf("%s: dropping the source: dropped %d records, want %d and no other; error %v; left %q", path, n, len(source), err, s.allRecords(t))
			}
		}
	})
}

// TestCopyResumes stops copies into one namespace, each after one more command than the copy
// before. A last copy, which is not stopped, must complete their work.
func TestCopyResumes(t *testing.T) {
	onBothStores(t, func(t *testing.T, s *site) {
		c := &testdb.Cut{}
		s.Raw.AddHook(c)
		c.Left.Store(1 << 40)
		s.fillNamespaces(t)
		from, to := testdb.Space(t, "a"), testdb.Space(t, "copy")
		source := withPrefix(s.allRecords(t), from.String())
		for n := range 30 {
			c.Left.Store(int64(n))
			_, err := migrate.CopyNamespace(s.Ctx, s.DB, from, to)
			c.Left.Store(1 << 40)
			if err == nil {
				break
			}
		}
		if _, err := migrate.CopyNamespace(s.Ctx, s.DB, from, to); err != nil && !errors.Is(err, migrate.ErrNotEmpty) {
			t.Fatal(err)
		}
		if copied := withPrefix(s.allRecords(t), to.String()); !maps.Equal(copied, source) {
			t.Errorf("the copy is\n%q\nwant\n%q", copied, source)
		}
	})
}

// TestCopyWhileServerLoses checks that a copy is complete although the server restarted during it
// and lost part of it.
func TestCopyWhileServerLoses(t *testing.T) {
	server := redistest.Start(t)
	s := openURL(t, server.URL())
	s.fillNamespaces(t)
	from, to := testdb.Space(t, "a"), testdb.Space(t, "copy")
	source := withPrefix(s.allRecords(t), from.String())
	var copying atomic.Bool
	l := &testdb.Losing{
		T: t, Server: server, Keep: func(cmd redis.Cmder) bool { return cmd.Name() == "copy" },
		Lose: func(cmd redis.Cmder) bool { // before the first command that follows the copies
			copying.Store(copying.Load() || cmd.Name() == "copy")
			return copying.Load() && slices.Contains(cmd.Args(), any("~/probe/1"))
		},
	}
	s.Raw.AddHook(l)
	if _, err := migrate.CopyNamespace(s.Ctx, s.DB, from, to); err != nil || !l.Lost.Load() {
		t.Fatalf("copying: %v, and the server restarted: %v; want no error, and a restart", err, l.Lost.Load())
	}
	if copied := withPrefix(s.allRecords(t), to.String()); !maps.Equal(copied, source) {
		t.Errorf("the copy is\n%q\nwant\n%q", copied, source)
	}
}

// TestDropInterrupted stops drops after different numbers of commands. An entry that remains must
// still be found by its address.
func TestDropInterrupted(t *testing.T) {
	onBothStores(t, func(t *testing.T, s *site) {
		c := &testdb.Cut{}
		s.Raw.AddHook(c)
		from, stopped := testdb.Space(t, "a"), 0
		left := newSite(&testdb.Site{Ctx: s.Ctx, Raw: s.Raw, NS: from, DB: testdb.Must(s.DB.In(from))})
		for n := 0; n < 60; n += 3 {
			c.Left.Store(1 << 40)
			s.flush(t)
			left.User(t, 1)
			left.User(t, 2)
			c.Left.Store(int64(n))
			_, err := migrate.DropNamespace(s.Ctx, s.DB, from)
			c.Left.Store(1 << 40)
			if err == nil {
				break
			}
			stopped++
			for _, uid := range []string{"u1", "u2"} {
				users := left.Type(t, "user")
				_, err := users.Find(s.Ctx, hints.UID(uid))
				_, byMail := users.Find(s.Ctx, hints.Field("email", uid+"@x.org"))
				if err == nil && byMail != nil {
					t.Errorf("stopped after %d commands: %s exists, but its address does not find it: %v", n, uid, byMail)
				}
			}
		}
		if stopped < 3 {
			t.Errorf("%d drops were stopped, want at least 3", stopped)
		}
	})
}

func TestNamespaceErrors(t *testing.T) {
	s := openURL(t, "memory:")
	s.fillNamespaces(t)
	before := s.allRecords(t)
	for _, tt := range []struct {
		from, to string
		want     error
	}{
		{"", "x", migrate.ErrNamespace},
		{"a", "", migrate.ErrNamespace},
		{"a", "a", migrate.ErrNamespace},
		{"a", "a/c", migrate.ErrNamespace},
		{"a/b", "a", migrate.ErrNamespace},
		{"a", "ab", migrate.ErrNotEmpty},
		{"nobody", "x", userdb.ErrNotFound},
	} {
		if n, err := migrate.CopyNamespace(s.Ctx, s.DB, testdb.Space(t, tt.from), testdb.Space(t, tt.to)); n != 0 || !errors.Is(err, tt.want) {
			t.Errorf("copy %q to %q: copied %d records, %v; want error %v", tt.from, tt.to, n, err, tt.want)
		}
	}
	if _, err := migrate.DropNamespace(s.Ctx, s.DB, recordkey.Namespace{}); !errors.Is(err, migrate.ErrNamespace) {
		t.Errorf("dropping the whole store: got %v, want ErrNamespace", err)
	}
	if n, err := migrate.DropNamespace(s.Ctx, s.DB, testdb.Space(t, "nobody")); n != 0 || err != nil {
		t.Errorf("dropping an empty namespace: dropped %d records, %v; want none and no error", n, err)
	}
	if n, err := migrate.CountNamespace(s.Ctx, s.DB, testdb.Space(t, "a")); err != nil || n != int64(len(withPrefix(before, "~a/"))) {
		t.Errorf("count: got %d, %v; want %d", n, err, len(withPrefix(before, "~a/")))
	}
	if !maps.Equal(before, s.allRecords(t)) {
		t.Error("the operations that were refused or found nothing have changed records")
	}
}

// openURL opens a store by its URL. The returned site has the client of the store.
func openURL(t *testing.T, url string) *site {
	t.Helper()
	db, err := userdb.Open(t.Context(), url, userdb.Options{Schema: testdb.DefaultSchema()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	raw := view.Of(db).Engine.(*single.Engine).Client().(*redis.Client)
	return newSite(&testdb.Site{Ctx: t.Context(), Raw: raw, DB: db})
}
