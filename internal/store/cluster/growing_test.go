package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// older is the type people with only the fields email, name and job, and with job not indexed.
var older = func() *change.Type {
	st := people.Schema
	st.Fields = map[string]schema.Field{"email": st.Fields["email"], "name": st.Fields["name"], "job": {}}
	c, err := change.Compile(schema.Schema{Types: map[string]schema.Type{"user": st}}, recordkey.Namespace{})
	if err != nil {
		panic(err)
	}
	return c.ByName["user"]
}()

// The record at indexComplete exists once the new index is declared complete. In scenarios that
// build the index, the record at indexBuilding exists from the start, and stays.
const (
	indexComplete = "~/schema/whole"
	indexBuilding = "~/schema/growing"
)

// updateJob returns a verb that changes the job of an entry, as a program that has just started
// does. The program uses type t, or the new type once that is in force.
func updateJob(t *change.Type, uid, job string) verb {
	v := updateJobAgain(t, uid, job)
	do := v.do
	v.do = func(ctx context.Context, a *actor) error {
		a.engine.schemaChecks.Delete(t.Guard.Key) // a new program has not checked the schema yet
		return do(ctx, a)
	}
	return v
}

// updateJobAgain works like updateJob, for a program that may have checked the stored schema
// before.
func updateJobAgain(t *change.Type, uid, job string) verb {
	return verb{name: "update " + uid + " job=" + job, do: func(ctx context.Context, a *actor) error {
		for current := t; ; current = people {
			err := rewriteEntry(ctx, a, uid, func(r store.Record) (store.Change, bool, error) {
				facets := change.Facets(r)
				facets["job"] = job
				return current.Update(r, facets, nil)
			})
			if current == people || !errors.Is(err, store.ErrSchemaMismatch) {
				return err
			}
		}
	}}
}

// A process that builds the new index must take these steps in the order of rightOrder.
const (
	announceStep = "announce " // store the new schema
	waitStep     = "wait "     // until no program relies on the old schema
	removeStep   = "remove "   // remove members that do not belong in the index
	fillStep     = "fill "     // add the entries that belong in it
	declareStep  = "declare "  // declare the index complete
	rightOrder   = announceStep + waitStep + removeStep + fillStep + declareStep
)

// grow returns a verb that builds the index of jobs, in the given steps.
func grow(steps string) verb {
	return verb{name: "grow by " + strings.ReplaceAll(steps, " ", ","), do: func(ctx context.Context, a *actor) error {
		for step := range strings.FieldsSeq(steps) {
			if err := growSteps[step+" "](ctx, a); err != nil {
				return err
			}
		}
		return nil
	}}
}

// growSteps maps the steps to functions that take them.
var growSteps = map[string]func(context.Context, *actor) error{
	announceStep: func(ctx context.Context, a *actor) error {
		state := []store.Facet{{Field: "fingerprint", Wire: people.Guard.Fingerprint}, {Field: "schema", Wire: people.Guard.JSON}}
		is, err := a.engine.Repair(ctx, store.ReplaceSchema{Guard: people.Guard, Seen: older.Guard.Fingerprint, Fields: state})
		if err == nil && !is {
			err = store.ErrConflict
		}
		return err
	},
	waitStep: func(_ context.Context, a *actor) error {
		return a.event("clock", func(w *world) { w.now += schemaChangeWait.Milliseconds() })
	},
	removeStep: func(ctx context.Context, a *actor) error {
		for _, job := range []string{"cook", "baker"} {
			index, _ := people.IndexKey("job", job)
			members, _, _, err := a.engine.Members(ctx, index.String())
			if err != nil {
				return err
			}
			for _, m := range members {
				if err := a.align(ctx, m, index, job); err != nil {
					return err
				}
			}
		}
		return nil
	},
	fillStep: func(ctx context.Context, a *actor) error {
		prk, _ := people.PRK("A")
		found, err := a.engine.Find(ctx, []store.Lookup{{PRK: prk}})
		if err == nil {
			err = found[0].Err
		}
		if err != nil {
			return err
		}
		job := found[0].Record.Fields["job"]
		index, _ := people.IndexKey("job", job)
		return a.align(ctx, prk.String(), index, job)
	},
	declareStep: func(ctx context.Context, a *actor) error {
		_, err := a.engine.do(ctx, redisx.IsNumber, "hset", indexComplete, "on", "1")
		return err
	},
}

// align does what alignIndex does, except that it does not replace a record of another Redis type.
func (a *actor) align(ctx context.Context, prk string, index recordkey.Key, job string) error {
	entry, err := recordkey.Parse(prk)
	if err != nil {
		return err
	}
	step := store.Align{Entry: entry, At: store.Ranked{Key: index, Member: prk, Facet: store.Facet{Field: "job", Wire: job}}}
	in := false
	look := func() (_ func(membership) bool, err error) {
		in, err = a.engine.isDue(ctx, step)
		return func(membership) bool { return in }, err
	}
	if _, err := look(); err != nil {
		return err
	}
	return a.engine.align(ctx, []membership{{key: index.String(), member: prk, in: in}}, look)
}

// checkIndexComplete checks that an index that was declared complete has the entry, if no other
// actor has changed the entry. If one has, only the check for garbage at the end of the run covers
// the index.
func (s *simulation) checkIndexComplete() string {
	k, _ := people.PRK("A")
	r := s.recordOf(k.String())
	if s.world.at(indexComplete) == nil || r.Fields[store.FieldRev] != "rA__________" {
		return ""
	}
	if v := s.checkIndexed(k, "job", r.Fields["job"]); v != "" {
		return "declared complete, but " + v
	}
	return ""
}

// extend returns a verb of a program that adds to the stored schema, which is a list of words here.
func extend(word string) verb {
	return verb{name: "extend " + word, do: func(ctx context.Context, a *actor) error {
		for range verbAttempts {
			found, err := store.Hashes(ctx, a.engine, []string{storedSchema})
			if err != nil {
				return err
			}
			was := found[0].Fields["fingerprint"]
			state := []store.Facet{{Field: "fingerprint", Wire: was + "+" + word}, {Field: "schema", Wire: found[0].Fields["schema"] + "+" + word}}
			if is, err := a.engine.Repair(ctx, store.ReplaceSchema{Guard: people.Guard, Seen: was, Fields: state}); err != nil || is {
				return err
			}
		}
		return store.ErrConflict
	}}
}

// checkStoredSchema returns what is wrong with the stored schema after programs extended it, or "".
func (s *simulation) checkStoredSchema() string {
	c := s.world.at(storedSchema)
	if c == nil {
		return ""
	}
	if text, extended := strings.CutPrefix(c.hash["schema"], "words"); extended && (!strings.Contains(text, "+x") || !strings.Contains(text, "+y")) {
		return "lost: the stored schema is " + text
	}
	return ""
}

// jobIndexMustBeComplete reports whether each live entry must be in the index of its job.
func (s *simulation) jobIndexMustBeComplete() bool {
	return s.world.at(indexBuilding) == nil || s.world.at(indexComplete) != nil
}

// growingScenarios returns scenarios in which a schema is extended while other programs write.
func growingScenarios() []scenario {
	start := func() map[string]*cell {
		cells := with(entries(someRev, "A name=n job=cook"), storedSchema, hash("fingerprint="+older.Guard.Fingerprint+" schema={}"))()
		delete(cells, "user/job:cook/~prks")
		cells[indexBuilding] = hash("on=1")
		return cells
	}
	listOfWords := with(entries(someRev, "A name=n"), storedSchema, hash("fingerprint=f schema=words"))
	building := sequence(grow(rightOrder))
	return []scenario{
		{name: "growing: update under the old schema | build", start: start, actors: [][]verb{sequence(updateJob(older, "A", "baker")), building}, guarded: true},
		{name: "growing: update under the new schema | build", start: start, actors: [][]verb{sequence(updateJob(people, "A", "baker")), building}, guarded: true},
		{
			name: "3: growing: update under the old schema | under the new one | build", start: start, guarded: true,
			actors: [][]verb{sequence(updateJob(older, "A", "baker"), updateJobAgain(older, "A", "baker")), sequence(updateJob(people, "A", "cook")), building},
		},
		{name: "growing: two programs extend the schema", start: listOfWords, actors: [][]verb{sequence(extend("x")), sequence(extend("y"))}, wins: 2},
	}
}

// TestIndexBuildOrder builds an index with its steps in a wrong order, or without one of them. The
// search must find a violation.
func TestIndexBuildOrder(t *testing.T) {
	for name, steps := range map[string]string{
		"no wait":             announceStep + removeStep + fillStep + declareStep,
		"fill before wait":    announceStep + removeStep + fillStep + waitStep + declareStep,
		"declare before fill": announceStep + waitStep + removeStep + declareStep + fillStep,
		"no remove":           announceStep + waitStep + fillStep + declareStep,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for _, b := range budgets {
					for _, s := range growingScenarios()[:3] {
						s.actors[len(s.actors)-1] = []verb{grow(steps)}
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
