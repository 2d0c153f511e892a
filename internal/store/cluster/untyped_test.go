package cluster

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// loose is the type people with only the fields email and name, and with name untyped
// (schema.Field.Typed).
var loose = func() *change.Type {
	st := people.Schema
	st.Fields = map[string]schema.Field{"email": st.Fields["email"], "name": {Role: schema.RoleSecondary, Typed: new(false)}}
	c, err := change.Compile(schema.Schema{Types: map[string]schema.Type{"user": st}}, recordkey.Namespace{})
	if err != nil {
		panic(err)
	}
	return c.ByName["user"]
}()

// While the record at nameUntyped exists, and the one at nameTyped does not, an email of one entry
// and a name of another may be equal.
const (
	nameUntyped = "~/schema/untyped"
	nameTyped   = "~/schema/typed"
)

// uniqueIn returns the field in which a value of field must be unique, or "" for all typed fields.
func (s *simulation) uniqueIn(field string) string {
	if !slices.Contains(people.Typed, field) || s.world.at(nameUntyped) != nil && s.world.at(nameTyped) == nil {
		return field
	}
	return ""
}

// createUnder returns a verb that creates an entry, as a program that has just started does. The
// program uses the first type, and the next one if another schema is in force.
func createUnder(uid, words string, types ...*change.Type) verb {
	return verb{name: "create " + uid + " " + words, do: func(ctx context.Context, a *actor) (err error) {
		a.engine.schemaChecks.Delete(people.Guard.Key)
		for _, t := range types {
			c, failed := t.Create(change.Draft{UID: uid, Facets: pairs(words)})
			if failed != nil {
				return failed
			}
			if err = a.apply(ctx, c); !errors.Is(err, store.ErrSchemaMismatch) {
				return err
			}
		}
		return err
	}}
}

// replaceSchema replaces the stored schema of from with that of to.
func (a *actor) replaceSchema(ctx context.Context, from, to *change.Type) error {
	state := []store.Facet{{Field: "fingerprint", Wire: to.Guard.Fingerprint}, {Field: "schema", Wire: to.Guard.JSON}}
	is, err := a.engine.Repair(ctx, store.ReplaceSchema{Guard: people.Guard, Seen: from.Guard.Fingerprint, Fields: state})
	if err == nil && !is {
		err = store.ErrConflict
	}
	return err
}

// A process that makes the values of a field typed must take these steps in the order of
// rightTyping: store the schema under which writers compare the values with other fields, wait
// until no program relies on the earlier schema, find out whether entries share a value, and
// declare the field typed.
const (
	surveyStep  = "survey "
	rightTyping = announceStep + waitStep + surveyStep + declareStep
)

var errShared = errors.New("two entries share a value")

// makeTyped returns a verb that makes the field name typed (schema.Field.Typed) in the given steps.
func makeTyped(steps string) verb {
	return verb{name: "type by " + strings.ReplaceAll(steps, " ", ","), do: func(ctx context.Context, a *actor) error {
		for step := range strings.FieldsSeq(steps) {
			if err := typingSteps[step+" "](ctx, a); err != nil {
				return err
			}
		}
		return nil
	}}
}

var typingSteps = map[string]func(context.Context, *actor) error{
	announceStep: func(ctx context.Context, a *actor) error { return a.replaceSchema(ctx, loose, people) },
	waitStep:     growSteps[waitStep],
	surveyStep: func(ctx context.Context, a *actor) error {
		seen := map[string]bool{}
		for _, uid := range []string{"A", "P", "Q"} {
			prk, _ := people.PRK(uid)
			found, err := a.engine.Find(ctx, []store.Lookup{{PRK: prk}})
			if err != nil {
				return err
			}
			for _, text := range people.UniqueTexts(found[0].Record.Fields) {
				if seen[text] {
					return errors.Join(errShared, a.replaceSchema(ctx, people, loose))
				}
				seen[text] = true
			}
		}
		return nil
	},
	declareStep: func(ctx context.Context, a *actor) error {
		_, err := a.engine.do(ctx, redisx.IsNumber, "hset", nameTyped, "on", "1")
		return err
	},
}

// makeUntyped returns a verb that puts loose in force, and then creates an entry under it.
func makeUntyped(uid, words string) verb {
	v := createUnder(uid, words, loose)
	do := v.do
	v.do = func(ctx context.Context, a *actor) error {
		if err := a.replaceSchema(ctx, people, loose); err != nil {
			return err
		}
		return do(ctx, a)
	}
	return v
}

// untypedScenarios returns scenarios with untyped values, and with values that become typed or
// untyped.
func untypedScenarios() []scenario {
	a := entries(someRev, "A ext=w")
	ab := entries(someRev, "A ext=w", "B email=b")
	under := func(t *change.Type, each ...string) func() map[string]*cell {
		start := with(entries(someRev, each...), storedSchema, hash("fingerprint="+t.Guard.Fingerprint+" schema={}"))
		return with(start, nameUntyped, hash("on=1"))
	}
	typing := sequence(makeTyped(rightTyping))
	return []scenario{
		{name: "untyped: create ext=x | create ext=x", start: noRecords, actors: [][]verb{sequence(create("P", "ext=x")), sequence(create("Q", "ext=x"))}, wins: 1},
		{name: "untyped: create ext=x | create email=x", start: noRecords, actors: [][]verb{sequence(create("P", "ext=x")), sequence(create("Q", "email=x"))}, wins: 2},
		{name: "untyped: create email=x ext=y | create name=y ext=x", start: noRecords, actors: [][]verb{sequence(create("P", "email=x ext=y")), sequence(create("Q", "name=y ext=x"))}, wins: 2},
		{name: "untyped: create email=x ext=x | create name=x", start: noRecords, actors: [][]verb{sequence(create("P", "email=x ext=x")), sequence(create("Q", "name=x"))}, wins: 1},
		{name: "untyped: update ext w->v | create ext=w", start: a, actors: [][]verb{sequence(update("A", "ext=v")), sequence(create("Q", "ext=w"))}},
		{name: "untyped: update name=w | update name=w", start: ab, actors: [][]verb{sequence(update("A", "name=w")), sequence(update("B", "name=w"))}, wins: 1},
		{name: "untyped: delete | create ext=w email=w", start: a, actors: [][]verb{sequence(remove("A")), sequence(create("Q", "ext=w email=w"))}},
		{name: "typed: create under the old schema | make typed", start: under(loose, "A name=x"), actors: [][]verb{sequence(createUnder("P", "email=x", loose, people)), typing}, guarded: true},
		{name: "typed: create under the new schema | make typed", start: under(loose, "A name=x"), actors: [][]verb{sequence(createUnder("P", "email=x", people, loose, people)), typing}, guarded: true},
		{
			name: "3: typed: create email=x | create name=x | make typed", start: under(loose), guarded: true,
			actors: [][]verb{sequence(createUnder("P", "email=x", loose, people)), sequence(createUnder("Q", "name=x", loose, people)), typing},
		},
		{name: "untyped: create under the old schema | make untyped, create", start: under(people), actors: [][]verb{sequence(createUnder("P", "email=x", people, loose)), sequence(makeUntyped("Q", "name=x"))}, guarded: true},
	}
}

// untypedMutants lack safeguards of values that become typed.
var untypedMutants = []mutant{
	{name: "values that become typed are not compared", finds: "I2", in: []string{"typed: create under"}, tamper: withoutElsewhere},
	{name: "late commits are accepted while values become typed", finds: "I2", in: []string{"typed: create under the old"}, rewrite: acceptLate},
}

// TestTypingOrder makes values typed with the steps in a wrong order, or without one of them. The
// search must find a violation.
func TestTypingOrder(t *testing.T) {
	for name, steps := range map[string]string{
		"no wait":                announceStep + surveyStep + declareStep,
		"survey before wait":     announceStep + surveyStep + waitStep + declareStep,
		"no survey":              announceStep + waitStep + declareStep,
		"survey before announce": surveyStep + announceStep + waitStep + declareStep,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for _, b := range budgets {
					for _, s := range untypedScenarios() {
						if !strings.HasPrefix(s.name, "typed: ") {
							continue
						}
						s.actors[len(s.actors)-1] = []verb{makeTyped(steps)}
						x := explorer{sim: newSimulation(newWorld(unchanged), nil), scenario: s, preemptions: b.preemptions, faults: b.faults, maxStates: 200_000}
						if v := x.explore(); v != "" {
							first, _, _ := strings.Cut(v, "\n")
							t.Logf("%d preemptions, %d faults, %q, %d states: %s", b.preemptions, b.faults, s.name, x.states, first)
							return
						}
					}
				}
				t.Error("the search found no violation")
			})
		})
	}
}
