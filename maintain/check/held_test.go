package check_test

import (
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/redistest/testdb"
	"github.com/coffeenode/userdb/maintain/check"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/userdb"
)

// TestSweepHolds checks that a repair removes the fields of holds that have ended, and no others,
// from entries and from the records that deleted entries left. Ended holds are no problem, so a
// check does not report them.
func TestSweepHolds(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *site) {
		sch := testdb.DefaultSchema()
		user := sch.Types["user"]
		name := user.Fields["name"]
		name.Hold = schema.Period(time.Hour)
		user.Fields["name"], user.Retire = name, true
		sch.Types["user"] = user
		s = s.Under(t, sch)
		s.Clean(t)
		if _, err := s.Type(t, "user").Create(s.Ctx, userdb.NewEntry{UID: "u1", Facets: schema.Texts("name", "n1", "email", "u1@x.org")}); err != nil {
			t.Fatal(err)
		}
		const ended, lasting, until = "~held:name:ended", "~held:name:lasting", "4102444800000"
		s.Do(t, "HSET", "user/uid:u1", ended, "1")
		s.Do(t, "HSET", "user/uid:gone", "~rev", "x", "~retired", "2026-11-20T08:02:40.512Z", ended, "1", lasting, until)
		s.Do(t, "SET", "user/name:lasting/~prk", "user/uid:gone", "PX", "4102444800")
		has := func(key, field string) bool { return s.Raw.HExists(s.Ctx, s.Key(key), field).Val() }
		testdb.Same(t, "found", s.Check(t, check.Options{}), nil)
		if !has("user/uid:u1", ended) || !has("user/uid:gone", ended) {
			t.Error("a check without repair has removed a hold that has ended")
		}
		done, left := s.Repaired(t, check.Options{})
		testdb.Same(t, "repaired", append(done, left...), nil)
		if has("user/uid:u1", ended) || has("user/uid:gone", ended) {
			t.Error("a hold that has ended is left")
		}
		if !has("user/uid:gone", lasting) || !has("user/uid:gone", "~retired") {
			t.Error("the repair has removed a hold that has not ended")
		}
	})
}
