package userdb_test

import (
	"context"
	"errors"
	"iter"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdb/redisdb"
)

// A recorder is an Observer that records each call as a line.
type recorder struct {
	name  string
	mu    sync.Mutex
	lines []string
}

func (w *recorder) note(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, line)
}

// take returns the lines recorded since the last call.
func (w *recorder) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := w.lines
	w.lines = nil
	return lines
}

type methodKey struct{}

func (w *recorder) Call(ctx context.Context, name string) (context.Context, func(userdb.Outcome)) {
	w.note(w.name + name)
	return context.WithValue(ctx, methodKey{}, name), func(o userdb.Outcome) { w.note(w.name + name + " " + string(o)) }
}

func (w *recorder) Hash(ctx context.Context) (func(), func(userdb.Outcome)) {
	verb, _ := ctx.Value(methodKey{}).(string)
	w.note("hash in " + verb)
	return func() { w.note("hash begins") }, func(o userdb.Outcome) { w.note("hash " + string(o)) }
}

func (w *recorder) Event(ctx context.Context, kind string) {
	verb, _ := ctx.Value(methodKey{}).(string)
	w.note(kind + " in " + verb)
}

func (w *recorder) Client(_ redis.UniversalClient, opened bool) {
	if opened {
		w.note("owned")
	} else {
		w.note("caller's")
	}
}

// openObserved opens a store with observers and discards the lines recorded so far.
func openObserved(t *testing.T, ws ...userdb.Observer) (*userdb.DB, *userdb.Type) {
	t.Helper()
	db, err := userdb.Open(t.Context(), "memory:", userdb.Options{Schema: testdb.MarkedSchema(), Keys: testdb.MarkedKeys(), History: true, Observers: ws})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	users, err := db.Type("user")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range ws {
		if w, ok := w.(*recorder); ok {
			w.take()
		}
	}
	return db, users
}

// methodNames returns the names of all exported methods that take a context, as observers receive
// them.
func methodNames() (all []string) {
	for name, typ := range map[string]reflect.Type{ // the space keeps the keys of DB and Type apart
		"": reflect.TypeFor[*userdb.DB](), " ": reflect.TypeFor[*userdb.Type](), "Set.": reflect.TypeFor[userdb.Set](),
		"List.": reflect.TypeFor[userdb.List](), "Hash.": reflect.TypeFor[userdb.Hash](), "String.": reflect.TypeFor[userdb.String](),
		"SortedSet.": reflect.TypeFor[userdb.SortedSet](),
	} {
		for m := range typ.Methods() {
			if m.Type.NumIn() > 1 && m.Type.In(1) == reflect.TypeFor[context.Context]() {
				all = append(all, strings.TrimSpace(name)+m.Name)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// TestEveryVerbIsObserved checks that every method notifies its observers, and that testdb.AllVerbs
// has a row for every method.
func TestEveryVerbIsObserved(t *testing.T) {
	w := &recorder{}
	db, users := openObserved(t, w)
	var rows []string
	for _, v := range testdb.AllVerbs() {
		rows = append(rows, v.Name)
		if err := v.Do(t.Context(), db, users); err != nil {
			t.Errorf("%s: %v", v.Name, err)
		}
		if lines := w.take(); !slices.Contains(lines, v.Name) || !slices.Contains(lines, v.Name+" ok") {
			t.Errorf("%s: observers recorded %q, want the beginning and the end of the call", v.Name, lines)
		}
	}
	slices.Sort(rows)
	if want := methodNames(); !slices.Equal(rows, want) {
		t.Errorf("testdb.AllVerbs has rows for\n%v\nwant all methods:\n%v", rows, want)
	}
}

// TestObserverCalls checks the last calls that an observer receives when a method succeeds, fails
// or panics.
func TestObserverCalls(t *testing.T) {
	ctx, uid := context.Background(), hints.UID("u1")
	create := func(_ *userdb.DB, users *userdb.Type) error {
		return second(users.Create(ctx, userdb.NewEntry{UID: "u1", Facets: schema.Texts("email", "u1@x.org"), Password: "correct horse"}))
	}
	for _, tt := range []struct {
		name string
		do   func(db *userdb.DB, users *userdb.Type) error
		want string // the last lines, joined
	}{
		{"create with a password", create, "Create, hash in Create, hash begins, hash ok, create in Create, Create ok"},
		{"not found", func(_ *userdb.DB, users *userdb.Type) error { return second(users.Find(ctx, uid)) }, "Find, Find not_found"},
		{"Exists without an entry", func(_ *userdb.DB, users *userdb.Type) error { return second(users.Exists(ctx, uid)) }, "Exists, Exists ok"},
		{"other namespace", func(db *userdb.DB, _ *userdb.Type) error {
			acme, err := db.In(testdb.Space(t, "acme"))
			return errors.Join(err, acme.Ping(ctx))
		}, "Ping, Ping ok"},
		{"taken value", func(db *userdb.DB, users *userdb.Type) error {
			return errors.Join(create(db, users), second(users.Create(ctx, userdb.NewEntry{Facets: schema.Texts("email", "U1@x.org")})))
		}, "Create, Create duplicate"},
		{"refused password", func(db *userdb.DB, users *userdb.Type) error {
			return errors.Join(create(db, users), second(users.SetPassword(ctx, uid, "short")))
		}, "SetPassword, SetPassword invalid"},
		{"wrong password", func(db *userdb.DB, users *userdb.Type) error {
			return errors.Join(create(db, users), second(users.Login(ctx, "u1@x.org", "wrong horse", userdb.Attempt{})))
		}, "Login, hash in Login, hash begins, hash ok, failure in Login, Login login"},
		{"unknown field", func(_ *userdb.DB, users *userdb.Type) error {
			return second(users.Find(ctx, hints.Field("no such field", "x")))
		}, "Find, Find hint"},
		{"error of the callback", func(db *userdb.DB, users *userdb.Type) error {
			return errors.Join(create(db, users), second(users.Update(ctx, uid, func(*userdb.Entry) error { return errors.New("mine") })))
		}, "Update, Update other"},
		{"panic in the callback", func(db *userdb.DB, users *userdb.Type) (err error) {
			err = create(db, users)
			defer func() { _ = recover() }()
			_, _ = users.Update(ctx, uid, func(*userdb.Entry) error { panic("mine") })
			return err
		}, "Update, Update panicked"},
		{"listing left early", func(db *userdb.DB, users *userdb.Type) error {
			return errors.Join(create(db, users), first(users.All(ctx, userdb.Query{})))
		}, "All, All ok"},
		{"invalid listing", func(_ *userdb.DB, users *userdb.Type) error {
			return first(users.All(ctx, userdb.Query{Order: "name"}))
		}, "All, All invalid"},
		{"listing without an entry", func(_ *userdb.DB, users *userdb.Type) error { return first(users.FindAll(ctx, uid)) }, "FindAll, FindAll ok"},
		{"canceled context", func(_ *userdb.DB, users *userdb.Type) error {
			gone, cancel := context.WithCancel(ctx)
			cancel()
			return second(users.Find(gone, uid))
		}, "Find, Find canceled"},
		{"closed store", func(db *userdb.DB, users *userdb.Type) error {
			return errors.Join(create(db, users), db.Close(), second(users.SetPassword(ctx, uid, "brand new horse")))
		}, "SetPassword, SetPassword unavailable"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := &recorder{}
			db, users := openObserved(t, w)
			_ = tt.do(db, users) // the observer records the outcome
			want := tt.want
			if got := strings.Join(w.take(), ", "); !strings.HasSuffix(got, want) || strings.Count(got, "Create ok") > 1 {
				t.Errorf("got %s\nwant %s", got, want)
			}
		})
	}
}

// second returns the error of a call with two results.
func second[T any](_ T, err error) error { return err }

// first returns the error of the first element of a listing.
func first(all iter.Seq2[userdb.Entry, error]) error {
	for _, err := range all {
		return err
	}
	return nil
}

// TestObserversInOrder checks that the first observer is notified first of the beginning and last
// of the end.
func TestObserversInOrder(t *testing.T) {
	var w recorder
	outer, inner := &relay{&recorder{name: "1"}, &w}, &relay{&recorder{name: "2"}, &w}
	db, _ := openObserved(t, outer, inner)
	w.take()
	if err := db.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(w.take(), ", "), "1Ping, 2Ping, 2Ping ok, 1Ping ok"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A relay is an Observer whose method Call writes to another recorder.
type relay struct {
	*recorder
	to *recorder
}

func (r *relay) Call(ctx context.Context, name string) (context.Context, func(userdb.Outcome)) {
	r.to.note(r.name + name)
	return ctx, func(o userdb.Outcome) { r.to.note(r.name + name + " " + string(o)) }
}

// TestObserverClients checks that observers receive every client, and whether the DB owns it.
func TestObserverClients(t *testing.T) {
	s := redistest.Shared(t)
	for i, tt := range []struct {
		want string
		open func(o userdb.Options) (*userdb.DB, error)
	}{
		{"owned", func(o userdb.Options) (*userdb.DB, error) { return userdb.Open(t.Context(), "memory:", o) }},
		{"owned", func(o userdb.Options) (*userdb.DB, error) { return userdb.Open(t.Context(), s.URL(), o) }},
		{"owned, owned", func(o userdb.Options) (*userdb.DB, error) {
			o.CacheSize = 10
			return userdb.Open(t.Context(), redistest.Start(t).URL(), o)
		}},
		{"caller's", func(o userdb.Options) (*userdb.DB, error) { return redisdb.New(t.Context(), s.Client(), o) }},
	} {
		w := &recorder{}
		db, err := tt.open(userdb.Options{Observers: []userdb.Observer{w}})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(w.take(), ", "); got != tt.want {
			t.Errorf("case %d: got the clients %s, want %s", i, got, tt.want)
		}
		db.Close()
	}
}

// TestOutcomeFailed checks which outcomes are faults.
func TestOutcomeFailed(t *testing.T) {
	for outcome, want := range map[userdb.Outcome]bool{
		"ok": false, "not_found": false, "login": false, "throttled": false, "canceled": false,
		"unavailable": true, "corrupt": true, "panicked": true, "other": true,
	} {
		if outcome.Failed() != want {
			t.Errorf("%s.Failed() = %v, want %v", outcome, !want, want)
		}
	}
}
