// Package userdb_test holds the black-box tests of the store. Most tests run on every kind of store
// without knowing which one it is. They end with two independent checks of all invariants over all
// records: check.Run, and audit, which shares only the grammar of keys with check.Run.
package userdb_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/internal/hashcost"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/cluster"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

func TestMain(m *testing.M) { os.Exit(hashcost.Cheap(m)) }

// stores lists the kinds of store that the tests run on.
var stores = []struct {
	name string
	site func(t *testing.T) *site
}{
	{"memory", func(t *testing.T) *site { return embeddedSite(t, "memory:") }},
	{"file", func(t *testing.T) *site { return embeddedSite(t, "file:"+filepath.Join(t.TempDir(), "db")) }},
	{"redis", serverSite},
	{"sentinel", sentinelSite},
	{"cluster", clusterSite},
}

// A trait is a property that some stores lack. Tests that depend on it skip those stores.
type trait int

const (
	ownProcess  trait = iota // is a single server in a process of its own (site.server)
	cheapWrites              // a write costs no more than a round trip
	manyClients              // can be opened any number of times
	interleaves              // lets others write between a command and its reply
	oneScript                // changes an entry and all its records in one script
	soonApplied              // a change of the schema is complete within a second
)

// A site is a store for one test. It is empty at first.
type site struct {
	t        *testing.T
	url      string
	lacks    map[trait]string  // the traits that it lacks, with the reasons
	server   *redistest.Server // nil without ownProcess
	first    *userdb.DB        // the view that was opened first
	opened   []*userdb.DB
	raw      redis.UniversalClient // reads and writes records directly in Redis
	tap      *tap                  // sees the commands of all clients
	views    map[recordkey.Namespace]*userdb.DB
	expected map[string]bool // damage that the test leaves behind, in the words of audit
}

func newSite(t *testing.T, url string, lacks map[trait]string) *site {
	if strings.HasPrefix(url, "redis+cluster:") {
		lacks[oneScript] = "a change takes many commands on many nodes; internal/store/cluster tests the loss of each"
		if testing.Short() {
			lacks[soonApplied] = "a change of the schema waits 15 seconds for writers that have not seen it"
		}
	}
	return &site{
		t: t, url: url, lacks: lacks, tap: &tap{},
		views: map[recordkey.Namespace]*userdb.DB{}, expected: map[string]bool{},
	}
}

func embeddedSite(t *testing.T, url string) *site {
	lacks := map[trait]string{
		ownProcess:  "the store runs inside the test process, and cannot be stopped alone",
		manyClients: "the store has a single client, which it creates itself",
	}
	if strings.HasPrefix(url, "file:") {
		lacks[cheapWrites] = "every write is synced to the file"
		lacks[interleaves] = "no other change reaches the file during a command"
	}
	return newSite(t, url, lacks)
}

// eachStore runs test on all kinds of store in parallel, and checks all records afterward. Data
// that test shares with its caller must be safe for concurrent use. With -short it runs test in
// memory and, depending on the test's name, on a server or a cluster.
func eachStore(t *testing.T, test func(t *testing.T, s *site)) {
	t.Helper()
	for _, st := range stores {
		if testing.Short() && st.name != "memory" && st.name != turn(t) {
			continue
		}
		t.Run(st.name, func(t *testing.T) {
			t.Parallel()
			s := st.site(t)
			t.Cleanup(s.check)
			test(t, s)
		})
	}
}

// turn returns "redis" for half of the tests and "cluster" for the others.
func turn(t *testing.T) string {
	h := fnv.New32a()
	h.Write([]byte(t.Name()))
	return []string{"redis", "cluster"}[h.Sum32()>>8&1]
}

// eachStoreAndRights calls eachStore. Except with -short, it also runs test on Redis as a user who
// has only the rights of an application.
func eachStoreAndRights(t *testing.T, test func(t *testing.T, s *site)) {
	t.Helper()
	eachStore(t, test)
	if testing.Short() {
		return
	}
	t.Run("least rights", func(t *testing.T) {
		t.Parallel()
		srv := redistest.Shared(t)
		app, _ := redistest.Rights(t)
		user := redistest.Restrict(t, srv.Client(), app)
		s := newSite(t, user.URLOf(srv), nil)
		s.server, s.raw = srv, srv.Client()
		t.Cleanup(s.check)
		t.Cleanup(func() { must(t, user.RestoreRights()) }) // for the check
		test(t, s)
	})
}

// needs skips the test if the store lacks a trait.
func (s *site) needs(what trait) {
	s.t.Helper()
	if reason, lacks := s.lacks[what]; lacks {
		s.t.Skip(reason)
	}
}

// has reports whether the store has a trait. It is for tests that do less without the trait.
func (s *site) has(what trait) bool {
	_, lacks := s.lacks[what]
	return !lacks
}

// open opens a view of the store. The final check of a namespace uses the first view of it. A store
// without manyClients is opened once: later calls use only the schema and the namespace of o.
func (s *site) open(o userdb.Options) *userdb.DB {
	s.t.Helper()
	db, err := s.tryOpen(o)
	if err != nil {
		s.t.Fatalf("opening: %v", err)
	}
	return db
}

func (s *site) tryOpen(o userdb.Options) (*userdb.DB, error) {
	var db *userdb.DB
	var err error
	switch {
	case s.first == nil || s.has(manyClients):
		db, err = s.connect(o)
	default:
		db, err = s.view(o.Schema, o.Namespace)
	}
	if err == nil && s.views[o.Namespace] == nil {
		s.views[o.Namespace] = db
	}
	return db, err
}

// view returns a view with another schema and namespace that shares the first view's connections.
// The zero schema stands for the built-in one, as in a program that declares no schema.
func (s *site) view(sc schema.Schema, ns recordkey.Namespace) (*userdb.DB, error) {
	return view.Reconfigure(s.first, func(c *view.Config) {
		c.NS, c.Builtin = ns, len(sc.Types) == 0
		if c.Schema = sc; c.Builtin {
			c.Schema = schema.User()
		}
	})
}

// connect opens the store by its URL, with the tap installed.
func (s *site) connect(o userdb.Options) (*userdb.DB, error) {
	db, err := userdb.Open(s.t.Context(), s.url, o)
	if err != nil {
		return nil, err
	}
	s.opened = append(s.opened, db)
	client := clientOf(db)
	client.AddHook(s.tap)
	if s.first == nil {
		s.first = db
	}
	if s.raw == nil {
		s.raw = client
	}
	return db, nil
}

// clientOf returns the Redis client of a store, which userdb does not export.
func clientOf(db *userdb.DB) redis.UniversalClient {
	return view.Of(db).Engine.(interface{ Client() redis.UniversalClient }).Client()
}

// users opens the store with the built-in schema and returns its type user.
func (s *site) users() *userdb.Type { return typeOf(s.t, s.open(userdb.Options{}), "user") }

// wide opens the store with wideSchema and returns its type user.
func (s *site) wide() *userdb.Type {
	return typeOf(s.t, s.open(userdb.Options{Schema: wideSchema(schema.FoldCasefold)}), "user")
}

func typeOf(t testingT, db *userdb.DB, name string) *userdb.Type {
	t.Helper()
	typ, err := db.Type(name)
	if err != nil {
		t.Fatalf("type %s: %v", name, err)
	}
	return typ
}

// wideSchema returns a schema with secondary, indexed and plain fields, and with tertiary records
// of every kind. It has no validation rules, so that values can collide.
func wideSchema(fold schema.Fold) schema.Schema {
	secondary := schema.Field{Role: schema.RoleSecondary}
	indexed := schema.Field{Role: schema.RoleIndexed}
	return schema.Schema{Types: map[string]schema.Type{
		"user": {
			Primary: "uid", Fold: fold, Open: true,
			Fields: map[string]schema.Field{
				"email": secondary, "name": secondary, "nick": secondary, "job": indexed,
				"age": {Codec: schema.CodecNumber}, "rating": {Codec: schema.CodecJSON},
			},
			Tertiary: map[string]schema.Tertiary{
				"tags": {Kind: "set", Indexed: true}, "friends": {Kind: "set"}, "notes": {Kind: "list"},
				"scores": {Kind: "zset"}, "settings": {Kind: "hash"}, "bio": {Kind: "string"},
			},
			Password: &schema.Password{},
		},
		"order": {Primary: "id", Fold: fold, Fields: map[string]schema.Field{"code": secondary}},
	}}
}

// expect declares damage that the test leaves behind: the invariant that is broken and the key,
// such as "I4 user/name:ghost/~prk".
func (s *site) expect(damage ...string) {
	for _, d := range damage {
		s.expected[d] = true
	}
}

// check inspects all records at the end of a test, and closes the store. The test fails if there is
// damage that it did not expect, or if damage that it expected is missing.
func (s *site) check() {
	s.t.Helper()
	s.tap.set(nil)
	if s.first != nil {
		s.inspect(s.t)
	}
	for _, db := range s.opened {
		if err := db.Close(); err != nil {
			s.t.Errorf("closing: %v", err)
		}
	}
}

// inspect compares the damage that audit and check.Run find in all opened namespaces with the
// damage that the test expects.
func (s *site) inspect(t testingT) {
	t.Helper()
	ctx := context.Background()
	records := s.dump(ctx)
	found := map[string]bool{}
	for ns, db := range s.views {
		for _, damage := range audit(records, ns, db.Schema()) {
			found[damage] = true
		}
	}
	compare(t, "audit", found, s.expected)
	compare(t, "check.Run", s.findErrors(store.WithoutOtherWriters(ctx), t), s.expected)
}

// findErrors returns the errors that check.Run reports. Warnings are left out: they are not damage.
func (s *site) findErrors(ctx context.Context, t testingT) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, db := range s.views {
		for p, err := range check.Run(ctx, db, check.Options{}) {
			if err != nil {
				t.Errorf("checking: %v", err)
				continue
			}
			if p.Severity == check.SeverityError {
				found[fmt.Sprintf("I%d %s", p.Invariant, p.Key)] = true
			}
		}
	}
	return found
}

func compare(t testingT, who string, found, expected map[string]bool) {
	t.Helper()
	for _, damage := range slices.Sorted(maps.Keys(found)) {
		if !expected[damage] {
			t.Errorf("%s found: %s", who, abbreviate(damage))
		}
	}
	for _, damage := range slices.Sorted(maps.Keys(expected)) {
		if !found[damage] {
			t.Errorf("%s did not find: %s", who, abbreviate(damage))
		}
	}
}

// A testingT is a *testing.T, or a *rapid.T, which stands for one run of a randomized test.
type testingT interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// wantErr checks that err is of the given kind and that its text contains words.
func wantErr(t testingT, what string, err, kind error, words ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%s: got error %v, want %v", what, err, kind)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%s: got error %q, want %q in it", what, err, word)
		}
	}
}

// wantField checks that err is a *userdb.FieldError of the given kind about field.
func wantField(t testingT, what string, err, kind error, field string) {
	t.Helper()
	var fe *userdb.FieldError
	if !errors.Is(err, kind) || !errors.As(err, &fe) || fe.Field != field {
		t.Errorf("%s: got error %v, want %v for field %s", what, err, kind, field)
	}
}

// patience limits how long a test waits for an event. It is enough even on a very busy machine.
const patience = 2 * time.Minute

// eventually waits until happened returns true. It fails the test after patience.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for begin := time.Now(); !happened(); time.Sleep(2 * time.Millisecond) {
		if time.Since(begin) > patience {
			t.Fatalf("%s: did not happen within %v", what, patience)
		}
	}
}

// onlyInSoak skips a test whose result depends on how the machine schedules goroutines, except in
// 'make soak'.
func onlyInSoak(t *testing.T) {
	t.Helper()
	if os.Getenv("USERDB_SOAK") == "" {
		t.Skip("runs only in 'make soak'")
	}
}

// must stops the test if err is not nil.
func must(t testingT, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// add creates an entry. The pairs alternate between field names and texts.
func add(t *testing.T, typ *userdb.Type, uid string, pairs ...string) userdb.Entry {
	t.Helper()
	e, err := typ.Create(t.Context(), userdb.NewEntry{UID: uid, Facets: schema.Texts(pairs...)})
	if err != nil {
		t.Fatalf("creating %s %q: %v", uid, pairs, err)
	}
	return e
}

// putText returns a change for Type.Update that sets a field to a text.
func putText(field, text string) func(*userdb.Entry) error {
	return func(e *userdb.Entry) error {
		e.Put(field, schema.Text(text))
		return nil
	}
}

func parseNamespace(t testingT, path string) recordkey.Namespace {
	t.Helper()
	ns, err := recordkey.ParseNamespace(path)
	must(t, err)
	return ns
}

// serverSite returns a new database on the server that all tests share.
func serverSite(t *testing.T) *site {
	t.Helper()
	srv := redistest.Shared(t)
	s := newSite(t, srv.URL(), nil)
	s.server = srv
	return s
}

// startServer starts a server that only this test uses, and may stop, kill and configure.
func startServer(t *testing.T, opts ...redistest.Option) *site {
	t.Helper()
	srv := redistest.Start(t, opts...)
	s := newSite(t, srv.URL(), nil)
	s.server = srv
	t.Cleanup(s.check)
	return s
}

// startProxied starts a server that only this test uses. It is reached through the returned proxy,
// which can lose requests and replies.
func startProxied(t *testing.T) (*site, *redistest.Proxy) {
	t.Helper()
	srv := redistest.Start(t)
	proxy := redistest.NewProxy(t, srv)
	s := newSite(t, proxy.URL(), nil)
	s.server = srv
	t.Cleanup(s.check)
	return s, proxy
}

// command sends a command directly to the server, for example to configure it.
func (s *site) command(args ...any) {
	s.t.Helper()
	if err := s.raw.Do(context.Background(), args...).Err(); err != nil {
		s.t.Fatalf("%v: %v", args, err)
	}
}

// processTB wraps a test and ignores its cleanups, so that servers live as long as the process.
type processTB struct{ testing.TB }

func (processTB) Cleanup(func()) {}

// sharedServers holds the servers that all tests share, one after the other.
var sharedServers struct {
	sync.Mutex
	cluster  *redistest.Cluster
	sentinel *redistest.Sentinel
	users    map[string]string // the names of the tests that use them now, by URL
}

// reserve stops a test that would empty a shared server while another test uses it. The caller
// holds the lock of sharedServers.
func reserve(t *testing.T, url string) {
	t.Helper()
	if other, used := sharedServers.users[url]; used {
		t.Fatalf("%s uses the same server at the same time", other)
	}
	if sharedServers.users == nil {
		sharedServers.users = map[string]string{}
	}
	sharedServers.users[url] = t.Name()
	t.Cleanup(func() {
		sharedServers.Lock()
		defer sharedServers.Unlock()
		delete(sharedServers.users, url)
	})
}

// sentinelSite returns the master that Sentinels watch, emptied. All tests share it, one after the
// other.
func sentinelSite(t *testing.T) *site {
	t.Helper()
	sharedServers.Lock()
	defer sharedServers.Unlock()
	if sharedServers.sentinel == nil {
		sharedServers.sentinel = redistest.StartSentinel(processTB{t})
	}
	reserve(t, sharedServers.sentinel.URL())
	must(t, sharedServers.sentinel.Master.Client().FlushAll(t.Context()).Err())
	return newSite(t, sharedServers.sentinel.URL(), map[trait]string{
		ownProcess: "only the tests in failover_test.go stop a master that Sentinels watch",
	})
}

// clusterSite returns the six-node cluster, emptied. All tests share it, one after the other, so a
// test that uses it must not call t.Parallel itself. Its subtests may.
func clusterSite(t *testing.T) *site {
	t.Helper()
	sharedServers.Lock()
	defer sharedServers.Unlock()
	if sharedServers.cluster == nil {
		sharedServers.cluster = redistest.StartCluster(processTB{t})
	}
	reserve(t, sharedServers.cluster.URL())
	s := newSite(t, sharedServers.cluster.URL(), map[trait]string{
		ownProcess: "only the tests in failover_test.go stop nodes of a cluster",
	})
	s.empty()
	return s
}

// clusterOfOne opens an embedded store as a cluster of one node.
func clusterOfOne(t *testing.T, o userdb.Options) *userdb.DB {
	t.Helper()
	db, err := userdb.Open(t.Context(), "memory:", o)
	must(t, err)
	client := clientOf(db)
	db, err = view.Reconfigure(db, func(c *view.Config) { c.Engine = cluster.New(client, cluster.Options{Close: c.Engine.Close}) })
	must(t, err)
	return db
}

// empty removes all records from a cluster.
func (s *site) empty() {
	s.t.Helper()
	o, err := redis.ParseClusterURL("redis" + s.url[len("redis+cluster"):])
	must(s.t, err)
	c := redis.NewClusterClient(o)
	defer c.Close()
	must(s.t, c.ForEachMaster(context.Background(), func(ctx context.Context, node *redis.Client) error {
		return node.FlushAll(ctx).Err()
	}))
}
