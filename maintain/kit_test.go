package maintain_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/embedded"
	"github.com/coffeenode/userdb/internal/hashcost"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/maintain"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestMain leaves to the race detector, under which all takes ten times as long, what it can judge: a tenth of
// the random combinations has all the goroutines.
func TestMain(m *testing.M) {
	if raced {
		if err := flag.Set("rapid.checks", "12"); err != nil {
			panic(err)
		}
	}
	os.Exit(hashcost.Cheap(m))
}

// testing.TB, or rapid's.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// A site is a store, and a client that reaches behind its back.
type site struct {
	ctx context.Context
	raw *redis.Client
	ns  recordkey.Namespace
	db  *userdb.DB
}

// eachStore runs a test on every kind of store, in the whole store and in a namespace.
func eachStore(t *testing.T, test func(t *testing.T, s *site)) {
	t.Helper()
	for _, st := range []struct {
		name, path string
		client     func(t *testing.T) *redis.Client
	}{
		{"embedded", "", embeddedClient},
		{"embedded", "acme/eu", embeddedClient}, // over its bare client it has no patterns with [ in them
		{"redis", "", serverClient},
		{"redis", "acme/[*]", serverClient},
	} {
		t.Run(st.name+" "+st.path, func(t *testing.T) {
			ns, err := recordkey.ParseNamespace(st.path)
			if err != nil {
				t.Fatal(err)
			}
			test(t, open(t, st.client(t), ns, house()))
		})
	}
}

func serverClient(t *testing.T) *redis.Client { return redistest.Shared(t).Client() }

func embeddedClient(t *testing.T) *redis.Client {
	store, err := embedded.Open(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store.Client()
}

func open(t *testing.T, raw *redis.Client, ns recordkey.Namespace, sch schema.Schema) *site {
	t.Helper()
	db, err := userdb.New(t.Context(), raw, userdb.Options{Schema: sch, Namespace: ns})
	if err != nil {
		t.Fatal(err)
	}
	return &site{ctx: t.Context(), raw: raw, ns: ns, db: db}
}

// house is a schema with one of everything.
func house() schema.Schema {
	s := schema.User()
	user := s.Types["user"]
	user.Fields["age"] = schema.Field{Codec: schema.CodecNumber}
	user.Fields["rating"] = schema.Field{Codec: schema.CodecJSON}
	user.Fields["active"] = schema.Field{Codec: schema.CodecBoolean}
	user.Fields["job"] = schema.Field{Role: schema.RoleIndexed}
	user.Tertiary["notes"] = schema.Tertiary{Kind: "list"}
	s.Types["firm"] = schema.Type{
		Primary: "id", Fold: schema.FoldExact,
		Fields: map[string]schema.Field{"name": {Role: schema.RoleSecondary}},
	}
	return s
}

func (s *site) typ(t tester, name string) *userdb.Type {
	t.Helper()
	typ, err := s.db.Type(name)
	if err != nil {
		t.Fatal(err)
	}
	return typ
}

// user makes the entry user/uid:u7 with everything that an entry can have.
func (s *site) user(t tester, n int) {
	t.Helper()
	typ := s.typ(t, "user")
	uid := fmt.Sprintf("u%d", n)
	e, err := typ.Create(s.ctx, userdb.NewEntry{
		UID: uid, Tags: []string{"go", "tag" + uid}, Password: "correct horse " + uid,
		Facets: schema.Facets{
			"email": schema.Text(uid + "@x.org"), "name": schema.Text("Name of " + uid), "job": schema.Text("Cook"),
			"age": schema.Number(41), "rating": must(schema.JSON([]byte(`{"a":1}`))), "active": schema.Bool(true),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := typ.List(hintOf(e), "notes").Append(s.ctx, "one", "two"); err != nil {
		t.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// key is a raw key of the view.
func (s *site) key(relative string) string { return s.ns.String() + relative }

// do sends a command whose second word is a key of the view.
func (s *site) do(t tester, words ...string) {
	t.Helper()
	args := make([]any, len(words))
	for i, w := range words {
		args[i] = w
	}
	args[1] = s.key(words[1])
	if err := s.raw.Do(s.ctx, args...).Err(); err != nil {
		t.Fatalf("%q: %v", words, err)
	}
}

// check returns all problems as "code key", sorted.
func (s *site) check(t tester, o maintain.CheckOptions) []string {
	t.Helper()
	var found []string
	for p, err := range maintain.Check(s.ctx, s.db, o) {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, p.Code+" "+p.Key)
	}
	slices.Sort(found)
	return found
}

func same(t tester, what string, got, want []string) {
	t.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %s\nwant %s", what, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}
