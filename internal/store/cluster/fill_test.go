package cluster

import (
	"fmt"
	"slices"

	"github.com/coffeenode/userdb/internal/store"
)

// filling returns an entry A whose create died before the tag admin was put in place.
func filling() map[string]*cell {
	cells := entries(someRev, "A email=a")()
	prk, _ := people.PRK("A")
	set, _ := prk.Tertiary("tags")
	fill := store.Fill{Rev: "f___________", Parts: []store.FillPart{{Set: set, Indexed: true, How: store.FillJoin}}}
	cells[prk.String()].hash[store.FieldFill] = fill.String()
	cells[store.PreparedKey(set, fill.Rev)] = setOf("admin")
	return cells
}

// wantTags returns a check of an entry's tags. If all verbs of the first actor succeeded, and
// nothing is still staged, the tags must be want.
func wantTags(uid string, want ...string) func(state, *simulation) string {
	return func(m state, s *simulation) string {
		e := s.world.at("user/uid:" + uid)
		errs := m.actors[0].at.errs
		answered := !m.actors[0].dead && !slices.ContainsFunc(errs, func(err error) bool { return err != nil })
		tags := s.world.at("user/uid:" + uid + "/tags").names()
		if answered && e.field(store.FieldFill) == nil && !slices.Equal(tags, want) {
			return fmt.Sprintf("tags: %q, want %q", tags, want)
		}
		return ""
	}
}

// fillScenarios returns scenarios in which tertiary records change while records that an earlier
// change staged are not in place yet.
func fillScenarios() []scenario {
	a := entries(someRev, "A email=a")
	tagged := with(with(a, "user/uid:A/tags", setOf("admin")), "user/tags:admin/~prks", setOf("user/uid:A"))
	return []scenario{
		{name: "fill: no tags | untag", start: filling, actors: [][]verb{sequence(retag("A")), sequence(untag("A", "x"))}, answers: wantTags("A")},
		{name: "fill: other tags | untag", start: filling, actors: [][]verb{sequence(retag("A", "red")), sequence(untag("A", "x"))}, answers: wantTags("A", "red")},
		{name: "fill: untag | update", start: filling, actors: [][]verb{sequence(untag("A", "admin")), sequence(update("A", "email=x"))}, answers: wantTags("A")},
		{name: "fill: delete, create | untag", start: filling, actors: [][]verb{sequence(remove("A"), create("A", "email=x")), sequence(untag("A", "x"))}, answers: wantTags("A")},
		{name: "fill: no tags, tag | untag", start: tagged, actors: [][]verb{sequence(retag("A"), tag("A", "blue")), sequence(untag("A", "x"))}, answers: wantTags("A", "blue")},
		{name: "fill: no tags | no tags", start: tagged, actors: [][]verb{sequence(retag("A")), sequence(retag("A"))}, answers: wantTags("A")},
		{name: "fill: no tags | create", start: noRecords, actors: [][]verb{sequence(retag("P")), sequence(create("P", "email=x", "admin"))}, answers: wantTags("P")},
		{name: "fill: no tags | delete", start: tagged, actors: [][]verb{sequence(retag("A")), sequence(remove("A"))}},
		{name: "fill: delete, create | no tags", start: tagged, actors: [][]verb{sequence(remove("A"), create("A", "email=x", "red")), sequence(retag("A", "blue"))}},
	}
}

// fillMutants lack safeguards that keep an earlier change from undoing a later one.
var fillMutants = []mutant{
	{name: "a change overwrites staged records", in: []string{"fill: no tags | untag"}, finds: "tags: ", kinds: []fault{moved}, rewrite: replace(
		"ARGV[#ARGV - 1] == '~fill'", "false")},
	{name: "dropped records are not staged", in: []string{"fill: no tags, tag | untag"}, finds: "tags: ", rewrite: replace(
		"if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end", "if ARGV[1] ~= 'drop' and redis.call('EXISTS', KEYS[1]) == 0 then return 0 end")},
}
