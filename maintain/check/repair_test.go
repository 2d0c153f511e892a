package check_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/coffeenode/userdb/hints"
	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/internal/store/cluster"
	"github.com/coffeenode/userdb/internal/view"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/userdb"
)

// leftByDamage lists, for each kind of damage, the problems that a repair leaves: decisions for a
// person, and warnings. A repair leaves no problem of any other kind of damage.
var leftByDamage = map[string][]string{
	"entry of another Redis type":              {"prk_kind " + prk},
	"hash under a field that is not primary":   {"key_field user/nick:F"},
	"string under a field that is not primary": {"key_field user/nick:F"},

	"facet lost":                   {"field_missing " + prk},
	"facet and ~skv lost":          {"field_missing " + prk},
	"facet moved to another field": {"field_missing " + prk},
	"facet empty":                  {"value_unkeyable " + prk},
	"facet too long":               {"value_unkeyable " + prk},

	"shared in one field":                                      {"value_shared " + name},
	"shared in one field, SRK taken over":                      {"value_shared " + name},
	"shared in two fields":                                     {"value_shared " + email},
	"shared in two fields, one SRK lost":                       {"value_shared " + email, "srk_missing " + email},
	"shared, no SRK":                                           {"srk_missing " + name, "srk_missing " + name},
	"shared with a damaged entry":                              {"value_shared " + name, "isa_missing user/uid:F"},
	"shared in one field, SRKs in two taken over":              {"value_shared " + name},
	"one value in two fields of one entry, one SRK taken over": {"value_shared " + name},

	"further value of another entry":             {"value_shared " + emailF},
	"further value of a field that may have one": {"further_many " + prk},

	"SRK of an undeclared field":              {"srk_undeclared user/phone:F/~prk"},
	"tertiary record with an undeclared name": {"tertiary_undeclared " + prk + "/photo"},
	"key with raw braces":                     {"key_unparsable user/uid:{F}"},
	"key with an unescaped slash":             {"key_unparsable user/uid:F/a/b"},
	"key with an empty value":                 {"key_unparsable user/F:/~prk"},

	"indexed facet empty":         {"index_unkeyable " + prk},
	"member that no key can hold": {"index_unkeyable " + prk + "/tags"},
	"undeclared index":            {"index_undeclared user/color:F/~prks"},

	"invalid date":                              {"facet_undecodable " + prk},
	"invalid JSON and boolean":                  {"facet_undecodable " + prk, "facet_undecodable " + prk},
	"tertiary set of another Redis type":        {"tertiary_kind " + prk + "/tags"},
	"tertiary list of another Redis type":       {"tertiary_kind " + prk + "/notes"},
	"entry of an undeclared type":               {"schema_missing robot/id:F"},
	"undeclared index, member without an entry": nil,

	"a second factor that is absent":                   {"factor_missing user/uid:U"},
	"a second factor that is damaged":                  {"factor_missing user/uid:U"},
	"a damaged mark of second factors":                 {"factor_missing user/uid:U"},
	"a password set beside a second factor":            {"factor_hash user/uid:U"},
	"a second factor without its password hash":        {"factor_hash user/uid:U"},
	"a password hash for a second factor, without one": {"factor_hash user/uid:U"},
}

func wantLeft(d damage, n int) []string {
	return expandAll(leftByDamage[d.name], n)
}

// facets returns the key and value of every facet of every entry. With own, it includes those in
// the store's own fields. It leaves out half-deleted entries, because a repair removes their
// facets.
func (s *site) facets(t testdb.Tester, own bool) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	keys, err := s.Raw.Keys(s.Ctx, "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		fields, err := s.Raw.HGetAll(s.Ctx, k).Result()
		if isa, ok := fields["~isa"]; err != nil || ok && isa == "" || strings.Contains(k, "~/factor/") {
			continue
		}
		for field, wire := range fields {
			if own || !strings.HasPrefix(field, "~") {
				all[k+" "+wire] = true
			}
		}
	}
	return all
}

// TestEachDamage checks for each kind of damage that a check of the store reports it, that a check
// of the damaged entry alone reports it, and that a repair leaves only what leftByDamage lists.
// Unlike other tests, it lets the first check of a cluster wait for writers, although there are
// none.
func TestEachDamage(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		for _, d := range damageCases {
			t.Run(d.name, func(t *testing.T) {
				s.Clean(t)
				s.User(t, 1)
				want, quiet := s.damage(t, d, 1), s.Ctx
				s.Ctx = t.Context()
				testdb.Same(t, "reported", s.Check(t, check.Options{}), want)
				s.Ctx = quiet
				got := s.Check(t, check.Options{Only: hints.UID("u1").Of("user")})
				testdb.Same(t, "reported of the entry", got, expandAll(wantOfEntry(d), 1))
				testdb.Same(t, "reported of another entry", s.Check(t, check.Options{Only: hints.UID("u0").Of("user")}), nil)
				before := s.facets(t, false)
				done, left := s.Repaired(t, check.Options{})
				if (len(done) > 0) == (len(d.want) == 0 || len(left) >= len(d.want)) {
					t.Logf("repaired %q, left %q", done, left)
				}
				testdb.Same(t, "left", s.Check(t, check.Options{}), wantLeft(d, 1))
				s.requireFacets(t, before)
				done, _ = s.Repaired(t, check.Options{})
				testdb.Same(t, "repaired once more", done, nil)
			})
		}
	})
}

// requireFacets checks that every facet of before still exists, possibly in another field.
func (s *site) requireFacets(t testdb.Tester, before map[string]bool) {
	t.Helper()
	after := s.facets(t, true)
	for f := range before {
		if !after[f] {
			t.Errorf("facet %q is gone", f)
		}
	}
}

func TestRepairManyProblems(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		rapid.Check(t, func(r *rapid.T) {
			s.Clean(r)
			var want []string
			distinct := rapid.SliceOfNDistinct(rapid.SampledFrom(damageCases), 1, 6, func(d damage) string { return d.name })
			for n, d := range distinct.Draw(r, "damage") {
				s.User(r, n+1)
				s.damage(r, d, n+1)
				want = append(want, wantLeft(d, n+1)...)
			}
			before := s.facets(r, false)
			s.Repaired(r, check.Options{})
			s.requireFacets(r, before)
			testdb.Same(r, "left", s.Check(r, check.Options{}), want)
		})
	})
}

// TestRepairOne repairs only the damaged entry and the records that belong to it.
func TestRepairOne(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		for _, d := range damageCases {
			if slices.Contains(notOfEntry, d.name) {
				continue
			}
			s.Clean(t)
			s.User(t, 1)
			s.damage(t, d, 1)
			s.Repaired(t, check.Options{Only: hints.UID("u1").Of("user")})
			testdb.Same(t, d.name, s.Check(t, check.Options{}), wantLeft(d, 1))
		}
	})
}

// TestRepairKeeps decides every contest in favor of each of its two entries in turn.
func TestRepairKeeps(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		for _, d := range damageCases {
			if !strings.HasPrefix(d.name, "shared") {
				continue
			}
			for _, keeper := range []string{"u1", "f1"} {
				s.Clean(t)
				s.User(t, 1)
				s.damage(t, d, 1)
				before := s.facets(t, false)
				key := testdb.Must(recordkey.PRK("user", "uid", keeper))
				_, left := s.Repaired(t, check.Options{Keep: []recordkey.Key{key}})
				testdb.Same(t, d.name+": left", left, nil)
				s.requireFacets(t, before)
				loser := map[string]string{"u1": "f1", "f1": "u1"}[keeper]
				got := s.Check(t, check.Options{})
				if len(got) != 1 || got[0] != "field_missing user/uid:"+loser {
					t.Errorf("%s, %s keeps: a check finds %q, want only that the field is missing in %s", d.name, keeper, got, loser)
				}
				what := strings.TrimSuffix(strings.TrimPrefix(d.want[0][strings.Index(d.want[0], " "):], " user/"), "/~prk")
				_, value, _ := strings.Cut(expand(what, 1), ":")
				value = testdb.Must(recordkey.Unescape(value))
				found := ""
				for _, field := range []string{"name", "email"} {
					e, err := s.Type(t, "user").Find(s.Ctx, hints.Field(field, value).Of("user"))
					if err == nil {
						found += e.UID()
					}
				}
				if found != keeper {
					t.Errorf("%s, %s keeps: the value %q finds %q, want %s", d.name, keeper, value, found, keeper)
				}
			}
		}
	})
}

func TestRepairMessages(t *testing.T) {
	s := newSite(testdb.Open(t, testdb.EmbeddedClient(t), recordkey.Namespace{}, testdb.DefaultSchema()))
	s.Clean(t)
	s.Do(t, "HSET", "user/uid:friend", "email", "u0@x.org")
	s.Do(t, "DEL", "user/email:friend@x.org/~prk")
	key := testdb.Must(recordkey.PRK("user", "uid", "u0"))
	for _, tt := range []struct {
		keep []recordkey.Key
		want string
	}{
		{nil, "error value_shared user/email:u0@x.org/~prk: user/uid:friend and user/uid:u0 have this value; keeping one of them leaves only that one " +
			"findable by this value, and moves the facets of the others to their field ~lost:…"},
		{[]recordkey.Key{key}, "error value_shared user/email:u0@x.org/~prk: user/uid:friend and user/uid:u0 have this value; " +
			"user/uid:u0 keeps it, and the facets of the others move to their field ~lost:…"},
	} {
		for p, err := range check.Run(s.Ctx, s.DB, check.Options{Repair: true, Keep: tt.keep}) {
			if err != nil || p.String() != tt.want || p.Repaired != (tt.keep != nil) || len(p.Choices) != 2 {
				t.Errorf("got %v, %v\nwant %s", p, err, tt.want)
			}
		}
	}
	if lost := s.Raw.HGet(s.Ctx, "user/uid:friend", "~lost:email").Val(); lost != "u0@x.org" {
		t.Errorf("~lost:email is %q, want u0@x.org", lost)
	}
	srk := testdb.Must(recordkey.SRK("user", "name", "x"))
	for _, k := range []recordkey.Key{srk, testdb.Must(recordkey.PRK("robot", "id", "1")), {}} {
		for _, err := range check.Run(s.Ctx, s.DB, check.Options{Repair: true, Keep: []recordkey.Key{k}}) {
			if !errors.Is(err, check.ErrKeep) {
				t.Errorf("keep %v: got %v, want ErrKeep", k, err)
			}
		}
	}
}

// TestLostValues reads and removes the values that a repair moved out of their fields.
func TestLostValues(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s.User(t, 1)
		s.User(t, 2)
		s.Do(t, "HSET", "user/uid:u2", "email", "u1@x.org", "~lost:email", "older@x.org")
		s.Repaired(t, check.Options{Keep: []recordkey.Key{testdb.Must(recordkey.PRK("user", "uid", "u1"))}})
		users := testdb.Must(s.DB.Type("user"))
		e, err := users.Find(s.Ctx, hints.UID("u2"))
		if err != nil {
			t.Fatal(err)
		}
		if flat := e.Flat(); flat["~lost:email"].Text() != "older@x.org" || flat["~lost:email:2"].Text() != "u1@x.org" {
			t.Errorf("Flat returns %v, want both lost addresses", flat)
		}
		if _, has := e.Get("~lost:email"); has {
			t.Error("Get returns a lost value as a facet")
		}
		e.Drop("~lost:email:2")
		if _, has := e.Flat()["~lost:email:2"]; has {
			t.Error("Flat returns a value that Drop has removed")
		}
		if e, err = users.Save(s.Ctx, e); err != nil {
			t.Fatal(err)
		}
		e, err = users.Update(s.Ctx, hints.UID("u2"), func(e *userdb.Entry) error {
			e.Drop("~lost:email")
			e.SetDisabled(true)
			return nil
		})
		for field := range e.Flat() {
			if strings.HasPrefix(field, "~lost:") {
				t.Errorf("%s is still there", field)
			}
		}
		if err != nil || !e.Disabled() {
			t.Errorf("update: got %v, %v; want the entry to be disabled", e, err)
		}
	})
}

// TestRepairStopped stops repairs after any number of commands. The next repair must complete the
// work, and no facet may be lost.
func TestRepairStopped(t *testing.T) {
	twoEngines(t, func(t *testing.T, s *site) {
		c := &testdb.Cut{}
		s.Raw.AddHook(c)
		rapid.Check(t, func(r *rapid.T) {
			c.Left.Store(1 << 40)
			s.Clean(r)
			var want []string
			distinct := rapid.SliceOfNDistinct(rapid.SampledFrom(damageCases), 1, 3, func(d damage) string { return d.name })
			for n, d := range distinct.Draw(r, "damage") {
				s.User(r, n+1)
				s.damage(r, d, n+1)
				want = append(want, wantLeft(d, n+1)...)
			}
			before := s.facets(r, false)
			c.Left.Store(int64(rapid.IntRange(0, 90).Draw(r, "commands")))
			for _, err := range check.Run(s.Ctx, s.DB, check.Options{Repair: true}) {
				if err != nil && !errors.Is(err, testdb.ErrCut) {
					r.Fatal(err)
				}
			}
			c.Left.Store(1 << 40)
			s.requireFacets(r, before)
			s.Repaired(r, check.Options{})
			testdb.Same(r, "left", s.Check(r, check.Options{}), want)
			s.requireFacets(r, before)
		})
	})
}

// TestRepairWhileWriting repeatedly damages and repairs an entry while other goroutines write.
func TestRepairWhileWriting(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		s.Ctx = t.Context()
		s.Clean(t)
		for n := range 4 {
			s.User(t, n+1)
		}
		stop := s.startWriters(t, 3)
		for range 10 {
			s.Do(t, "DEL", "user/email:u4@x.org/~prk")
			s.Do(t, "SREM", "user/job:Cook/~prks", "user/uid:u4")
			s.Do(t, "HDEL", "user/uid:u4", "~skv:name", "~prk")
			s.Do(t, "SET", "user/name:ghost/~prk", "user/uid:nobody")
			s.Repaired(t, check.Options{})
			// On a cluster, a change reaches the indexes only later.
			if _, ok := view.Of(s.DB).Engine.(*cluster.Engine); !ok {
				testdb.Same(t, "after a repair", s.Check(t, check.Options{}), nil)
			}
		}
		stop()
		// An interrupted writer may leave an outdated index.
		if _, ok := view.Of(s.DB).Engine.(*cluster.Engine); ok {
			s.Repaired(t, check.Options{})
		}
		testdb.Same(t, "at rest", s.Check(t, check.Options{}), nil)
	})
}
