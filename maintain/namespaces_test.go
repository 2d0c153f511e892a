package maintain_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/store/single"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

// paths are namespaces with names that begin alike, lie in each other, or look like something else.
var paths = []string{"a", "ab", "a/b", "~a", "a*", "[a]", "a+.b", "a/~+,"}

// towns puts an entry with all that belongs to it into each of the paths.
func (s *site) towns(t tester) {
	t.Helper()
	s.empty(t)
	for _, path := range append(paths, "") {
		in, err := s.db.In(space(t, path))
		if err != nil {
			t.Fatal(err)
		}
		view := &site{ctx: s.ctx, raw: s.raw, ns: space(t, path), db: in}
		view.user(t, 1)
		view.user(t, 2)
		if err := view.typ(t, "user").Delete(s.ctx, hintOf(must(view.typ(t, "user").Find(s.ctx, hints.UID("u2").Of("user"))))); err != nil {
			t.Fatal(err)
		}
	}
}

func space(t tester, path string) recordkey.Namespace {
	t.Helper()
	ns, err := recordkey.ParseNamespace(path)
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

func (s *site) listed(t tester) []string {
	t.Helper()
	var got []string
	for n, err := range maintain.Namespaces(s.ctx, s.db) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %d", n.Namespace.Path(), n.Entries))
	}
	return got
}

// inside are the records whose keys begin with a prefix, by the rest of the key.
func inside(all map[string]string, prefix string) map[string]string {
	some := map[string]string{}
	for k, v := range all {
		if rest, is := strings.CutPrefix(k, prefix); is {
			some[rest] = v
		}
	}
	return some
}

func onEach(t *testing.T, test func(t *testing.T, s *site)) {
	t.Run("embedded", func(t *testing.T) { test(t, openBy(t, "memory:")) })
	t.Run("redis", func(t *testing.T) { test(t, open(t, serverClient(t), recordkey.Namespace{}, house())) })
}

func TestNamespaces(t *testing.T) {
	onEach(t, func(t *testing.T, s *site) {
		s.towns(t)
		var want []string
		for _, path := range paths {
			want = append(want, path+" 1")
		}
		same(t, "listed", slices.Sorted(slices.Values(s.listed(t))), want)
		a := &site{ctx: s.ctx, raw: s.raw, db: must(s.db.In(space(t, "a")))}
		same(t, "listed inside a", a.listed(t), []string{"a/b 1", "a/~+, 1"})
		for n := range maintain.Namespaces(s.ctx, s.db) {
			all := inside(s.records(t), n.Namespace.String())
			maps.DeleteFunc(all, func(k, _ string) bool { return strings.HasPrefix(k, "~") && !strings.HasPrefix(k, "~/") })
			if n.Records != int64(len(all)) {
				t.Errorf("%s: %d records, want %d", n.Namespace.Path(), n.Records, len(all))
			}
		}
		s.do(t, "SET", "~broken/user/name:\t/~prk", "x")
		s.do(t, "SET", "~no slash", "x")
		if got := s.listed(t); !slices.Contains(got, "broken 0") || len(got) != len(want)+1 {
			t.Errorf("with keys that do not parse: %q", got)
		}
	})
}

func TestCopyAndDropNamespace(t *testing.T) {
	onEach(t, func(t *testing.T, s *site) {
		for _, path := range paths {
			s.towns(t)
			from, to := space(t, path), space(t, "x/y")
			s.do(t, "SET", from.String()+"~/session", "short", "EX", "1000")
			before := s.records(t)
			source := inside(before, from.String())
			n, err := maintain.CopyNamespace(s.ctx, s.db, from, to)
			if err != nil || n != int64(len(source)) {
				t.Errorf("%s: copied %d, %v; want %d", path, n, err, len(source))
			}
			after := s.records(t)
			if copied := inside(after, to.String()); !maps.Equal(copied, source) {
				t.Errorf("%s: the copy is\n%q\nwant\n%q", path, copied, source)
			}
			if ttl := s.raw.TTL(s.ctx, to.String()+"~/session").Val(); ttl <= 0 {
				t.Errorf("%s: the copy's time to live is %v", path, ttl)
			}
			copied := &site{ctx: s.ctx, raw: s.raw, db: must(s.db.In(to))}
			same(t, path+": the copy", copied.check(t, maintain.CheckOptions{}), nil)
			if _, err := maintain.CopyNamespace(s.ctx, s.db, from, to); !errors.Is(err, maintain.ErrNotEmpty) {
				t.Errorf("%s: once more: %v", path, err)
			}

			n, err = maintain.DropNamespace(s.ctx, s.db, to)
			if err != nil || n != int64(len(source)) || !maps.Equal(s.records(t), before) {
				t.Errorf("%s: dropping the copy: %d, %v", path, n, err)
			}
			outside := maps.Clone(before)
			maps.DeleteFunc(outside, func(k, _ string) bool { return strings.HasPrefix(k, from.String()) })
			if n, err = maintain.DropNamespace(s.ctx, s.db, from); err != nil || n != int64(len(source)) || !maps.Equal(s.records(t), outside) {
				t.Errorf("%s: dropping: %d, %v; left %q", path, n, err, s.records(t))
			}
		}
	})
}

// TestCopyGoesOn stops copies at any command.
func TestCopyGoesOn(t *testing.T) {
	onEach(t, func(t *testing.T, s *site) {
		c := &cut{}
		s.raw.AddHook(c)
		c.left.Store(1 << 40)
		s.towns(t)
		from, to := space(t, "a"), space(t, "copy")
		source := inside(s.records(t), from.String())
		for n := range 30 {
			c.left.Store(int64(n))
			_, err := maintain.CopyNamespace(s.ctx, s.db, from, to)
			c.left.Store(1 << 40)
			if err == nil {
				break
			}
		}
		if _, err := maintain.CopyNamespace(s.ctx, s.db, from, to); err != nil && !errors.Is(err, maintain.ErrNotEmpty) {
			t.Fatal(err)
		}
		if copied := inside(s.records(t), to.String()); !maps.Equal(copied, source) {
			t.Errorf("the copy is\n%q\nwant\n%q", copied, source)
		}
	})
}

func TestNamespacesRefuse(t *testing.T) {
	s := openBy(t, "memory:")
	s.towns(t)
	before := s.records(t)
	for _, tt := range []struct {
		from, to string
		want     error
	}{
		{"", "x", maintain.ErrNamespace},
		{"a", "", maintain.ErrNamespace},
		{"a", "a", maintain.ErrNamespace},
		{"a", "a/c", maintain.ErrNamespace},
		{"a/b", "a", maintain.ErrNamespace},
		{"a", "ab", maintain.ErrNotEmpty},
		{"nobody", "x", userdb.ErrNotFound},
	} {
		if n, err := maintain.CopyNamespace(s.ctx, s.db, space(t, tt.from), space(t, tt.to)); n != 0 || !errors.Is(err, tt.want) {
			t.Errorf("copy %q to %q: %d, %v; want %v", tt.from, tt.to, n, err, tt.want)
		}
	}
	if _, err := maintain.DropNamespace(s.ctx, s.db, recordkey.Namespace{}); !errors.Is(err, maintain.ErrNamespace) {
		t.Errorf("drop of the whole store: %v", err)
	}
	if n, err := maintain.DropNamespace(s.ctx, s.db, space(t, "nobody")); n != 0 || err != nil {
		t.Errorf("drop of nothing: %d, %v", n, err)
	}
	if n, err := maintain.CountNamespace(s.ctx, s.db, space(t, "a")); err != nil || n != int64(len(inside(before, "~a/"))) {
		t.Errorf("count: %d, %v", n, err)
	}
	if !maps.Equal(before, s.records(t)) {
		t.Error("something was written")
	}
}

// openBy opens a store by its URL, and reaches for its client.
func openBy(t *testing.T, url string) *site {
	t.Helper()
	db, err := userdb.Open(t.Context(), url, userdb.Options{Schema: house()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	raw := view.Of(db).Engine.(*single.Engine).Client().(*redis.Client)
	return &site{ctx: t.Context(), raw: raw, db: db}
}
