// Package userdb_test is the black-box suite of the store. Every test runs on every store of one
// table, knows none of them by name, and ends with a check of all invariants over all records, made
// twice: by check.Run, and by audit, which shares nothing with it but the grammar of keys.
package userdb_test

import (
	"context"
	"errors"
	"fmt"
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

// stores is every kind of store that the tests run on.
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

// A trait is what some stores lack, so that some tests cannot run on them.
type trait int

const (
	ownProcess  trait = iota // runs in a process that a test can stop, kill and configure
	cheapWrites              // a write costs no more than a round trip
	manyClients              // can be opened any number of times
	interleaves              // lets others write between a command and its answer
	oneScript                // changes an entry, with all that belongs to it, in one script
)

// A site is one store, empty at first, for one test.
type site struct {
	t        *testing.T
	url      string
	lacks    map[trait]string  // with the reason
	server   *redistest.Server // nil where there is no ownProcess
	first    *userdb.DB        // of all that were opened
	opened   []*userdb.DB
	raw      redis.UniversalClient // looks and reaches past the store
	tap      *tap                  // between the store and every client of it
	views    map[recordkey.Namespace]*userdb.DB
	expected map[string]bool // damage that the test leaves, as audit words it
}

func newSite(t *testing.T, url string, lacks map[trait]string) *site {
	if strings.HasPrefix(url, "redis+cluster:") {
		lacks[oneScript] = "a change is many commands to many nodes; what each of them leaves when it is lost is tested step by step in internal/store/cluster"
	}
	return &site{
		t: t, url: url, lacks: lacks, tap: &tap{},
		views: map[recordkey.Namespace]*userdb.DB{}, expected: map[string]bool{},
	}
}

func embeddedSite(t *testing.T, url string) *site {
	lacks := map[trait]string{
		ownProcess:  "the store runs inside the test: stopping it would stop the test",
		manyClients: "the store has one client, which it makes itself",
	}
	if strings.HasPrefix(url, "file:") {
		lacks[cheapWrites] = "every write writes the whole file and syncs it"
		lacks[interleaves] = "no change reaches the file while a command is under way"
	}
	return newSite(t, url, lacks)
}

// eachStore runs a test on every store, on all of them at the same time, and checks all records after it. What the test
// function shares with its caller must be safe for that.
func eachStore(t *testing.T, test func(t *testing.T, s *site)) {
	t.Helper()
	for _, st := range stores {
		t.Run(st.name, func(t *testing.T) {
			t.Parallel()
			s := st.site(t)
			t.Cleanup(s.check)
			test(t, s)
		})
	}
}

// eachStoreAndRights does what eachStore does, and runs the test on Redis by a user who has the rights of an
// application and no others.
func eachStoreAndRights(t *testing.T, test func(t *testing.T, s *site)) {
	t.Helper()
	eachStore(t, test)
	t.Run("rights", func(t *testing.T) {
		t.Parallel()
		srv := redistest.Shared(t)
		app, _ := redistest.Rights(t)
		user := redistest.Restrict(t, srv.Client(), app)
		s := newSite(t, user.URLOf(srv), nil)
		s.server, s.raw = srv, srv.Client()
		t.Cleanup(s.check)
		t.Cleanup(func() { must(t, user.Lift()) }) // the check is an operator's
		test(t, s)
	})
}

// needs skips a test on a store that lacks what it needs.
func (s *site) needs(what trait) {
	s.t.Helper()
	if reason, lacks := s.lacks[what]; lacks {
		s.t.Skip(reason)
	}
}

// has reports whether the store has a trait, for tests that do less without it.
func (s *site) has(what trait) bool {
	_, lacks := s.lacks[what]
	return !lacks
}

// open opens a view of the store. The first view of a namespace is the one that is checked by. A
// store that is opened only once takes the options of the first call, but for schema and namespace.
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
		db, err = s.view(withDefault(o.Schema), o.Namespace)
	}
	if err == nil && s.views[o.Namespace] == nil {
		s.views[o.Namespace] = db
	}
	return db, err
}

// view is a view over the connections of the first one.
func (s *site) view(sc schema.Schema, ns recordkey.Namespace) (*userdb.DB, error) {
	db, err := s.first.With(sc)
	if err != nil {
		return nil, err
	}
	return db.In(ns)
}

func withDefault(s schema.Schema) schema.Schema {
	if len(s.Types) == 0 {
		return schema.User()
	}
	return s
}

// connect opens the store by its URL.
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

// clientOf is the client of a store, which is nobody's business but that of these tests.
func clientOf(db *userdb.DB) redis.UniversalClient {
	return view.Of(db).Engine.(interface{ Client() redis.UniversalClient }).Client()
}

// users opens the view of the built-in type in the whole store.
func (s *site) users() *userdb.Type { return typeOf(s.t, s.open(userdb.Options{}), "user") }

// wide opens the view of type user by wideSchema.
func (s *site) wide() *userdb.Type {
	return typeOf(s.t, s.open(userdb.Options{Schema: wideSchema(schema.FoldCasefold)}), "user")
}

func typeOf(t judge, db *userdb.DB, name string) *userdb.Type {
	t.Helper()
	typ, err := db.Type(name)
	if err != nil {
		t.Fatalf("type %s: %v", name, err)
	}
	return typ
}

// wideSchema declares one of everything, without rules, so that values collide where they can.
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

// expect names damage that a test leaves: "I4 user/name:ghost/~prk".
func (s *site) expect(damage ...string) {
	for _, d := range damage {
		s.expected[d] = true
	}
}

// check ends a test: it fails it on every damage that is not expected, and on expected damage that is not found.
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

// inspect looks for damage in all namespaces that were opened, in both ways.
func (s *site) inspect(j judge) {
	j.Helper()
	ctx := context.Background()
	records := s.dump(ctx)
	found := map[string]bool{}
	for ns, db := range s.views {
		for _, damage := range audit(records, ns, db.Schema()) {
			found[damage] = true
		}
	}
	compare(j, "audit", found, s.expected)
	compare(j, "check.Run", s.maintained(store.Alone(ctx), j), s.expected)
}

// maintained is what check.Run reports, warnings left out: they are no damage.
func (s *site) maintained(ctx context.Context, j judge) map[string]bool {
	j.Helper()
	found := map[string]bool{}
	for _, db := range s.views {
		for p, err := range check.Run(ctx, db, check.Options{}) {
			if err != nil {
				j.Errorf("checking: %v", err)
				continue
			}
			if p.Severity == check.SeverityError {
				found[fmt.Sprintf("I%d %s", p.Invariant, p.Key)] = true
			}
		}
	}
	return found
}

func compare(j judge, who string, found, expected map[string]bool) {
	j.Helper()
	for _, damage := range slices.Sorted(maps.Keys(found)) {
		if !expected[damage] {
			j.Errorf("%s found: %s", who, short(damage))
		}
	}
	for _, damage := range slices.Sorted(maps.Keys(expected)) {
		if !found[damage] {
			j.Errorf("%s did not find: %s", who, short(damage))
		}
	}
}

// A judge is a test, or one run of a random one.
type judge interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// wantErr wants an error of a kind, with these words in its text.
func wantErr(t judge, what string, err, kind error, words ...string) {
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

// wantField wants a *userdb.FieldError about a field.
func wantField(t judge, what string, err, kind error, field string) {
	t.Helper()
	var fe *userdb.FieldError
	if !errors.Is(err, kind) || !errors.As(err, &fe) || fe.Field != field {
		t.Errorf("%s: got error %v, want %v of field %s", what, err, kind, field)
	}
}

// patience is how long a test waits for what happens at some time; no machine is so busy that it takes longer.
const patience = 2 * time.Minute

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for begin := time.Now(); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Since(begin) > patience {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// onlyInSoak skips what depends on how the machine divides its time: make soak runs it.
func onlyInSoak(t *testing.T) {
	t.Helper()
	if os.Getenv("USERDB_SOAK") == "" {
		t.Skip("make soak runs it")
	}
}

// must stops a test at an error of what only prepares it.
func must(t judge, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// add makes an entry from pairs of a field and its text.
func add(t *testing.T, typ *userdb.Type, uid string, pairs ...string) userdb.Entry {
	t.Helper()
	e, err := typ.Create(t.Context(), userdb.NewEntry{UID: uid, Facets: schema.Texts(pairs...)})
	if err != nil {
		t.Fatalf("creating %s %q: %v", uid, pairs, err)
	}
	return e
}

// space is the namespace that a path names.
func space(t judge, path string) recordkey.Namespace {
	t.Helper()
	ns, err := recordkey.ParseNamespace(path)
	must(t, err)
	return ns
}

// serverSite is a database of its own on the server that all tests share.
func serverSite(t *testing.T) *site {
	t.Helper()
	srv := redistest.Shared(t)
	s := newSite(t, srv.URL(), nil)
	s.server = srv
	return s
}

// startServer is a server of its own, to stop, kill and configure.
func startServer(t *testing.T, opts ...redistest.Option) *site {
	t.Helper()
	srv := redistest.Start(t, opts...)
	s := newSite(t, srv.URL(), nil)
	s.server = srv
	t.Cleanup(s.check)
	return s
}

// startProxied is a server of its own, reached through a proxy that loses requests and answers.
func startProxied(t *testing.T) (*site, *redistest.Proxy) {
	t.Helper()
	srv := redistest.Start(t)
	proxy := redistest.NewProxy(t, srv)
	s := newSite(t, proxy.URL(), nil)
	s.server = srv
	t.Cleanup(s.check)
	return s, proxy
}

// command sends one command past the store, to configure a server.
func (s *site) command(args ...any) {
	s.t.Helper()
	if err := s.raw.Do(context.Background(), args...).Err(); err != nil {
		s.t.Fatalf("%v: %v", args, err)
	}
}

// lasting is a test whose end ends nothing: what it starts lives as long as the process.
type lasting struct{ testing.TB }

func (lasting) Cleanup(func()) {}

// lasts are the servers that all tests share.
var lasts struct {
	sync.Mutex
	cluster  *redistest.Cluster
	sentinel *redistest.Sentinel
}

// sentinelSite is the master that Sentinels watch, which all tests share, one after the other, emptied.
func sentinelSite(t *testing.T) *site {
	t.Helper()
	lasts.Lock()
	defer lasts.Unlock()
	if lasts.sentinel == nil {
		lasts.sentinel = redistest.StartSentinel(lasting{t})
	}
	must(t, lasts.sentinel.Master.Client().FlushAll(t.Context()).Err())
	return newSite(t, lasts.sentinel.URL(), map[trait]string{
		ownProcess: "the tests that stop and kill a master that Sentinels watch are those in failover_test.go",
	})
}

// clusterSite is the six-node cluster that all tests share, one after the other, emptied.
func clusterSite(t *testing.T) *site {
	t.Helper()
	lasts.Lock()
	defer lasts.Unlock()
	if lasts.cluster == nil {
		lasts.cluster = redistest.StartCluster(lasting{t})
	}
	s := newSite(t, lasts.cluster.URL(), map[trait]string{
		ownProcess: "the tests that stop and kill the nodes of a cluster are those in failover_test.go",
	})
	s.empty()
	return s
}

// clusterOfOne is an embedded store that is used as a cluster of one node.
func clusterOfOne(t *testing.T, o userdb.Options) *userdb.DB {
	t.Helper()
	db, err := userdb.Open(t.Context(), "memory:", o)
	must(t, err)
	client := clientOf(db)
	db, err = view.With(db, func(c *view.Config) { c.Engine = cluster.New(client, cluster.Options{Close: c.Engine.Close}) })
	must(t, err)
	return db
}

// empty removes all records of a cluster.
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
