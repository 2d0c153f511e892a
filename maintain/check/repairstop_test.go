package check_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/internal/store/cluster"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/check"
)

// TestRepairStopped ends repairs at any command; the next one goes on, and no facet is lost on the way.
func TestRepairStopped(t *testing.T) {
	twoEngines(t, func(t *testing.T, s *site) {
		c := &testdb.Cut{}
		s.Raw.AddHook(c)
		rapid.Check(t, func(r *rapid.T) {
			c.Left.Store(1 << 40)
			s.Clean(r)
			var want []string
			distinct := rapid.SliceOfNDistinct(rapid.SampledFrom(damages), 1, 3, func(d damage) string { return d.name })
			for n, d := range distinct.Draw(r, "damages") {
				s.User(r, n+1)
				s.damage(r, d, n+1)
				want = append(want, standing(d, n+1)...)
			}
			before := s.facets(r, false)
			c.Left.Store(int64(rapid.IntRange(0, 90).Draw(r, "commands")))
			for _, err := range check.Run(s.Ctx, s.DB, check.Options{Repair: true}) {
				if err != nil && !errors.Is(err, testdb.ErrCut) {
					r.Fatal(err)
				}
			}
			c.Left.Store(1 << 40)
			s.kept(r, before)
			s.Repaired(r, check.Options{})
			testdb.Same(r, "left", s.Check(r, check.Options{}), want)
			s.kept(r, before)
		})
	})
}

// TestRepairWhileWriting repairs what is damaged again and again while others write.
func TestRepairWhileWriting(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s.Clean(t)
		for n := range 4 {
			s.User(t, n+1)
		}
		stop := s.writing(t, 3)
		for range 10 {
			s.Do(t, "DEL", "user/email:u4@x.org/~prk")
			s.Do(t, "SREM", "user/job:Cook/~prks", "user/uid:u4")
			s.Do(t, "HDEL", "user/uid:u4", "~skv:name", "~prk")
			s.Do(t, "SET", "user/name:ghost/~prk", "user/uid:nobody")
			s.Repaired(t, check.Options{})
			if _, is := view.Of(s.DB).Engine.(*cluster.Engine); !is { // there, what goes with a change goes behind it
				testdb.Same(t, "after a repair", s.Check(t, check.Options{}), nil)
			}
		}
		stop()
		if _, is := view.Of(s.DB).Engine.(*cluster.Engine); is { // a writer that was cut off leaves an index behind its entry
			s.Repaired(t, check.Options{})
		}
		testdb.Same(t, "at rest", s.Check(t, check.Options{}), nil)
	})
}
