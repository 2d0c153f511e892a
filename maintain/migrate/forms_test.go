package migrate_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/maintain/migrate"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
	"github.com/coffeenode/userdb/userdb/redisdb"
)

// storeFirstForm stores a schema as a program of the first canonical form does: without a version.
func (s *site) storeFirstForm(t testdb.Tester, sch schema.Schema) {
	t.Helper()
	for name, typ := range sch.Types {
		text := testdb.Must(json.Marshal(typ))
		if strings.Contains(string(text), "canonical") {
			t.Fatalf("the schema %s names a canonical form, want none", text)
		}
		typ.Form = "1"
		s.Do(t, "SADD", "~/types", name)
		s.Do(t, "HSET", "~/schema/"+name, "fingerprint", typ.Fingerprint(), "schema", string(text))
	}
}

// writeEntry writes an entry as another program does. canonical holds the other program's canonical
// value for each field.
func (s *site) writeEntry(t testdb.Tester, uid string, facets, canonical map[string]string) {
	t.Helper()
	prk := "user/uid:" + uid
	words := []string{"HSET", prk, "~isa", "user", "~prk", prk, "~rev", "rev-of-" + (uid + "-----")[:5], "uid", uid}
	for field, facet := range facets {
		words = append(words, field, facet)
		if canonical[field] != facet {
			words = append(words, "~skv:"+field, canonical[field])
		}
		s.Do(t, "SET", testdb.Must(recordkey.SRK("user", field, canonical[field])).String(), prk)
	}
	s.Do(t, words...)
}

// createFirstForm creates entries of the first form, including the given number of pairs. The
// conversion of a pair gives one entry the value that the other one loses.
func (s *site) createFirstForm(t testdb.Tester, pairs int) map[string]map[string]string {
	t.Helper()
	s.storeFirstForm(t, userSchema(schema.FoldCasefold))
	people := map[string]map[string]string{}
	add := func(uid string, facets, canonical map[string]string) {
		people[uid] = facets
		s.writeEntry(t, uid, facets, canonical)
	}
	for n := range pairs {
		a, b := fmt.Sprintf("a%d", n), fmt.Sprintf("b%d", n)
		text := func(name, format string) map[string]string {
			return map[string]string{"name": name, "email": fmt.Sprintf(format, n)}
		}
		add(a, text(a, "Bob%d@Straße.de"), text(a, "bob%d@strasse.de"))
		add(b, text(b, `"bob%d"@strasse.de`), text(b, `"bob%d"@strasse.de`))
	}
	add("u", map[string]string{"email": "a@bücher.example", "name": "Bo\u034fb"}, map[string]string{"email": "a@bücher.example", "name": "bo\u034fb"})
	add("p", map[string]string{"email": "P@x.org", "name": "plain"}, map[string]string{"email": "p@x.org", "name": "plain"})
	return people
}

func TestApplyOtherForm(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s.flush(t)
		sch := userSchema(schema.FoldCasefold)
		people := s.createFirstForm(t, 20)
		s.DB = s.withSchema(t, sch)
		_, err := s.Type(t, "user").Create(s.Ctx, userdb.NewEntry{UID: "new"})
		if !errors.Is(err, userdb.ErrSchemaMismatch) || !strings.Contains(err.Error(), `canonical form: stored 1; here "`+schema.FormVersion()+`"; convert the records with 'userdb schema apply'`) {
			t.Errorf("a writer of the current form: got %v, want ErrSchemaMismatch", err)
		}
		s.requireNoWrongEntry(t)
		plan, err := migrate.Plan(s.Ctx, s.DB, sch)
		if err != nil || len(plan.Types) != 1 || plan.Types[0].SRKs != 42 || plan.Types[0].Rewritten != 41 || len(plan.Types[0].Collisions) > 0 {
			t.Fatalf("got the plan %+v, %v; want 42 SRKs, 41 rewritten entries and no collision", plan.Types, err)
		}
		if want := `canonical form: stored 1; now "` + schema.FormVersion() + `"`; plan.Types[0].What != want {
			t.Errorf("the plan says %s, want %s", plan.Types[0].What, want)
		}
		if err := plan.Apply(s.Ctx, nil); err != nil {
			t.Fatal(err)
		}
		s.requireMigrated(t, "applied", sch, people)
		if again, err := s.apply(s.Ctx, sch); err != nil || len(again.Types) != 0 {
			t.Errorf("applying again: got %+v, %v; want no change", again.Types, err)
		}
		for value, want := range map[string]string{"bob3@xn--strae-oqa.de": "a3", "bob3@STRASSE.de.": "b3", "bob": "u", "bo\u200db": "u"} {
			if e, err := s.Type(t, "user").Find(s.Ctx, hints.Any(value).Of("user")); err != nil || e.UID() != want {
				t.Errorf("%+q finds %s, %v; want %s", value, e.UID(), err, want)
			}
		}
		if v := s.Raw.HGet(s.Ctx, s.Key("user/uid:a3"), "~skv:email").Val(); v != "bob3@xn--strae-oqa.de" {
			t.Errorf("~skv:email is %q, want bob3@xn--strae-oqa.de", v)
		}
		if s.Raw.Exists(s.Ctx, s.Key("user/email:a@bücher.example/~prk")).Val() != 0 {
			t.Error("an SRK of the first form is left")
		}
		if text := s.Raw.HGet(s.Ctx, s.Key("~/schema/user"), "schema").Val(); !strings.Contains(text, `"canonical":"`+schema.FormVersion()+`"`) {
			t.Errorf("the stored schema %s does not name the current canonical form", text)
		}
	})
}

// requireNoWrongEntry looks up, in every way, a value that belongs to different entries under the
// two forms. Nothing may be found.
func (s *site) requireNoWrongEntry(t *testing.T) {
	t.Helper()
	user := s.Type(t, "user")
	ambiguous := []hints.Hint{
		hints.Any("bob0@strasse.de").Of("user"), hints.Field("email", "bob0@strasse.de").Of("user"),
		hints.Facets(schema.Texts("email", "bob0@strasse.de", "name", "a0")).Of("user"),
	}
	for _, h := range ambiguous {
		if e, err := user.Find(s.Ctx, h); !errors.Is(err, userdb.ErrNotFound) {
			t.Errorf("%v finds %s, %v; want ErrNotFound", h, e.UID(), err)
		}
	}
	for e, err := range user.FindAll(s.Ctx, ambiguous...) {
		if !errors.Is(err, userdb.ErrNotFound) {
			t.Errorf("FindAll: got %s, %v; want ErrNotFound", e.UID(), err)
		}
	}
	if _, err := user.Issue(s.Ctx, ambiguous[0], userdb.Token{Purpose: "reset"}); !errors.Is(err, userdb.ErrNotFound) {
		t.Errorf("issuing a token: got %v, want ErrNotFound", err)
	}
	if e, err := user.Find(s.Ctx, hints.Any("p@X.org").Of("user")); err != nil || e.UID() != "p" {
		t.Errorf("an entry with the same values in both forms: got %s, %v; want p", e.UID(), err)
	}
}

// TestApplyOtherFormCollides checks that two entries whose values become equal in the current form
// are never merged.
func TestApplyOtherFormCollides(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		sch := userSchema(schema.FoldCasefold)
		for _, c := range []struct{ one, two, want string }{
			{"bob@bücher.de", "bob@xn--bcher-kva.de", `user/uid:x and user/uid:y would both have the value "bob@xn--bcher-kva.de"`},
			{`"bob"@x.de`, "bob@x.de", `user/uid:x and user/uid:y would both have the value "bob@x.de"`},
			{"bo\u3164b@x.de", "bob@x.de", `user/uid:x and user/uid:y would both have the value "bob@x.de"`},
			{"bob@x.de.", "bob@x.de", `user/uid:x and user/uid:y would both have the value "bob@x.de"`},
			{"\u034f", "bob@x.de", `user/uid:x: "email": no key can hold it: it is empty`},
		} {
			s.flush(t)
			s.createFirstForm(t, 1)
			fold := map[string]string{"bo\u3164b@x.de": "bo\u1160b@x.de"}
			for uid, email := range map[string]string{"x": c.one, "y": c.two} {
				canonical := email
				if folded, ok := fold[email]; ok {
					canonical = folded
				}
				s.writeEntry(t, uid, map[string]string{"email": email}, map[string]string{"email": canonical})
			}
			s.DB = s.withSchema(t, sch)
			before := s.allRecords(t)
			plan, err := migrate.Plan(s.Ctx, s.DB, sch)
			if err != nil || len(plan.Types) != 1 || len(plan.Types[0].Collisions) != 1 || plan.Types[0].Collisions[0].Reason != c.want {
				t.Errorf("%q, %q: plan %+v, %v\nwant %s", c.one, c.two, plan.Types, err, c.want)
			}
			if err := plan.Apply(s.Ctx, nil); !errors.Is(err, migrate.ErrCollision) {
				t.Errorf("%q, %q: apply: got %v, want ErrCollision", c.one, c.two, err)
			}
			if got := s.allRecords(t); !maps.Equal(before, got) {
				t.Errorf("%q, %q: something was written", c.one, c.two)
			}
		}
	})
}

// TestOtherFormRemovesValues checks that values can be removed from entries of another form, in
// order to resolve a collision, and that nothing else can be written to them.
func TestOtherFormRemovesValues(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s.flush(t)
		sch := userSchema(schema.FoldCasefold)
		s.storeFirstForm(t, sch)
		for uid, email := range map[string]string{"v": `"bob"@x.de`, "x": "bob@x.de", "y": `"\b\ob"@x.de`, "z": "a@straße.de"} {
			canonical := email
			if uid == "z" {
				canonical = "a@strasse.de"
			}
			s.writeEntry(t, uid, map[string]string{"email": email, "name": uid}, map[string]string{"email": canonical, "name": uid})
		}
		s.DB = s.withSchema(t, sch)
		user := s.Type(t, "user")
		before := s.allRecords(t)
		refused := map[string]func(e *userdb.Entry) error{
			"another value": func(e *userdb.Entry) error { e.Put("email", schema.Text("v@x.de")); return nil },
			"a plain facet": func(e *userdb.Entry) error { e.Put("job", schema.Text("cook")); return nil },
			"both":          func(e *userdb.Entry) error { e.Drop("email"); e.Put("job", schema.Text("cook")); return nil },
		}
		for what, edit := range refused {
			if _, err := user.Update(s.Ctx, hints.UID("v").Of("user"), edit); !errors.Is(err, userdb.ErrSchemaMismatch) {
				t.Errorf("%s: got %v, want ErrSchemaMismatch", what, err)
			}
		}
		if _, err := user.SetPassword(s.Ctx, hints.UID("v").Of("user"), "correct horse battery"); !errors.Is(err, userdb.ErrSchemaMismatch) {
			t.Errorf("setting a password: got %v, want ErrSchemaMismatch", err)
		}
		if got := s.allRecords(t); !maps.Equal(before, got) {
			t.Error("the refused changes wrote something")
		}
		for _, field := range []string{"name", "email"} {
			if _, err := user.Update(s.Ctx, hints.UID("v").Of("user"), func(e *userdb.Entry) error { e.Drop(field); return nil }); err != nil {
				t.Errorf("removing %s: %v", field, err)
			}
		}
		for _, uid := range []string{"y", "z"} {
			if err := user.Delete(s.Ctx, hints.UID(uid).Of("user")); err != nil {
				t.Errorf("deleting %s: %v", uid, err)
			}
		}
		if n := s.Raw.Exists(s.Ctx, s.Key(`user/email:"bob"@x.de/~prk`), s.Key("user/email:a@strasse.de/~prk")).Val(); n != 0 {
			t.Errorf("%d SRKs of removed values are left", n)
		}
		if _, err := s.apply(s.Ctx, sch); err != nil {
			t.Error(err)
		}
		if e, err := user.Find(s.Ctx, hints.Any(`"bob"@x.de`).Of("user")); err != nil || e.UID() != "x" {
			t.Errorf("the entry that kept the value: got %s, %v; want x", e.UID(), err)
		}
	})
}

// TestCheckOtherForm checks that a check fails if this program cannot find entries by their values.
// It also checks that the check reports these entries, except if the check repairs the database or
// concerns one entry.
func TestCheckOtherForm(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s.flush(t)
		s.createFirstForm(t, 1)
		s.DB = s.withSchema(t, userSchema(schema.FoldCasefold))
		before := s.allRecords(t)
		for _, o := range []check.Options{{}, {Repair: true}, {Only: hints.UID("u").Of("user")}} {
			var found []string
			var failed error
			for p, err := range check.Run(s.Ctx, s.DB, o) {
				if err != nil {
					failed = err
					continue
				}
				found = append(found, p.Code+" "+p.Key)
				if p.Invariant != 1 || p.Severity == check.SeverityWarning || !strings.Contains(p.Text, "'userdb schema apply' converts it") {
					t.Errorf("got %+v, want an error about invariant 1 that names 'userdb schema apply'", p)
				}
			}
			if !errors.Is(failed, userdb.ErrSchemaMismatch) || !strings.Contains(failed.Error(), "'userdb schema apply' while no other program writes") {
				t.Errorf("%+v: got error %v, want ErrSchemaMismatch", o, failed)
			}
			if o.Repair || !o.Only.IsZero() {
				testdb.Same(t, "reported", found, nil)
				continue
			}
			slices.Sort(found)
			testdb.Same(t, "reported", found, []string{"form_other user/uid:a0", "form_other user/uid:b0", "form_other user/uid:u", "form_other user/uid:u"})
		}
		if got := s.allRecords(t); !maps.Equal(before, got) {
			t.Error("the checks wrote something")
		}
	})
}

// TestOtherFormOnCluster converts records on a cluster of several servers.
func TestOtherFormOnCluster(t *testing.T) {
	client := redistest.StartCluster(t).Client()
	old := newSite(testdb.Open(t, testdb.ServerClient(t), recordkey.Namespace{}, userSchema(schema.FoldCasefold)))
	old.flush(t)
	people := old.createFirstForm(t, 10)
	old.copy(t, client)
	db, err := redisdb.New(t.Context(), client, userdb.Options{Schema: userSchema(schema.FoldCasefold)})
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(&testdb.Site{Ctx: t.Context(), DB: db})
	s.Edit(t, func(c *view.Config) { c.Engine = testdb.FakeClockEngine(client) })
	found := 0
	for p, err := range check.Run(s.Ctx, s.DB, check.Options{}) {
		if err == nil && p.Code == "form_other" {
			found++
		}
	}
	if found != 22 {
		t.Errorf("found %d values of the first form, want 22", found)
	}
	if _, err := s.Type(t, "user").Create(s.Ctx, userdb.NewEntry{UID: "new"}); !errors.Is(err, userdb.ErrSchemaMismatch) {
		t.Errorf("a writer of the current form: got %v, want ErrSchemaMismatch", err)
	}
	if _, err := s.apply(s.Ctx, userSchema(schema.FoldCasefold)); err != nil {
		t.Fatal(err)
	}
	testdb.AdvanceClock(time.Minute)
	testdb.Same(t, "applied: check", s.Check(t, check.Options{}), nil)
	if lost := s.notFound(t, s.DB, s.DB.Schema(), people); len(lost) > 0 {
		t.Errorf("after the change, these are not found: %q", lost)
	}
	if _, err := s.Type(t, "user").Create(s.Ctx, userdb.NewEntry{UID: "new", Facets: schema.Texts("email", "bob3@strasse.de.")}); !errors.Is(err, userdb.ErrDuplicate) {
		t.Errorf("a value that another entry has: got %v, want ErrDuplicate", err)
	}
}

// copy copies all records to another server.
func (s *site) copy(t *testing.T, to redis.UniversalClient) {
	t.Helper()
	for key := range s.allKeys(t) {
		dump, err := s.Raw.Dump(s.Ctx, key).Result()
		if err == nil {
			err = to.Restore(s.Ctx, key, 0, dump).Err()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestOtherFormInterrupted stops the change after 1, 3, 5, … commands. A write must then be
// refused, and the next run must complete the change.
func TestOtherFormInterrupted(t *testing.T) {
	twoEngines(t, func(t *testing.T, s *site) {
		c := &testdb.Cut{}
		s.Raw.AddHook(c)
		const unlimited = 1 << 40
		sch := userSchema(schema.FoldCasefold)
		complete := false
		for commands := int64(1); !complete; commands += 2 {
			c.Left.Store(unlimited)
			s.flush(t)
			people := s.createFirstForm(t, 1)
			s.DB = s.withSchema(t, sch)
			c.Left.Store(commands)
			_, err := s.apply(s.Ctx, sch)
			c.Left.Store(unlimited)
			if complete = err == nil; !complete {
				_, err = s.Type(t, "user").Create(s.Ctx, userdb.NewEntry{UID: "new", Facets: schema.Texts("email", "bob0@strasse.de")})
				if !errors.Is(err, userdb.ErrSchemaMismatch) && !errors.Is(err, userdb.ErrDuplicate) {
					t.Errorf("a writer, when the change stopped after %d commands: got %v, want ErrSchemaMismatch or ErrDuplicate", commands, err)
				}
				if _, err := s.apply(s.Ctx, sch); err != nil {
					t.Fatalf("after %d commands: %v", commands, err)
				}
			}
			s.requireMigrated(t, fmt.Sprintf("after %d commands", commands), sch, people)
		}
	})
}

// TestOtherFormWithPendingClaim converts an entry after another program claimed its new value and
// stopped before it changed the entry. When that claim is released later, the entry must still be
// found.
func TestOtherFormWithPendingClaim(t *testing.T) {
	twoEngines(t, func(t *testing.T, s *site) {
		s.flush(t)
		sch := userSchema(schema.FoldCasefold)
		people := s.createFirstForm(t, 1)
		s.DB = s.withSchema(t, sch)
		srk, claimed := s.Key("user/email:bob0@xn--strae-oqa.de/~prk"), "user/uid:a0 111111111111"
		s.Do(t, "SET", srk, claimed)
		if _, err := s.apply(s.Ctx, sch); err != nil {
			t.Fatal(err)
		}
		if s.Raw.Get(s.Ctx, srk).Val() == claimed {
			s.Do(t, "DEL", srk)
		}
		s.requireMigrated(t, "the claim was released", sch, people)
	})
}

// TestNewerForm checks that a running program can no longer write after another one has converted
// the records to a newer form.
func TestNewerForm(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s.flush(t)
		sch := userSchema(schema.FoldCasefold)
		s.createPeople(t, sch)
		s.DB = s.withSchema(t, sch)
		newer := sch.Types["user"]
		newer.Form = "3/17.0.0"
		s.Do(t, "HSET", "~/schema/user", "fingerprint", newer.Fingerprint(), "schema", string(testdb.Must(json.Marshal(newer))))
		testdb.AdvanceClock(time.Minute)
		_, err := s.Type(t, "user").Create(s.Ctx, userdb.NewEntry{UID: "new"})
		if !errors.Is(err, userdb.ErrSchemaMismatch) || !strings.Contains(err.Error(), `canonical form: stored "3/17.0.0"; here "`+schema.FormVersion()) {
			t.Errorf("a writer of the older form: got %v, want ErrSchemaMismatch", err)
		}
		if e, err := s.Type(t, "user").Find(s.Ctx, hints.Any("bob").Of("user")); err != nil || e.UID() != "u0" {
			t.Errorf("a reader: got %s, %v; want u0", e.UID(), err)
		}
	})
}
