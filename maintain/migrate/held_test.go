package migrate_test

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestHoldsEnd checks that neither live nor deleted entries hold values of a field that is no
// longer secondary, or is secondary again.
func TestHoldsEnd(t *testing.T) {
	held := schema.Field{Role: schema.RoleSecondary, Many: 4, Hold: schema.Period(time.Hour)}
	from := userSchema(schema.FoldCasefold, field("email", held))
	eachEngine(t, func(t *testing.T, s *site) {
		for what, to := range map[string]schema.Schema{
			"a removed field": userSchema(schema.FoldCasefold, drop("email")),
			"another role":    userSchema(schema.FoldCasefold, field("email", index)),
		} {
			t.Run(what, func(t *testing.T) {
				s.flush(t)
				s.holdValues(t, from)
				for _, sch := range []schema.Schema{to, from} {
					s.DB = s.withSchema(t, sch)
					if _, err := s.apply(s.Ctx, sch); err != nil {
						t.Fatal(err)
					}
					s.requireHolds(t, sch, nil)
				}
			})
		}
	})
}

// holdValues makes the live entry u hold Bea, and the deleted entry gone hold Cid. If from is
// exact, the deleted entries away and v hold cid and dot, and w has DOT.
func (s *site) holdValues(t *testing.T, from schema.Schema) {
	t.Helper()
	s.DB = s.withSchema(t, from)
	s.createTexts(t, from, "u", []string{"Ann", "Bea"})
	s.createTexts(t, from, "gone", []string{"Cid"})
	user := s.Type(t, "user")
	_, err := user.Update(s.Ctx, hints.UID("u"), func(e *userdb.Entry) error {
		e.DropText("email", "Bea")
		return nil
	})
	if err == nil {
		err = user.Delete(s.Ctx, hints.UID("gone"))
	}
	if err == nil && from.Types["user"].Fold == schema.FoldExact {
		s.createTexts(t, from, "away", []string{"cid"})
		s.createTexts(t, from, "v", []string{"dot"})
		s.createTexts(t, from, "w", []string{"DOT"})
		time.Sleep(2 * time.Millisecond) // so that away holds its value longer than gone
		if err = user.Delete(s.Ctx, hints.UID("away")); err == nil {
			err = user.Delete(s.Ctx, hints.UID("v"))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// requireHolds checks that want maps each value that is held, as FIELD:VALUE, to the UID of its
// holder, and that a check finds no damage.
func (s *site) requireHolds(t *testing.T, sch schema.Schema, want map[string]string) {
	t.Helper()
	s.DB = s.withSchema(t, sch)
	user, holds := s.Type(t, "user"), map[string]string{}
	for _, uid := range []string{"u", "v", "w", "gone", "away"} {
		for name := range s.Raw.HGetAll(s.Ctx, s.Key("user/uid:"+uid)).Val() {
			if h, ok := store.ParseHeld(name); ok {
				holds[h.Field+":"+h.Canonical] = uid
			}
		}
	}
	if !maps.Equal(holds, want) {
		t.Errorf("holds are %v, want %v", holds, want)
	}
	for value, uid := range want {
		name, text, _ := strings.Cut(value, ":")
		if h, err := user.FindHeld(s.Ctx, name, text); err != nil || h.UID != uid {
			t.Errorf("%s is held by %+v, %v; want %s", value, h, err, uid)
		}
		if _, err := user.Create(s.Ctx, userdb.NewEntry{Facets: schema.Texts(name, text)}); !errors.Is(err, userdb.ErrDuplicate) {
			t.Errorf("create with %s: got %v, want ErrDuplicate", value, err)
		}
	}
	got := slices.DeleteFunc(s.Check(t, check.Options{}), func(p string) bool { return strings.HasPrefix(p, "field_missing") })
	testdb.Same(t, "check", got, nil)
}

// TestHoldsStay checks that values stay held if the field is renamed, or if values are compared in
// another way. If an entry then has a value, no other entry holds it anymore.
func TestHoldsStay(t *testing.T) {
	held := schema.Field{Role: schema.RoleSecondary, Many: 4, Hold: schema.Period(time.Hour)}
	renamed := held
	renamed.Was = "email"
	eachEngine(t, func(t *testing.T, s *site) {
		for _, tt := range []struct {
			what     string
			from, to schema.Schema
			want     map[string]string
		}{
			{
				"another name", userSchema(schema.FoldCasefold, field("email", held)),
				userSchema(schema.FoldCasefold, drop("email"), field("mail", renamed)),
				map[string]string{"mail:bea": "u", "mail:cid": "gone"},
			},
			{
				"casefold", userSchema(schema.FoldExact, field("email", held)),
				userSchema(schema.FoldCasefold, field("email", held)),
				map[string]string{"email:bea": "u", "email:cid": "away"},
			},
			{
				"casefold and another name", userSchema(schema.FoldExact, field("email", held)),
				userSchema(schema.FoldCasefold, drop("email"), field("mail", renamed)),
				map[string]string{"mail:bea": "u", "mail:cid": "away"},
			},
			{
				"exact", userSchema(schema.FoldCasefold, field("email", held)),
				userSchema(schema.FoldExact, field("email", held)),
				map[string]string{"email:bea": "u", "email:cid": "gone"},
			},
		} {
			t.Run(tt.what, func(t *testing.T) {
				s.flush(t)
				s.holdValues(t, tt.from)
				if _, err := s.apply(s.Ctx, tt.to); err != nil {
					t.Fatal(err)
				}
				s.requireHolds(t, tt.to, tt.want)
			})
		}
	})
}

// TestApplyHold checks that hold and retire can be added to an existing store without a change of
// its records, and that a copy of a namespace keeps held values and retired UIDs.
func TestApplyHold(t *testing.T) {
	plain := userSchema(schema.FoldCasefold)
	holding := userSchema(schema.FoldCasefold, func(typ *schema.Type) {
		name := typ.Fields["name"]
		name.Hold = schema.Period(time.Hour)
		typ.Fields["name"], typ.Retire = name, true
	})
	eachEngine(t, func(t *testing.T, s *site) {
		s.flush(t)
		s.DB = s.withSchema(t, plain)
		from, to := testdb.Must(s.NS.Sub("from")), testdb.Must(s.NS.Sub("to"))
		in := func(sch schema.Schema, ns recordkey.Namespace) *userdb.Type {
			return testdb.Must(testdb.Must(s.withSchema(t, sch).In(ns)).Type("user"))
		}
		create := func(users *userdb.Type, uid, name string) error {
			_, err := users.Create(s.Ctx, userdb.NewEntry{UID: uid, Facets: schema.Texts("email", uid+"@x.org", "name", name)})
			return err
		}
		users := in(plain, from)
		for _, uid := range []string{"u", "v"} {
			if err := create(users, uid, "name of "+uid); err != nil {
				t.Fatal(err)
			}
		}
		key := from.String() + "user/uid:u"
		before := s.Raw.HGetAll(s.Ctx, key).Val()
		within := *s
		site := *s.Site
		site.NS, site.DB = from, testdb.Must(s.DB.In(from))
		within.Site = &site
		if plan, err := within.apply(s.Ctx, holding); err != nil || plan.Types[0].Stops || plan.Types[0].Rewritten != 0 {
			t.Fatalf("got the plan %+v, %v; want that no writer stops and no entry is rewritten", plan.Types, err)
		}
		if after := s.Raw.HGetAll(s.Ctx, key).Val(); !maps.Equal(after, before) {
			t.Errorf("the entry was changed: got %q, want %q", after, before)
		}
		// A cluster may trust the schema that it has read for some seconds.
		testdb.AdvanceClock(time.Minute)
		users = in(holding, from)
		_, err := users.Update(s.Ctx, hints.UID("u"), func(e *userdb.Entry) error { e.Put("name", schema.Text("other")); return nil })
		if err = cmp.Or(err, users.Delete(s.Ctx, hints.UID("v"))); err != nil {
			t.Fatal(err)
		}
		if _, err := migrate.CopyNamespace(s.Ctx, s.DB, from, to); err != nil {
			t.Fatal(err)
		}
		users = in(holding, to)
		for name, uid := range map[string]string{"NAME of u": "u", "name of v": "v"} {
			if h, err := users.FindHeld(s.Ctx, "name", name); err != nil || h.UID != uid || time.Until(h.Until) < 50*time.Minute {
				t.Errorf("in the copy %s is held by %+v (%v), want %s", name, h, err, uid)
			}
			if err := create(users, "w", name); !errors.Is(err, userdb.ErrDuplicate) {
				t.Errorf("in the copy, creating an entry with %s: got %v, want ErrDuplicate", name, err)
			}
		}
		if err := create(users, "v", "new"); !errors.Is(err, userdb.ErrDuplicate) {
			t.Errorf("in the copy, creating v again: got %v, want ErrDuplicate", err)
		}
	})
}
