package userdbtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/maintain/transfer"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdbtest"
)

// A recorder is a TB that records how the test would have ended.
type recorder struct {
	messages []string
	cleanup  []func()
}

type fatal struct{}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.messages = append(r.messages, fmt.Sprintf(format, args...))
}
func (r *recorder) Cleanup(f func()) { r.cleanup = append(r.cleanup, f) }
func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf("fatal: "+format, args...)
	panic(fatal{})
}

// run runs a test and its cleanup, and returns its messages.
func (r *recorder) run(test func(r *recorder)) []string {
	func() {
		defer func() {
			if p := recover(); p != nil && p != (fatal{}) {
				panic(p)
			}
		}()
		test(r)
	}()
	for len(r.cleanup) > 0 {
		last := len(r.cleanup) - 1
		f := r.cleanup[last]
		r.cleanup = r.cleanup[:last]
		f()
	}
	return r.messages
}

// requireMessages checks that a test reports exactly one message for each of words, in order.
func requireMessages(t *testing.T, test func(r *recorder), words ...string) {
	t.Helper()
	messages := new(recorder).run(test)
	if len(messages) != len(words) {
		t.Fatalf("got the messages %q, want one with each of %q", messages, words)
	}
	for i, w := range words {
		if !strings.Contains(messages[i], w) || strings.Contains(messages[i], "%!") {
			t.Errorf("message %d: got %q, want one with %q", i, messages[i], w)
		}
	}
}

// A clientObserver keeps the client of a store, to bypass the store.
type clientObserver struct{ client redis.UniversalClient }

func (d *clientObserver) Client(c redis.UniversalClient, _ bool) { d.client = c }
func (*clientObserver) Event(context.Context, string)            {}
func (*clientObserver) Hash(context.Context) (func(), func(userdb.Outcome)) {
	return func() {}, func(userdb.Outcome) {}
}

func (*clientObserver) Call(ctx context.Context, _ string) (context.Context, func(userdb.Outcome)) {
	return ctx, func(userdb.Outcome) {}
}

const alicePassword = "correct horse battery"

func storeWithAlice(t *testing.T) *userdbtest.Store {
	t.Helper()
	return userdbtest.New(t, userdbtest.Fixtures(os.DirFS("testdata"), "users.jsonl"))
}

func TestNew(t *testing.T) {
	t.Parallel()
	s := storeWithAlice(t)
	users := s.Type("user")
	e, err := users.Login(t.Context(), "Alice", alicePassword, userdb.Attempt{})
	if err != nil || e.UID() != "alice" {
		t.Fatalf("Login: got %v, %v; want alice", e, err)
	}
	if has, err := users.Tags(hints.Key(e.Key())).Has(t.Context(), "editor"); !has || err != nil {
		t.Errorf("has the tag editor: %v, %v; want true", has, err)
	}
	hash, err := transfer.PasswordHash(t.Context(), s.DB, "user", hints.UID("alice"))
	if err != nil || !strings.HasPrefix(hash, "$2a$04$") {
		t.Errorf("the hash is %q, %v; want a cheap one", hash, err)
	}
}

// TestCheapHashesEverywhere checks that views and types created later also use cheap hashes, and
// that the schema keeps its cost.
func TestCheapHashesEverywhere(t *testing.T) {
	t.Parallel()
	twoTypes := schema.User()
	twoTypes.Types["staff"] = schema.Type{
		Primary: "uid", Fields: map[string]schema.Field{"name": {Role: schema.RoleSecondary}}, Password: &schema.Password{Cost: 14},
	}
	s := userdbtest.New(t)
	db, err := s.With(twoTypes)
	if err != nil {
		t.Fatal(err)
	}
	staff, err := db.Type("staff")
	if err != nil {
		t.Fatal(err)
	}
	n := userdb.NewEntry{UID: "s1", Facets: schema.Texts("name", "Sue"), Password: alicePassword}
	if _, err := staff.Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	hash, err := transfer.PasswordHash(t.Context(), db, "staff", hints.UID("s1"))
	if err != nil || !strings.HasPrefix(hash, "$2a$06$") {
		t.Errorf("the hash is %q, %v; want a cheap one", hash, err)
	}
	if got := db.Schema().Types["staff"].Policy().Cost; got != 14 {
		t.Errorf("the schema says cost %d, want 14", got)
	}
}

// TestClockStandsStill checks that a token with a life of one millisecond is valid until the clock
// is moved.
func TestClockStandsStill(t *testing.T) {
	t.Parallel()
	s := storeWithAlice(t)
	users := s.Type("user")
	secret, err := users.Issue(t.Context(), hints.UID("alice"), userdb.Token{Purpose: "reset", Lifetime: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond) // real time, which must not matter
	if _, _, err := users.Peek(t.Context(), "reset", secret); err != nil {
		t.Error(err)
	}
	s.Clock.Advance(time.Millisecond)
	if _, _, err := users.Peek(t.Context(), "reset", secret); !errors.Is(err, userdb.ErrNotFound) {
		t.Errorf("after its lifetime: got %v, want ErrNotFound", err)
	}
}

// TestClockMovesAtOnce checks that the life of a token starts at the time of the moved clock.
func TestClockMovesAtOnce(t *testing.T) {
	t.Parallel()
	s := storeWithAlice(t)
	users := s.Type("user")
	for range 100 {
		s.Clock.Advance(time.Hour)
		secret, err := users.Issue(t.Context(), hints.UID("alice"), userdb.Token{Purpose: "reset", Lifetime: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		s.Clock.Advance(time.Minute)
		time.Sleep(time.Millisecond) // real time, which must not matter
		if _, _, err := users.Peek(t.Context(), "reset", secret); err != nil {
			t.Fatal(err)
		}
	}
}

// TestClock moves the clock past the life of a token and of a session, and past the wait of a
// delayed login.
func TestClock(t *testing.T) {
	t.Parallel()
	s := storeWithAlice(t)
	users, ctx := s.Type("user"), t.Context()
	secret, err := users.Issue(ctx, hints.UID("alice"), userdb.Token{Purpose: "reset", Lifetime: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	s.Clock.Advance(59 * time.Minute)
	if _, _, err := users.Peek(ctx, "reset", secret); err != nil {
		t.Error(err)
	}
	s.Clock.Advance(time.Minute)
	if _, _, err := users.Peek(ctx, "reset", secret); !errors.Is(err, userdb.ErrNotFound) {
		t.Errorf("after its lifetime: got %v, want ErrNotFound", err)
	}

	for range 10 {
		if _, err := users.Login(ctx, "alice", "wrong horse", userdb.Attempt{}); !errors.Is(err, userdb.ErrLogin) {
			t.Fatalf("Login with a wrong password: got %v, want ErrLogin", err)
		}
	}
	_, err = users.Login(ctx, "alice", alicePassword, userdb.Attempt{})
	wait, ok := errors.AsType[*userdb.WaitError](err)
	if !ok {
		t.Fatalf("Login after ten failures: got %v, want a *WaitError", err)
	}
	s.Clock.Advance(wait.Wait)
	if _, err := users.Login(ctx, "alice", alicePassword, userdb.Attempt{}); err != nil {
		t.Error(err)
	}

	e, err := users.Find(ctx, hints.UID("alice"))
	if err != nil {
		t.Fatal(err)
	}
	_, session, err := users.StartSession(ctx, e, userdb.SessionOptions{Lifetime: time.Hour, IdleTimeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	s.Clock.Advance(time.Hour - time.Second)
	if _, _, err := users.Session(ctx, session); err != nil {
		t.Error(err)
	}
	s.Clock.Advance(time.Second)
	if _, _, err := users.Session(ctx, session); !errors.Is(err, userdb.ErrNotFound) {
		t.Errorf("after its lifetime: got %v, want ErrNotFound", err)
	}

	before := s.Clock.Now()
	e, err = users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("email", "new@example.com")})
	added, _ := e.Get("added")
	if at, _ := added.Time(); err != nil || !at.Equal(before) || !s.Clock.Now().Equal(before) {
		t.Errorf("created at %v, %v; want %v, the time of the clock", at, err, before)
	}
	requireMessages(t, func(r *recorder) { userdbtest.New(r).Clock.Advance(-time.Second) }, "fatal: userdbtest: cannot move the clock by -1s")
}

func TestFixtures(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{
		"users.csv":   {Data: []byte("uid,email,name,clear_password\nzoe,zoe@example.com,Zoe,correct horse battery\n")},
		"good.ndjson": {Data: []byte(`{"facets":{"uid":"yan","email":"yan@example.com"}}` + "\n")},
		"bad.jsonl":   {Data: []byte(`{"facets":{"uid":"a","email":"no address"}}` + "\n" + `{"facets":{"uid":"b"}}` + "\nnonsense\n")},
		"column.csv":  {Data: []byte("uid,mail\nzoe,zoe@example.com\n")},
		"users.txt":   {},
	}
	s := userdbtest.New(t, userdbtest.Fixtures(files, "users.csv", "good.ndjson"))
	users := s.Type("user")
	if _, err := users.Login(t.Context(), "zoe", alicePassword, userdb.Attempt{}); err != nil {
		t.Error(err)
	}
	if exists, err := users.Exists(t.Context(), hints.UID("yan")); !exists || err != nil {
		t.Errorf("yan exists: %v, %v; want true", exists, err)
	}
	for name, want := range map[string][]string{
		"bad.jsonl": {
			"userdbtest: bad.jsonl, line 1: ", "userdbtest: bad.jsonl, line 3: ", "fatal: userdbtest: bad.jsonl: some lines were refused",
		},
		"column.csv": {`fatal: userdbtest: column.csv: `},
		"users.txt":  {`fatal: userdbtest: users.txt: a file that ends in ".txt"; want .jsonl, .ndjson or .csv`},
		"none.csv":   {"fatal: userdbtest: none.csv: open none.csv: file does not exist"},
	} {
		requireMessages(t, func(r *recorder) { userdbtest.New(r, userdbtest.Fixtures(files, name)) }, want...)
	}
}

// TestOptions checks that an application's options apply, including its schema and namespace.
func TestOptions(t *testing.T) {
	t.Parallel()
	var events []string
	acme, err := recordkey.ParseNamespace("acme")
	if err != nil {
		t.Fatal(err)
	}
	s := userdbtest.New(t, userdbtest.With(userdb.Options{
		Namespace: acme,
		NewUID:    func() (string, error) { return "made", nil },
		OnEvent:   func(_ context.Context, e userdb.Event) { events = append(events, string(e.Kind)) },
	}), userdbtest.Schema(schema.Schema{Types: map[string]schema.Type{
		"staff": {Primary: "id", Fields: map[string]schema.Field{"name": {Role: schema.RoleSecondary}}},
	}}))
	e, err := s.Type("staff").Create(t.Context(), userdb.NewEntry{Facets: schema.Texts("name", "Sue")})
	if err != nil || e.UID() != "made" {
		t.Errorf("Create: got %v, %v; want the UID \"made\"", e, err)
	}
	if err := s.Type("staff").Disable(t.Context(), hints.UID("made")); err != nil || fmt.Sprint(events) != "[create disable]" {
		t.Errorf("Disable: %v; the events are %v, want create and disable", err, events)
	}
	requireMessages(t, func(r *recorder) { userdbtest.New(r).Type("staff") }, "fatal: userdbtest: ")
	requireMessages(t, func(r *recorder) {
		userdbtest.New(r, userdbtest.Schema(schema.Schema{Types: map[string]schema.Type{"x": {}}}))
	}, "fatal: userdbtest: opening a store: ")
}

// TestDamage checks that damage fails the test exactly once: in the store itself, in a namespace,
// and in a store that the application closes.
func TestDamage(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	const ghost, owner = "user/email:ghost@example.com/~prk", "user/uid:ghost"
	for name, test := range map[string]func(s *userdbtest.Store, d *clientObserver) error{
		"the store itself": func(_ *userdbtest.Store, d *clientObserver) error { return d.client.Set(ctx, ghost, owner, 0).Err() },
		"another namespace": func(_ *userdbtest.Store, d *clientObserver) error {
			return d.client.Set(ctx, "~acme/"+ghost, owner, 0).Err()
		},
		"closed by the application": func(s *userdbtest.Store, d *clientObserver) error {
			return errors.Join(d.client.Set(ctx, ghost, owner, 0).Err(), s.DB.Close(), s.DB.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			requireMessages(t, func(r *recorder) {
				d := &clientObserver{}
				s := userdbtest.New(r, userdbtest.With(userdb.Options{Observers: []userdb.Observer{d}}))
				if err := test(s, d); err != nil {
					t.Error(err)
				}
			}, "userdbtest: the store is damaged: error srk_orphan user/email:ghost@example.com/~prk")
		})
	}
	requireMessages(t, func(r *recorder) {
		s := userdbtest.New(r)
		s.Check()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := s.Type("user").Find(ctx, hints.UID("x")); !errors.Is(err, userdb.ErrUnavailable) {
			t.Errorf("Find in a closed store: got %v, want ErrUnavailable", err)
		}
	})
}

// TestEachTestHasItsOwnStore checks that concurrent tests do not share a store.
func TestEachTestHasItsOwnStore(t *testing.T) {
	t.Parallel()
	for i := range 8 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			s := storeWithAlice(t)
			s.Clock.Advance(time.Duration(i) * time.Hour)
			n := userdb.NewEntry{UID: "same", Facets: schema.Texts("email", "same@example.com")}
			if _, err := s.Type("user").Create(t.Context(), n); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRapid creates a store for each attempt of a random test.
func TestRapid(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		users := userdbtest.New(r).Type("user")
		for _, name := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{3,9}`), 1, 3, rapid.ID[string]).Draw(r, "names") {
			if _, err := users.Create(context.Background(), userdb.NewEntry{UID: name, Facets: schema.Texts("name", name)}); err != nil {
				r.Fatal(err)
			}
		}
	})
}

// BenchmarkFind checks that benchmarks can use a store as well.
func BenchmarkFind(b *testing.B) {
	users := userdbtest.New(b, userdbtest.Fixtures(os.DirFS("testdata"), "users.jsonl")).Type("user")
	for b.Loop() {
		if _, err := users.Find(b.Context(), hints.Any("alice@example.com")); err != nil {
			b.Fatal(err)
		}
	}
}

// TestWithKeepsSchema checks that With without a schema keeps the one that another option sets,
// whichever option comes first.
func TestWithKeepsSchema(t *testing.T) {
	t.Parallel()
	own := schema.Schema{Types: map[string]schema.Type{"member": {Primary: "uid"}}}
	for _, options := range [][]userdbtest.Option{
		{userdbtest.Schema(own), userdbtest.With(userdb.Options{})},
		{userdbtest.With(userdb.Options{History: true}), userdbtest.Schema(own)},
		{userdbtest.Schema(schema.User()), userdbtest.With(userdb.Options{Schema: own})},
	} {
		if _, err := userdbtest.New(t, options...).DB.Type("member"); err != nil {
			t.Error(err)
		}
	}
}
