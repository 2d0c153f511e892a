package maintain_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/maintain"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

func hintOf(e userdb.Entry) hints.Hint { return hints.Key(e.Key()) }

// damage does a damage to entry n and returns what must be reported.
func (s *site) damage(t tester, d damage, n int) []string {
	t.Helper()
	for _, c := range d.do {
		words := make([]string, len(c))
		for i, w := range c {
			if words[i] = of(w, n); i == 0 {
				words[i] = w
			}
		}
		s.do(t, words...)
	}
	want := make([]string, len(d.want))
	for i, w := range d.want {
		want[i] = of(w, n)
	}
	return want
}

// clean removes all records of the view, so that a store serves many tests.
func (s *site) clean(t tester) {
	t.Helper()
	keys, err := s.raw.Keys(s.ctx, "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	if len(keys) > 0 {
		s.raw.Del(s.ctx, keys...)
	}
	s.user(t, 0)
	friend := userdb.NewEntry{UID: "friend", Facets: schema.Texts("email", "friend@x.org", "name", "friend")}
	if _, err := s.typ(t, "user").Create(s.ctx, friend); err != nil {
		t.Fatal(err)
	}
	firm := userdb.NewEntry{UID: "1", Facets: schema.Texts("name", "Acme & Sons")}
	if _, err := s.typ(t, "firm").Create(s.ctx, firm); err != nil {
		t.Fatal(err)
	}
}

func TestCheckEachDamage(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		for _, d := range damages {
			t.Run(d.name, func(t *testing.T) {
				s.clean(t)
				s.user(t, 1)
				want := s.damage(t, d, 1)
				same(t, "reported", s.check(t, maintain.CheckOptions{}), want)
			})
		}
	})
}

func TestCheckManyDamages(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		rapid.Check(t, func(r *rapid.T) {
			s.clean(r)
			var want []string
			distinct := rapid.SliceOfNDistinct(rapid.SampledFrom(damages), 1, 6, func(d damage) string { return d.name })
			for n, d := range distinct.Draw(r, "damages") {
				s.user(r, n+1)
				want = append(want, s.damage(r, d, n+1)...)
			}
			same(r, "reported", s.check(r, maintain.CheckOptions{}), want)
		})
	})
}

func TestCheckHealthy(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		same(t, "empty store", s.check(t, maintain.CheckOptions{}), nil)
		s.clean(t)
		user := s.typ(t, "user")
		for n := range 30 {
			s.user(t, n+1)
		}
		for n := range 10 {
			h := hints.UID(fmt.Sprintf("u%d", 3*n+1))
			if err := user.Delete(s.ctx, h); err != nil {
				t.Fatal(err)
			}
			h = hints.UID(fmt.Sprintf("u%d", 3*n+2))
			_, err := user.Update(s.ctx, h, func(e *userdb.Entry) error {
				e.Put("name", schema.Text(fmt.Sprintf("ＲＥＮＡＭＥＤ  %d {+/:}", n)))
				e.Put("job", schema.Text("a/b:\t{}"))
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := user.Tags(h).Remove(s.ctx, "go"); err != nil {
				t.Fatal(err)
			}
		}
		same(t, "after verbs", s.check(t, maintain.CheckOptions{}), nil)
	})
}

func TestCheckProblem(t *testing.T) {
	s := open(t, embeddedClient(t), recordkey.Namespace{}, house())
	s.clean(t)
	s.do(t, "HDEL", "user/uid:friend", "email")
	s.do(t, "DEL", "user/email:friend@x.org/~prk")
	s.do(t, "HSET", "user/uid:u0", "~prk", "\x1b[31m\u202e")
	s.do(t, "SET", "user/name:\x1b[2J:\xff/~prk", "x")
	var got []string
	for p, err := range maintain.Check(s.ctx, s.db, maintain.CheckOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("I%d %v", p.Invariant, p))
	}
	want := []string{
		`I4 error key_unparsable "user/name:\x1b[2J:\xff/~prk": not a key that this store can have written, and not found by it: "\x1b" must be written +x1b`,
		`I0 problem field_missing user/uid:friend: no "email"`,
		`I3 error prk_wrong user/uid:u0: ~prk is "\x1b[31m\u202e"`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestCheckChoices(t *testing.T) {
	s := open(t, embeddedClient(t), recordkey.Namespace{}, house())
	s.clean(t)
	s.do(t, "HSET", "user/uid:friend", "email", "u0@x.org")
	s.do(t, "DEL", "user/email:friend@x.org/~prk")
	for p, err := range maintain.Check(s.ctx, s.db, maintain.CheckOptions{}) {
		if err != nil || p.Code != "value_shared" {
			t.Fatalf("%v, %v", p, err)
		}
		if got := fmt.Sprint(p.Choices); got != "[user/uid:friend user/uid:u0]" {
			t.Errorf("choices %s", got)
		}
		want := `user/uid:friend has this value in "email", and user/uid:u0 in "email"`
		if p.Text != want || p.Key != "user/email:u0@x.org/~prk" || p.Invariant != 2 || p.Warning {
			t.Errorf("%+v, want text %s", p, want)
		}
	}
}

// TestCheckLarge goes beyond one batch of everything: keys, members of a set, entries of an index.
func TestCheckLarge(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s.clean(t)
		pipe := s.raw.Pipeline()
		for i := range 3000 {
			member, uid := fmt.Sprintf("m%d", i), fmt.Sprintf("x%d", i)
			pipe.SAdd(s.ctx, s.key("user/uid:u0/tags"), member)
			pipe.SAdd(s.ctx, s.key("user/tags:"+member+"/~prks"), "user/uid:u0")
			pipe.SAdd(s.ctx, s.key("user/job:Cook/~prks"), "user/uid:"+uid)
			pipe.HSet(s.ctx, s.key("user/uid:"+uid), "~isa", "user", "~prk", "user/uid:"+uid, "uid", uid, "name", uid, "email", uid+"@y.org", "job", "Cook")
			pipe.Set(s.ctx, s.key("user/name:"+uid+"/~prk"), "user/uid:"+uid, 0)
			pipe.Set(s.ctx, s.key("user/email:"+uid+"@y.org/~prk"), "user/uid:"+uid, 0)
		}
		if _, err := pipe.Exec(s.ctx); err != nil {
			t.Fatal(err)
		}
		var calls, last, about int64
		progress := func(d, a int64) {
			if d < last || d > a {
				t.Errorf("progress from %d to %d of %d", last, d, a)
			}
			calls, last, about = calls+1, d, a
		}
		same(t, "healthy", s.check(t, maintain.CheckOptions{Progress: progress}), nil)
		if calls == 0 || last != about || about < 12000 {
			t.Errorf("progress: %d calls, %d of %d", calls, last, about)
		}
		s.do(t, "SREM", "user/tags:m2900/~prks", "user/uid:u0")
		s.do(t, "HSET", "user/uid:x2901", "job", "Boss")
		s.do(t, "DEL", "user/name:x7/~prk")
		want := []string{"index_missing user/tags:m2900/~prks", "index_missing user/job:Boss/~prks", "index_stale user/job:Cook/~prks", "srk_missing user/name:x7/~prk"}
		last = 0
		same(t, "broken", s.check(t, maintain.CheckOptions{Progress: progress}), want)
	})
}

func TestCheckStops(t *testing.T) {
	s := open(t, embeddedClient(t), recordkey.Namespace{}, house())
	s.clean(t)
	for n := range 20 {
		s.user(t, n+1)
		s.damage(t, damages[0], n+1)
	}
	seen := 0
	for range maintain.Check(s.ctx, s.db, maintain.CheckOptions{}) {
		if seen++; seen == 3 {
			break
		}
	}
	if seen != 3 {
		t.Errorf("yielded %d", seen)
	}
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	var last error
	for _, err := range maintain.Check(ctx, s.db, maintain.CheckOptions{}) {
		cancel()
		last = err
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("cancelled: %v", last)
	}
}

func TestCheckRefuses(t *testing.T) {
	s := open(t, embeddedClient(t), recordkey.Namespace{}, house())
	s.clean(t)
	other := house()
	firm := other.Types["firm"]
	firm.Fold = schema.FoldCasefold
	other.Types["firm"] = firm
	with, err := s.db.With(other)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		db   *userdb.DB
		o    maintain.CheckOptions
		is   error
		text string
	}{
		{with, maintain.CheckOptions{}, userdb.ErrSchemaMismatch, `schema differs from the one in the database: type "firm": fold: stored exact; here casefold; check with the stored schema ('userdb schema show')`},
		{s.db, maintain.CheckOptions{Only: hints.UID("u0")}, hints.ErrHint, "hints: UID: names no type"},
		{s.db, maintain.CheckOptions{Only: hints.UID("u0").Of("robot")}, hints.ErrHint, `hints: UID: the schema has no type "robot"`},
	} {
		n := 0
		for p, err := range maintain.Check(s.ctx, tt.db, tt.o) {
			if n++; !errors.Is(err, tt.is) || err.Error() != tt.text {
				t.Errorf("%v, %v, want %s", p, err, tt.text)
			}
		}
		if n != 1 {
			t.Errorf("%d yields, want the error alone", n)
		}
	}
	s.raw.Close()
	for _, err := range maintain.Check(s.ctx, s.db, maintain.CheckOptions{}) {
		if !errors.Is(err, userdb.ErrUnavailable) {
			t.Errorf("closed: %v", err)
		}
	}
}
