package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/coffeenode/userdb/internal/change"
	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/redisx"
	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// people is the type that all actors know. It has three secondary fields, an indexed field and an
// indexed set. The secondary field ext is not typed (schema.Field.Typed).
var people = func() *change.Type {
	secondary := schema.Field{Role: schema.RoleSecondary}
	c, err := change.Compile(schema.Schema{Types: map[string]schema.Type{"user": {
		Primary: "uid", Fold: schema.FoldCasefold,
		Fields:   map[string]schema.Field{"email": {Role: schema.RoleSecondary, Many: 4}, "name": secondary, "job": {Role: schema.RoleIndexed}, "ext": {Role: schema.RoleSecondary, Typed: new(false)}},
		Tertiary: map[string]schema.Tertiary{"tags": {Kind: "set", Indexed: true}},
	}}}, recordkey.Namespace{})
	if err != nil {
		panic(err)
	}
	t, err := c.Type("user")
	if err != nil {
		panic(err)
	}
	return t
}()

// A verb is an operation of an actor.
type verb struct {
	name    string
	do      func(ctx context.Context, a *actor) error
	commits bool     // it does nothing unless it commits
	finds   string   // the value whose owner it looks for
	in      []string // the fields to look under
}

// verbAttempts is how often a verb is tried if the entry changes meanwhile.
const verbAttempts = 3

// pairs parses words of the form FIELD=VALUE. An empty value removes the field.
func pairs(words string) map[string]string {
	m := map[string]string{}
	for _, w := range strings.Fields(words) {
		field, value, _ := strings.Cut(w, "=")
		m[field] = value
	}
	return m
}

func create(uid, words string, tags ...string) verb {
	return verb{name: "create " + uid + " " + words, commits: true, do: func(ctx context.Context, a *actor) error {
		c, err := people.Create(change.Draft{UID: uid, Facets: pairs(words), Tertiary: []change.Content{{Name: "tags", Kind: "set", Values: tags}}})
		if err == nil {
			err = a.apply(ctx, c)
		}
		return err
	}}
}

func update(uid, words string) verb {
	return verb{name: "update " + uid + " " + words, do: func(ctx context.Context, a *actor) error {
		return rewriteEntry(ctx, a, uid, func(r store.Record) (store.Change, bool, error) {
			facets := map[string]string{}
			for f, v := range r.Fields {
				if !store.OwnField(f) {
					facets[f] = v
				}
			}
			maps.Copy(facets, pairs(words))
			maps.DeleteFunc(facets, func(_, v string) bool { return v == "" })
			return people.Update(r, facets, nil)
		})
	}}
}

func remove(uid string) verb {
	return verb{name: "delete " + uid, commits: true, do: func(ctx context.Context, a *actor) error {
		return rewriteEntry(ctx, a, uid, func(r store.Record) (store.Change, bool, error) { return people.Delete(r, time.Now()), true, nil })
	}}
}

// retire returns a verb that deletes an entry and retires its UID.
func retire(uid string) verb {
	return verb{name: "retire " + uid, commits: true, do: func(ctx context.Context, a *actor) error {
		return rewriteEntry(ctx, a, uid, func(r store.Record) (store.Change, bool, error) {
			c := people.Delete(r, time.Time{})
			c.Set = []store.Facet{{Field: store.FieldRetired, Wire: "2026-11-28T20:00:00.000Z"}}
			return c, true, nil
		})
	}}
}

// retag returns a verb that replaces an entry's tags.
func retag(uid string, tags ...string) verb {
	return verb{name: "retag " + uid + " " + strings.Join(tags, " "), do: func(ctx context.Context, a *actor) error {
		return rewriteEntry(ctx, a, uid, func(r store.Record) (store.Change, bool, error) {
			c, _, err := people.Update(r, pairs("uid="+uid+" email="+r.Fields["email"]), nil)
			if err == nil {
				err = people.SetTertiary(&c, []change.Content{{Name: "tags", Kind: "set", Values: tags}})
			}
			return c, true, err
		})
	}}
}

// rewriteEntry reads an entry and applies the change that make returns for it. It tries again if
// the entry changes meanwhile.
func rewriteEntry(ctx context.Context, a *actor, uid string, make func(store.Record) (store.Change, bool, error)) error {
	for attempt := 1; ; attempt++ {
		prk, err := people.PRK(uid)
		if err != nil {
			return err
		}
		found, err := a.engine.Find(ctx, []store.Lookup{{PRK: prk}})
		if err == nil {
			err = found[0].Err
		}
		if err != nil {
			return err
		}
		c, changed, err := make(found[0].Record)
		if err != nil || !changed {
			return err
		}
		err = a.apply(ctx, c)
		if !errors.Is(err, store.ErrConflict) || attempt == verbAttempts {
			return err
		}
	}
}

// tag and untag return verbs that add a tag to an entry, or remove one.
func tag(uid, t string) verb   { return tagVerb("tag", "SADD", uid, t, true) }
func untag(uid, t string) verb { return tagVerb("untag", "SREM", uid, t, false) }

func tagVerb(name, command, uid, t string, join bool) verb {
	return verb{name: name + " " + uid + " " + t, do: func(ctx context.Context, a *actor) error {
		prk, _ := people.PRK(uid)
		key, index, err := people.TertiaryKey(prk, "tags", "set", []string{t})
		if err != nil {
			return err
		}
		op := store.Op{PRK: prk, Key: key, Command: command, Args: []string{t}, Write: true, Schema: people.Guard, Note: a.line("tags")}
		if join {
			op.MaxMembers = maxTags
		}
		if op.Index = index; !join {
			op.Index, op.Unindex = nil, index
		}
		_, err = a.engine.Tertiary(ctx, op)
		return err
	}}
}

// wait returns a verb that lets time pass between the steps of others.
func wait(seconds int64) verb {
	return verb{name: fmt.Sprintf("wait %d", seconds), do: func(_ context.Context, a *actor) error {
		return a.event("clock", func(w *world) { w.now += seconds * 1000 })
	}}
}

const (
	storedSchema = "~/schema/user"
	reliedOn     = "~/schema/relied" // exists once another schema is relied on
)

// changeSchema returns a verb that puts another schema in force, waits, and then relies on all
// actors having stopped writing under the old one.
func changeSchema() verb {
	return verb{name: "change the schema", do: func(ctx context.Context, a *actor) error {
		if _, err := a.engine.do(ctx, redisx.IsNumber, "hset", storedSchema, "fingerprint", "another"); err != nil {
			return err
		}
		if err := a.event("clock", func(w *world) { w.now += schemaChangeWait.Milliseconds() }); err != nil {
			return err
		}
		_, err := a.engine.do(ctx, redisx.IsNumber, "hset", reliedOn, "on", "another")
		return err
	}}
}

// sequence returns several verbs of one actor.
func sequence(verbs ...verb) []verb { return verbs }

// addActor adds an actor that runs verbs.
func (s *simulation) addActor(verbs []verb) {
	s.actors = append(s.actors, s.newActor(len(s.actors), verbs))
}

func (a *actor) perform(ctx context.Context, verbs []verb) {
	for i, v := range verbs {
		a.mu.Lock()
		a.verb = fmt.Sprintf("%d %s", i, v.name)
		a.mu.Unlock()
		err := v.do(ctx, a)
		a.mu.Lock()
		a.results = append(a.results, err)
		a.mu.Unlock()
	}
}

// A scenario describes a store and what several actors do with it at the same time.
type scenario struct {
	name   string
	start  func() map[string]*cell
	actors [][]verb
	wins   int  // how many verbs must succeed if no actor dies; 0: any number
	late   bool // no time passes before the first actor has ended or died
	// Actors may rely on the schema for ten seconds, and then check it again.
	guarded bool
	batch   int                                 // Options.MemberBatch
	history bool                                // each commit adds a line, also to the feed
	final   func(s *simulation) string          // describes what is wrong at the end, or returns ""
	answers func(m state, s *simulation) string // does the same, and also sees the verbs' results
}

func hash(words string) *cell { return &cell{kind: 'h', hash: pairs(words)} }

// entries returns a start with entries. Each argument is a UID and its facets. If rev is "", the
// SRVs have no rev, as on a single server. Otherwise they have the rev of their entry, as on a
// cluster.
func entries(rev string, each ...string) func() map[string]*cell {
	return func() map[string]*cell {
		cells := map[string]*cell{}
		for _, one := range each {
			uid, words, _ := strings.Cut(one, " ")
			prk := "user/uid:" + uid
			entryRev := ("r" + uid + "___________")[:store.RevLen]
			c := hash(words)
			for field, value := range pairs(words) {
				canonical := people.Schema.Canonical(value)
				if field == "job" {
					index := "user/job:" + value + "/~prks"
					if cells[index] == nil {
						cells[index] = &cell{kind: 'S', hash: map[string]string{}}
					}
					cells[index].hash[prk] = ""
					continue
				}
				if canonical != value {
					c.hash[store.FieldSKV(field)] = canonical
				}
				srv := prk
				if rev != "" {
					srv += " " + entryRev
				}
				cells["user/"+field+":"+canonical+"/~prk"] = &cell{kind: 's', text: srv}
			}
			c.hash["~isa"], c.hash["~prk"], c.hash["uid"], c.hash["~rev"] = "user", prk, uid, entryRev
			cells[prk] = c
		}
		return cells
	}
}

// with returns a start that also has the record c at key.
func with(start func() map[string]*cell, key string, c *cell) func() map[string]*cell {
	return func() map[string]*cell {
		cells := start()
		n := *c
		cells[key] = &n
		return cells
	}
}

func setOf(member string) *cell { return &cell{kind: 'S', hash: map[string]string{member: ""}} }

// checkRecreated checks that an entry A that was deleted and created again has the tag of the new
// entry, and no others.
func checkRecreated(s *simulation) string {
	e, tags := s.world.at("user/uid:A"), s.world.at("user/uid:A/tags")
	if e.field("email") == "x" && e.field(store.FieldFill) == nil && !slices.Equal(tags.names(), []string{"red"}) {
		return fmt.Sprint("I7: the new entry has the tags ", tags.names())
	}
	return ""
}

func text(s string) *cell { return &cell{kind: 's', text: s} }

func ending(c *cell, ms int64) *cell {
	c.ends = ms
	return c
}

const someRev = "t___________" // the rev of claims that were made before a scenario starts

func noRecords() map[string]*cell { return map[string]*cell{} }

// scenarios returns the scenarios of the protocol's model, and more. In a name, | separates actors,
// "bare" means that SRVs have no rev, as on a single server, and "3" that there are three actors.
func scenarios() []scenario {
	a := entries(someRev, "A email=a")
	bare := entries("", "A email=a")
	ab, aa := entries(someRev, "A email=a name=b"), entries(someRev, "A email=a name=a")
	job := entries(someRev, "A name=n job=cook")
	tagged := with(with(a, "user/uid:A/tags", setOf("admin")), "user/tags:admin/~prks", setOf("user/uid:A"))
	noted := with(a, historyOfA, text("1 session_start x 192.0.2.1 / /"))
	stored := with(tagged, storedSchema, hash("fingerprint="+people.Guard.Fingerprint))
	dead := func(words string) *cell { return ending(hash(words), 1_000_000+300_000) }
	return append(slices.Concat(tokenScenarios(), sessionScenarios(), growingScenarios(), historyScenarios(), fillScenarios(), halfScenarios(), largeScenarios(), manyScenarios(), retiredScenarios(), heldScenarios(), preservedScenarios(), untypedScenarios()), []scenario{
		{name: "create email=x | create email=x", start: noRecords, actors: [][]verb{sequence(create("P", "email=x")), sequence(create("Q", "email=x"))}, wins: 1},
		{name: "create email=x | create name=x", start: noRecords, actors: [][]verb{sequence(create("P", "email=x")), sequence(create("Q", "name=x"))}, wins: 1},
		{name: "create x,y | create y,x crosswise", start: noRecords, actors: [][]verb{sequence(create("P", "email=x name=y")), sequence(create("Q", "email=y name=x"))}, wins: 1},
		{name: "create email=name=x | create name=x", start: noRecords, actors: [][]verb{sequence(create("P", "email=x name=x")), sequence(create("Q", "name=x"))}, wins: 1},
		{name: "create P twice, same email", start: noRecords, actors: [][]verb{sequence(create("P", "email=x")), sequence(create("P", "email=x"))}, wins: 1},
		{name: "create P twice, other fields", start: noRecords, actors: [][]verb{sequence(create("P", "email=x")), sequence(create("P", "name=x"))}, wins: 1},
		{name: "update a->x | create name=x", start: a, actors: [][]verb{sequence(update("A", "email=x")), sequence(create("Q", "name=x"))}, wins: 1},
		{name: "update a->x | create email=a", start: a, actors: [][]verb{sequence(update("A", "email=x")), sequence(create("Q", "email=a"))}},
		{name: "update a->x | the same update", start: a, actors: [][]verb{sequence(update("A", "email=x")), sequence(update("A", "email=x"))}, wins: 2},
		{name: "update a->x | update a->y", start: a, actors: [][]verb{sequence(update("A", "email=x")), sequence(update("A", "email=y"))}, wins: 2},
		{name: "update email a->x | update name x", start: a, actors: [][]verb{sequence(update("A", "email=x")), sequence(update("A", "name=x"))}, wins: 2},
		{name: "update a->x | update a->x->a", start: a, actors: [][]verb{sequence(update("A", "email=x")), sequence(update("A", "email=x"), update("A", "email=a"))}},
		{name: "update a->x->a | create email=a", start: a, actors: [][]verb{sequence(update("A", "email=x"), update("A", "email=a")), sequence(create("Q", "email=a"))}},
		{name: "update a->x->a | create name=a", start: a, actors: [][]verb{sequence(update("A", "email=x"), update("A", "email=a")), sequence(create("Q", "name=a"))}},
		{name: "bare: update a->x->a | create email=a", start: bare, actors: [][]verb{sequence(update("A", "email=x"), update("A", "email=a")), sequence(create("Q", "email=a"))}},
		{name: "bare: update a->x->a | create name=a", start: bare, actors: [][]verb{sequence(update("A", "email=x"), update("A", "email=a")), sequence(create("Q", "name=a"))}},
		{name: "bare: update a->x | update a->x->a", start: bare, actors: [][]verb{sequence(update("A", "email=x")), sequence(update("A", "email=x"), update("A", "email=a"))}},
		{name: "bare garbage: update A email=a | create a", start: with(entries(someRev, "A name=n"), "user/email:a/~prk", text("user/uid:A")), actors: [][]verb{sequence(update("A", "email=a")), sequence(create("Q", "email=a"))}, wins: 1},
		{name: "garbage of its own: update A email=a", start: with(entries(someRev, "A name=n"), "user/email:a/~prk", text("user/uid:A "+someRev)), actors: [][]verb{sequence(update("A", "email=a"))}, wins: 1},
		{name: "delete and create again | create email=a", start: a, actors: [][]verb{sequence(remove("A"), create("A", "email=a")), sequence(create("Q", "email=a"))}},
		{name: "delete | create email=a", start: a, actors: [][]verb{sequence(remove("A")), sequence(create("Q", "email=a"))}},
		{name: "delete | update a->x", start: a, actors: [][]verb{sequence(remove("A")), sequence(update("A", "email=x"))}},
		{name: "delete | delete", start: a, actors: [][]verb{sequence(remove("A")), sequence(remove("A"))}, wins: 1},
		{name: "delete | create A again", start: a, actors: [][]verb{sequence(remove("A")), sequence(create("A", "email=a"))}},
		{name: "swap | create email=a", start: ab, actors: [][]verb{sequence(update("A", "email=b name=a")), sequence(create("Q", "email=a"))}, wins: 1},
		{name: "swap | update email->c", start: ab, actors: [][]verb{sequence(update("A", "email=b name=a")), sequence(update("A", "email=c"))}, wins: 2},
		{name: "two fields, one value: one goes | create name", start: aa, actors: [][]verb{sequence(update("A", "name=y")), sequence(create("Q", "name=a"))}, wins: 1},
		{name: "two fields, one value: both go, one each", start: aa, actors: [][]verb{sequence(update("A", "name=")), sequence(update("A", "email="))}, wins: 2},
		{name: "move from email to name | create email=a", start: a, actors: [][]verb{sequence(update("A", "email= name=a")), sequence(create("Q", "email=a"))}, wins: 1},
		{name: "a becomes A | create email=a", start: a, actors: [][]verb{sequence(update("A", "email=A")), sequence(create("Q", "email=a"))}, wins: 1},
		{name: "A->b->a | create name=A", start: entries(someRev, "A email=A"), actors: [][]verb{sequence(update("A", "email=b"), update("A", "email=a")), sequence(create("Q", "name=A"))}},
		{name: "a tombstone at its end | create email=x", start: with(noRecords, "user/uid:Q", dead("~fence=1")), actors: [][]verb{sequence(create("Q", "email=x")), sequence(create("R", "email=x")), sequence(wait(600))}},
		{name: "index: cook->baker | baker->cook", start: job, actors: [][]verb{sequence(update("A", "job=baker")), sequence(update("A", "job=baker"), update("A", "job=cook"))}, wins: 3},
		{name: "index: cook->baker | delete", start: job, actors: [][]verb{sequence(update("A", "job=baker")), sequence(remove("A"))}},
		{name: "index: delete, create | update", start: job, actors: [][]verb{sequence(remove("A"), create("A", "name=n job=cook")), sequence(update("A", "job=baker"))}},
		{name: "tags: create | create the same UID", start: noRecords, actors: [][]verb{sequence(create("P", "email=x", "red")), sequence(create("P", "email=y", "admin"))}, wins: 1},
		{name: "tags: create | tag and untag", start: noRecords, actors: [][]verb{sequence(create("P", "email=x", "red")), sequence(untag("P", "red"))}},
		{name: "tags: tag | untag", start: a, actors: [][]verb{sequence(tag("A", "red")), sequence(tag("A", "red"), untag("A", "red"))}, wins: 3},
		{name: "tags: tag | delete", start: a, actors: [][]verb{sequence(tag("A", "red")), sequence(remove("A"))}},
		{name: "tags: tag | delete, create", start: a, actors: [][]verb{sequence(tag("A", "red")), sequence(remove("A"), create("A", "email=a", "blue"))}},
		{name: "tags: create | delete, create", start: noRecords, actors: [][]verb{sequence(create("P", "email=x", "red")), sequence(remove("P"), create("P", "name=y"))}},
		{name: "tags: delete | create anew | time", start: tagged, actors: [][]verb{sequence(remove("A")), sequence(create("A", "email=x", "red")), sequence(wait(30))}, final: checkRecreated, late: true},
		{name: "lookup: update a->x | find a | find x", start: a, actors: [][]verb{sequence(update("A", "email=x")), sequence(find("a", "email")), sequence(find("x", "email"))}},
		{name: "lookup: delete, create a | find a | find a", start: a, actors: [][]verb{sequence(remove("A"), create("Q", "email=a")), sequence(find("a", "email")), sequence(find("a", "email"))}},
		{name: "lookup: email to name | find a, find a", start: a, actors: [][]verb{sequence(update("A", "email= name=a")), sequence(find("a", "email", "name"), find("a", "email", "name"))}},
		{name: "lookup: a goes, and comes in another field | find a", start: a, actors: [][]verb{sequence(update("A", "email=x"), create("Q", "name=a")), sequence(find("a", "email", "name"))}},
		{name: "forget: delete, create", start: noted, actors: [][]verb{sequence(remove("A"), create("A", "email=x"))}, final: checkForgotten},
		{name: "forget: delete | create anew | time", start: noted, actors: [][]verb{sequence(remove("A")), sequence(create("A", "email=x")), sequence(wait(30))}, final: checkForgotten, late: true},
		{name: "replace: tags | other tags", start: tagged, actors: [][]verb{sequence(retag("A", "red")), sequence(retag("A", "red"))}},
		{name: "replace: tags | delete, create", start: tagged, actors: [][]verb{sequence(retag("A", "red")), sequence(remove("A"), create("A", "email=x"))}},
		{name: "schema: update | another schema", start: stored, actors: [][]verb{sequence(update("A", "email=x")), sequence(changeSchema())}, guarded: true},
		{name: "schema: create | another schema", start: stored, actors: [][]verb{sequence(create("P", "email=x", "red")), sequence(changeSchema())}, guarded: true},
		{name: "schema: delete | another schema", start: stored, actors: [][]verb{sequence(remove("A")), sequence(changeSchema())}, guarded: true},
		{name: "schema: update | time goes by", start: stored, actors: [][]verb{sequence(update("A", "email=x")), sequence(wait(30))}, guarded: true, wins: 2},
		{name: "3: fenced twice while updating", start: a, actors: [][]verb{sequence(update("A", "name=b")), sequence(create("Q", "name=b")), sequence(create("R", "name=b"))}, wins: 1},
		{name: "3: create P | create, delete P | create Q", start: noRecords, actors: [][]verb{sequence(create("P", "email=x")), sequence(create("P", "name=y"), remove("P")), sequence(create("Q", "email=x"))}},
		{name: "3: update a->x | create name=x | create email=a", start: a, actors: [][]verb{sequence(update("A", "email=x")), sequence(create("Q", "name=x")), sequence(create("R", "email=a"))}},
		{name: "3: create email=x | name=x | email=x", start: noRecords, actors: [][]verb{sequence(create("P", "email=x")), sequence(create("Q", "name=x")), sequence(create("R", "email=x"))}, wins: 1},
		{name: "3: delete | update a->x | create email=a", start: a, actors: [][]verb{sequence(remove("A")), sequence(update("A", "email=x")), sequence(create("R", "email=a"))}},
	}...)
}
