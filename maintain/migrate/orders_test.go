package migrate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// revertOrders turns the records of users into those of an earlier program, whose ordered indexes
// lacked entries without a value.
func (s *site) revertOrders(t testdb.Tester, fields ...string) {
	t.Helper()
	stored := testdb.Must(s.Raw.HGet(s.Ctx, s.Key("~/schema/user"), "schema").Result())
	text := strings.Replace(stored, `"orders":"2",`, "", 1)
	if text == stored {
		t.Fatalf("the stored schema has no version of its orders: %s", stored)
	}
	s.Do(t, "HSET", "~/schema/user", "fingerprint", change.Generation(text), "schema", text)
	testdb.AdvanceClock(time.Minute)
	for _, field := range fields {
		for _, m := range testdb.Must(s.Raw.ZRange(s.Ctx, s.Key("~/order/user/"+field), 0, -1).Result()) {
			if strings.HasPrefix(m, "\x00\x00") {
				s.Do(t, "ZREM", "~/order/user/"+field, m)
			}
		}
	}
}

// TestApplyOrders adds the entries without a value to orders that lack them, while a program that
// had already opened the store goes on writing.
func TestApplyOrders(t *testing.T) {
	sch := userSchema(schema.FoldCasefold,
		field("age", schema.Field{Role: schema.RoleOrdered, Codec: schema.CodecNumber}), field("city", schema.Field{Role: schema.RoleOrdered}))
	eachEngine(t, func(t *testing.T, s *site) {
		create := func(db *userdb.DB, uid string, facets ...string) {
			t.Helper()
			entry := userdb.NewEntry{UID: uid, Facets: schema.Texts(append(facets, "email", uid+"@x.org", "name", uid)...)}
			if _, err := testdb.Must(db.Type("user")).Create(s.Ctx, entry); err != nil {
				t.Fatal(err)
			}
		}
		listed := func(db *userdb.DB, field string) (uids []string) {
			t.Helper()
			for e, err := range testdb.Must(db.Type("user")).All(s.Ctx, userdb.Query{Order: field}) {
				if err != nil {
					t.Fatal(err)
				}
				uids = append(uids, e.UID())
			}
			return uids
		}
		wantCount := func(db *userdb.DB, field string, want int) {
			t.Helper()
			if n, err := testdb.Must(db.Type("user")).Count(s.Ctx, userdb.Query{Order: field}); err != nil || int(n.Entries) != want {
				t.Errorf("by %s: Count returns %d, %v; want %d", field, n.Entries, err, want)
			}
		}
		first := s.withSchema(t, sch)
		create(first, "u1", "city", "Ulm")
		create(first, "u2")
		create(first, "u3", "city", "Bonn")
		s.revertOrders(t, "age", "city")

		old := s.withSchema(t, sch)
		s.DB = old
		create(old, "u4")
		testdb.Same(t, "before: check", s.Check(t, check.Options{}), nil)
		if got := listed(old, "city"); !slices.Equal(got, []string{"u3", "u1"}) {
			t.Errorf("before: by city: got %q, want u3 and u1", got)
		}
		wantCount(old, "city", 2)
		plan, err := migrate.Plan(s.Ctx, s.withSchema(t, sch), sch)
		if err != nil || len(plan.Types) != 1 || !plan.Types[0].Online || !strings.Contains(plan.Types[0].What, `the order by "city" gets the entries without a value`) {
			t.Fatalf("got the plan %+v, %v; want an online one that adds the entries without a city", plan.Types, err)
		}
		n := 0
		err = plan.Apply(s.Ctx, func(int64, int64) {
			if n++; n < 20 {
				uid := fmt.Sprintf("m%02d", n)
				create(old, uid)
				create(old, uid+"x", "city", "Aachen")
				for user, city := range map[string]string{uid: "Zwickau", "u1": "", "u3": "Ulm"} {
					_, err := testdb.Must(old.Type("user")).Update(s.Ctx, hints.UID(user), func(e *userdb.Entry) error {
						if e.Drop("city"); city != "" {
							e.Put("city", schema.Text(city))
						}
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
				if got := listed(old, "city"); !slices.Contains(got, "u3") {
					t.Errorf("meanwhile: got %q, want u3 among them", got)
				}
			}
		})
		if err != nil || n == 0 {
			t.Fatalf("applying: got %v after %d reports of progress, want no error and at least one report", err, n)
		}
		create(old, "u5")
		testdb.Same(t, "after: check", s.Check(t, check.Options{}), nil)
		if got := listed(old, "city"); !slices.Equal(got[:4], []string{"u1", "u2", "u4", "u5"}) {
			t.Errorf("after: by city: got %q, want those without a city first", got)
		}
		if got := listed(s.withSchema(t, sch), "age"); len(got) != 5+2*min(n, 19) {
			t.Errorf("after: by age: got %q, want all entries", got)
		}
		wantCount(old, "city", 5+2*min(n, 19))
		if plan, err := migrate.Plan(s.Ctx, s.withSchema(t, sch), sch); err != nil || len(plan.Types) > 0 {
			t.Errorf("planning again: got %+v, %v; want no change", plan.Types, err)
		}
	})
}
