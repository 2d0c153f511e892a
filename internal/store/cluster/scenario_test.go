package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/store"
)

// A scenario is a store and what several actors do with it at the same time.
type scenario struct {
	name   string
	start  func() map[string]*cell
	actors [][]verb
	wins   int  // how many verbs succeed where none dies; 0: it depends
	large  bool // three actors
	late   bool // no time goes by before the first actor has ended or died
	// What actors know of the schema holds for ten seconds, and then they look again.
	guarded bool
	final   func(s *stage) string // what is wrong when all have ended or died, "" for nothing
}

func hash(words string) *cell { return &cell{kind: 'h', hash: pairs(words)} }

// entries are records as a cluster has them: each argument is a UID and its facets. With a token ""
// the SRVs are plain, as one server writes them.
func entries(token string, each ...string) func() map[string]*cell {
	return func() map[string]*cell {
		cells := map[string]*cell{}
		for _, one := range each {
			uid, words, _ := strings.Cut(one, " ")
			prk := "user/uid:" + uid
			rev := ("r" + uid + "___________")[:store.RevLen]
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
				if token != "" {
					srv += " " + token
				}
				cells["user/"+field+":"+canonical+"/~prk"] = &cell{kind: 's', text: srv}
			}
			c.hash["~isa"], c.hash["~prk"], c.hash["uid"], c.hash["~rev"] = "user", prk, uid, rev
			cells[prk] = c
		}
		return cells
	}
}

func with(start func() map[string]*cell, key string, c *cell) func() map[string]*cell {
	return func() map[string]*cell {
		cells := start()
		n := *c
		cells[key] = &n
		return cells
	}
}

func setOf(member string) *cell { return &cell{kind: 'S', hash: map[string]string{member: ""}} }

// anew wants of an entry that was deleted and made anew the tags of the new one, and no others.
func anew(s *stage) string {
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

const some = "t___________" // the token of claims that were there before

func nothing() map[string]*cell { return map[string]*cell{} }

// scenarios are those of the protocol's model, and more.
func scenarios() []scenario {
	a := entries(some, "A email=a")
	plain := entries("", "A email=a")
	ab, aa := entries(some, "A email=a name=b"), entries(some, "A email=a name=a")
	job := entries(some, "A name=n job=cook")
	tagged := with(with(a, "user/uid:A/tags", setOf("admin")), "user/tags:admin/~prks", setOf("user/uid:A"))
	stored := with(tagged, storedSchema, hash("fingerprint="+people.Guard().Fingerprint))
	dead := func(words string) *cell { return ending(hash(words), 1_000_000+300_000) }
	one := func(v ...verb) []verb { return v }
	return append(tokenScenarios(), []scenario{
		{name: "create email=x | create email=x", start: nothing, actors: [][]verb{one(create("P", "email=x")), one(create("Q", "email=x"))}, wins: 1},
		{name: "create email=x | create name=x", start: nothing, actors: [][]verb{one(create("P", "email=x")), one(create("Q", "name=x"))}, wins: 1},
		{name: "create x,y | create y,x crosswise", start: nothing, actors: [][]verb{one(create("P", "email=x name=y")), one(create("Q", "email=y name=x"))}, wins: 1},
		{name: "create email=name=x | create name=x", start: nothing, actors: [][]verb{one(create("P", "email=x name=x")), one(create("Q", "name=x"))}, wins: 1},
		{name: "create P twice, same email", start: nothing, actors: [][]verb{one(create("P", "email=x")), one(create("P", "email=x"))}, wins: 1},
		{name: "create P twice, other fields", start: nothing, actors: [][]verb{one(create("P", "email=x")), one(create("P", "name=x"))}, wins: 1},
		{name: "update a->x | create name=x", start: a, actors: [][]verb{one(update("A", "email=x")), one(create("Q", "name=x"))}, wins: 1},
		{name: "update a->x | create email=a", start: a, actors: [][]verb{one(update("A", "email=x")), one(create("Q", "email=a"))}},
		{name: "update a->x | the same update", start: a, actors: [][]verb{one(update("A", "email=x")), one(update("A", "email=x"))}, wins: 2},
		{name: "update a->x | update a->y", start: a, actors: [][]verb{one(update("A", "email=x")), one(update("A", "email=y"))}, wins: 2},
		{name: "update email a->x | update name x", start: a, actors: [][]verb{one(update("A", "email=x")), one(update("A", "name=x"))}, wins: 2},
		{name: "update a->x | update a->x->a", start: a, actors: [][]verb{one(update("A", "email=x")), then(update("A", "email=x"), update("A", "email=a"))}},
		{name: "update a->x->a | create email=a", start: a, actors: [][]verb{then(update("A", "email=x"), update("A", "email=a")), one(create("Q", "email=a"))}},
		{name: "update a->x->a | create name=a", start: a, actors: [][]verb{then(update("A", "email=x"), update("A", "email=a")), one(create("Q", "name=a"))}},
		{name: "plain: update a->x->a | create email=a", start: plain, actors: [][]verb{then(update("A", "email=x"), update("A", "email=a")), one(create("Q", "email=a"))}},
		{name: "plain: update a->x->a | create name=a", start: plain, actors: [][]verb{then(update("A", "email=x"), update("A", "email=a")), one(create("Q", "name=a"))}},
		{name: "plain: update a->x | update a->x->a", start: plain, actors: [][]verb{one(update("A", "email=x")), then(update("A", "email=x"), update("A", "email=a"))}},
		{name: "plain leftover: update A email=a | create a", start: with(entries(some, "A name=n"), "user/email:a/~prk", text("user/uid:A")), actors: [][]verb{one(update("A", "email=a")), one(create("Q", "email=a"))}, wins: 1},
		{name: "leftover of the own: update A email=a", start: with(entries(some, "A name=n"), "user/email:a/~prk", text("user/uid:A "+some)), actors: [][]verb{one(update("A", "email=a"))}, wins: 1},
		{name: "delete and create again | create email=a", start: a, actors: [][]verb{then(remove("A"), create("A", "email=a")), one(create("Q", "email=a"))}},
		{name: "delete | create email=a", start: a, actors: [][]verb{one(remove("A")), one(create("Q", "email=a"))}},
		{name: "delete | update a->x", start: a, actors: [][]verb{one(remove("A")), one(update("A", "email=x"))}},
		{name: "delete | delete", start: a, actors: [][]verb{one(remove("A")), one(remove("A"))}, wins: 1},
		{name: "delete | create A again", start: a, actors: [][]verb{one(remove("A")), one(create("A", "email=a"))}},
		{name: "swap | create email=a", start: ab, actors: [][]verb{one(update("A", "email=b name=a")), one(create("Q", "email=a"))}, wins: 1},
		{name: "swap | update email->c", start: ab, actors: [][]verb{one(update("A", "email=b name=a")), one(update("A", "email=c"))}, wins: 2},
		{name: "two fields, one value: one goes | create name", start: aa, actors: [][]verb{one(update("A", "name=y")), one(create("Q", "name=a"))}, wins: 1},
		{name: "two fields, one value: both go, one each", start: aa, actors: [][]verb{one(update("A", "name=")), one(update("A", "email="))}, wins: 2},
		{name: "move from email to name | create email=a", start: a, actors: [][]verb{one(update("A", "email= name=a")), one(create("Q", "email=a"))}, wins: 1},
		{name: "a becomes A | create email=a", start: a, actors: [][]verb{one(update("A", "email=A")), one(create("Q", "email=a"))}, wins: 1},
		{name: "A->b->a | create name=A", start: entries(some, "A email=A"), actors: [][]verb{then(update("A", "email=b"), update("A", "email=a")), one(create("Q", "name=A"))}},
		{name: "a tombstone at its end | create email=x", start: with(nothing, "user/uid:Q", dead("~fence=1")), actors: [][]verb{one(create("Q", "email=x")), one(create("R", "email=x")), one(wait(600))}, large: true},
		{name: "index: cook->baker | baker->cook", start: job, actors: [][]verb{one(update("A", "job=baker")), then(update("A", "job=baker"), update("A", "job=cook"))}, wins: 3},
		{name: "index: cook->baker | delete", start: job, actors: [][]verb{one(update("A", "job=baker")), one(remove("A"))}},
		{name: "index: delete, create | update", start: job, actors: [][]verb{then(remove("A"), create("A", "name=n job=cook")), one(update("A", "job=baker"))}},
		{name: "tags: create | create the same UID", start: nothing, actors: [][]verb{one(create("P", "email=x", "red")), one(create("P", "email=y", "admin"))}, wins: 1},
		{name: "tags: create | tag and untag", start: nothing, actors: [][]verb{one(create("P", "email=x", "red")), one(untag("P", "red"))}},
		{name: "tags: tag | untag", start: a, actors: [][]verb{one(tag("A", "red")), then(tag("A", "red"), untag("A", "red"))}, wins: 3},
		{name: "tags: tag | delete", start: a, actors: [][]verb{one(tag("A", "red")), one(remove("A"))}},
		{name: "tags: tag | delete, create", start: a, actors: [][]verb{one(tag("A", "red")), then(remove("A"), create("A", "email=a", "blue"))}},
		{name: "tags: create | delete, create", start: nothing, actors: [][]verb{one(create("P", "email=x", "red")), then(remove("P"), create("P", "name=y"))}},
		{name: "tags: delete | create anew | time", start: tagged, actors: [][]verb{one(remove("A")), one(create("A", "email=x", "red")), one(wait(30))}, final: anew, late: true, large: true},
		{name: "lookup: update a->x | find a | find x", start: a, actors: [][]verb{one(update("A", "email=x")), one(find("a", "email")), one(find("x", "email"))}, large: true},
		{name: "lookup: delete, create a | find a | find a", start: a, actors: [][]verb{then(remove("A"), create("Q", "email=a")), one(find("a", "email")), one(find("a", "email"))}, large: true},
		{name: "lookup: email to name | find a, find a", start: a, actors: [][]verb{one(update("A", "email= name=a")), then(find("a", "email", "name"), find("a", "email", "name"))}},
		{name: "lookup: a goes, and comes in another field | find a", start: a, actors: [][]verb{then(update("A", "email=x"), create("Q", "name=a")), one(find("a", "email", "name"))}},
		{name: "replace: tags | other tags", start: tagged, actors: [][]verb{one(retag("A", "red")), one(retag("A", "red"))}},
		{name: "replace: tags | delete, create", start: tagged, actors: [][]verb{one(retag("A", "red")), then(remove("A"), create("A", "email=x"))}},
		{name: "schema: update | another schema", start: stored, actors: [][]verb{one(update("A", "email=x")), one(restate())}, guarded: true},
		{name: "schema: create | another schema", start: stored, actors: [][]verb{one(create("P", "email=x", "red")), one(restate())}, guarded: true},
		{name: "schema: delete | another schema", start: stored, actors: [][]verb{one(remove("A")), one(restate())}, guarded: true},
		{name: "schema: update | time goes by", start: stored, actors: [][]verb{one(update("A", "email=x")), one(wait(30))}, guarded: true, wins: 2},
		{name: "3: fenced twice while updating", start: a, actors: [][]verb{one(update("A", "name=b")), one(create("Q", "name=b")), one(create("R", "name=b"))}, wins: 1, large: true},
		{name: "3: create P | create, delete P | create Q", start: nothing, actors: [][]verb{one(create("P", "email=x")), then(create("P", "name=y"), remove("P")), one(create("Q", "email=x"))}, large: true},
		{name: "3: update a->x | create name=x | create email=a", start: a, actors: [][]verb{one(update("A", "email=x")), one(create("Q", "name=x")), one(create("R", "email=a"))}, large: true},
		{name: "3: create email=x | name=x | email=x", start: nothing, actors: [][]verb{one(create("P", "email=x")), one(create("Q", "name=x")), one(create("R", "email=x"))}, wins: 1, large: true},
		{name: "3: delete | update a->x | create email=a", start: a, actors: [][]verb{one(remove("A")), one(update("A", "email=x")), one(create("R", "email=a"))}, large: true},
	}...)
}
