package migrate_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// largerSchema returns a schema with every kind of addition for which entries must be converted.
func largerSchema() schema.Schema {
	return userSchema(
		schema.FoldCasefold, field("nick", schema.Field{Role: schema.RoleSecondary | schema.RoleOrdered}), field("city", index),
		field("email", schema.Field{Role: schema.RoleSecondary | schema.RoleOrdered}), indexed("likes", true),
	)
}

// queries returns functions by name. Each runs a query that needs largerSchema, and returns the
// number of entries that it found.
func queries(t testdb.Tester, db *userdb.DB, s *site) map[string]func() (int, error) {
	user := testdb.Must(db.Type("user"))
	all := func(q userdb.Query) func() (int, error) {
		return func() (n int, err error) {
			for _, failed := range user.All(s.Ctx, q) {
				if n++; failed != nil {
					return 0, failed
				}
			}
			return n, nil
		}
	}
	return map[string]func() (int, error){
		"order of a new field": all(userdb.Query{Order: "nick"}),
		"order of an old one":  all(userdb.Query{Order: "email"}),
		"index":                all(userdb.Query{Where: schema.Texts("city", "Bonn")}),
		"count": func() (int, error) {
			n, err := user.Count(s.Ctx, userdb.Query{Where: schema.Texts("city", "Bonn")})
			return int(n.Entries), err
		},
		"page": func() (int, error) {
			p, err := user.Page(s.Ctx, userdb.Query{Order: "nick"})
			return len(p.Entries), err
		},
		"find": func() (int, error) {
			_, err := user.Find(s.Ctx, hints.Field("nick", "nu1").Of("user"))
			return 1, err
		},
	}
}

// TestOnline applies an addition while a program writes. The program must not be stopped, and no
// query or lookup may use an incomplete index. Afterwards everything must be complete.
func TestOnline(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		people := s.createPeople(t, userSchema(schema.FoldCasefold))
		old, to := s.withSchema(t, userSchema(schema.FoldCasefold)), s.withSchema(t, largerSchema())
		user := testdb.Must(old.Type("user"))
		plan := testdb.Must(migrate.Plan(s.Ctx, old, largerSchema()))
		meanwhile := func(int64, int64) {
			if len(testdb.Must(migrate.StoredSchema(s.Ctx, old)).Types["user"].Building.What) == 0 {
				t.Error("the stored schema does not say that an addition is being built")
			}
			for name, query := range queries(t, to, s) {
				if n, err := query(); !errors.Is(err, userdb.ErrIndexBuilding) {
					t.Errorf("%s: got %d entries, %v; want ErrIndexBuilding", name, n, err)
				}
			}
			if e, err := testdb.Must(to.Type("user")).Find(s.Ctx, hints.Any("name 1").Of("user")); err != nil && !errors.Is(err, userdb.ErrNotFound) {
				t.Errorf("finding by any field: got %v, %v; want an entry or ErrNotFound", e, err)
			}
			_, err := user.Update(s.Ctx, hints.UID("u1").Of("user"), func(e *userdb.Entry) error {
				age, _ := e.Get("age")
				n, _ := age.Number()
				e.Put("age", schema.Number(n+1))
				e.Put("city", schema.Text("Bonn"))
				return nil
			})
			if err != nil {
				t.Errorf("a running writer: %v", err)
			}
		}
		var once sync.Once
		if err := plan.Apply(s.Ctx, func(done, about int64) { once.Do(func() { meanwhile(done, about) }) }); err != nil {
			t.Fatal(err)
		}
		for name, query := range queries(t, to, s) {
			if n, err := query(); err != nil || n == 0 {
				t.Errorf("%s, when complete: got %d entries, %v; want at least one entry", name, n, err)
			}
		}
		delete(people["u1"], "age")
		delete(people["u1"], "city")
		s.requireMigrated(t, "complete", largerSchema(), people)
	})
}

// TestRollBack makes two entries collide during the addition of a field. Everything must then be as
// before, and programs must be able to write.
func TestRollBack(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s.createPeople(t, userSchema(schema.FoldCasefold))
		old := s.withSchema(t, userSchema(schema.FoldCasefold))
		user := testdb.Must(old.Type("user"))
		plan := testdb.Must(migrate.Plan(s.Ctx, old, largerSchema()))
		var once sync.Once
		err := plan.Apply(s.Ctx, func(int64, int64) {
			once.Do(func() {
				stored := testdb.Must(migrate.StoredSchema(s.Ctx, old)).Types["user"]
				state := s.Raw.HGetAll(s.Ctx, s.Key("~/schema/user")).Val()
				if stored.Building == nil {
					t.Errorf("the stored schema does not say that an addition is being built: %v", state)
				}
				// This simulates a program that wrote just before the addition began.
				s.Do(t, "HSET", "user/uid:u2", "nick", "nu1")
			})
		})
		if !errors.Is(err, migrate.ErrCollision) && !errors.Is(err, userdb.ErrDuplicate) {
			t.Fatalf("applying: got %v, want ErrCollision or ErrDuplicate", err)
		}
		stored := testdb.Must(migrate.StoredSchema(s.Ctx, old)).Types["user"]
		if relation, words := userSchema(schema.FoldCasefold).Types["user"].Compare(stored); relation != schema.Same || stored.Building != nil || len(stored.Retired) > 0 {
			t.Errorf("the stored schema differs after the rollback: %s, %+v", words, stored)
		}
		if _, err := user.Create(s.Ctx, userdb.NewEntry{UID: "later", Facets: schema.Texts("name", "Later")}); err != nil {
			t.Errorf("a writer after the rollback: %v", err)
		}
		s.DB = old
		got := slices.DeleteFunc(s.Check(t, check.Options{}), func(p string) bool { return p == "field_missing user/uid:later" })
		testdb.Same(t, "check", got, nil)
	})
}

// TestConcurrentAdditions applies different additions at once. Each must end with its addition
// complete.
func TestConcurrentAdditions(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s.createPeople(t, userSchema(schema.FoldCasefold))
		db := s.withSchema(t, userSchema(schema.FoldCasefold))
		additions := []schema.Schema{
			largerSchema(), userSchema(schema.FoldCasefold, field("city", schema.Field{Role: schema.RoleOrdered})), largerSchema(),
			userSchema(schema.FoldCasefold, field("job", schema.Field{Role: schema.RoleIndexed | schema.RoleOrdered})),
		}
		plans := make([]migrate.Change, len(additions))
		for i, to := range additions {
			plans[i] = testdb.Must(migrate.Plan(s.Ctx, db, to))
		}
		var appliers sync.WaitGroup
		for _, plan := range plans {
			appliers.Go(func() {
				if err := plan.Apply(s.Ctx, nil); err != nil {
					t.Errorf("applying: %v", err)
				}
			})
		}
		appliers.Wait()
		stored := testdb.Must(migrate.StoredSchema(s.Ctx, db)).Types["user"]
		for i, to := range additions {
			if relation, words := to.Types["user"].Compare(stored); relation > schema.Lacks || stored.Building != nil {
				t.Errorf("addition %d is not complete: %s, %+v", i, words, stored.Building)
			}
		}
		s.DB = s.withSchema(t, schema.Schema{Types: map[string]schema.Type{"user": stored}})
		testdb.Same(t, "check", s.Check(t, check.Options{}), nil)
	})
}

// TestRequired checks that a field can become required only once all entries have it, and that the
// requirement then also applies to programs that do not know the field.
func TestRequired(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		people := s.createPeople(t, userSchema(schema.FoldCasefold))
		old := s.withSchema(t, userSchema(schema.FoldCasefold))
		user := testdb.Must(old.Type("user"))
		requiring := userSchema(schema.FoldCasefold, field("town", schema.Field{Required: true}))
		plan := testdb.Must(migrate.Plan(s.Ctx, old, requiring))
		lacksTown := func(c migrate.Collision) bool { return c.Field == "town" }
		if err := plan.Apply(s.Ctx, nil); !errors.Is(err, migrate.ErrCollision) || !slices.ContainsFunc(plan.Types[0].Collisions, lacksTown) {
			t.Fatalf("with entries that lack the field: got %v, %+v; want ErrCollision", err, plan.Types)
		}
		for uid := range people {
			if _, err := user.Update(s.Ctx, hints.UID(uid).Of("user"), func(e *userdb.Entry) error { e.Put("town", schema.Text("Ulm")); return nil }); err != nil {
				t.Fatal(err)
			}
		}
		plan = testdb.Must(migrate.Plan(s.Ctx, old, requiring))
		if err := plan.Apply(s.Ctx, nil); err != nil {
			t.Fatal(err)
		}
		_, err := user.Create(s.Ctx, userdb.NewEntry{UID: "none"})
		if refused, ok := errors.AsType[*userdb.FieldError](err); !ok || refused.Rule != "required" || refused.Field != "town" {
			t.Errorf("creating an entry without the field: got %v, want a FieldError", err)
		}
		_, err = user.Update(s.Ctx, hints.UID("u1").Of("user"), func(e *userdb.Entry) error { e.Drop("town"); return nil })
		if refused, ok := errors.AsType[*userdb.FieldError](err); !ok || refused.Rule != "required" {
			t.Errorf("removing the field: got %v, want a FieldError", err)
		}
		if _, err := user.Create(s.Ctx, userdb.NewEntry{UID: "some", Facets: schema.Texts("town", "Ulm")}); err != nil {
			t.Error(err)
		}
	})
}

// TestRetired checks that only a change of the schema brings a removed name back.
func TestRetired(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s.createPeople(t, userSchema(schema.FoldCasefold, field("nick", secondary)))
		less := userSchema(schema.FoldCasefold, drop("age"), func(t *schema.Type) { delete(t.Tertiary, "likes") })
		testdb.Must(s.apply(s.Ctx, less))
		stored := func() schema.Type { return testdb.Must(migrate.StoredSchema(s.Ctx, s.DB)).Types["user"] }
		if got := stored().Retired; !slices.Equal(got, []string{"age", "likes", "nick"}) {
			t.Errorf("retired: got %q, want age, likes and nick", got)
		}
		for _, more := range []schema.Schema{
			userSchema(schema.FoldCasefold, drop("age"), field("nick", schema.Field{}), func(t *schema.Type) { delete(t.Tertiary, "likes") }),
			userSchema(schema.FoldCasefold, drop("age")),
		} {
			_, err := testdb.Must(s.withSchema(t, more).Type("user")).Create(s.Ctx, userdb.NewEntry{UID: "v"})
			if !errors.Is(err, userdb.ErrSchemaMismatch) || !strings.Contains(err.Error(), ": retired") {
				t.Errorf("a program that declares a retired name: got %v, want ErrSchemaMismatch", err)
			}
		}
		again := userSchema(schema.FoldCasefold, field("nick", secondary))
		testdb.Must(s.apply(s.Ctx, again))
		if got := stored().Retired; len(got) > 0 {
			t.Errorf("the fields were added again, but these are still retired: %q", got)
		}
		s.DB = s.withSchema(t, again)
		_, err := s.Type(t, "user").Create(s.Ctx, userdb.NewEntry{UID: "v", Facets: schema.Texts("nick", "NU1")})
		if !errors.Is(err, userdb.ErrDuplicate) {
			t.Errorf("a value that an entry has again: got %v, want ErrDuplicate", err)
		}
	})
}

// TestStoppingChange checks that during a change for which writers must stop, a program with the
// new schema never gets part of an index, whether it opened the store before or during the change.
func TestStoppingChange(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s.createPeople(t, userSchema(schema.FoldCasefold))
		next := largerSchema()
		delete(next.Types["user"].Fields, "age") // so that the change also removes something
		db := s.withSchema(t, userSchema(schema.FoldCasefold))
		_, err := testdb.Must(db.Type("user")).Create(s.Ctx, userdb.NewEntry{UID: "b", Facets: schema.Texts("city", "Bonn", "nick", "bonny")})
		if err != nil {
			t.Fatal(err)
		}
		plan := testdb.Must(migrate.Plan(s.Ctx, db, next))
		if plan.Types[0].Online {
			t.Fatal("the plan is online, want one for which writers must stop")
		}
		if tc := plan.Types[0]; !tc.Stops || !slices.Equal(tc.Retired, []string{"age"}) {
			t.Errorf("the plan stops writers: %v, and retires %q; want true, and age", tc.Stops, tc.Retired)
		}
		to := s.withSchema(t, next)
		n := 0
		if err := plan.Apply(s.Ctx, func(int64, int64) {
			if n++; n < 4 { // Apply has only read so far
				return
			}
			for name, query := range queries(t, s.withSchema(t, next), s) {
				if _, err := query(); name != "find" && !errors.Is(err, userdb.ErrIndexBuilding) {
					t.Errorf("%s, opened during the change: got %v, want ErrIndexBuilding", name, err)
				}
			}
			for name, query := range queries(t, to, s) {
				if _, err := query(); name != "find" && !errors.Is(err, userdb.ErrIndexBuilding) {
					t.Errorf("%s, opened before the change: got %v, want ErrIndexBuilding", name, err)
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
		if n < 4 {
			t.Errorf("progress was reported %d times, want at least 4", n)
		}
		for name, query := range queries(t, to, s) {
			if n, err := query(); err != nil || n == 0 {
				t.Errorf("%s, after the change: got %d entries, %v; want at least one entry", name, n, err)
			}
		}
	})
}

// TestStoppingChangeOfIndexes checks that during a change for which writers must stop, a program
// that opens the store never gets part of an order that is rebuilt or of an index that is removed.
func TestStoppingChangeOfIndexes(t *testing.T) {
	ordered := schema.Field{Role: schema.RoleOrdered}
	eachEngine(t, func(t *testing.T, s *site) {
		for name, c := range map[string]struct {
			from, to schema.Schema
			query    userdb.Query
		}{
			"another fold":    {userSchema(schema.FoldExact, field("city", ordered)), userSchema(schema.FoldCasefold, field("city", ordered)), userdb.Query{Order: "city"}},
			"another codec":   {userSchema(schema.FoldExact, field("age", ordered)), userSchema(schema.FoldExact, field("age", schema.Field{Role: schema.RoleOrdered, Codec: schema.CodecNumber})), userdb.Query{Order: "age"}},
			"a dropped index": {userSchema(schema.FoldExact), userSchema(schema.FoldExact, field("job", schema.Field{})), userdb.Query{Where: schema.Texts("job", "Cook")}},
			"a dropped order": {userSchema(schema.FoldExact, field("city", ordered)), userSchema(schema.FoldExact), userdb.Query{Order: "city"}},
		} {
			s.flush(t)
			people := s.createPeople(t, c.from)
			s.DB = s.withSchema(t, c.from)
			plan := testdb.Must(migrate.Plan(s.Ctx, s.DB, c.to))
			asked := 0
			if err := plan.Apply(s.Ctx, func(int64, int64) {
				stored := testdb.Must(migrate.PendingSchema(s.Ctx, s.DB))
				if len(stored.Types) == 0 {
					return
				}
				for _, sch := range []schema.Schema{c.from, c.to} {
					p, err := testdb.Must(s.withSchema(t, sch).Type("user")).Page(s.Ctx, c.query)
					if err == nil && len(p.Entries) != len(people) {
						t.Errorf("%s: got %d entries, want all %d or an error", name, len(p.Entries), len(people))
					}
					if asked++; err != nil && !errors.Is(err, userdb.ErrIndexBuilding) && !errors.Is(err, userdb.ErrInvalid) {
						t.Errorf("%s: got %v, want ErrIndexBuilding or ErrInvalid", name, err)
					}
				}
			}); err != nil || asked == 0 {
				t.Fatalf("%s: applying: got %v after %d queries, want no error and at least one query", name, err, asked)
			}
		}
	})
}

// TestRollBackIndex checks that a program that opens the store during a rollback gets no part of
// the index that was being built.
func TestRollBackIndex(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		people := s.createPeople(t, userSchema(schema.FoldCasefold))
		s.DB = s.withSchema(t, userSchema(schema.FoldCasefold))
		to := userSchema(schema.FoldCasefold, field("nick", secondary), field("city", index))
		plan := testdb.Must(migrate.Plan(s.Ctx, s.DB, to))
		n, asked := 0, 0
		err := plan.Apply(s.Ctx, func(int64, int64) {
			if n++; n == 1 {
				s.Do(t, "HSET", "user/uid:u2", "nick", "nu1")
			}
			if len(testdb.Must(migrate.PendingSchema(s.Ctx, s.DB)).Types) == 0 {
				return
			}
			asked++
			p, err := testdb.Must(s.withSchema(t, to).Type("user")).Page(s.Ctx, userdb.Query{Where: schema.Texts("city", "Ulm")})
			if err == nil && len(p.Entries) != len(people) {
				t.Errorf("got %d entries, want all %d or an error", len(p.Entries), len(people))
			}
		})
		if err == nil || asked == 0 {
			t.Errorf("applying: got %v after %d queries, want an error and at least one query", err, asked)
		}
	})
}
