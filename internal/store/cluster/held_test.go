package cluster

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// holding is the type people with one difference: values that an entry gives up are held for a
// minute.
var holding = func() *change.Type {
	s := people.Schema
	s.Fields = maps.Clone(s.Fields)
	for _, name := range people.Secondary {
		f := s.Fields[name]
		f.Hold = schema.Period(time.Minute)
		s.Fields[name] = f
	}
	c, err := change.Compile(schema.Schema{Types: map[string]schema.Type{"user": s}}, recordkey.Namespace{})
	if err != nil {
		panic(err)
	}
	t, err := c.Type("user")
	if err != nil {
		panic(err)
	}
	return t.WithGuard(people.Guard) // all actors have the schema that is in force
}()

// heldUntil is the end of the holds that exist when a scenario begins.
var heldUntil = time.UnixMilli(startTime).Add(time.Minute)

// rename returns a verb that changes facets, and holds the values that the entry gives up.
func rename(uid, words string) verb {
	return editHeld("rename "+uid+" "+words, uid, func(r store.Record, facets, _ map[string]string) error {
		maps.Copy(facets, pairs(words))
		maps.DeleteFunc(facets, func(_, v string) bool { return v == "" })
		return nil
	})
}

// dropHeld returns a verb that drops a value of the field email, which is held.
func dropHeld(uid, value string) verb {
	return editHeldValues("drop "+uid+" "+value, uid, "", func(values []string) []string { return without(values, value) })
}

// editHeldValues works like editValues, and holds the values that the entry gives up.
func editHeldValues(name, uid, words string, edit func(values []string) []string) verb {
	return editHeld("held: "+name, uid, func(r store.Record, facets, own map[string]string) error {
		var values []string
		for _, f := range holding.Values(r.Fields, "email") {
			values = append(values, f.Written)
		}
		maps.Copy(facets, pairs(words))
		return holding.SetTexts(r, facets, own, "email", edit(values), time.Unix(1000, 0))
	})
}

func editHeld(name, uid string, edit func(r store.Record, facets, own map[string]string) error) verb {
	return verb{name: name, do: func(ctx context.Context, a *actor) error {
		return rewriteEntry(ctx, a, uid, func(r store.Record) (store.Change, bool, error) {
			facets, own := change.Facets(r), map[string]string{}
			if err := edit(r, facets, own); err != nil {
				return store.Change{}, false, err
			}
			c, due, err := holding.Update(r, facets, own)
			if err == nil {
				holding.Hold(&c, r, time.UnixMilli(startTime))
			}
			return c, due, err
		})
	}}
}

// removeHeld returns a verb that deletes an entry and holds its values.
func removeHeld(uid string) verb {
	return verb{name: "delete held " + uid, commits: true, do: func(ctx context.Context, a *actor) error {
		return rewriteEntry(ctx, a, uid, func(r store.Record) (store.Change, bool, error) {
			return holding.Delete(r, time.UnixMilli(startTime)), true, nil
		})
	}}
}

// withHeld returns a start in which entry A also holds a value that it gave up.
func withHeld(start func() map[string]*cell, value string) func() map[string]*cell {
	return func() map[string]*cell {
		cells := start()
		h := store.HeldValue{Field: "email", Canonical: value, Until: heldUntil}
		cells["user/uid:A"].hash[h.Name()] = h.Text()
		cells["user/email:"+value+"/~prk"] = ending(text("user/uid:A rA__________"), heldUntil.Add(store.HeldMargin).UnixMilli())
		return cells
	}
}

// checkHeld checks that no other entry than A has the value a, and that A, if it is live, has or
// holds it.
func checkHeld(s *simulation) string {
	for _, key := range s.keys() {
		if k, _ := recordkey.Parse(key); k.Kind() != recordkey.KindPRK || k.Value() == "A" {
			continue
		}
		for _, owned := range ownedValues(s.recordOf(key)) {
			if owned.Canonical == "a" {
				return "I2: another entry has a value that A held: " + key
			}
		}
	}
	if r := s.recordOf("user/uid:A"); r.Live() && !r.HasValue("email", "a") && r.Fields[store.FieldHeld("email", "a")] == "" {
		return fmt.Sprintf("I2: A neither has nor holds its value: %q", r.Fields)
	}
	return ""
}

// checkHolders checks that no entry has a value that another one holds.
func (s *simulation) checkHolders() string {
	holders := map[string]string{}
	for _, key := range s.keys() {
		if k, _ := recordkey.Parse(key); k.Kind() != recordkey.KindPRK {
			continue
		}
		r := s.recordOf(key)
		for _, h := range store.HeldIn(r.Fields) {
			if h.Until.UnixMilli() > s.world.now && !(r.Live() && r.HasValue(h.Field, h.Canonical)) {
				holders[h.Canonical] = key
			}
		}
	}
	for _, key := range s.keys() {
		if k, _ := recordkey.Parse(key); k.Kind() != recordkey.KindPRK || !s.recordOf(key).Live() {
			continue
		}
		for _, owned := range ownedValues(s.recordOf(key)) {
			if by := holders[owned.Canonical]; by != "" && by != key {
				return fmt.Sprintf("I2: %s has %q, which %s holds", key, owned.Canonical, by)
			}
		}
	}
	return ""
}

// heldScenarios returns scenarios in which values that were given up are held.
func heldScenarios() []scenario {
	a, bare := entries(someRev, "A email=a"), entries("", "A email=a")
	aw := withFurther(entries(someRev, "A email=w"), "A", "a")
	b := withHeld(entries(someRev, "A email=b"), "a")
	return []scenario{
		{name: "held: a->b | create email=a", start: a, actors: [][]verb{sequence(rename("A", "email=b")), sequence(create("Q", "email=a"))}, wins: 1, final: checkHeld, late: true},
		{name: "held: a->b | create name=a", start: a, actors: [][]verb{sequence(rename("A", "email=b")), sequence(create("Q", "name=a"))}, wins: 1, final: checkHeld, late: true},
		{name: "held: bare: a->b | create email=a", start: bare, actors: [][]verb{sequence(rename("A", "email=b")), sequence(create("Q", "email=a"))}, wins: 1, final: checkHeld, late: true},
		{name: "held: drop a | create email=a", start: aw, actors: [][]verb{sequence(dropHeld("A", "a")), sequence(create("Q", "email=a"))}, wins: 1, final: checkHeld, late: true},
		{name: "held: delete | create email=a", start: a, actors: [][]verb{sequence(removeHeld("A")), sequence(create("Q", "email=a"))}, wins: 1, final: checkHeld, late: true},
		{name: "held: a->b, delete | create email=a", start: a, actors: [][]verb{sequence(rename("A", "email=b"), removeHeld("A")), sequence(create("Q", "email=a"))}, wins: 2, final: checkHeld, late: true},
		{name: "held: delete, create A | create email=a", start: a, actors: [][]verb{sequence(removeHeld("A"), create("A", "email=a")), sequence(create("Q", "email=a"))}, final: checkHeld},
		{name: "held: a->b, b->a | create email=a", start: a, actors: [][]verb{sequence(rename("A", "email=b"), rename("A", "email=a")), sequence(create("Q", "email=a"))}, wins: 2, final: checkHeld, late: true},
		{name: "held: a->b, b->a | create email=b", start: a, actors: [][]verb{sequence(rename("A", "email=b"), rename("A", "email=a")), sequence(create("Q", "email=b"))}, final: checkHeld},
		{name: "held: a->b | b->a", start: a, actors: [][]verb{sequence(rename("A", "email=b")), sequence(rename("A", "email=a name=n"))}, final: checkHeld, late: true},
		{name: "held: take back | create email=a", start: b, actors: [][]verb{sequence(rename("A", "email=a")), sequence(create("Q", "email=a"))}, wins: 1, final: checkHeld, late: true},
		{name: "held: take back as name | create name=a", start: b, actors: [][]verb{sequence(rename("A", "name=a")), sequence(create("Q", "name=a"))}, wins: 1, final: checkHeld, late: true},
		{name: "held: take back | rename", start: b, actors: [][]verb{sequence(rename("A", "email=a")), sequence(rename("A", "name=n"))}, wins: 2, final: checkHeld, late: true},
		{name: "held: a->b | create email=a | time", start: a, actors: [][]verb{sequence(rename("A", "email=b")), sequence(create("Q", "email=a")), sequence(wait(61))}},
		{name: "held: take back | create email=a | time", start: b, actors: [][]verb{sequence(rename("A", "email=a")), sequence(create("Q", "email=a")), sequence(wait(61))}},
		{name: "held: lookup: a->b | find a", start: a, actors: [][]verb{sequence(rename("A", "email=b")), sequence(find("a", "email"))}},
	}
}

// heldMutants lack safeguards that keep held values from other entries.
var heldMutants = []mutant{
	{name: "a fence does not see held values", in: []string{"held: a->b | create email=a"}, finds: "I2", rewrite: replace("if q[5] then\n", "if false then\n")},
	{name: "a tombstone forgets held values", in: []string{"held: delete"}, finds: "I2", rewrite: replace(" or string.sub(field, 1, 6) == '~held:'", "")},
	{name: "an SRK that was taken back expires", in: []string{"held: a->b | b->a"}, finds: "I1", rewrite: replace("if seen ~= ARGV[1] then return 0 end\nlocal time", "local time")},
	{name: "a value is held only after the entry lacks it", in: []string{"held: drop a"}, kinds: refusals, answer: noPermission, finds: "I2", rewrite: replace("if #early > 0 and #held > 0 then", "if false then")},
	{name: "a held value is freed before the commit", in: []string{"held: take back"}, kinds: refusals, answer: noPermission, finds: "I2", rewrite: func(source string) string {
		return strings.Replace(source, "becomes_first(ARGV[i]) or string.sub(ARGV[i], 1, 6) == '~held:' then", "becomes_first(ARGV[i]) then", 1)
	}},
}
