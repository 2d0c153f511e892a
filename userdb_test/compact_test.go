package userdb_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain"
	"github.com/coffeenode/userdb/userdb"
)

// loose are the fields that keep entries of a view from being compact.
func loose(t *testing.T, db *userdb.DB) string {
	t.Helper()
	var all []string
	for p, err := range maintain.Check(store.Alone(t.Context()), db, maintain.CheckOptions{}) {
		must(t, err)
		if p.Code == "entry_not_compact" {
			all = append(all, fmt.Sprintf("%s %s %d/%d", p.Key, p.Field, p.Count, p.Of))
		}
	}
	return strings.Join(all, "; ")
}

// Entries of one namespace are counted alone, on every store by the same limits.
func TestNotCompact(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		whole := s.open(userdb.Options{})
		inside := s.open(userdb.Options{Namespace: space(t, "acme")})
		for i, n := range []int{1, 64, 65, 300} {
			add(t, typeOf(t, whole, "user"), fmt.Sprint("u", i), "name", fmt.Sprint("n", i), "bio", strings.Repeat("x", n))
			add(t, typeOf(t, inside, "user"), fmt.Sprint("u", i), "name", fmt.Sprint("n", i), "bio", strings.Repeat("x", 64))
		}
		if got, want := loose(t, whole), "user/uid:u2 bio 2/4"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := loose(t, inside); got != "" {
			t.Errorf("in a namespace: got %q, want none", got)
		}
	})
}

// limitValues changes how long values may be in a compact hash.
func limitValues(t *testing.T, value string, nodes []*redistest.Server) {
	t.Helper()
	for _, n := range nodes {
		must(t, n.Client().ConfigSet(context.Background(), "hash-max-listpack-value", value).Err())
	}
}

// On a cluster the least limits of all masters hold; those of replicas do not matter. A node that does not tell
// its own is taken for one that has the usual ones.
func TestNotCompactNodes(t *testing.T) {
	cluster := redistest.StartCluster(t)
	s := newSite(t, cluster.URL(), map[trait]string{})
	t.Cleanup(s.check)
	db := s.open(userdb.Options{})
	for i := range 12 {
		add(t, typeOf(t, db, "user"), fmt.Sprint("u", i), "name", fmt.Sprint("n", i), "bio", strings.Repeat("x", 50+10*(i%2)))
	}
	set := func(value string, nodes ...*redistest.Server) { limitValues(t, value, nodes) }
	masters, replicas := cluster.Nodes[:3], cluster.Nodes[3:]
	set("30", replicas...)
	for _, tt := range []struct {
		value string
		nodes []*redistest.Server
		want  string
	}{
		{"128", masters[:2], ""},
		{"55", masters[2:], "user/uid:u1 bio 6/12"},
		{"128", masters, ""},
		{"49", masters[:1], "user/uid:u0 bio 12/12"},
	} {
		set(tt.value, tt.nodes...)
		if got := loose(t, db); got != tt.want {
			t.Errorf("%s at %d nodes: got %q, want %q", tt.value, len(tt.nodes), got, tt.want)
		}
	}
	set("128", masters...)
	must(t, masters[1].Client().Do(context.Background(), "ACL", "SETUSER", "default", "-config").Err())
	add(t, typeOf(t, db, "user"), "long", "name", "long", "bio", strings.Repeat("x", 65))
	if got, want := loose(t, db), "user/uid:long bio 1/13"; got != want {
		t.Errorf("one node is silent: got %q, want %q", got, want)
	}
}

// What the README says of memory is so: the larger form is left by a reload alone.
func TestNotCompactUntilReload(t *testing.T) {
	s := startServer(t, redistest.Config("enable-debug-command local"))
	users := s.users()
	add(t, users, "u", "name", "n", "bio", strings.Repeat("x", 65))
	form := func(want string) int64 {
		t.Helper()
		if got := s.raw.ObjectEncoding(t.Context(), "user/uid:u").Val(); got != want {
			t.Errorf("kept as %s, want %s", got, want)
		}
		return s.raw.MemoryUsage(t.Context(), "user/uid:u", 0).Val()
	}
	large := form("hashtable")
	must(t, s.raw.(*redis.Client).HSet(t.Context(), "user/uid:u", "bio", "short").Err())
	form("hashtable")
	s.command("DEBUG", "RELOAD")
	if small := form("listpack"); small*3 > large*2 {
		t.Errorf("compact it takes %d bytes, else %d", small, large)
	}
}
