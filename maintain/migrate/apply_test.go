package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/cluster"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

func TestMain(m *testing.M) { os.Exit(testdb.Main(m)) }

// A site is a store under test, with helpers.
type site struct{ *testdb.Site }

func newSite(s *testdb.Site) *site { return &site{s} }

var (
	eachStore  = testdb.Each(testdb.EachStore, newSite)
	eachEngine = testdb.Each(testdb.EachEngine, newSite)
	twoEngines = testdb.Each(testdb.TwoEngines, newSite)
)

// userSchema returns a schema with one type "user", modified by change.
func userSchema(fold schema.Fold, change ...func(*schema.Type)) schema.Schema {
	t := schema.Type{
		Primary: "uid", Fold: fold, Open: true, Password: &schema.Password{},
		Fields: map[string]schema.Field{
			"email": {Role: schema.RoleSecondary}, "name": {Role: schema.RoleSecondary},
			"job": {Role: schema.RoleIndexed}, "age": {Codec: schema.CodecNumber},
		},
		Tertiary: map[string]schema.Tertiary{"tags": {Kind: "set", Indexed: true}, "likes": {Kind: "set"}},
	}
	for _, c := range change {
		c(&t)
	}
	return schema.Schema{Types: map[string]schema.Type{"user": t}}
}

func field(name string, f schema.Field) func(*schema.Type) {
	return func(t *schema.Type) { t.Fields[name] = f }
}

func drop(name string) func(*schema.Type) {
	return func(t *schema.Type) { delete(t.Fields, name) }
}

// indexed returns a change that declares a set, indexed or not.
func indexed(name string, isIndexed bool) func(*schema.Type) {
	return func(t *schema.Type) { t.Tertiary[name] = schema.Tertiary{Kind: "set", Indexed: isIndexed} }
}

var (
	secondary = schema.Field{Role: schema.RoleSecondary}
	index     = schema.Field{Role: schema.RoleIndexed}
)

// changes lists pairs of schemas. Apply must be able to convert records from the first schema to
// the second.
var changes = []struct {
	name     string
	from, to schema.Schema
	srks     int64 // number of SRKs to write for the entries of createPeople
}{
	{"exact to casefold", userSchema(schema.FoldExact), userSchema(schema.FoldCasefold), 6},
	{"casefold to exact", userSchema(schema.FoldCasefold), userSchema(schema.FoldExact), 6},
	{"a new secondary field", userSchema(schema.FoldCasefold), userSchema(schema.FoldCasefold, field("nick", secondary)), 5},
	{"a dropped secondary field", userSchema(schema.FoldCasefold), userSchema(schema.FoldCasefold, field("name", schema.Field{})), 0},
	{"a dropped and undeclared secondary field", userSchema(schema.FoldExact), userSchema(schema.FoldExact, drop("name")), 0},
	{"a renamed secondary field", userSchema(schema.FoldCasefold), userSchema(schema.FoldCasefold, drop("name"), field("alias", schema.Field{Role: schema.RoleSecondary, Was: "name"})), 5},
	{"a renamed secondary field and another fold", userSchema(schema.FoldExact), userSchema(schema.FoldCasefold, drop("name"), field("alias", schema.Field{Role: schema.RoleSecondary, Was: "name"})), 7},
	{"a renamed field without a role", userSchema(schema.FoldExact), userSchema(schema.FoldExact, drop("age"), field("years", schema.Field{Codec: schema.CodecNumber, Was: "age"})), 0},
	{"an undeclared facet renamed to a secondary field", userSchema(schema.FoldCasefold), userSchema(schema.FoldCasefold, field("handle", schema.Field{Role: schema.RoleSecondary, Was: "nick"})), 5},
	{"a new index", userSchema(schema.FoldExact), userSchema(schema.FoldExact, field("city", index)), 0},
	{"a dropped index", userSchema(schema.FoldExact), userSchema(schema.FoldExact, field("job", schema.Field{})), 0},
	{"a renamed index", userSchema(schema.FoldExact), userSchema(schema.FoldExact, drop("job"), field("work", schema.Field{Role: schema.RoleIndexed, Was: "job"})), 0},
	{"a new index of members", userSchema(schema.FoldExact), userSchema(schema.FoldExact, indexed("likes", true)), 0},
	{"a dropped index of members", userSchema(schema.FoldExact), userSchema(schema.FoldExact, indexed("tags", false)), 0},
	{"a new order", userSchema(schema.FoldExact), userSchema(schema.FoldExact, field("age", schema.Field{Role: schema.RoleOrdered, Codec: schema.CodecNumber})), 0},
	{"a dropped order", userSchema(schema.FoldExact, field("city", schema.Field{Role: schema.RoleOrdered})), userSchema(schema.FoldExact), 0},
	{
		"an order with another codec",
		userSchema(schema.FoldExact, field("age", schema.Field{Role: schema.RoleOrdered, Codec: schema.CodecNumber})),
		userSchema(schema.FoldExact, field("age", schema.Field{Role: schema.RoleOrdered})), 0,
	},
	{
		"a renamed order",
		userSchema(schema.FoldExact, field("city", schema.Field{Role: schema.RoleOrdered})),
		userSchema(schema.FoldExact, field("town", schema.Field{Role: schema.RoleOrdered, Was: "city"})), 0,
	},
	{
		"a second role",
		userSchema(schema.FoldCasefold, field("nick", secondary)),
		userSchema(schema.FoldCasefold, field("nick", schema.Field{Role: schema.RoleSecondary | schema.RoleOrdered})), 0,
	},
	{
		"one of two roles replaced",
		userSchema(schema.FoldCasefold, field("nick", schema.Field{Role: schema.RoleIndexed | schema.RoleOrdered})),
		userSchema(schema.FoldCasefold, field("nick", schema.Field{Role: schema.RoleSecondary | schema.RoleOrdered})), 5,
	},
	{"another codec only", userSchema(schema.FoldExact), userSchema(schema.FoldExact, field("age", schema.Field{})), 0},
	{"many changes at once", userSchema(schema.FoldExact), userSchema(
		schema.FoldCasefold, drop("name"), field("alias", schema.Field{Role: schema.RoleSecondary, Was: "name"}), field("nick", secondary),
		field("email", schema.Field{}), drop("job"), field("city", index), indexed("likes", true), indexed("tags", false),
	), 10},
}

// createPeople creates five entries and returns their facets by UID. Some have names that folding
// changes.
func (s *site) createPeople(t testdb.Tester, sch schema.Schema) map[string]map[string]string {
	t.Helper()
	db := s.withSchema(t, sch)
	user := testdb.Must(db.Type("user"))
	want := map[string]map[string]string{}
	for n, name := range []string{"Bob", "ＦＵＬＬ", "x  y ", "plain", "ÄÖ"} {
		uid := fmt.Sprintf("u%d", n)
		facets := map[string]string{
			"email": []string{"%d@x.org", "%d@X.org"}[n%2], "name": name, "nick": "n" + uid, "job": "Cook", "city": "Ulm", "age": "41",
		}
		facets["email"] = fmt.Sprintf(facets["email"], n)
		f := schema.Facets{}
		for field, wire := range facets {
			f[field] = testdb.Must(schema.Decode(sch.Types["user"].Codec(field), wire))
		}
		e, err := user.Create(s.Ctx, userdb.NewEntry{UID: uid, Facets: f, Tags: []string{"go"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := user.Set(testdb.HintOf(e), "likes").Add(s.Ctx, "tea"); err != nil {
			t.Fatal(err)
		}
		want[uid] = facets
	}
	return want
}

func (s *site) withSchema(t testdb.Tester, sch schema.Schema) *userdb.DB {
	t.Helper()
	db, err := s.DB.With(sch)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func (s *site) flush(t testdb.Tester) {
	t.Helper()
	testdb.AdvanceClock(time.Minute)
	keys, err := s.Raw.Keys(s.Ctx, "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	if len(keys) > 0 {
		s.Raw.Del(s.Ctx, keys...)
	}
}

func (s *site) apply(ctx context.Context, to schema.Schema) (migrate.Change, error) {
	ch, err := migrate.Plan(ctx, s.DB, to)
	if err != nil {
		return ch, err
	}
	return ch, ch.Apply(ctx, nil)
}

// requireMigrated opens the store with the schema sch and checks that sch is the stored schema,
// that there is no damage, that nothing is left over, that each of people is found by every
// secondary value, and that no facet has changed.
func (s *site) requireMigrated(t testdb.Tester, what string, sch schema.Schema, people map[string]map[string]string) {
	t.Helper()
	s.DB = s.withSchema(t, sch)
	testdb.Same(t, what+": check", s.Check(t, check.Options{}), nil)
	if lost := s.notFound(t, s.DB, sch, people); len(lost) > 0 {
		t.Errorf("%s: not found: %q", what, lost)
	}
	stored, err := migrate.StoredSchema(s.Ctx, s.DB)
	if err != nil || stored.Types["user"].Fingerprint() != sch.Types["user"].Fingerprint() {
		t.Errorf("%s: the stored schema is %+v, %v; want %+v", what, stored, err, sch)
	}
	for uid, facets := range people {
		e, err := s.Type(t, "user").Find(s.Ctx, hints.UID(uid).Of("user"))
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		for field, wire := range facets {
			if got, _ := e.Get(renamedField(sch, field)); got.Wire() != wire {
				t.Errorf("%s: %s %s is %q, want %q", what, uid, field, got.Wire(), wire)
			}
		}
		for f := range s.Raw.HGetAll(s.Ctx, s.Key("user/uid:"+uid)).Val() {
			if strings.HasPrefix(f, "~was") {
				t.Errorf("%s: the field %s of %s is left over", what, f, uid)
			}
		}
	}
}

func renamedField(sch schema.Schema, field string) string {
	for name, f := range sch.Types["user"].Fields {
		if f.Was == field {
			return name
		}
	}
	return field
}

// notFound returns "field uid" for each secondary value by which its entry is not found.
func (s *site) notFound(t testdb.Tester, db *userdb.DB, sch schema.Schema, people map[string]map[string]string) []string {
	t.Helper()
	user := testdb.Must(db.Type("user"))
	var lost []string
	for _, uid := range slices.Sorted(maps.Keys(people)) {
		for field, wire := range people[uid] {
			if field = renamedField(sch, field); !slices.Contains(sch.Types["user"].Secondary(), field) {
				continue
			}
			e, err := user.Find(s.Ctx, hints.Field(field, wire).Of("user"))
			if err != nil && !errors.Is(err, userdb.ErrNotFound) && !errors.Is(err, userdb.ErrIndexBuilding) {
				t.Fatalf("finding: %v", err)
			}
			if e.UID() != uid {
				lost = append(lost, field+" "+uid)
			}
		}
	}
	return lost
}

func TestApply(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		for _, ch := range changes {
			t.Run(ch.name, func(t *testing.T) {
				s.flush(t)
				people := s.createPeople(t, ch.from)
				old := s.withSchema(t, ch.from)
				before := s.allRecords(t)
				plan, err := migrate.Plan(s.Ctx, old, ch.to)
				if err != nil || len(plan.Types) != 1 || plan.Types[0].Entries != 5 || plan.Types[0].SRKs != ch.srks {
					t.Fatalf("got the plan %+v, %v; want %d SRKs", plan.Types, err, ch.srks)
				}
				if got := s.allRecords(t); !maps.Equal(before, got) {
					t.Error("the plan wrote something")
				}
				if err := plan.Apply(s.Ctx, nil); err != nil {
					t.Fatal(err)
				}
				s.requireMigrated(t, "applied", ch.to, people)
				if again, err := s.apply(s.Ctx, ch.to); err != nil || len(again.Types) != 0 {
					t.Errorf("applying again: got %+v, %v; want no change", again.Types, err)
				}
				stored := testdb.Must(migrate.StoredSchema(s.Ctx, s.DB)).Types["user"]
				if _, ok := view.Of(s.DB).Engine.(*cluster.Engine); ok && stored.Fingerprint() == ch.from.Types["user"].Fingerprint() {
					// The engine may use the schema that it read before for some seconds, as the
					// fingerprint is the same.
					return
				}
				relation, _ := ch.from.Types["user"].Compare(stored)
				_, err = testdb.Must(old.Type("user")).Update(s.Ctx, hints.UID("u1").Of("user"), func(e *userdb.Entry) error {
					e.Put("age", schema.Number(5))
					return nil
				})
				if follows := relation < schema.Builds; follows != (err == nil) || !follows && !errors.Is(err, userdb.ErrSchemaMismatch) {
					t.Errorf("a writer with the old schema: got %v, want ErrSchemaMismatch: %v", err, !follows)
				}
				if err == nil {
					testdb.Same(t, "check after the write", s.Check(t, check.Options{}), nil)
				}
			})
		}
	})
}

// allRecords returns all records as text.
func (s *site) allRecords(t testdb.Tester) map[string]string {
	t.Helper()
	var keys []string
	for k := range s.allKeys(t) {
		keys = append(keys, k)
	}
	raws, err := store.Inspect(s.Ctx, view.Of(s.DB).Engine, keys, 1000)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, r := range raws {
		slices.Sort(r.Items)
		slices.SortFunc(r.Pairs, func(a, b store.Facet) int { return strings.Compare(a.Field, b.Field) })
		all[r.Key] = fmt.Sprint(r.Type, r.Wire, r.Pairs, r.Items)
	}
	return all
}

func (s *site) allKeys(t testdb.Tester) map[string]bool {
	t.Helper()
	keys, err := s.Raw.Keys(s.Ctx, "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, k := range keys {
		all[k] = true
	}
	return all
}

func TestApplyCollisions(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		from, to := userSchema(schema.FoldExact), userSchema(schema.FoldCasefold, field("nick", secondary))
		forty, _ := schema.Decode(schema.CodecNumber, "forty") // reads any text
		for _, tt := range []struct {
			name   string
			change func(*userdb.Entry)
			to     schema.Schema
			want   string
		}{
			{"values that the fold makes equal", func(e *userdb.Entry) { e.Put("name", schema.Text("bob")) }, to, `user/uid:u0 and user/uid:u4 would both have the value "bob"`},
			{"the same value in two fields", func(e *userdb.Entry) { e.Put("email", schema.Text(" BOB")) }, to, `user/uid:u0 and user/uid:u4 would both have the value "bob"`},
			{"the same value in the new field", func(e *userdb.Entry) { e.Put("nick", schema.Text("nu1")) }, to, `user/uid:u1 and user/uid:u4 would both have the value "nu1"`},
			{"a value that no SRK can hold", func(e *userdb.Entry) { e.Put("nick", schema.Text(" ")) }, to, `user/uid:u4: "nick": no key can hold it: it is empty`},
			{"a value that no index key can hold", func(e *userdb.Entry) { e.Put("city", schema.Text("")) }, userSchema(schema.FoldExact, field("city", index)), `user/uid:u4: "city": no key can hold it: it is empty`},
			{
				"a value without a position", func(e *userdb.Entry) { e.Put("city", schema.Text(strings.Repeat("x", 1025))) },
				userSchema(schema.FoldExact, field("city", schema.Field{Role: schema.RoleOrdered})),
				`user/uid:u4: "city": it cannot be ordered: it is over 1 KiB or cannot be decoded`,
			},
			{
				"a value that the new codec cannot read", func(e *userdb.Entry) { e.Put("born", schema.Text("in May")) },
				userSchema(schema.FoldExact, field("born", schema.Field{Role: schema.RoleOrdered, Codec: schema.CodecDate})),
				`user/uid:u4: "born": the new codec cannot read it: not a date like 2026-11-20 or 2026-11-20T08:02:40.512Z`,
			},
			{
				"a renamed facet that the new codec cannot read", func(e *userdb.Entry) { e.Put("age", forty) },
				userSchema(schema.FoldExact, drop("age"), field("years", schema.Field{Was: "age", Codec: schema.CodecJSON})),
				`user/uid:u4: "years": the new codec cannot read it: not one JSON value`,
			},
			{
				"a renamed facet that exists already",
				func(e *userdb.Entry) { e.Put("years", schema.Text("x")) },
				userSchema(schema.FoldExact, drop("age"), field("years", schema.Field{Was: "age"})), `user/uid:u4: "years": it also has a facet "age": one of the two would be lost`,
			},
		} {
			s.flush(t)
			s.createPeople(t, from)
			s.DB = s.withSchema(t, from)
			_, err := s.Type(t, "user").Update(s.Ctx, hints.UID("u4").Of("user"), func(e *userdb.Entry) error {
				tt.change(e)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			before := s.allRecords(t)
			plan, err := migrate.Plan(s.Ctx, s.DB, tt.to)
			if err != nil || len(plan.Types) != 1 || len(plan.Types[0].Collisions) != 1 || plan.Types[0].Collisions[0].Reason != tt.want {
				t.Errorf("%s: plan %+v, %v\nwant %s", tt.name, plan.Types, err, tt.want)
			}
			if err := plan.Apply(s.Ctx, nil); !errors.Is(err, migrate.ErrCollision) || !strings.HasSuffix(err.Error(), tt.want) {
				t.Errorf("%s: apply: got %v, want ErrCollision: %s", tt.name, err, tt.want)
			}
			// Apply looks for collisions again once it has stopped the writers.
			plan.Types[0].Collisions = nil
			if err := plan.Apply(s.Ctx, nil); !errors.Is(err, migrate.ErrCollision) {
				t.Errorf("%s: apply of an old plan: got %v, want ErrCollision", tt.name, err)
			}
			if after := s.allRecords(t); !maps.Equal(before, after) {
				t.Errorf("%s: the refused change wrote something", tt.name)
			}
			testdb.Same(t, tt.name, s.Check(t, check.Options{}), nil)
		}
	})
}

func TestApplyRefuses(t *testing.T) {
	s := newSite(testdb.Open(t, testdb.EmbeddedClient(t), recordkey.Namespace{}, userSchema(schema.FoldExact)))
	s.createPeople(t, userSchema(schema.FoldExact))
	other := userSchema(schema.FoldExact, func(t *schema.Type) { t.Primary = "id" })
	if _, err := migrate.Plan(s.Ctx, s.DB, other); !errors.Is(err, schema.ErrSchema) || !strings.HasSuffix(err.Error(), "a primary field cannot change; it was uid") {
		t.Errorf("another primary field: got %v, want ErrSchema", err)
	}
	if _, err := migrate.Plan(s.Ctx, s.DB, schema.Schema{Types: map[string]schema.Type{"x": {}}}); !errors.Is(err, schema.ErrSchema) {
		t.Errorf("an invalid schema: got %v, want ErrSchema", err)
	}
	s.Do(t, "HSET", "~/schema/user", "next", "{}")
	if _, err := migrate.Plan(s.Ctx, s.DB, userSchema(schema.FoldCasefold)); !errors.Is(err, userdb.ErrSchemaMismatch) {
		t.Errorf("another change under way: got %v, want ErrSchemaMismatch", err)
	}
}

// TestApplyInterrupted stops changes after any number of commands. After each stop, all entries
// must be found under the old schema, or all under the new one. A run that is not stopped must then
// complete the change.
func TestApplyInterrupted(t *testing.T) {
	twoEngines(t, func(t *testing.T, s *site) {
		c := &testdb.Cut{}
		s.Raw.AddHook(c)
		const unlimited = 1 << 40
		rapid.Check(t, func(r *rapid.T) {
			c.Left.Store(unlimited)
			ch := rapid.SampledFrom(changes).Draw(r, "change")
			s.flush(r)
			people := s.createPeople(r, ch.from)
			old, to := s.withSchema(r, ch.from), s.withSchema(r, ch.to)
			s.DB = old
			for range 3 {
				ctx, cancel := context.WithCancel(s.Ctx)
				c.Left.Store(int64(rapid.IntRange(1, 70).Draw(r, "commands")))
				_, err := s.apply(ctx, ch.to)
				cancel()
				c.Left.Store(unlimited)
				if err == nil {
					break
				}
				if a, b := s.notFound(r, old, ch.from, people), s.notFound(r, to, ch.to, people); len(a) > 0 && len(b) > 0 {
					r.Errorf("not found under the old schema: %q; under the new one: %q; want all found under one of them", a, b)
				}
			}
			if _, err := s.apply(s.Ctx, ch.to); err != nil {
				r.Fatal(err)
			}
			s.requireMigrated(r, ch.name, ch.to, people)
		})
	})
}

// TestApplyWhileWriting applies changes while writers use the old schema and the new one. No record
// may be damaged afterwards.
func TestApplyWhileWriting(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		for _, ch := range changes {
			s.flush(t)
			s.createPeople(t, ch.from)
			old, to := s.withSchema(t, ch.from), s.withSchema(t, ch.to)
			s.DB = old
			// Calls in progress are not canceled: on a cluster, canceling one may leave an entry
			// whose indexes only a repair completes.
			ctx, cancel := context.WithCancel(s.Ctx)
			var writers sync.WaitGroup
			for n, db := range []*userdb.DB{old, old, to, to} {
				writers.Go(func() {
					for i := 0; ctx.Err() == nil; i++ {
						uid := fmt.Sprintf("w%d-%d", n, i%3)
						facets := schema.Texts("name", fmt.Sprintf("Writer %d %d", n, i%5), "email", uid+"@X.org", "job", "Boss", "nick", "K"+uid, "city", "Bonn")
						if _, has := db.Schema().Types["user"].Fields["alias"]; has {
							facets["alias"] = facets["name"]
							delete(facets, "name")
						}
						user := testdb.Must(db.Type("user"))
						_, err := user.Create(s.Ctx, userdb.NewEntry{UID: uid, Facets: facets, Tags: []string{"a"}})
						if err == nil && i%2 == 0 {
							err = user.Delete(s.Ctx, hints.UID(uid).Of("user"))
						}
						relation, _ := ch.from.Types["user"].Compare(ch.to.Types["user"])
						renames := slices.ContainsFunc(slices.Collect(maps.Values(ch.to.Types["user"].Fields)), func(f schema.Field) bool { return f.Was != "" })
						if relation <= schema.Lacks && !renames && n < 2 && errors.Is(err, userdb.ErrSchemaMismatch) {
							t.Errorf("%s: writer %d, with the old schema: got %v, want no ErrSchemaMismatch", ch.name, n, err)
						}
						if err != nil && !errors.Is(err, userdb.ErrSchemaMismatch) && !errors.Is(err, userdb.ErrDuplicate) && !errors.Is(err, userdb.ErrConflict) && !errors.Is(err, userdb.ErrNotFound) {
							t.Errorf("writer %d: %v", n, err)
							return
						}
					}
				})
			}
			_, err := s.apply(s.Ctx, ch.to)
			cancel()
			writers.Wait()
			if err != nil {
				t.Fatalf("%s: %v", ch.name, err)
			}
			s.DB = to
			got := s.Check(t, check.Options{})
			// This is a warning: not every writer writes the new field.
			got = slices.DeleteFunc(got, func(p string) bool { return strings.HasPrefix(p, "field_missing ") })
			testdb.Same(t, ch.name, got, nil)
		}
	})
}
