package check_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

func TestMain(m *testing.M) { os.Exit(testdb.Main(m)) }

// A site is a store under test, with helpers.
type site struct{ *testdb.Site }

func newSite(s *testdb.Site) *site { return &site{s} }

// quietSite returns a site that nobody else writes to, so checks need not wait for writers. Tests
// with writers set s.Ctx themselves.
func quietSite(s *testdb.Site) *site {
	s.Ctx = store.WithoutOtherWriters(s.Ctx)
	return newSite(s)
}

var (
	eachStore  = testdb.Each(testdb.EachStore, newSite)
	eachEngine = testdb.Each(testdb.EachEngine, quietSite)
	twoEngines = testdb.Each(testdb.TwoEngines, quietSite)
)

// Under returns the same store with another schema.
func (s *site) Under(t *testing.T, sch schema.Schema) *site { return quietSite(s.Site.Under(t, sch)) }

// damage damages entry n as d describes and returns the problems that a check must report.
func (s *site) damage(t testdb.Tester, d damage, n int) []string {
	t.Helper()
	for _, c := range d.do {
		words := make([]string, len(c))
		for i, w := range c {
			if words[i] = expand(w, n); i == 0 {
				words[i] = w
			}
			// The key of a record of factors contains its entry's key with the namespace.
			if prk, ok := strings.CutPrefix(words[i], "~/factor/{"); ok {
				words[i] = "~/factor/{" + s.Key(strings.TrimSuffix(prk, "}")) + "}"
			}
		}
		s.Do(t, words...)
	}
	return expandAll(d.want, n)
}

// expandAll calls expand for each of texts.
func expandAll(texts []string, n int) (all []string) {
	for _, text := range texts {
		all = append(all, expand(text, n))
	}
	return all
}

func TestCheckManyDamages(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		rapid.Check(t, func(r *rapid.T) {
			s.Clean(r)
			var want []string
			distinct := rapid.SliceOfNDistinct(rapid.SampledFrom(damageCases), 1, 6, func(d damage) string { return d.name })
			for n, d := range distinct.Draw(r, "damage") {
				s.User(r, n+1)
				want = append(want, s.damage(r, d, n+1)...)
			}
			testdb.Same(r, "reported", s.Check(r, check.Options{}), want)
		})
	})
}

func TestCheckHealthy(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		testdb.Same(t, "empty store", s.Check(t, check.Options{}), nil)
		s.Clean(t)
		user := s.Type(t, "user")
		for n := range 30 {
			s.User(t, n+1)
		}
		for n := range 10 {
			h := hints.UID(fmt.Sprintf("u%d", 3*n+1))
			if err := user.Delete(s.Ctx, h); err != nil {
				t.Fatal(err)
			}
			h = hints.UID(fmt.Sprintf("u%d", 3*n+2))
			_, err := user.Update(s.Ctx, h, func(e *userdb.Entry) error {
				e.Put("name", schema.Text(fmt.Sprintf("ＲＥＮＡＭＥＤ  %d {+/:}", n)))
				e.Put("job", schema.Text("a/b:\t{}"))
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := user.Tags(h).Remove(s.Ctx, "go"); err != nil {
				t.Fatal(err)
			}
		}
		testdb.Same(t, "after updates and deletes", s.Check(t, check.Options{}), nil)
	})
}

func TestCheckProblem(t *testing.T) {
	s := newSite(testdb.Open(t, testdb.EmbeddedClient(t), recordkey.Namespace{}, testdb.DefaultSchema()))
	s.Clean(t)
	s.Do(t, "HDEL", "user/uid:friend", "email")
	s.Do(t, "DEL", "user/email:friend@x.org/~prk")
	s.Do(t, "HSET", "user/uid:u0", "~prk", "\x1b[31m\u202e")
	s.Do(t, "SET", "user/name:\x1b[2J:\xff/~prk", "x")
	var got []string
	for p, err := range check.Run(s.Ctx, s.DB, check.Options{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("I%d %v", p.Invariant, p))
	}
	want := []string{
		`I4 error key_unparsable "user/name:\x1b[2J:\xff/~prk": this store neither writes nor looks up such a key: "\x1b" must be written +x1b`,
		`I0 problem field_missing user/uid:friend: no "email"`,
		`I3 error prk_wrong user/uid:u0: ~prk is "\x1b[31m\u202e"`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestCheckChoices(t *testing.T) {
	s := newSite(testdb.Open(t, testdb.EmbeddedClient(t), recordkey.Namespace{}, testdb.DefaultSchema()))
	s.Clean(t)
	s.Do(t, "HSET", "user/uid:friend", "email", "u0@x.org")
	s.Do(t, "DEL", "user/email:friend@x.org/~prk")
	for p, err := range check.Run(s.Ctx, s.DB, check.Options{}) {
		if err != nil || p.Code != "value_shared" {
			t.Fatalf("got %v and error %v, want value_shared", p, err)
		}
		if got, want := fmt.Sprint(p.Choices), "[user/uid:friend user/uid:u0]"; got != want {
			t.Errorf("the choices are %s, want %s", got, want)
		}
		want := `user/uid:friend has this value in "email", and user/uid:u0 in "email"`
		if p.Text != want || p.Key != "user/email:u0@x.org/~prk" || p.Invariant != 2 || p.Severity == check.SeverityWarning {
			t.Errorf("got %+v; want an error of I2 at the SRK of u0@x.org, with the text %s", p, want)
		}
	}
}

// TestCheckFactors checks the texts of problems with second factors that nobody can use.
func TestCheckFactors(t *testing.T) {
	s := newSite(testdb.Open(t, testdb.EmbeddedClient(t), recordkey.Namespace{}, testdb.DefaultSchema()))
	s.Clean(t)
	for mark, want := range map[string]string{
		"totp/x": `its second factor "totp/x" is absent or unreadable, so nobody can use it: 'userdb factor remove' removes it`,
		"x":      "its list of second factors cannot be read: 'userdb factor remove' removes it",
	} {
		s.Do(t, "HSET", "user/uid:u0", "~factor", mark, "~password2", "h", "password", "*factor")
		var got []string
		for p, err := range check.Run(s.Ctx, s.DB, check.Options{}) {
			if err != nil {
				t.Fatal(err)
			}
			if p.Code == "factor_missing" {
				got = append(got, p.Text)
			}
		}
		if len(got) != 1 || got[0] != want {
			t.Errorf("~factor %s: got %q, want %q", mark, got, want)
		}
	}
}

// TestCheckLarge checks more than one batch of keys, of members of a set, and of entries in an
// index.
func TestCheckLarge(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s.Clean(t)
		pipe := s.Raw.Pipeline()
		for i := range 3000 {
			member, uid := fmt.Sprintf("m%d", i), fmt.Sprintf("x%d", i)
			pipe.SAdd(s.Ctx, s.Key("user/uid:u0/tags"), member)
			pipe.SAdd(s.Ctx, s.Key("user/tags:"+member+"/~prks"), "user/uid:u0")
			pipe.SAdd(s.Ctx, s.Key("user/job:Cook/~prks"), "user/uid:"+uid)
			pipe.HSet(s.Ctx, s.Key("user/uid:"+uid), "~isa", "user", "~prk", "user/uid:"+uid, "uid", uid, "name", uid, "email", uid+"@y.org", "job", "Cook")
			pipe.Set(s.Ctx, s.Key("user/name:"+uid+"/~prk"), "user/uid:"+uid, 0)
			pipe.Set(s.Ctx, s.Key("user/email:"+uid+"@y.org/~prk"), "user/uid:"+uid, 0)
		}
		if _, err := pipe.Exec(s.Ctx); err != nil {
			t.Fatal(err)
		}
		var calls, last, about int64
		progress := func(d, a int64) {
			if d < last || d > a {
				t.Errorf("progress went from %d to %d of %d", last, d, a)
			}
			calls, last, about = calls+1, d, a
		}
		testdb.Same(t, "healthy", s.Check(t, check.Options{Progress: progress}), nil)
		if calls == 0 || last != about || about < 12000 {
			t.Errorf("got %d reports of progress, the last %d of %d; want the last to reach the end, and the end to be at least 12000", calls, last, about)
		}
		s.Do(t, "SREM", "user/tags:m2900/~prks", "user/uid:u0")
		s.Do(t, "HSET", "user/uid:x2901", "job", "Boss")
		s.Do(t, "DEL", "user/name:x7/~prk")
		want := []string{"index_missing user/tags:m2900/~prks", "index_missing user/job:Boss/~prks", "index_stale user/job:Cook/~prks", "srk_missing user/name:x7/~prk"}
		last = 0
		testdb.Same(t, "broken", s.Check(t, check.Options{Progress: progress}), want)
	})
}

func TestCheckStops(t *testing.T) {
	s := newSite(testdb.Open(t, testdb.EmbeddedClient(t), recordkey.Namespace{}, testdb.DefaultSchema()))
	s.Clean(t)
	for n := range 20 {
		s.User(t, n+1)
		s.damage(t, damageCases[0], n+1)
	}
	seen := 0
	for range check.Run(s.Ctx, s.DB, check.Options{}) {
		if seen++; seen == 3 {
			break
		}
	}
	if seen != 3 {
		t.Errorf("got %d problems, want 3", seen)
	}
	ctx, cancel := context.WithCancel(s.Ctx)
	defer cancel()
	var last error
	for _, err := range check.Run(ctx, s.DB, check.Options{}) {
		cancel()
		last = err
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("after canceling: got %v, want context.Canceled", last)
	}
}

func TestCheckRefuses(t *testing.T) {
	s := newSite(testdb.Open(t, testdb.EmbeddedClient(t), recordkey.Namespace{}, testdb.DefaultSchema()))
	s.Clean(t)
	other := testdb.DefaultSchema()
	firm := other.Types["firm"]
	firm.Fold = schema.FoldCasefold
	other.Types["firm"] = firm
	with, err := s.DB.With(other)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		db   *userdb.DB
		o    check.Options
		is   error
		text string
	}{
		{with, check.Options{}, userdb.ErrSchemaMismatch, `schema differs from the one in the database: type firm: fold: stored exact; here casefold; use the stored schema ('userdb schema show'), or convert the records with 'userdb schema apply'`},
		{s.DB, check.Options{Only: hints.UID("u0")}, hints.ErrHint, "hints: UID: names no type"},
		{s.DB, check.Options{Only: hints.UID("u0").Of("robot")}, hints.ErrHint, `hints: UID: the schema has no type "robot"; it has ` + strings.Join(testdb.DefaultSchema().Names(), ", ")},
	} {
		n := 0
		for p, err := range check.Run(s.Ctx, tt.db, tt.o) {
			if n++; !errors.Is(err, tt.is) || err.Error() != tt.text {
				t.Errorf("got %v, %v; want error %s", p, err, tt.text)
			}
		}
		if n != 1 {
			t.Errorf("got %d results, want only the error", n)
		}
	}
	s.Raw.Close()
	for _, err := range check.Run(s.Ctx, s.DB, check.Options{}) {
		if !errors.Is(err, userdb.ErrUnavailable) {
			t.Errorf("with a closed client: got %v, want ErrUnavailable", err)
		}
	}
}

// TestCheckOriginal checks records that CoffeeNode UserDB, the original program, wrote under its
// own schema. The lines of the golden file are damage that the original caused: it takes values
// from other users, writes empty values, and leaves white space and braces in keys. One line is
// about the field "nonexistent", which the original's options name, but no user has.
func TestCheckOriginal(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s = s.Under(t, testdb.OriginalSchema(t))
		s.Load(t, "../../test/testdata/original/original_fixture.jsonl")
		var lines []string
		for p, err := range check.Run(s.Ctx, s.DB, check.Options{}) {
			if err != nil {
				t.Fatal(err)
			}
			line := fmt.Sprintf("I%d %v", p.Invariant, p)
			if p.Code == "field_missing" && strings.Contains(p.Text, "nonexistent") {
				// Every entry has this problem.
				line = "I0 problem field_missing user/uid:…: no \"nonexistent\""
			}
			lines = append(lines, line)
		}
		slices.Sort(lines)
		got := strings.Join(slices.Compact(lines), "\n") + "\n"
		testdb.Golden(t, "testdata/original.golden", got)
	})
}
