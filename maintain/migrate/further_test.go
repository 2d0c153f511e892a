package migrate_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// createTexts creates an entry with texts as the values of its field email. The further values that
// are also in verified become verified and get the label work.
func (s *site) createTexts(t testdb.Tester, sch schema.Schema, uid string, texts []string, verified ...string) {
	t.Helper()
	user := testdb.Must(s.withSchema(t, sch).Type("user"))
	if _, err := user.Create(s.Ctx, userdb.NewEntry{UID: uid, Values: map[string][]string{"email": texts}}); err != nil {
		t.Fatal(err)
	}
	for _, text := range verified {
		name := store.FieldAlso("email", sch.Types["user"].Canonical(text))
		f, _ := store.ParseFurther(name, s.Raw.HGet(s.Ctx, s.Key("user/uid:"+uid), name).Val())
		f.Verified, f.Label = 7, "work"
		s.Do(t, "HSET", "user/uid:"+uid, name, f.Text())
	}
}

// requireFields checks that want holds all fields of an entry whose names begin with one of
// prefixes.
func (s *site) requireFields(t testdb.Tester, uid string, want map[string]string, prefixes ...string) {
	t.Helper()
	got := s.Raw.HGetAll(s.Ctx, s.Key("user/uid:"+uid)).Val()
	maps.DeleteFunc(got, func(field, _ string) bool {
		return !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(field, p) })
	})
	if !maps.Equal(got, want) {
		t.Errorf("%s has %q, want %q", uid, got, want)
	}
}

// addTexts adds values to the field email of an entry.
func (s *site) addTexts(db *userdb.DB, uid string, texts ...string) error {
	user, err := db.Type("user")
	if err == nil {
		_, err = user.Update(s.Ctx, hints.UID(uid), func(e *userdb.Entry) error {
			for _, text := range texts {
				e.AddText("email", text)
			}
			return nil
		})
	}
	return err
}

// TestFurtherValuesAreKept changes a schema so that a field loses some of its further values. They
// move to ~lost:FIELD, and the plan counts them.
func TestFurtherValuesAreKept(t *testing.T) {
	four := schema.Field{Role: schema.RoleSecondary | schema.RoleIndexed, Many: 4}
	folded := userSchema(schema.FoldCasefold, field("email", four))
	exact := userSchema(schema.FoldExact, field("email", four))
	eachEngine(t, func(t *testing.T, s *site) {
		for _, tt := range []struct {
			name     string
			from, to schema.Schema
			texts    []string
			verified []string
			lost     map[string]int64
			want     map[string]string // fields of the entry
			found    map[string]string // fields in which values of the entry are found, by value
		}{
			{
				"a removed field", folded, userSchema(schema.FoldCasefold, drop("email")),
				[]string{"a", "B", "c"},
				[]string{"B"},
				map[string]int64{"email": 2},
				map[string]string{"email": "a", "~lost:email": "B", "~lost:email:2": "c"},
				nil,
			},
			{
				"another role", folded, userSchema(schema.FoldCasefold, field("email", index)),
				[]string{"a", "B"},
				nil,
				map[string]int64{"email": 1},
				map[string]string{"email": "a", "~lost:email": "B"},
				nil,
			},
			{
				"another name without a role", folded, userSchema(schema.FoldCasefold, drop("email"), field("mail", schema.Field{Was: "email"})),
				[]string{"a", "B"},
				nil,
				map[string]int64{"mail": 1},
				map[string]string{"mail": "a", "~lost:mail": "B"},
				nil,
			},
			{
				"values become equal", exact, folded,
				[]string{"A", "B", "a", "b"},
				nil,
				map[string]int64{"email": 2},
				map[string]string{"email": "A", "~also:email:b": "3 - -", "~lost:email": "B", "~lost:email:2": "a"},
				map[string]string{"A": "email", "b": "email"},
			},
			{
				"a verified value and another one become equal", exact, folded,
				[]string{"x", "B", "b", "bb"},
				[]string{"B"},
				map[string]int64{"email": 1},
				map[string]string{"email": "x", "~also:email:b": "2 7 work B", "~also:email:bb": "3 - -", "~lost:email": "b"},
				map[string]string{"x": "email", "B": "email", "bb": "email"},
			},
			{
				"a kind that the values do not fit", folded, userSchema(schema.FoldCasefold, field("email", schema.Field{Role: four.Role, Many: 4, Kind: "pattern", Pattern: "^[0-9]+$"})),
				[]string{"a", "B"},
				[]string{"B"},
				nil,
				map[string]string{"email": "a", "~also:email:b": "1 7 work B"},
				map[string]string{"a": "email", "b": "email"},
			},
		} {
			t.Run(tt.name, func(t *testing.T) {
				s.flush(t)
				s.DB = s.withSchema(t, tt.from)
				s.createTexts(t, tt.from, "u", tt.texts, tt.verified...)
				plan, err := s.apply(s.Ctx, tt.to)
				if err != nil || !maps.Equal(plan.Types[0].LostValues, tt.lost) {
					t.Fatalf("got the plan %+v, %v; want lost values %v", plan.Types, err, tt.lost)
				}
				s.requireFields(t, "u", tt.want, "email", "mail", "~also", "~lost")
				s.DB = s.withSchema(t, tt.to)
				got := slices.DeleteFunc(s.Check(t, check.Options{}), func(p string) bool { return strings.HasPrefix(p, "field_missing") })
				testdb.Same(t, "check", got, nil)
				for text, field := range tt.found {
					if e, err := s.Type(t, "user").Find(s.Ctx, hints.Field(field, text)); err != nil || e.UID() != "u" {
						t.Errorf("%q finds %q, %v; want u", text, e.UID(), err)
					}
				}
				// Other entries can have the values in ~lost:FIELD.
				_, err = s.Type(t, "user").Create(s.Ctx, userdb.NewEntry{UID: "v", Facets: schema.Texts("name", "B")})
				if taken := tt.found["B"]+tt.found["b"] != ""; taken != errors.Is(err, userdb.ErrDuplicate) || !taken && err != nil {
					t.Errorf("creating an entry with the value B: got %v, want ErrDuplicate: %v", err, taken)
				}
			})
		}
	})
}

// TestFurtherValueWithoutKey checks that a change of the schema is refused if it would leave a
// value of a field, the first or a further one, without a key.
func TestFurtherValueWithoutKey(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		exact, folded := userSchema(schema.FoldExact, severalEmails), userSchema(schema.FoldCasefold, severalEmails)
		for _, tt := range []struct {
			texts []string
			want  string
		}{
			{[]string{"a", "\u034f"}, `user/uid:u: "email": no key can hold one of its values: it is empty`},
			{[]string{"\u034f", "a"}, `user/uid:u: "email": no key can hold it: it is empty`},
		} {
			s.flush(t)
			s.DB = s.withSchema(t, exact)
			s.createTexts(t, exact, "u", tt.texts)
			before := s.allRecords(t)
			plan, err := s.apply(s.Ctx, folded)
			if !errors.Is(err, migrate.ErrCollision) || len(plan.Types[0].Collisions) != 1 || plan.Types[0].Collisions[0].Reason != tt.want {
				t.Errorf("%q: plan %+v, %v\nwant %s", tt.texts, plan.Types, err, tt.want)
			}
			if !maps.Equal(before, s.allRecords(t)) {
				t.Errorf("%q: something was written", tt.texts)
			}
		}
	})
}

// TestFurtherValuesInterrupted stops a change of the fold, the name and the number of values of a
// field after every number of commands. The next run must complete the change, given the same
// schema or the pending one.
func TestFurtherValuesInterrupted(t *testing.T) {
	from := userSchema(schema.FoldExact, field("email", schema.Field{Role: schema.RoleSecondary, Many: 4}))
	to := userSchema(schema.FoldCasefold, drop("email"), field("mail", schema.Field{Role: schema.RoleSecondary, Many: 2, Was: "email"}))
	twoEngines(t, func(t *testing.T, s *site) {
		c := &testdb.Cut{}
		s.Raw.AddHook(c)
		const unlimited = 1 << 40
		complete := false
		for commands := int64(1); !complete; commands++ {
			c.Left.Store(unlimited)
			s.flush(t)
			s.DB = s.withSchema(t, from)
			s.createTexts(t, from, "u", []string{"A", "B", "a", "b"}, "B")
			s.createTexts(t, from, "v", []string{"C", "D"})
			c.Left.Store(commands)
			_, err := s.apply(s.Ctx, to)
			c.Left.Store(unlimited)
			if complete = err == nil; !complete {
				next := testdb.Must(migrate.PendingSchema(s.Ctx, s.DB))
				if len(next.Types) == 0 || commands%2 == 0 {
					next = to
				}
				if _, err := s.apply(s.Ctx, next); err != nil {
					t.Fatalf("after %d commands: %v", commands, err)
				}
			}
			s.DB = s.withSchema(t, to)
			testdb.Same(t, fmt.Sprintf("after %d commands: check", commands), s.Check(t, check.Options{}), []string{"field_missing user/uid:u", "field_missing user/uid:v"})
			s.requireFields(t, "u", map[string]string{"mail": "A", "~skv:mail": "a", "~also:mail:b": "1 7 work B", "~lost:mail": "a", "~lost:mail:2": "b"}, "email", "mail", "~also", "~lost", "~skv", "~was")
			s.requireFields(t, "v", map[string]string{"mail": "C", "~skv:mail": "c", "~also:mail:d": "1 - - D"}, "email", "mail", "~also", "~lost", "~skv", "~was")
			s.requireTexts(t, s.DB, "u", "mail", "A", "B")
			s.requireTexts(t, s.DB, "v", "mail", "C", "D")
			if t.Failed() {
				return
			}
		}
	})
}

// TestFirstMany checks that no entry gets several values before every writing program has read the
// schema that allows them. A program of an earlier version, which does not know further values,
// could give such a value to another entry.
func TestFirstMany(t *testing.T) {
	one, several := userSchema(schema.FoldCasefold), userSchema(schema.FoldCasefold, severalEmails)
	kind := userSchema(schema.FoldCasefold, severalEmails, field("name", schema.Field{Role: schema.RoleSecondary, Kind: "nickname"}))
	eachEngine(t, func(t *testing.T, s *site) {
		for _, to := range []schema.Schema{several, kind} {
			s.flush(t)
			s.DB = s.withSchema(t, one)
			s.createTexts(t, one, "u", []string{"a"})
			waited := false
			meanwhile := func() {
				waited = true
				refused := &userdb.FieldError{}
				err := s.addTexts(s.withSchema(t, to), "u", "b")
				if !errors.As(err, &refused) && !errors.Is(err, userdb.ErrSchemaMismatch) {
					t.Errorf("a second value, while other programs may write under the old schema: got %v, want a FieldError or ErrSchemaMismatch", err)
				}
			}
			plan := testdb.Must(migrate.Plan(s.Ctx, s.pausedDB(t, isStep[store.AwaitSchema], meanwhile), to))
			if err := plan.Apply(s.Ctx, nil); err != nil || !waited {
				t.Errorf("applying: got %v, want no error; waited for other programs: got %v, want true", err, waited)
			}
			if err := s.addTexts(s.withSchema(t, to), "u", "b"); err != nil {
				t.Errorf("a second value, afterwards: %v", err)
			}
			s.requireTexts(t, s.withSchema(t, to), "u", "email", "a", "b")
		}
	})
}

// TestFirstManyInterrupted stops a process while it changes a field to allow several values. Other
// programs must be able to write, but only one value, and the next run must complete the change.
func TestFirstManyInterrupted(t *testing.T) {
	one, several := userSchema(schema.FoldCasefold), userSchema(schema.FoldCasefold, severalEmails)
	eachEngine(t, func(t *testing.T, s *site) {
		s.flush(t)
		s.DB = s.withSchema(t, one)
		s.createTexts(t, one, "u", []string{"a"})
		ctx, die := context.WithCancel(s.Ctx)
		plan := testdb.Must(migrate.Plan(ctx, s.pausedDB(t, isStep[store.AwaitSchema], die), several))
		if err := plan.Apply(ctx, nil); err == nil {
			t.Fatal("the first process was not stopped")
		}
		stored := testdb.Must(migrate.StoredSchema(s.Ctx, s.DB))
		if !stored.Types["user"].Building.BecomesMany("email") {
			t.Fatalf("got the stored schema %+v, want several values of email being added", stored.Types["user"])
		}
		_, err := testdb.Must(s.withSchema(t, one).Type("user")).Update(s.Ctx, hints.UID("u"), func(e *userdb.Entry) error {
			e.Put("age", schema.Number(4))
			return nil
		})
		if err != nil {
			t.Errorf("a program with the old schema: got %v, want no error", err)
		}
		if err := s.addTexts(s.withSchema(t, several), "u", "b"); err == nil {
			t.Error("a second value was added before the change was done")
		}
		if _, err := s.apply(s.Ctx, stored); err != nil { // without --schema
			t.Fatal(err)
		}
		if err := s.addTexts(s.withSchema(t, several), "u", "b"); err != nil {
			t.Errorf("a second value, afterwards: %v", err)
		}
	})
}

// TestFewerValuesMeanwhile gives an entry a second value after a change to one value was planned.
// Apply must fail, and the entry must still be able to get further values.
func TestFewerValuesMeanwhile(t *testing.T) {
	one, several := userSchema(schema.FoldCasefold), userSchema(schema.FoldCasefold, severalEmails)
	eachEngine(t, func(t *testing.T, s *site) {
		s.flush(t)
		s.DB = s.withSchema(t, several)
		s.createTexts(t, several, "u", []string{"a"})
		var failed error
		meanwhile := func() { failed = s.addTexts(s.DB, "u", "b") }
		plan := testdb.Must(migrate.Plan(s.Ctx, s.pausedDB(t, isStep[store.ReplaceSchema], meanwhile), one))
		if err := plan.Apply(s.Ctx, nil); !plan.Types[0].Stops || !errors.Is(err, migrate.ErrCollision) || failed != nil {
			t.Errorf("applying: got %v, want ErrCollision; the plan stops writers: got %v, want true; adding a value: got %v, want no error", err, plan.Types[0].Stops, failed)
		}
		testdb.AdvanceClock(time.Minute)
		if err := s.addTexts(s.withSchema(t, several), "u", "c"); err != nil {
			t.Errorf("a third value, afterwards: %v", err)
		}
		testdb.Same(t, "check", s.Check(t, check.Options{}), []string{"field_missing user/uid:u"})
	})
}

// TestRollBackOfMany makes two entries collide during the addition of a field that may have several
// values. Everything must then be as before.
func TestRollBackOfMany(t *testing.T) {
	one := userSchema(schema.FoldCasefold, field("nick", schema.Field{}))
	several := userSchema(schema.FoldCasefold, severalEmails, field("nick", schema.Field{Role: schema.RoleSecondary, Many: 3}))
	eachEngine(t, func(t *testing.T, s *site) {
		s.flush(t)
		s.createPeople(t, one)
		s.DB = s.withSchema(t, one)
		plan := testdb.Must(migrate.Plan(s.Ctx, s.DB, several))
		n := 0
		err := plan.Apply(s.Ctx, func(int64, int64) {
			if n++; n == 1 {
				s.Do(t, "HSET", "user/uid:u2", "nick", "nu1")
			}
		})
		if !errors.Is(err, migrate.ErrCollision) && !errors.Is(err, userdb.ErrDuplicate) {
			t.Errorf("applying: got %v, want ErrCollision or ErrDuplicate", err)
		}
		stored := testdb.Must(migrate.StoredSchema(s.Ctx, s.DB)).Types["user"]
		if relation, words := one.Types["user"].Compare(stored); relation != schema.Same || stored.Building != nil {
			t.Errorf("the stored schema differs after the rollback: %s, %+v", words, stored)
		}
		if err := s.addTexts(s.DB, "u1", "x"); !errors.Is(err, userdb.ErrInvalid) {
			t.Errorf("a second value after the rollback: got %v, want ErrInvalid", err)
		}
		if _, err := s.Type(t, "user").Create(s.Ctx, userdb.NewEntry{UID: "later", Facets: schema.Texts("name", "Later")}); err != nil {
			t.Errorf("a writer after the rollback: %v", err)
		}
	})
}
