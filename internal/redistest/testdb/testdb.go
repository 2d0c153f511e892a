// Package testdb opens stores of every kind for tests of code that uses a userdb.DB, creates
// entries in them, and sends commands directly to their servers.
package testdb

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/embedded"
	"github.com/coffeenode/userdb/internal/hashcost"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdb/redisdb"
)

// Main runs tests with cheap password hashes. Under the race detector, which makes everything ten
// times slower, it runs only 12 random checks of each property.
func Main(m *testing.M) int {
	if RaceEnabled && flag.Lookup("rapid.checks") != nil { // a package may have no random tests
		if err := flag.Set("rapid.checks", "12"); err != nil {
			panic(err)
		}
	}
	return hashcost.Cheap(m)
}

// A Tester is a testing.TB or rapid's equivalent.
type Tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// A Site is an open store, with a client that sends commands directly to its server.
type Site struct {
	Ctx context.Context
	Raw *redis.Client
	NS  recordkey.Namespace
	DB  *userdb.DB

	client *redis.Client // the client of DB: Raw, unless its rights are restricted
}

// Restricted makes sites on a real server log in as a user who has only the operators' rights of
// docs/redis-acl.md.
var Restricted bool

// embeddedClients holds the clients of embedded servers, which do not support users.
var embeddedClients sync.Map

// siteClient returns the client to open a store with. raw is an administrator's client.
func siteClient(t *testing.T, raw *redis.Client) *redis.Client {
	t.Helper()
	if _, ok := embeddedClients.Load(raw); ok || !Restricted {
		return raw
	}
	_, rights := redistest.Rights(t)
	return redistest.Restrict(t, raw, rights).Client(t)
}

// AddHook adds a hook to the DB's client.
func (s *Site) AddHook(h redis.Hook) { s.client.AddHook(h) }

// EachStore runs a test on an embedded store and on a real server, each without and with a
// namespace. With -short, one of them has a namespace and the other has none.
func EachStore(t *testing.T, test func(t *testing.T, s *Site)) {
	t.Helper()
	for i, st := range []struct {
		name, path string
		client     func(t *testing.T) *redis.Client
	}{
		{"embedded", "", EmbeddedClient},
		{"redis", "acme/[*]", ServerClient},
		{"embedded", "acme/eu", EmbeddedClient},
		{"redis", "", ServerClient},
	} {
		if testing.Short() && i > 1 {
			break
		}
		t.Run(st.name+" "+st.path, func(t *testing.T) {
			ns, err := recordkey.ParseNamespace(st.path)
			if err != nil {
				t.Fatal(err)
			}
			test(t, Open(t, st.client(t), ns, DefaultSchema()))
		})
	}
}

// Each adapts EachStore, EachEngine or TwoEngines to tests that wrap a Site in their own type.
func Each[S any](stores func(*testing.T, func(*testing.T, *Site)), wrap func(*Site) S) func(*testing.T, func(*testing.T, S)) {
	return func(t *testing.T, test func(*testing.T, S)) {
		t.Helper()
		stores(t, func(t *testing.T, s *Site) { test(t, wrap(s)) })
	}
}

func ServerClient(t *testing.T) *redis.Client { return redistest.Shared(t).Client() }

func EmbeddedClient(t *testing.T) *redis.Client {
	store, err := embedded.Open(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	client := store.Client()
	embeddedClients.Store(client, true)
	t.Cleanup(func() { store.Close(); embeddedClients.Delete(client) })
	return client
}

// Open opens the store that raw, a client of an administrator, connects to.
func Open(t *testing.T, raw *redis.Client, ns recordkey.Namespace, sch schema.Schema) *Site {
	t.Helper()
	client := siteClient(t, raw)
	db, err := redisdb.New(t.Context(), client, userdb.Options{Schema: sch, Namespace: ns, Keys: MarkedKeys()})
	if err != nil {
		t.Fatal(err)
	}
	return &Site{Ctx: t.Context(), Raw: raw, NS: ns, DB: db, client: client}
}

// DefaultSchema returns a schema with secondary and indexed fields, but no ordered ones, and with
// fields of every codec but null and identity.
func DefaultSchema() schema.Schema {
	s := schema.User()
	user := s.Types["user"]
	user.Fields["email"] = schema.Field{Role: schema.RoleSecondary, Kind: "email", Many: 4}
	user.Fields["name"] = schema.Field{Role: schema.RoleSecondary, Kind: "nickname"}
	user.Fields["added"] = schema.Field{Codec: schema.CodecDate}
	user.Fields["age"] = schema.Field{Codec: schema.CodecNumber}
	user.Fields["rating"] = schema.Field{Codec: schema.CodecJSON}
	user.Fields["motto"] = schema.Field{}
	user.Fields["active"] = schema.Field{Codec: schema.CodecBoolean}
	user.Fields["job"] = schema.Field{Role: schema.RoleIndexed}
	user.Tertiary["notes"] = schema.Tertiary{Kind: "list"}
	s.Types["firm"] = schema.Type{
		Primary: "id", Fold: schema.FoldExact,
		Fields: map[string]schema.Field{"name": {Role: schema.RoleSecondary}},
	}
	return s
}

func (s *Site) Type(t Tester, name string) *userdb.Type {
	t.Helper()
	typ, err := s.DB.Type(name)
	if err != nil {
		t.Fatal(err)
	}
	return typ
}

// User creates the entry user/uid:uN, where N is n, with identifiers, facets, tags, a password and
// notes.
func (s *Site) User(t Tester, n int) {
	t.Helper()
	typ := s.Type(t, "user")
	uid := fmt.Sprintf("u%d", n)
	e, err := typ.Create(s.Ctx, userdb.NewEntry{
		UID: uid, Tags: []string{"go", "tag" + uid}, Password: "correct horse " + uid,
		Facets: schema.Facets{
			"email": schema.Text(uid + "@x.org"), "name": schema.Text("Name of " + uid), "job": schema.Text("Cook"),
			"age": schema.Number(41), "rating": Must(schema.JSON([]byte(`{"a":1}`))), "active": schema.Bool(true),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := typ.List(HintOf(e), "notes").Append(s.Ctx, "one", "two"); err != nil {
		t.Fatal(err)
	}
}

func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Key returns the full key in Redis for a key relative to the site's namespace.
func (s *Site) Key(relative string) string { return s.NS.String() + relative }

// Do sends a command whose second word is a key relative to the site's namespace.
func (s *Site) Do(t Tester, words ...string) {
	t.Helper()
	args := make([]any, len(words))
	for i, w := range words {
		args[i] = w
	}
	args[1] = s.Key(words[1])
	if err := s.Raw.Do(s.Ctx, args...).Err(); err != nil {
		t.Fatalf("%q: %v", words, err)
	}
}

// Check returns all problems as "code key", sorted.
func (s *Site) Check(t Tester, o check.Options) []string {
	t.Helper()
	var found []string
	for p, err := range check.Run(s.Ctx, s.DB, o) {
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(p.Text, "%!") {
			t.Errorf("a text with a bad format verb: %v", p)
		}
		found = append(found, p.Code+" "+p.Key)
	}
	slices.Sort(found)
	return found
}

// Same sorts want, and fails the test unless got equals it. got must be sorted.
func Same(t Tester, what string, got, want []string) {
	t.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %s\nwant %s", what, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

func HintOf(e userdb.Entry) hints.Hint { return hints.Key(e.Key()) }

// Space returns the namespace at path.
func Space(t Tester, path string) recordkey.Namespace {
	t.Helper()
	ns, err := recordkey.ParseNamespace(path)
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

// Clean removes all records of the database and creates a few new ones, so that one store serves
// many tests.
func (s *Site) Clean(t Tester) {
	t.Helper()
	keys, err := s.Raw.Keys(s.Ctx, "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	if len(keys) > 0 {
		s.Raw.Del(s.Ctx, keys...)
	}
	s.User(t, 0)
	friend := userdb.NewEntry{UID: "friend", Facets: schema.Texts("email", "friend@x.org", "name", "friend")}
	if _, err := s.Type(t, "user").Create(s.Ctx, friend); err != nil {
		t.Fatal(err)
	}
	firm := userdb.NewEntry{UID: "1", Facets: schema.Texts("name", "Acme & Sons")}
	if _, err := s.Type(t, "firm").Create(s.Ctx, firm); err != nil {
		t.Fatal(err)
	}
}

var update = flag.Bool("update", false, "update golden files")

// Golden fails the test unless got equals the file at path. With -update it writes the file
// instead.
func Golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the result differs from %s (renew it with -update); got\n%s", path, got)
	}
}

// Repaired runs a repair and returns the problems that it repaired and those that remain.
func (s *Site) Repaired(t Tester, o check.Options) (done, left []string) {
	t.Helper()
	o.Repair = true
	for p, err := range check.Run(s.Ctx, s.DB, o) {
		switch {
		case err != nil:
			t.Fatal(err)
		case p.Repaired:
			done = append(done, p.Code+" "+p.Key)
		default:
			left = append(left, p.Code+" "+p.Key)
		}
	}
	return done, left
}
