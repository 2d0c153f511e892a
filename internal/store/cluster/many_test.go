package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// withFurther returns a start in which an entry also has further values in the field email.
func withFurther(start func() map[string]*cell, uid string, values ...string) func() map[string]*cell {
	return func() map[string]*cell {
		cells, prk := start(), "user/uid:"+uid
		for i, value := range values {
			f := store.Further{Field: "email", Canonical: value, Written: value, Position: i + 1}
			cells[prk].hash[f.Name()] = f.Text()
			cells["user/email:"+value+"/~prk"] = text(prk + " " + ("r" + uid + "___________")[:store.RevLen])
		}
		return cells
	}
}

// editValues returns a verb that changes the values of an entry in the field email, and facets.
func editValues(name, uid, words string, edit func(values []string) []string) verb {
	return verb{name: name, do: func(ctx context.Context, a *actor) error {
		return rewriteEntry(ctx, a, uid, func(r store.Record) (store.Change, bool, error) {
			facets, own := change.Facets(r), map[string]string{}
			var values []string
			for _, f := range people.Values(r.Fields, "email") {
				values = append(values, f.Written)
			}
			if err := people.SetTexts(r, facets, own, "email", edit(values), time.Unix(1000, 0)); err != nil {
				return store.Change{}, false, err
			}
			maps.Copy(facets, pairs(words))
			return people.Update(r, facets, own)
		})
	}}
}

func without(values []string, value string) []string {
	return slices.DeleteFunc(values, func(v string) bool { return v == value })
}

// add, drop and first return verbs that add a value to an entry, drop one, or make one the first.
func add(uid, value string) verb {
	return editValues("add "+uid+" "+value, uid, "", func(values []string) []string { return append(without(values, value), value) })
}

func drop(uid, value string) verb {
	return editValues("drop "+uid+" "+value, uid, "", func(values []string) []string { return without(values, value) })
}

func first(uid, value string) verb {
	return editValues("first "+uid+" "+value, uid, "", func(values []string) []string {
		if !slices.Contains(values, value) {
			return values
		}
		return append([]string{value}, without(values, value)...)
	})
}

// exchange returns a verb that drops one value and adds another, in one change.
func exchange(uid, dropped, added string) verb {
	return editValues("exchange "+uid+" "+dropped+" "+added, uid, "", func(values []string) []string { return append(without(values, dropped), added) })
}

// moveToName returns a verb that moves a further value to the field name.
func moveToName(uid, value string) verb {
	return editValues("move "+uid+" "+value, uid, "name="+value, func(values []string) []string { return without(values, value) })
}

// mustKeep returns a check that entry A still has the values in the field email.
func mustKeep(values ...string) func(*simulation) string {
	return func(s *simulation) string {
		r := s.recordOf("user/uid:A")
		for _, value := range values {
			if !r.HasValue("email", value) {
				return fmt.Sprintf("I7: A has lost %q: %q", value, r.Fields)
			}
		}
		return ""
	}
}

// manyScenarios returns scenarios with several values in one field.
func manyScenarios() []scenario {
	a := entries(someRev, "A email=a")
	ab := entries(someRev, "A email=a", "B email=b")
	aw := withFurther(a, "A", "w")
	abwv := withFurther(withFurther(ab, "A", "w"), "B", "v")
	bare := with(withFurther(entries("", "A email=a"), "A", "w"), "user/email:w/~prk", text("user/uid:A"))
	return []scenario{
		{name: "many: add w | create email=w", start: a, actors: [][]verb{sequence(add("A", "w")), sequence(create("Q", "email=w"))}, wins: 1},
		{name: "many: add w | create name=w", start: a, actors: [][]verb{sequence(add("A", "w")), sequence(create("Q", "name=w"))}, wins: 1},
		{name: "many: add w | add w", start: ab, actors: [][]verb{sequence(add("A", "w")), sequence(add("B", "w"))}, wins: 1},
		{name: "many: w as first | w as further", start: ab, actors: [][]verb{sequence(update("A", "email=w")), sequence(add("B", "w"))}, wins: 1},
		{name: "many: add w | update name w", start: ab, actors: [][]verb{sequence(add("A", "w")), sequence(update("B", "name=w"))}, wins: 1},
		{name: "many: A has w | create email=w", start: aw, actors: [][]verb{sequence(update("A", "name=n")), sequence(create("Q", "email=w"))}, wins: 1},
		{name: "many: A has w | create name=w", start: aw, actors: [][]verb{sequence(update("A", "name=n")), sequence(create("Q", "name=w"))}, wins: 1},
		{name: "many: drop w | create email=w", start: aw, actors: [][]verb{sequence(drop("A", "w")), sequence(create("Q", "email=w"))}},
		{name: "many: drop w | update name", start: aw, actors: [][]verb{sequence(drop("A", "w")), sequence(update("A", "name=n"))}, wins: 2},
		{name: "many: drop w | name, then name", start: aw, actors: [][]verb{sequence(drop("A", "w")), sequence(update("A", "name=n"), update("A", "name=m"))}, wins: 3},
		{name: "many: drop w, add w | create email=w", start: aw, actors: [][]verb{sequence(drop("A", "w"), add("A", "w")), sequence(create("Q", "email=w"))}},
		{name: "many: bare: drop w, add w | create email=w", start: bare, actors: [][]verb{sequence(drop("A", "w"), add("A", "w")), sequence(create("Q", "email=w"))}},
		{name: "many: w first | create email=a", start: aw, actors: [][]verb{sequence(first("A", "w")), sequence(create("Q", "email=a"))}, wins: 1, final: mustKeep("a", "w")},
		{name: "many: w first | create email=w", start: aw, actors: [][]verb{sequence(first("A", "w")), sequence(create("Q", "email=w"))}, wins: 1, final: mustKeep("a", "w")},
		{name: "many: w first | w first", start: aw, actors: [][]verb{sequence(first("A", "w")), sequence(first("A", "w"))}, wins: 2, final: mustKeep("a", "w")},
		{name: "many: w first, a first | drop w", start: aw, actors: [][]verb{sequence(first("A", "w"), first("A", "a")), sequence(drop("A", "w"))}, wins: 3},
		{name: "many: w first, w->x | create email=w", start: aw, actors: [][]verb{sequence(first("A", "w"), update("A", "email=x")), sequence(create("Q", "email=w"))}},
		{name: "many: w first, a goes | create email=a", start: aw, actors: [][]verb{sequence(first("A", "w"), drop("A", "a")), sequence(create("Q", "email=a"))}},
		{name: "many: a->x | drop w", start: aw, actors: [][]verb{sequence(update("A", "email=x")), sequence(drop("A", "w"))}, wins: 2},
		{name: "many: the first goes | create email=a", start: aw, actors: [][]verb{sequence(drop("A", "a")), sequence(create("Q", "email=a"))}},
		{name: "many: exchange between two entries", start: abwv, actors: [][]verb{sequence(drop("A", "w"), add("A", "v")), sequence(drop("B", "v"), add("B", "w"))}},
		{name: "many: exchange at once", start: abwv, actors: [][]verb{sequence(exchange("A", "w", "v")), sequence(exchange("B", "v", "w"))}},
		{name: "many: w to name | create email=w", start: aw, actors: [][]verb{sequence(moveToName("A", "w")), sequence(create("Q", "email=w"))}, wins: 1},
		{name: "many: all values go | create email=w", start: aw, actors: [][]verb{sequence(update("A", "email= name=n")), sequence(create("Q", "email=w"))}},
		{name: "many: delete | create email=w", start: aw, actors: [][]verb{sequence(remove("A")), sequence(create("Q", "email=w"))}},
		{name: "many: delete | drop w", start: aw, actors: [][]verb{sequence(remove("A")), sequence(drop("A", "w"))}},
		{name: "many: lookup: w first | find a, find w", start: aw, actors: [][]verb{sequence(first("A", "w")), sequence(find("a", "email"), find("w", "email", "name"))}},
		{name: "many: lookup: drop w | find w", start: aw, actors: [][]verb{sequence(drop("A", "w"), create("Q", "email=w")), sequence(find("w", "email"))}},
	}
}

// manyMutants lack safeguards that keep further values unique.
var manyMutants = []mutant{
	{name: "a fence does not see further values", finds: "I", in: []string{"many: A has w"}, rewrite: replace(" or q[4]) then return 1 end", ") then return 1 end")},
	{name: "further values are removed after the commit", finds: "I1", in: []string{"many: drop w"}, kinds: refusals, rewrite: replace(
		"elseif becomes_first(ARGV[i]) or", "elseif string.sub(ARGV[i], 1, 6) == '~also:' or")},
	{name: "a value that becomes the first is removed before the commit", finds: "I7: A has lost", in: []string{"many: w first"}, kinds: refusals, answer: noPermission, rewrite: replace(
		"elseif becomes_first(ARGV[i]) or", "elseif")},
	{name: "other fields are not checked for a further value", finds: "I2", in: []string{"many: add w | create name=w"}, tamper: withoutElsewhere},
}

// TestContentionForMany checks that two callers who want the same many values do not go on fencing
// each other: one of them gets all values, and the other learns that they are taken.
func TestContentionForMany(t *testing.T) {
	const values = 60
	c, err := change.Compile(schema.Schema{Types: map[string]schema.Type{"user": {
		Primary: "uid", Fields: map[string]schema.Field{"email": {Role: schema.RoleSecondary, Many: 100}},
	}}}, recordkey.Namespace{})
	if err != nil {
		t.Fatal(err)
	}
	typ, err := c.Type("user")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(unchanged)
		w.reset(nil)
		e, end := (&network{world: w}).newEngine(typ.Guard)
		defer end()
		results := make([]error, 2)
		ctx, cancel := context.WithTimeout(t.Context(), 20_000*roundTrip)
		defer cancel()
		_ = parallel(len(results), func(i int) error {
			facets, own := map[string]string{}, map[string]string{}
			var texts []string
			for v := range values {
				texts = append(texts, fmt.Sprintf("v%02d", v))
			}
			if i == 1 {
				slices.Reverse(texts)
			}
			if err := typ.SetTexts(store.Record{}, facets, own, "email", texts, time.Unix(1, 0)); err != nil {
				return err
			}
			change, err := typ.Create(change.Draft{UID: string("PQ"[i]), Facets: facets, Own: own})
			if err == nil {
				_, err = e.Apply(ctx, change)
			}
			results[i] = err
			return nil
		})
		won := slices.Index(results, nil)
		if won < 0 || results[1-won] == nil || !strings.Contains(results[1-won].Error(), "taken") {
			t.Errorf("the callers got %v, want one success and one duplicate", results)
		}
	})
}
