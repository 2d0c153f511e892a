package migrate_test

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// extend adds an indexed and ordered field to the stored schema.
func (s *site) extend(db *userdb.DB) error {
	_, err := migrate.Extend(s.Ctx, db, "user", func(t schema.Type) (schema.Type, error) {
		t.Fields = maps.Clone(t.Fields)
		t.Fields["team"] = schema.Field{Role: schema.RoleIndexed | schema.RoleOrdered}
		return t, nil
	})
	return err
}

// TestExtendTakesNoPart calls Extend before each step of a change that somebody else makes. Once
// that change has begun, Extend must return ErrIndexBuilding and write nothing.
func TestExtendTakesNoPart(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		before := userSchema(schema.FoldCasefold)
		for name, to := range map[string]schema.Schema{
			"an index":        userSchema(schema.FoldCasefold, field("city", index)),
			"the same field":  userSchema(schema.FoldCasefold, field("team", schema.Field{Role: schema.RoleIndexed | schema.RoleOrdered}), field("city", index)),
			"a removed field": userSchema(schema.FoldCasefold, drop("age")),
		} {
			for at, paused := 1, true; paused; at++ {
				s.flush(t)
				people := s.createPeople(t, before)
				s.DB = s.withSchema(t, before)
				schemaKey, seen := s.Key("~/schema/user"), 0
				paused = false
				reached := func(store.RepairStep) bool { seen++; return seen == at }
				db := s.pausedDB(t, reached, func() {
					paused = true
					stored := s.Raw.HGetAll(s.Ctx, schemaKey).Val()
					err := s.extend(s.DB)
					if at == 1 {
						if err != nil {
							t.Errorf("%s: before the change: %v", name, err)
						}
						return
					}
					if now := s.Raw.HGetAll(s.Ctx, schemaKey).Val(); !errors.Is(err, userdb.ErrIndexBuilding) || !maps.Equal(now, stored) {
						t.Errorf("%s, before step %d: got %v and the schema %v, want ErrIndexBuilding and %v", name, at, err, now, stored)
					}
				})
				plan := testdb.Must(migrate.Plan(s.Ctx, db, to))
				if err := plan.Apply(s.Ctx, nil); err != nil && !(at == 1 && errors.Is(err, userdb.ErrConflict)) {
					t.Fatalf("%s, interrupted before step %d: %v", name, at, err)
				}
				if at > 1 && !paused {
					s.requireMigrated(t, name, to, people)
				}
			}
		}
	})
}

// TestRemovedIndexes checks that a program that knows only the schema from before an index was
// removed gets an error from queries by the index, and none from others.
func TestRemovedIndexes(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s.createPeople(t, userSchema(schema.FoldCasefold))
		db := s.withSchema(t, largerSchema())
		if _, err := s.apply(s.Ctx, largerSchema()); err != nil {
			t.Fatal(err)
		}
		_, err := testdb.Must(db.Type("user")).Create(s.Ctx, userdb.NewEntry{UID: "b", Facets: schema.Texts("city", "Bonn", "nick", "bonny")})
		if err != nil {
			t.Fatal(err)
		}
		countByJob := func() {
			t.Helper()
			n, err := testdb.Must(db.Type("user")).Count(s.Ctx, userdb.Query{Where: schema.Texts("job", "nobody's")})
			if err != nil || n.Entries != 0 {
				t.Errorf("an index that stays: got %+v, %v; want 0", n, err)
			}
		}
		for name, query := range queries(t, db, s) {
			if n, err := query(); err != nil || n == 0 {
				t.Errorf("%s: got %d entries, %v; want some", name, n, err)
			}
		}
		countByJob()
		if _, err := s.apply(s.Ctx, userSchema(schema.FoldCasefold)); err != nil {
			t.Fatal(err)
		}
		for name, query := range queries(t, db, s) {
			if n, err := query(); name != "find" && !errors.Is(err, userdb.ErrSchemaMismatch) {
				t.Errorf("%s, removed: got %d entries, %v; want ErrSchemaMismatch", name, n, err)
			}
		}
		countByJob()
	})
}

// TestRemovedIdentifier checks that a program that follows the stored schema learns from a write
// that a field is no longer an identifier: the error of its next lookup names the field.
func TestRemovedIdentifier(t *testing.T) {
	twoEngines(t, func(t *testing.T, s *site) {
		s.createPeople(t, userSchema(schema.FoldCasefold))
		follower := testdb.Must(s.withSchema(t, userSchema(schema.FoldCasefold)).Type("user"))
		find := func(after string, to schema.Schema) error {
			t.Helper()
			_, err := s.apply(s.Ctx, to)
			if err == nil {
				_, err = follower.Create(s.Ctx, userdb.NewEntry{UID: after})
			}
			if err != nil {
				t.Fatalf("%s: %v", after, err)
			}
			_, err = follower.Find(s.Ctx, hints.Field("nick", "nu1"))
			return err
		}
		if err := find("added", largerSchema()); err != nil {
			t.Errorf("an identifier: got error %v, want its entry", err)
		}
		if err := find("removed", userSchema(schema.FoldCasefold)); !errors.Is(err, hints.ErrHint) || !strings.Contains(err.Error(), "nick") {
			t.Errorf("no longer an identifier: got error %v, want hints.ErrHint with the name of the field", err)
		}
	})
}

// TestPageDuringSchemaChange removes an index while a page of it is read. The page must not seem to
// be the last one.
func TestPageDuringSchemaChange(t *testing.T) {
	const people = 300
	twoEngines(t, func(t *testing.T, s *site) {
		with := userSchema(schema.FoldCasefold, field("city", index))
		users := testdb.Must(s.withSchema(t, with).Type("user"))
		for n := range people {
			_, err := users.Create(s.Ctx, userdb.NewEntry{UID: "u" + strconv.Itoa(n), Facets: schema.Texts("city", "Bonn")})
			if err != nil {
				t.Fatal(err)
			}
		}
		scans := 0
		s.AddHook(&delayedCommand{
			func(cmd redis.Cmder) bool {
				if cmd.Name() != "eval" && slices.ContainsFunc(cmd.Args(), func(arg any) bool { return strings.Contains(argText(arg), "city:") }) {
					scans++
				}
				return scans == 2
			},
			func() {
				if _, err := s.apply(s.Ctx, userSchema(schema.FoldCasefold)); err != nil {
					t.Error(err)
				}
			},
		})
		q := userdb.Query{Where: schema.Texts("city", "Bonn"), Limit: 2 * people}
		if p, err := users.Page(s.Ctx, q); !errors.Is(err, userdb.ErrSchemaMismatch) {
			t.Errorf("got %d entries, error %v; want ErrSchemaMismatch", len(p.Entries), err)
		}
		if scans < 2 {
			t.Errorf("a page took %d scans, want several", scans)
		}
	})
}

// TestListingDuringSchemaChange changes the schema after the first entry of a listing of several
// batches. The listing must be complete if its index stays, and fail if it is removed.
func TestListingDuringSchemaChange(t *testing.T) {
	const people = 1200
	eachEngine(t, func(t *testing.T, s *site) {
		db := s.withSchema(t, userSchema(schema.FoldCasefold, field("city", index)))
		for n := range people {
			_, err := testdb.Must(db.Type("user")).Create(s.Ctx, userdb.NewEntry{UID: "u" + strconv.Itoa(n), Facets: schema.Texts("city", "Bonn")})
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, tt := range []struct {
			to   schema.Schema
			want error
		}{
			{userSchema(schema.FoldCasefold, field("city", index), field("team", index)), nil},
			{userSchema(schema.FoldCasefold, field("team", index)), userdb.ErrSchemaMismatch},
		} {
			n, failed := 0, error(nil)
			for _, err := range testdb.Must(db.Type("user")).All(s.Ctx, userdb.Query{Where: schema.Texts("city", "Bonn")}) {
				if err != nil {
					failed = err
					break
				}
				if n++; n == 1 {
					if _, err := s.apply(s.Ctx, tt.to); err != nil {
						t.Fatal(err)
					}
				}
			}
			if !errors.Is(failed, tt.want) || tt.want == nil && n != people {
				t.Errorf("got %d entries, error %v; want error %v, and %d entries if there is none", n, failed, tt.want, people)
			}
		}
	})
}
