package migrate_test

import (
	"context"
	"errors"
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

// extSchema returns a schema with a secondary field ext.
func extSchema(typed bool, change ...func(*schema.Type)) schema.Schema {
	f := secondary
	if !typed {
		f.Typed = new(false)
	}
	return userSchema(schema.FoldCasefold, append(change, field("ext", f))...)
}

// waitForWriters is longer than the time for which a writer on a cluster relies on a schema that it
// has read.
const waitForWriters = 11 * time.Second

// createWith creates an entry and returns the error.
func (s *site) createWith(db *userdb.DB, uid string, facets ...string) error {
	_, err := testdb.Must(db.Type("user")).Create(s.Ctx, userdb.NewEntry{UID: uid, Facets: schema.Texts(facets...)})
	return err
}

// requireShared checks that one value belongs to u in ext and to v in email.
func (s *site) requireShared(t *testing.T, db *userdb.DB, value string) {
	t.Helper()
	user := testdb.Must(db.Type("user"))
	for want, h := range map[string]hints.Hint{"u": hints.Field("ext", value), "v": hints.Any(value)} {
		if e, err := user.Find(s.Ctx, h.Of("user")); err != nil || e.UID() != want {
			t.Errorf("%v leads to %q, %v; want %s", h, e.UID(), err, want)
		}
	}
}

// TestUntyped checks that the values of a field become untyped without a change of a record, and
// typed again only if no two entries share a value.
func TestUntyped(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s.flush(t)
		typed, untyped := extSchema(true), extSchema(false)
		old, early := s.withSchema(t, typed), s.withSchema(t, untyped)
		for _, err := range []error{s.createWith(old, "u", "ext", "A"), s.createWith(old, "w", "name", "n")} {
			if err != nil {
				t.Fatal(err)
			}
		}
		before := s.Raw.HGetAll(s.Ctx, s.Key("user/uid:u")).Val()

		// A program that declares the values as untyped follows the stored schema.
		if err := s.createWith(early, "v", "email", "a"); !errors.Is(err, userdb.ErrDuplicate) {
			t.Errorf("a value in a typed field, by a program that declares it as untyped: got %v, want ErrDuplicate", err)
		}
		plan, err := s.apply(s.Ctx, untyped)
		if err != nil || len(plan.Types) != 1 || plan.Types[0].Stops || !strings.Contains(plan.Types[0].What, `"ext" is untyped from now on`) {
			t.Fatalf("got the plan %+v, %v; want ext to become untyped and no writer to stop", plan.Types, err)
		}
		if after := s.Raw.HGetAll(s.Ctx, s.Key("user/uid:u")).Val(); after["~rev"] != before["~rev"] {
			t.Errorf("the entry was changed: got %q, want %q", after, before)
		}
		testdb.AdvanceClock(waitForWriters)
		if err := s.createWith(early, "v", "email", "a"); err != nil {
			t.Fatal(err)
		}
		db := s.withSchema(t, untyped)
		s.requireShared(t, db, "a")
		s.requireShared(t, early, "a")
		if err := s.createWith(db, "x", "ext", "a"); !errors.Is(err, userdb.ErrDuplicate) {
			t.Errorf("a value in its own field: got %v, want ErrDuplicate", err)
		}

		// A program that declares the values as typed is safe: it finds nobody by a value that
		// two entries have, and cannot write.
		if e, err := testdb.Must(old.Type("user")).Find(s.Ctx, hints.Any("a").Of("user")); !errors.Is(err, userdb.ErrCorrupt) {
			t.Errorf("an older program finds %q, %v; want ErrCorrupt", e.UID(), err)
		}
		if err := s.createWith(old, "y", "name", "y"); !errors.Is(err, userdb.ErrSchemaMismatch) {
			t.Errorf("an older program writes: got %v, want ErrSchemaMismatch", err)
		}
		if err := migrate.AtOpen(s.Ctx, s.withSchema(t, typed)); err != nil {
			t.Error(err)
		}
		if stored := testdb.Must(migrate.StoredSchema(s.Ctx, db)).Types["user"]; stored.Fields["ext"].IsTyped() {
			t.Error("a program that opens the store makes the values typed")
		}

		s.DB = db
		testdb.Same(t, "check", s.Check(t, check.Options{}), []string{
			"field_missing user/uid:u", "field_missing user/uid:u", "field_missing user/uid:v", "field_missing user/uid:w",
		})
		refused, err := s.apply(s.Ctx, typed)
		if !errors.Is(err, migrate.ErrCollision) || len(refused.Types) != 1 || len(refused.Types[0].Collisions) != 1 || refused.Types[0].Collisions[0].Value != "a" {
			t.Errorf("typed again, while two entries share a value: got %+v, %v; want ErrCollision", refused.Types, err)
		}
		s.requireShared(t, db, "a")
		if err := testdb.Must(db.Type("user")).Delete(s.Ctx, hints.UID("v")); err != nil {
			t.Fatal(err)
		}
		again, err := s.apply(s.Ctx, typed)
		if err != nil || !again.Types[0].Online || again.Types[0].Stops || !strings.Contains(again.Types[0].What, `"ext" is typed from now on`) {
			t.Errorf("typed again: got %+v, %v; want an online change that makes ext typed", again.Types, err)
		}
		if err := s.createWith(db, "v", "email", "a"); !errors.Is(err, userdb.ErrDuplicate) {
			t.Errorf("a value in a field that is typed again: got %v, want ErrDuplicate", err)
		}
		if e, err := testdb.Must(db.Type("user")).Find(s.Ctx, hints.Any("a").Of("user")); err != nil || e.UID() != "u" {
			t.Errorf("a search in any field finds %q, %v; want u", e.UID(), err)
		}
		s.DB = s.withSchema(t, typed)
		testdb.Same(t, "check", s.Check(t, check.Options{}), []string{"field_missing user/uid:u", "field_missing user/uid:u", "field_missing user/uid:w", "field_missing user/uid:w"})
	})
}

// TestTypedMeanwhile makes a field typed while programs write. If two entries come to share a value
// just before writers compare the values of the field with those of others, the change must fail.
// Once writers compare the values, they must refuse such a value. A search in any field must not
// use the field before all entries have been surveyed.
func TestTypedMeanwhile(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		for name, also := range map[string]func(*schema.Type){
			"online": func(*schema.Type) {}, "while writers stop": drop("age"),
		} {
			t.Run(name, func(t *testing.T) {
				s.flush(t)
				db := s.withSchema(t, extSchema(false))
				if err := s.createWith(db, "u", "ext", "a"); err != nil {
					t.Fatal(err)
				}
				to := extSchema(true, also)
				during := func(meanwhile func()) error {
					waits := func(step store.RepairStep) bool { return isStep[store.AwaitSchema](step) }
					plan, err := migrate.Plan(s.Ctx, s.pausedDB(t, waits, meanwhile), to)
					if err == nil {
						err = plan.Apply(s.Ctx, nil)
					}
					return err
				}
				raw := func(uid, email string) { // writes under the previous schema
					s.Do(t, "SET", "user/email:"+email+"/~prk", "user/uid:"+uid)
					s.Do(t, "HSET", "user/uid:"+uid, "~isa", "user", "~prk", "user/uid:"+uid, "~rev", "r"+uid+"__________", "uid", uid, "email", email)
				}
				err := during(func() { raw("v", "a") })
				if !errors.Is(err, migrate.ErrCollision) {
					t.Errorf("a value is shared meanwhile: got %v, want ErrCollision", err)
				}
				if stored := testdb.Must(migrate.StoredSchema(s.Ctx, db)).Types["user"]; stored.Fields["ext"].IsTyped() || stored.Building != nil {
					t.Errorf("after the rollback: got %+v, want ext untyped and nothing being built", stored)
				}
				s.requireShared(t, db, "a")
				if err := testdb.Must(db.Type("user")).Delete(s.Ctx, hints.UID("v")); err != nil {
					t.Fatal(err)
				}
				err = during(func() {
					if name == "while writers stop" {
						return
					}
					testdb.AdvanceClock(waitForWriters)
					if err := s.createWith(db, "x", "email", "a"); !errors.Is(err, userdb.ErrDuplicate) {
						t.Errorf("a writer meanwhile: got %v, want ErrDuplicate", err)
					}
					for _, reader := range []*userdb.DB{db, s.withSchema(t, extSchema(true))} {
						user := testdb.Must(reader.Type("user"))
						if e, err := user.Find(s.Ctx, hints.Any("a").Of("user")); !errors.Is(err, userdb.ErrNotFound) {
							t.Errorf("a search in any field meanwhile: got %q, %v; want ErrNotFound", e.UID(), err)
						}
						if e, err := user.Find(s.Ctx, hints.Field("ext", "a").Of("user")); err != nil || e.UID() != "u" {
							t.Errorf("a search in ext meanwhile: got %q, %v; want u", e.UID(), err)
						}
					}
				})
				if err != nil {
					t.Error(err)
				}
				if stored := testdb.Must(migrate.StoredSchema(s.Ctx, db)).Types["user"]; !stored.Fields["ext"].IsTyped() || stored.Building != nil {
					t.Errorf("afterwards: got %+v, want ext typed and nothing being built", stored)
				}
			})
		}
	})
}

// TestTypedBeforeBuilt checks a field that one process adds as untyped, and that another process
// adds as typed just before the first declares it complete. By then no process has searched for
// values that two entries share, so the first must not declare the field typed.
func TestTypedBeforeBuilt(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s.flush(t)
		base := s.withSchema(t, userSchema(schema.FoldCasefold))
		if err := s.createWith(base, "u", "ext", "a"); err != nil {
			t.Fatal(err)
		}
		ctx, die := context.WithCancel(s.Ctx)
		second := testdb.Must(migrate.Plan(ctx, s.pausedDB(t, isStep[store.AwaitSchema], die), extSchema(true)))
		stores := 0
		finishes := func(step store.RepairStep) bool {
			if isStep[store.ReplaceSchema](step) {
				stores++
			}
			return stores == 2
		}
		plan := testdb.Must(migrate.Plan(s.Ctx, s.pausedDB(t, finishes, func() {
			if err := s.createWith(base, "v", "email", "a"); err != nil {
				t.Errorf("a value of another field while ext is built as untyped: %v", err)
			}
			if err := second.Apply(ctx, nil); !errors.Is(err, context.Canceled) {
				t.Errorf("the process that dies: got %v, want context.Canceled", err)
			}
		}), extSchema(false)))
		if err := plan.Apply(s.Ctx, nil); !errors.Is(err, migrate.ErrCollision) || stores < 2 {
			t.Errorf("the first process: %v after %d changes of the schema, want ErrCollision", err, stores)
		}
		stored := testdb.Must(migrate.StoredSchema(s.Ctx, base)).Types["user"]
		if _, has := stored.Fields["ext"]; has || stored.Building != nil {
			t.Errorf("the stored schema after the rollback: got %+v, want no ext and nothing being built", stored)
		}
	})
}
