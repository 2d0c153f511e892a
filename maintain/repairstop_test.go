package maintain_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest"
	"github.com/coffeenode/userdb/internal/store/cluster"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestRepairStopped ends repairs at any command; the next one goes on, and no facet is lost on the way.
func TestRepairStopped(t *testing.T) {
	twoEngines(t, func(t *testing.T, s *site) {
		c := &cut{}
		s.raw.AddHook(c)
		rapid.Check(t, func(r *rapid.T) {
			c.left.Store(1 << 40)
			s.clean(r)
			var want []string
			distinct := rapid.SliceOfNDistinct(rapid.SampledFrom(damages), 1, 3, func(d damage) string { return d.name })
			for n, d := range distinct.Draw(r, "damages") {
				s.user(r, n+1)
				s.damage(r, d, n+1)
				want = append(want, standing(d, n+1)...)
			}
			before := s.facets(r, false)
			c.left.Store(int64(rapid.IntRange(0, 90).Draw(r, "commands")))
			for _, err := range maintain.Check(s.ctx, s.db, maintain.CheckOptions{Repair: true}) {
				if err != nil && !errors.Is(err, errCut) {
					r.Fatal(err)
				}
			}
			c.left.Store(1 << 40)
			s.kept(r, before)
			s.repaired(r, maintain.CheckOptions{})
			same(r, "left", s.check(r, maintain.CheckOptions{}), want)
			s.kept(r, before)
		})
	})
}

// TestRepairWhileWriting repairs what is damaged again and again while others write.
func TestRepairWhileWriting(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s.clean(t)
		for n := range 4 {
			s.user(t, n+1)
		}
		stop := s.writing(t, 3)
		for range 10 {
			s.do(t, "DEL", "user/email:u4@x.org/~prk")
			s.do(t, "SREM", "user/job:Cook/~prks", "user/uid:u4")
			s.do(t, "HDEL", "user/uid:u4", "~skv:name", "~prk")
			s.do(t, "SET", "user/name:ghost/~prk", "user/uid:nobody")
			s.repaired(t, maintain.CheckOptions{})
			if _, is := view.Of(s.db).Engine.(*cluster.Engine); !is { // there, what goes with a change goes behind it
				same(t, "after a repair", s.check(t, maintain.CheckOptions{}), nil)
			}
		}
		stop()
		if _, is := view.Of(s.db).Engine.(*cluster.Engine); is { // a writer that was cut off leaves an index behind its entry
			s.repaired(t, maintain.CheckOptions{})
		}
		same(t, "at rest", s.check(t, maintain.CheckOptions{}), nil)
	})
}

// TestCareOnCluster goes once over everything on a cluster of several servers.
func TestCareOnCluster(t *testing.T) {
	client := redistest.StartCluster(t).Client()
	from := typed(schema.FoldExact)
	db, err := userdb.New(t.Context(), client, userdb.Options{Schema: from})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{ctx: t.Context(), db: db}
	s.edit(t, func(c *view.Config) { c.Engine = hurried(client) })
	user := s.typ(t, "user")
	for _, name := range []string{"Alice", "Bob", "Carol"} {
		e := userdb.NewEntry{UID: name, Tags: []string{"go"}, Facets: schema.Texts("email", name+"@x.org", "name", name, "job", "Cook")}
		if _, err := user.Create(s.ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	for _, words := range [][]any{
		{"DEL", "user/name:Bob/~prk"},
		{"DEL", "user/email:Bob@x.org/~prk"},
		{"RPUSH", "user/email:Bob@x.org/~prk", "x"},
		{"SET", "user/name:ghost/~prk", "user/uid:ghost"},
		{"SET", "user/name:tab\t/~prk", "user/uid:Bob"},
		{"HDEL", "user/uid:Carol", "~isa", "~prk"},
		{"SREM", "user/job:Cook/~prks", "user/uid:Alice"},
		{"SADD", "user/tags:c/~prks", "user/uid:Alice", "user/uid:ghost", "rubbish"},
		{"SADD", "user/uid:ghost/tags", "c"},
	} {
		if err := client.Do(s.ctx, words...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if done, left := s.repaired(t, maintain.CheckOptions{}); len(left) > 0 || len(done) < 9 {
		t.Errorf("repaired %q, left %q", done, left)
	}
	same(t, "repaired", s.check(t, maintain.CheckOptions{}), nil)

	to := typed(schema.FoldCasefold, drop("name"), field("alias", schema.Field{Role: schema.RoleSecondary, Was: "name"}))
	if _, err := s.apply(s.ctx, to); err != nil {
		t.Fatal(err)
	}
	s.db = s.by(t, to)
	same(t, "by the new schema", s.check(t, maintain.CheckOptions{}), nil)
	copied, err := maintain.CopyNamespace(s.ctx, must(s.db.In(space(t, "a"))), space(t, "a"), space(t, "b"))
	if !errors.Is(err, userdb.ErrNotFound) || copied != 0 {
		t.Errorf("copying nothing: %d, %v", copied, err)
	}
	a := &site{ctx: s.ctx, db: must(s.db.In(space(t, "a")))}
	if _, err := a.typ(t, "user").Create(s.ctx, userdb.NewEntry{UID: "1", Tags: []string{"x"}, Facets: schema.Texts("alias", "Dora", "email", "d@x.org")}); err != nil {
		t.Fatal(err)
	}
	n, err := maintain.CopyNamespace(s.ctx, s.db, space(t, "a"), space(t, "b"))
	if err != nil || n < 5 {
		t.Errorf("copied %d, %v", n, err)
	}
	b := &site{ctx: s.ctx, db: must(s.db.In(space(t, "b")))}
	same(t, "the copy", b.check(t, maintain.CheckOptions{}), nil)
	if _, err := b.typ(t, "user").Find(s.ctx, hints.Field("alias", "DORA").Of("user")); err != nil {
		t.Errorf("in the copy: %v", err)
	}
	if gone, err := maintain.DropNamespace(s.ctx, s.db, space(t, "a")); err != nil || gone != n {
		t.Errorf("dropped %d of %d, %v", gone, n, err)
	}
	same(t, "what stays", b.check(t, maintain.CheckOptions{}), nil)
	same(t, "what stays outside", s.check(t, maintain.CheckOptions{}), nil)
}
