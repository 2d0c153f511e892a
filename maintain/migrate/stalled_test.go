package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// A pausedEngine calls pause before one repair step. This simulates a process that pauses there
// while other processes work.
type pausedEngine struct {
	store.Engine
	before func(store.RepairStep) bool // whether to pause before the step; used once
	pause  func()
}

func (p *pausedEngine) Repair(ctx context.Context, s store.RepairStep) (bool, error) {
	if p.before != nil && p.before(s) {
		p.before = nil
		p.pause()
	}
	return p.Engine.Repair(ctx, s)
}

// pausedDB returns a database with a pausedEngine.
func (s *site) pausedDB(t testdb.Tester, before func(store.RepairStep) bool, pause func()) *userdb.DB {
	t.Helper()
	db, err := view.Reconfigure(s.DB, func(c *view.Config) { c.Engine = &pausedEngine{c.Engine, before, pause} })
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func isStep[S store.RepairStep](s store.RepairStep) bool { _, ok := s.(S); return ok }

// TestApplierTakesOver applies an addition just after another process has died in the middle of its
// own addition. Both additions must then be complete.
func TestApplierTakesOver(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		people := s.createPeople(t, userSchema(schema.FoldCasefold))
		s.DB = s.withSchema(t, userSchema(schema.FoldCasefold))
		nick, city := userSchema(schema.FoldCasefold, field("nick", secondary)), userSchema(schema.FoldCasefold, field("city", index))
		dies := func() {
			ctx, die := context.WithCancel(s.Ctx)
			plan := testdb.Must(migrate.Plan(ctx, s.DB, nick))
			if err := plan.Apply(ctx, func(int64, int64) { die() }); err == nil {
				t.Error("the first process completed its addition, want it to be canceled")
			}
		}
		plan := testdb.Must(migrate.Plan(s.Ctx, s.pausedDB(t, isStep[store.ReplaceSchema], dies), city))
		if err := plan.Apply(s.Ctx, nil); err != nil {
			t.Fatal(err)
		}
		both := userSchema(schema.FoldCasefold, field("nick", secondary), field("city", index))
		s.requireMigrated(t, "both", both, people)
		_, err := s.Type(t, "user").Create(s.Ctx, userdb.NewEntry{UID: "rival", Facets: schema.Texts("nick", "nu1")})
		if !errors.Is(err, userdb.ErrDuplicate) {
			t.Errorf("a value that an entry has: got %v, want ErrDuplicate", err)
		}
	})
}

// TestStalledApplier stalls a process that makes a change, before or during its removals, until
// another process has made and reverted the same change. The stalled process must then remove
// nothing.
func TestStalledApplier(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		rich := userSchema(schema.FoldCasefold, field("city", schema.Field{Role: schema.RoleIndexed | schema.RoleOrdered}), field("nick", secondary))
		for name, before := range map[string]func(store.RepairStep) bool{
			"before a removal": isStep[store.Remove],
			"before the removal of an identifier": func(st store.RepairStep) bool {
				r, ok := st.(store.Remove)
				return ok && r.Seen.Exists
			},
			"before the start": isStep[store.AwaitSchema],
		} {
			s.flush(t)
			s.DB = s.withSchema(t, rich)
			people := s.createPeople(t, rich)
			poor := userSchema(schema.FoldCasefold)
			meanwhile := func() {
				testdb.Must(s.apply(s.Ctx, poor))
				testdb.Must(s.apply(s.Ctx, rich))
			}
			plan := testdb.Must(migrate.Plan(s.Ctx, s.pausedDB(t, before, meanwhile), poor))
			err := plan.Apply(s.Ctx, nil)
			if !errors.Is(err, userdb.ErrConflict) && !errors.Is(err, userdb.ErrSchemaMismatch) {
				t.Errorf("%s: the stalled process: got %v, want ErrConflict or ErrSchemaMismatch", name, err)
			}
			s.requireMigrated(t, name, rich, people)
		}
	})
}

// TestConcurrentAppliers makes a change for which writers must stop. It pauses the process that
// makes the change, until another process has made the same one. The order that is complete by then
// must stay so.
func TestConcurrentAppliers(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		from, to := userSchema(schema.FoldExact), userSchema(schema.FoldCasefold, field("city", schema.Field{Role: schema.RoleOrdered}))
		people := s.createPeople(t, from)
		s.DB = s.withSchema(t, from)
		checkOrder := func() {
			page, err := testdb.Must(s.withSchema(t, to).Type("user")).Page(s.Ctx, userdb.Query{Order: "city"})
			if err != nil || len(page.Entries) != len(people) {
				t.Errorf("got %d entries in the order of city, %v; want %d", len(page.Entries), err, len(people))
			}
		}
		finished := false
		meanwhile := func() { testdb.Must(s.apply(s.Ctx, to)); finished = true }
		plan := testdb.Must(migrate.Plan(s.Ctx, s.pausedDB(t, isStep[store.AwaitSchema], meanwhile), to))
		err := plan.Apply(s.Ctx, func(int64, int64) {
			if finished {
				checkOrder()
			}
		})
		if err != nil {
			t.Error(err)
		}
		s.requireMigrated(t, "both", to, people)
	})
}

// A delayedCommand is a hook that calls pause before one command is sent.
type delayedCommand struct {
	isDue func(redis.Cmder) bool // whether to delay the command; used once
	pause func()
}

func (l *delayedCommand) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *delayedCommand) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if l.isDue != nil && l.isDue(cmd) {
			l.isDue = nil
			l.pause()
		}
		return next(ctx, cmd)
	}
}

func (l *delayedCommand) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestDelayedMembers delays a change of a set on a cluster until another process has added an index
// of its members. The change must still reach the index.
func TestDelayedMembers(t *testing.T) {
	s := newSite(testdb.AsCluster(t, userSchema(schema.FoldCasefold)))
	s.createPeople(t, userSchema(schema.FoldCasefold))
	for name, write := range map[string]func(userdb.Set) (int64, error){
		"sadd": func(set userdb.Set) (int64, error) { return set.Add(s.Ctx, "coffee") },
		"srem": func(set userdb.Set) (int64, error) { return set.Remove(s.Ctx, "tea") },
	} {
		db := testdb.Must(view.Reconfigure(s.withSchema(t, userSchema(schema.FoldCasefold)), func(c *view.Config) { c.Engine = testdb.FakeClockEngine(s.Raw) }))
		user := testdb.Must(db.Type("user"))
		// This write makes the engine read the stored schema, so that the delayed one relies on it.
		if _, err := user.Set(hints.UID("u2"), "likes").Add(s.Ctx, "tea", "milk"); err != nil {
			t.Fatal(err)
		}
		s.Raw.AddHook(&delayedCommand{
			func(cmd redis.Cmder) bool {
				key, command := fmt.Sprint(cmd.Args()[1]), cmd.Name()
				// A script checks the limit before it adds members. It has the command as an
				// argument.
				if args := cmd.Args(); command == "evalsha" && len(args) > 5 {
					key, command = argText(args[3]), strings.ToLower(argText(args[5]))
				}
				return command == name && strings.HasSuffix(key, "user/uid:u1/likes")
			},
			func() { testdb.Must(s.apply(s.Ctx, userSchema(schema.FoldCasefold, indexed("likes", true)))) },
		})
		n, err := write(user.Set(hints.UID("u1"), "likes"))
		if err != nil || n != 1 {
			t.Errorf("%s: changed %d members, %v; want 1", name, n, err)
		}
		s.DB = s.withSchema(t, userSchema(schema.FoldCasefold, indexed("likes", true)))
		testdb.Same(t, name, s.Check(t, check.Options{}), nil)
		testdb.Must(s.apply(s.Ctx, userSchema(schema.FoldCasefold)))
		s.DB = s.withSchema(t, userSchema(schema.FoldCasefold))
	}
}

// argText returns an argument of a command as text.
func argText(arg any) string {
	if text, ok := arg.(*string); ok {
		return *text
	}
	return fmt.Sprint(arg)
}

// TestPlannedOnline checks that a change planned as online fails, instead of stopping writers, if
// another process has changed the stored schema meanwhile. It must not revert that change.
func TestPlannedOnline(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s.createPeople(t, userSchema(schema.FoldCasefold))
		s.DB = s.withSchema(t, userSchema(schema.FoldCasefold))
		plan := testdb.Must(migrate.Plan(s.Ctx, s.DB, userSchema(schema.FoldCasefold, field("city", index))))
		other := userSchema(schema.FoldCasefold, field("age", schema.Field{}))
		testdb.Must(s.apply(s.Ctx, other))
		err := plan.Apply(s.Ctx, nil)
		if !errors.Is(err, userdb.ErrConflict) {
			t.Errorf("applying: got %v, want ErrConflict", err)
		}
		stored := testdb.Must(migrate.StoredSchema(s.Ctx, s.DB)).Types["user"]
		if stored.Fields["age"].Codec != "" && stored.Fields["age"].Codec != schema.CodecText {
			t.Errorf("the stored field age is %+v again, want the codec text", stored.Fields["age"])
		}
	})
}
