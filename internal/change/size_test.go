package change

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/session"
	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/validate"
)

// lostValues returns n lost values of the given size.
func lostValues(n, size int) map[string]string {
	own := map[string]string{}
	for i := range n {
		own[store.FieldLost(fmt.Sprintf("f%05d", i))] = strings.Repeat("x", size)
	}
	return own
}

// sizeAfter returns the numbers of fields and bytes of an entry after a change, including the
// store's own fields.
func sizeAfter(r store.Record, c store.Change) (fields, bytes int) {
	after := Apply(c, "rev", r.Fields).Fields
	for field, wire := range after {
		bytes += len(field) + len(wire)
	}
	return len(after), bytes
}

// TestEntrySize checks that no create and no update makes an entry much larger than 1 MiB or 10,000
// fields, whether with facets or with lost values, in one change or in many.
func TestEntrySize(t *testing.T) {
	const mostFields, mostBytes = 10_200, validate.MaxEntry + 70<<10
	typ := testType(t, schema.FoldCasefold)
	check := func(what string, r store.Record, c store.Change, err error) {
		t.Helper()
		if fields, bytes := sizeAfter(r, c); err == nil && (fields > mostFields || bytes > mostBytes) {
			t.Errorf("%s: got an entry of %d fields and %d bytes, want at most %d and %d", what, fields, bytes, mostFields, mostBytes)
		}
		if err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: got %v, want no error or ErrInvalid", what, err)
		}
	}
	for _, tt := range []struct{ n, size int }{{100, schema.MaxFacet}, {17, schema.MaxFacet}, {20_000, 0}, {90_000, 1}} {
		c, err := typ.Create(Draft{UID: "1", Facets: facets(), Own: lostValues(tt.n, tt.size)})
		check(fmt.Sprintf("a create with %d lost values of %d bytes", tt.n, tt.size), store.Record{Key: record().Key}, c, err)

		r := record("note", "x")
		for i := range 40 {
			own := map[string]string{}
			for field, wire := range lostValues(tt.n/20+1, tt.size) {
				own[field+fmt.Sprint(i)] = wire
			}
			c, _, err := typ.Update(r, Facets(r), own)
			if check(fmt.Sprintf("update %d with %d lost values of %d bytes", i, len(own), tt.size), r, c, err); err == nil {
				r = Apply(c, "rev", r.Fields)
			}
		}
	}
}

// TestEntriesOverTheLimit changes entries that are too large, because another program made them. It
// must be possible to set their passwords, to disable them and to make them smaller, but not
// larger.
func TestEntriesOverTheLimit(t *testing.T) {
	typ := testType(t, schema.FoldCasefold)
	large, many, lost := record("name", "ann"), record("name", "ann"), record("name", "ann")
	for i := range 30 {
		large.Fields[fmt.Sprintf("f%02d", i)] = strings.Repeat("x", schema.MaxFacet)
	}
	for i := range 12_000 {
		many.Fields[fmt.Sprintf("f%05d", i)] = ""
	}
	maps.Copy(lost.Fields, lostValues(150, schema.MaxFacet))
	for what, r := range map[string]store.Record{"large facets": large, "many facets": many, "lost values": lost} {
		for _, tt := range []struct {
			change string
			edit   func(facets, own map[string]string)
			ok     bool
		}{
			{"a password", func(_, own map[string]string) { own[store.FieldChanged] = "2026-01-01T00:00:00.000Z" }, true},
			{"a longer hash", func(facets, _ map[string]string) { facets[store.FieldPassword] = strings.Repeat("h", 100) }, true},
			{"disabling", func(_, own map[string]string) { own[store.FieldDisabled], own[session.FieldEpoch] = "now", "e" }, true},
			{"another value of the same length", func(facets, _ map[string]string) { facets["name"] = "bob" }, true},
			{"fewer facets and lost values", func(facets, own map[string]string) {
				delete(facets, "f00")
				delete(facets, "f00000")
				own[store.FieldLost("f00000")] = ""
			}, true},
			{"one more facet", func(facets, _ map[string]string) { facets["g"] = "x" }, false},
			{"one more lost value", func(_, own map[string]string) { own[store.FieldLost("g")] = "x" }, false},
		} {
			facets, own := Facets(r), map[string]string{}
			tt.edit(facets, own)
			if _, _, err := typ.Update(r, facets, own); (err == nil) != tt.ok {
				t.Errorf("%s, %s: got %v, want success: %v", what, tt.change, err, tt.ok)
			}
		}
		if c := typ.Delete(r, time.Now()); !c.Delete {
			t.Errorf("%s: cannot be deleted", what)
		}
	}
}

// TestLostValueLeavesLimitOfFacets checks that an entry with a small lost value has no more room
// for facets than an entry without one.
func TestLostValueLeavesLimitOfFacets(t *testing.T) {
	typ := testType(t, schema.FoldCasefold)
	many, large := record("name", "ann"), record("name", "ann")
	for i := len(many.Fields); len(Facets(many)) < maxFacets; i++ {
		many.Fields[fmt.Sprintf("f%05d", i)] = ""
	}
	for i := range 15 {
		large.Fields[fmt.Sprintf("f%02d", i)] = strings.Repeat("x", schema.MaxFacet)
	}
	for what, r := range map[string]store.Record{"many facets": many, "large facets": large} {
		r.Fields[store.FieldLost("x")] = "x"
		facets := Facets(r)
		facets["g"], facets["h"] = strings.Repeat("x", schema.MaxFacet), "x"
		if _, _, err := typ.Update(r, facets, nil); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s, with a lost value and two more facets: got %v, want ErrInvalid", what, err)
		}
	}
}

// TestRepairedEntryCanBeCreated checks that an entry of the maximum size can be created again after
// a repair has moved its values to lost values.
func TestRepairedEntryCanBeCreated(t *testing.T) {
	typ := testType(t, schema.FoldCasefold)
	r := record("uid", "2", "name", "ann", "email", "ann@example.com") // the UID in its key is 1
	var size extent
	for _, field := range []string{"uid", "name", "email"} {
		size.add(field, r.Fields[field])
	}
	for i := 0; size.bytes < validate.MaxEntry; i++ {
		field := fmt.Sprintf("f%02d", i)
		r.Fields[field] = strings.Repeat("x", min(schema.MaxFacet, validate.MaxEntry-size.bytes-len(field)))
		size.add(field, r.Fields[field])
	}
	if size.check(store.Record{}) != nil || size.bytes != validate.MaxEntry {
		t.Fatalf("the entry has %d bytes, want %d", size.bytes, validate.MaxEntry)
	}
	for _, lose := range []string{"ann", "ann@example.com"} {
		c, _ := typ.Repair(r, RepairLimits{Lose: lose, From: typ.Secondary})
		r = Apply(c, "rev", r.Fields)
	}
	draft := Draft{UID: "1", Facets: Facets(r), Own: map[string]string{}}
	for field, wire := range r.Fields {
		if store.IsLost(field) {
			draft.Own[field] = wire
		}
	}
	if lost := slices.Sorted(maps.Keys(draft.Own)); len(lost) != 3 {
		t.Fatalf("the repair has made the lost values %v, want those of uid, name and email", lost)
	}
	if _, err := typ.Create(draft); err != nil {
		t.Error(err)
	}
}

// TestSizeCountsOwnFieldsOnce checks that lost values count once towards the size of an entry if
// the caller passes them among the facets.
func TestSizeCountsOwnFieldsOnce(t *testing.T) {
	typ := manyType(t)
	key, err := typ.PRK("u1")
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]string{"uid": "u1", "name": "ann", store.FieldType: "user", store.FieldRev: "r"}
	for i := range 10 {
		fields[store.FieldLost("old"+strconv.Itoa(i))] = strings.Repeat("x", 60<<10)
	}
	facets := maps.Clone(fields)
	facets["name"] = "bea"
	c, due, err := typ.Update(store.Record{Key: key, Fields: fields}, facets, nil)
	if err != nil || !due || len(c.Set) != 1 || len(c.Unset) != 0 {
		t.Errorf("got %d facets to set, %d to unset, %v, %v; want one to set", len(c.Set), len(c.Unset), due, err)
	}
}
