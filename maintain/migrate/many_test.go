package migrate_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

var severalEmails = field("email", schema.Field{Role: schema.RoleSecondary, Many: 3})

// requireTexts checks that an entry has these values, and is found by each of them.
func (s *site) requireTexts(t *testing.T, db *userdb.DB, uid, field string, want ...string) {
	t.Helper()
	user := testdb.Must(db.Type("user"))
	e, err := user.Find(s.Ctx, hints.UID(uid).Of("user"))
	if err != nil || !slices.Equal(e.Texts(field), want) {
		t.Errorf("%s has %q, %v; want %q", uid, e.Texts(field), err, want)
	}
	for _, text := range want {
		if e, err := user.Find(s.Ctx, hints.Field(field, text).Of("user")); err != nil || e.UID() != uid {
			t.Errorf("%q finds %q, %v; want %s", text, e.UID(), err, uid)
		}
	}
}

// TestMoreValues checks that "many" can be added to the schema of an existing store without a
// change of its records, while a program that had already opened the store continues to write. It
// also checks that "many" can be removed only if no entry has several values.
func TestMoreValues(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s.flush(t)
		one, several := userSchema(schema.FoldCasefold), userSchema(schema.FoldCasefold, severalEmails)
		old := s.withSchema(t, one)
		users := testdb.Must(old.Type("user"))
		_, err := users.Create(s.Ctx, userdb.NewEntry{UID: "u", Facets: schema.Texts("email", "a")})
		if err != nil {
			t.Fatal(err)
		}
		before := s.Raw.HGetAll(s.Ctx, s.Key("user/uid:u")).Val()
		add := func(db *userdb.DB, texts ...string) error {
			_, err := testdb.Must(db.Type("user")).Update(s.Ctx, hints.UID("u"), func(e *userdb.Entry) error {
				for _, text := range texts {
					e.AddText("email", text)
				}
				return nil
			})
			return err
		}
		if err := add(s.withSchema(t, several), "b"); !errors.Is(err, userdb.ErrSchemaMismatch) {
			t.Errorf("a program with many, before it is stored: got %v, want ErrSchemaMismatch", err)
		}
		plan, err := s.apply(s.Ctx, several)
		if err != nil || len(plan.Types) != 1 || plan.Types[0].Stops || plan.Types[0].Rewritten != 0 || !strings.Contains(plan.Types[0].What, `"email" may have up to 3 values`) {
			t.Fatalf("got the plan %+v, %v; want up to 3 values of email, and nothing stopped or rewritten", plan.Types, err)
		}
		if after := s.Raw.HGetAll(s.Ctx, s.Key("user/uid:u")).Val(); len(after) != len(before) || after["~rev"] != before["~rev"] {
			t.Errorf("the entry was changed: got %q, want %q", after, before)
		}
		db := s.withSchema(t, several)
		if err := add(db, "B", "c"); err != nil {
			t.Fatal(err)
		}
		// The program that had already opened the store follows the stored schema.
		if _, err := users.Update(s.Ctx, hints.UID("u"), func(e *userdb.Entry) error { e.Put("age", schema.Number(4)); return nil }); err != nil {
			t.Error(err)
		}
		s.requireTexts(t, old, "u", "email", "a", "B", "c")

		if _, err := s.apply(s.Ctx, one); !errors.Is(err, migrate.ErrCollision) {
			t.Errorf("one value again, while an entry has three: got %v, want ErrCollision", err)
		}
		_, err = testdb.Must(db.Type("user")).Update(s.Ctx, hints.UID("u"), func(e *userdb.Entry) error { e.SetTexts("email", "B"); return nil })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.apply(s.Ctx, one); err != nil {
			t.Errorf("one value again: got %v, want no error", err)
		}
		s.DB = s.withSchema(t, one)
		testdb.Same(t, "check", s.Check(t, check.Options{}), []string{"field_missing user/uid:u"})
	})
}

// TestFurtherValuesMigrate migrates entries with several values to schemas under which the values
// have other keys.
func TestFurtherValuesMigrate(t *testing.T) {
	renamed := func(typ *schema.Type) {
		delete(typ.Fields, "email")
		typ.Fields["mail"] = schema.Field{Role: schema.RoleSecondary | schema.RoleIndexed, Many: 3, Was: "email"}
	}
	eachEngine(t, func(t *testing.T, s *site) {
		for _, tt := range []struct {
			name  string
			to    schema.Schema
			field string
			want  []string
		}{
			{"another fold", userSchema(schema.FoldCasefold, severalEmails), "email", []string{"A", "B"}},
			{"another name and an index", userSchema(schema.FoldExact, renamed), "mail", []string{"A", "B", "a"}},
		} {
			t.Run(tt.name, func(t *testing.T) {
				s.flush(t)
				db := s.withSchema(t, userSchema(schema.FoldExact, severalEmails))
				users := testdb.Must(db.Type("user"))
				for uid, texts := range map[string][]string{"u": {"A", "B", "a"}, "v": {"C"}} {
					if _, err := users.Create(s.Ctx, userdb.NewEntry{UID: uid, Values: map[string][]string{"email": texts}}); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := s.apply(s.Ctx, tt.to); err != nil {
					t.Fatal(err)
				}
				s.DB = s.withSchema(t, tt.to)
				testdb.Same(t, "check", s.Check(t, check.Options{}), []string{"field_missing user/uid:u", "field_missing user/uid:v"})
				s.requireTexts(t, s.DB, "u", tt.field, tt.want...)
				s.requireTexts(t, s.DB, "v", tt.field, "C")
				for name := range s.Raw.HGetAll(s.Ctx, s.Key("user/uid:u")).Val() {
					if strings.HasPrefix(name, "~was") {
						t.Errorf("the field %s is left over", name)
					}
				}
			})
		}
	})
}
