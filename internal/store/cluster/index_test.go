package cluster

import (
	"testing"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
)

// newDirectEngine returns an engine over the given records, whose commands run at once.
func newDirectEngine(t *testing.T, start map[string]*cell) (*Engine, *world) {
	t.Helper()
	s := newSimulation(newWorld(unchanged), nil)
	s.reset(start)
	e := s.newEngine(people.Guard)
	t.Cleanup(func() { s.client.Close() })
	return e, s.world
}

func parsed(t *testing.T, key string) recordkey.Key {
	t.Helper()
	k, err := recordkey.Parse(key)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestRank aligns a position in an ordered index, with and without Vacate. The position is for an
// entry with the value n, or for one without a value. The entry has this value, another one or
// none, or is not live.
func TestRank(t *testing.T) {
	index, err := recordkey.Own("order", "user", "name")
	if err != nil {
		t.Fatal(err)
	}
	ranked := store.Ranked{Key: index, Member: "n user/uid:A", Facet: store.Facet{Field: "name", Wire: "n"}}
	dead := map[string]*cell{"user/uid:A": ending(hash("~rev=r"), startTime+1000)}
	empty := map[string]*cell{"user/uid:A": hash("~isa= name=n")}
	for _, tt := range []struct {
		name         string
		start        map[string]*cell
		unset        bool // the position is for an entry without a value
		after        bool // the position is taken after Align
		afterVacated bool // a position that was taken is still taken after Align with Vacate
	}{
		{"the entry has the value", entries(someRev, "A name=n")(), false, true, false},
		{"the entry has another value", entries(someRev, "A name=m")(), false, false, true},
		{"the entry has no value", entries(someRev, "A email=n")(), false, false, true},
		{"the entry is a tombstone", dead, false, false, false},
		{"~isa is empty", empty, false, false, false},
		{"the record is a string", map[string]*cell{"user/uid:A": text("x")}, false, false, false},
		{"there is no record", noRecords(), false, false, false},
		{"unset, and the entry has a value", entries(someRev, "A name=n")(), true, false, true},
		{"unset, and the entry has an empty value", entries(someRev, "A name=")(), true, false, true},
		{"unset, and the entry has no value", entries(someRev, "A email=n")(), true, true, false},
		{"unset, and the entry is a tombstone", dead, true, false, false},
		{"unset, and there is no record", noRecords(), true, false, false},
	} {
		if ranked.Unset, ranked.Facet.Wire = tt.unset, "n"; tt.unset {
			ranked.Facet.Wire = ""
		}
		e, w := newDirectEngine(t, tt.start)
		taken := func() bool { return w.at(index.String()).field(ranked.Member) != nil }
		for _, before := range []bool{false, true} {
			if before {
				w.do([]string{"zadd", index.String(), "0", ranked.Member})
			}
			if _, err := e.Repair(t.Context(), store.Align{Entry: parsed(t, "user/uid:A"), At: ranked}); err != nil || taken() != tt.after {
				t.Errorf("%s: taken before Align: %v; got taken %v, error %v after it; want taken %v", tt.name, before, taken(), err, tt.after)
			}
		}
		w.do([]string{"zadd", index.String(), "0", ranked.Member})
		if _, err := e.Repair(t.Context(), store.Align{Entry: parsed(t, "user/uid:A"), At: ranked, Vacate: true}); err != nil || taken() != tt.afterVacated {
			t.Errorf("%s: got taken %v, error %v after Align with Vacate; want taken %v", tt.name, taken(), err, tt.afterVacated)
		}
	}
}

// TestMembershipsOfChange checks that the facet that an entry has after a change decides its
// position in an ordered index, even if the facet is no longer the one that the change wrote.
func TestMembershipsOfChange(t *testing.T) {
	at := func(member, wire string) store.Ranked {
		return store.Ranked{Key: parsed(t, "user/job:x/~prks"), Member: member, Facet: store.Facet{Field: "name", Wire: wire}}
	}
	c := store.Change{Key: parsed(t, "user/uid:A"), Rank: []store.Ranked{at("new", "n")}, Unrank: []store.Ranked{at("old", "o")}}
	for _, tt := range []struct {
		name, wire string
		want       string
	}{
		{"the entry has the new value", "n", "new"},
		{"the entry has the old value again", "o", "old"},
		{"the entry has a third value by now", "x", ""},
	} {
		e, w := newDirectEngine(t, entries(someRev, "A name="+tt.wire)())
		w.do([]string{"zadd", "user/job:x/~prks", "0", "old"})
		if err := e.alignFacets(t.Context(), c.Key, membershipsOf(c)); err != nil {
			t.Error(err)
		}
		got := w.at("user/job:x/~prks").names()
		if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) != 1 || got[0] != tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestRemove checks that Repair removes garbage, but no record that belongs to an entry.
func TestRemove(t *testing.T) {
	srk, set, index := "user/email:a/~prk", "user/uid:A/tags", "user/tags:red/~prks"
	claim := store.Remove{Key: srk, Seen: store.Text{Wire: "user/uid:A " + someRev, Exists: true}, Owner: "user/uid:A", Field: "email", Value: "a"}
	tags := store.Remove{Key: set, Owner: "user/uid:A"}
	member := store.Remove{Key: index, Member: "user/uid:A", Owner: "user/uid:A"}
	unowned := store.Remove{Key: index, Member: "user/uid:A"}
	counters := store.Remove{Key: "~/throttle/user/uid/A", Field: "sn", Value: "x"}
	with := func(words string) map[string]*cell {
		cells := entries(someRev, "A "+words)()
		cells[srk], cells[set], cells[index] = text("user/uid:A "+someRev), setOf("red"), setOf("user/uid:A")
		cells[counters.Key] = hash("sn=x")
		return cells
	}
	dead := func() map[string]*cell {
		cells := with("name=n")
		cells["user/uid:A"] = ending(hash("~rev=rA__________"), startTime+1000)
		return cells
	}
	other := dead()
	other[srk] = text("user/uid:B " + someRev)
	sound := dead()
	sound[counters.Key] = hash("sn=1")
	wrong := dead()
	wrong["user/uid:A"] = text("no entry")
	for _, tt := range []struct {
		name  string
		start map[string]*cell
		step  store.Remove
		gone  bool
		fence any // ~fence of the entry afterwards
	}{
		{"an SRK whose value the entry has", with("email=a"), claim, false, nil},
		{"an SRK whose value the entry does not have", with("email=b"), claim, true, "1"},
		{"an SRK of a dead entry", dead(), claim, true, "1"},
		{"an SRK that has changed", other, claim, false, "1"},
		{"an SRK of a record that is not an entry", wrong, claim, true, nil},
		{"tags of a live entry", with("email=a"), tags, false, nil},
		{"tags of a dead entry", dead(), tags, true, nil},
		{"tags of a record that is not an entry", wrong, tags, true, nil},
		{"an index member of a live entry", with("email=a"), member, false, nil},
		{"an index member of a dead entry", dead(), member, true, nil},
		{"an index member that belongs to no entry", with("email=a"), unowned, true, nil},
		{"counters that cannot be read", dead(), counters, true, nil},
		{"counters that can now be read", sound, counters, false, nil},
	} {
		e, w := newDirectEngine(t, tt.start)
		gone, err := e.Repair(t.Context(), tt.step)
		left := w.at(tt.step.Key)
		if err != nil || gone != tt.gone || gone == (left != nil) {
			t.Errorf("%s: got removed %v, %v, with the record %v left; want removed %v", tt.name, gone, err, left, tt.gone)
		}
		if c := w.at("user/uid:A"); c.kind == 'h' && (c.field(store.FieldFence) != tt.fence || c.field("~dying") != nil) {
			t.Errorf("%s: the entry is %v, want ~fence %v", tt.name, c, tt.fence)
		}
		if again, err := e.Repair(t.Context(), tt.step); again || err != nil {
			t.Errorf("%s: a second Repair returns %v, %v, want false", tt.name, again, err)
		}
	}
}
