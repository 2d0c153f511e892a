package check_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdb/redisdb"
)

// TestOwnRecords breaks each of the store's own records. A check must report it and a repair must
// fix it. After that, operations and logins must work again.
func TestOwnRecords(t *testing.T) {
	for _, tt := range []struct {
		name   string
		damage [][]string
		want   []string
		// restorable means that a repair without Restate suffices.
		restorable bool
	}{
		{"~/types of another Redis type", [][]string{{"del", "~/types"}, {"set", "~/types", "x"}}, []string{"own_types ~/types"}, true},
		{"~/types lost", [][]string{{"del", "~/types"}}, []string{"own_types ~/types", "own_types ~/types"}, true},
		{"a type name that no key can hold", [][]string{{"sadd", "~/types", ""}}, []string{"own_types ~/types"}, true},
		// This does no harm, because a key can hold the name.
		{"a type name that begins with ~", [][]string{{"sadd", "~/types", "~x"}}, nil, true},
		{"a secret of another Redis type", [][]string{{"del", "~/secret"}, {"rpush", "~/secret", "x"}}, []string{"own_secret ~/secret"}, true},
		{"a short secret", [][]string{{"set", "~/secret", "abc"}}, []string{"own_secret ~/secret"}, true},
		{"an empty secret", [][]string{{"set", "~/secret", ""}}, []string{"own_secret ~/secret"}, true},
		{"login counters of another Redis type", [][]string{{"del", "~/throttle/user/uid/u1"}, {"set", "~/throttle/user/uid/u1", "x"}}, []string{"own_throttle ~/throttle/user/uid/u1"}, true},
		{"login counters that are not numbers", [][]string{{"hset", "~/throttle/user/uid/u1", "o:abc", "x"}}, []string{"own_throttle ~/throttle/user/uid/u1"}, true},
		{"an invalid list of calls", [][]string{{"hset", "~/throttle/user/uid/u1", "k", "x"}}, []string{"own_throttle ~/throttle/user/uid/u1"}, true},
		{"a fractional count of failures", [][]string{{"hset", "~/throttle/user/uid/u1", "sn", "1.5"}}, []string{"own_throttle ~/throttle/user/uid/u1"}, true},
		{"a login counter that is the word nan", [][]string{{"hset", "~/throttle/user/uid/u1", "sn", "nan"}}, []string{"own_throttle ~/throttle/user/uid/u1"}, true},
		{"a schema that is not JSON", [][]string{{"hset", "~/schema/user", "schema", "{"}}, []string{"own_schema ~/schema/user"}, true},
		{"another schema beside the fingerprint", [][]string{{"hset", "~/schema/user", "schema", `{"primary":"id"}`}}, []string{"own_schema ~/schema/user"}, true},
		{"no schema beside the fingerprint", [][]string{{"hdel", "~/schema/user", "schema"}}, []string{"own_schema ~/schema/user"}, true},
		{"a schema without a fingerprint", [][]string{{"hdel", "~/schema/user", "fingerprint"}}, []string{"own_schema ~/schema/user"}, false},
		{"a schema of another Redis type", [][]string{{"del", "~/schema/user"}, {"set", "~/schema/user", "x"}}, []string{"own_schema ~/schema/user"}, false},
		{"a lost schema", [][]string{{"del", "~/schema/user"}}, []string{"own_schema ~/schema/user"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *site) { s.testBrokenOwn(t, tt.damage, tt.want, tt.restorable) })
		})
	}
}

func (s *site) testBrokenOwn(t *testing.T, damage [][]string, want []string, restorable bool) {
	s.User(t, 1)
	firm := s.Type(t, "firm")
	if _, err := firm.Create(s.Ctx, userdb.NewEntry{UID: "f", Facets: schema.Texts("name", "F")}); err != nil {
		t.Fatal(err)
	}
	login := func() error {
		_, err := s.Type(t, "user").Login(s.Ctx, "u1@x.org", "wrong", userdb.Attempt{Origin: "192.0.2.1"})
		return err
	}
	if err := login(); !errors.Is(err, userdb.ErrLogin) {
		t.Fatal(err)
	}
	for _, words := range damage {
		s.Do(t, words...)
	}
	testdb.Same(t, "check", s.Check(t, check.Options{}), slices.Clone(want))
	testdb.Same(t, "check again: nothing was written", s.Check(t, check.Options{}), slices.Clone(want))
	testdb.Same(t, "repair", s.Check(t, check.Options{Repair: true}), slices.Clone(want))
	if !restorable {
		testdb.Same(t, "after a repair without Restate", s.Check(t, check.Options{}), slices.Clone(want))
		s.requireRefusesOther(t, want)
		testdb.Same(t, "restate", s.Check(t, check.Options{Repair: true, Restate: true}), slices.Clone(want))
	}
	testdb.Same(t, "repaired", s.Check(t, check.Options{}), nil)
	fresh, err := redisdb.New(s.Ctx, s.Raw, userdb.Options{Schema: testdb.DefaultSchema(), Namespace: s.NS})
	if err != nil {
		t.Fatal(err)
	}
	s.DB = fresh
	if err := login(); !errors.Is(err, userdb.ErrLogin) {
		t.Errorf("login after the repair: got %v, want ErrLogin", err)
	}
	s.User(t, 2)
	stored, err := migrate.StoredSchema(s.Ctx, s.DB)
	if err != nil || stored.Types["user"].Fingerprint() != testdb.DefaultSchema().Types["user"].Fingerprint() || len(stored.Types) != 2 {
		t.Errorf("got a stored schema with the types %q, error %v; want both types, as testdb.DefaultSchema declares them", stored.Names(), err)
	}
}

// requireRefusesOther checks that Restate does not store a schema that does not fit the records.
func (s *site) requireRefusesOther(t *testing.T, want []string) {
	t.Helper()
	other := testdb.DefaultSchema()
	user := other.Types["user"]
	user.Fields["job"] = schema.Field{Role: schema.RoleSecondary}
	db, err := s.DB.With(other)
	if err != nil {
		t.Fatal(err)
	}
	with := *s.Site
	with.DB = db
	testdb.Same(t, "restate with another schema", with.Check(t, check.Options{Repair: true, Restate: true}), slices.Clone(want))
	if n, err := s.Raw.HExists(s.Ctx, s.Key("~/schema/user"), "fingerprint").Result(); n && err == nil {
		t.Error("a schema that the records do not fit was stored")
	}
}

// TestHistoryWithoutEntry checks that a repair removes the history of an entry that does not exist,
// unless the history has the deletion, or a tombstone has yet to write it there.
func TestHistoryWithoutEntry(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		const event = " session_start visitor 192.0.2.1 / /"
		history := func(prk string) string { return "~/history/{" + s.Key(prk) + "}" }
		s.User(t, 1)
		s.Do(t, "set", history("user/uid:u1"), "1"+event)
		s.Do(t, "set", history("user/uid:gone"), "1"+event)
		s.Do(t, "set", history("user/uid:deleted"), "1"+event+"\n2 delete x / / /")
		s.Do(t, "set", history("user/uid:deleting"), "1"+event)
		s.Do(t, "hset", "user/uid:deleting", "~rev", "x", "~note", "2 delete x / / /")
		s.Do(t, "expire", "user/uid:deleting", "60")
		s.Do(t, "set", history("other/id:1"), "1"+event) // of an undeclared type
		want := []string{"history_orphan ~/history/{other/id:1}", "history_orphan ~/history/{user/uid:gone}"}
		testdb.Same(t, "check", s.Check(t, check.Options{}), slices.Clone(want))
		only := check.Options{Only: hints.UID("gone").Of("user"), Repair: true}
		testdb.Same(t, "repair of one entry", s.Check(t, only), []string{"entry_missing user/uid:gone", want[1]})
		testdb.Same(t, "repair", s.Check(t, check.Options{Repair: true}), want[:1])
		testdb.Same(t, "repaired", s.Check(t, check.Options{}), nil)
		for uid, want := range map[string]int64{"u1": 1, "deleted": 1, "deleting": 1, "gone": 0} {
			if n := s.Raw.Exists(s.Ctx, s.Key(history("user/uid:"+uid))).Val(); n != want {
				t.Errorf("%s has %d histories, want %d", uid, n, want)
			}
		}
	})
}

// A hookedEngine calls its function before each repair step.
type hookedEngine struct {
	store.Engine
	before func()
}

func (e *hookedEngine) Repair(ctx context.Context, s store.RepairStep) (bool, error) {
	e.before()
	return e.Engine.Repair(ctx, s)
}

// TestCountersThatAreSoundAgain checks that a repair keeps counters that became readable before it
// could remove them.
func TestCountersThatAreSoundAgain(t *testing.T) {
	const key = "~/throttle/user/uid/u1"
	s := newSite(testdb.Open(t, testdb.EmbeddedClient(t), recordkey.Namespace{}, testdb.DefaultSchema()))
	s.User(t, 1)
	s.Do(t, "hset", key, "sn", "x")
	s.Edit(t, func(c *view.Config) {
		c.Engine = &hookedEngine{c.Engine, func() { s.Do(t, "hset", key, "sn", "7") }}
	})
	testdb.Same(t, "repair", s.Check(t, check.Options{Repair: true}), []string{"own_throttle " + key})
	if n, err := s.Raw.HGet(s.Ctx, key, "sn").Result(); n != "7" || err != nil {
		t.Errorf("the counter is %q, %v; want 7", n, err)
	}
	testdb.Same(t, "afterwards", s.Check(t, check.Options{}), nil)
}

// TestUnfinishedCopy checks that an unfinished copy is not repaired as if it were complete.
func TestUnfinishedCopy(t *testing.T) {
	eachStore(t, func(t *testing.T, s *site) {
		s.User(t, 1)
		s.Do(t, "set", "~/copying", "acme/eu")
		s.Do(t, "hdel", "user/uid:u1", "~prk")
		want := []string{"own_copying ~/copying"}
		testdb.Same(t, "check", s.Check(t, check.Options{}), slices.Clone(want))
		testdb.Same(t, "repair", s.Check(t, check.Options{Repair: true}), slices.Clone(want))
		s.Do(t, "del", "~/copying")
		testdb.Same(t, "a complete copy", s.Check(t, check.Options{}), []string{"prk_wrong user/uid:u1"})
	})
}
