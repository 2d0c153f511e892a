package cluster

import (
	"fmt"
	"strings"
)

// checkOnlyAddress checks that a new entry A, which was created with only an address, has no facets
// of the old one.
func checkOnlyAddress(s *simulation) string {
	e := s.world.at("user/uid:A")
	if e.field("email") == "x" && (e.field("name") != nil || e.field("job") != nil) {
		return fmt.Sprintf("I7: the new entry has %q", e.hash)
	}
	return ""
}

// halfScenarios returns scenarios in which a delete may be refused halfway while other actors act.
func halfScenarios() []scenario {
	job := entries(someRev, "A name=n job=cook")
	return []scenario{
		{name: "half: delete | create A | time", start: job, actors: [][]verb{sequence(remove("A")), sequence(create("A", "email=x")), sequence(wait(30))}, final: checkOnlyAddress, late: true},
		{name: "half: delete, create | create name=n", start: job, actors: [][]verb{sequence(remove("A"), create("A", "email=x")), sequence(create("Q", "name=n"))}, final: checkOnlyAddress},
		{name: "half: delete | update", start: job, actors: [][]verb{sequence(remove("A")), sequence(update("A", "name=m job="))}},
	}
}

// refusalMutants lack safeguards that keep an entry consistent if a change is refused halfway.
var refusalMutants = []mutant{
	{name: "a half-deleted entry counts as damaged", in: []string{"half: delete | create A"}, finds: "corrupt", kinds: refusals, answer: noPermission, rewrite: replace(
		"if not head[1] and has_facets()", "if has_facets()")},
	{name: "a new entry inherits a half-deleted one", in: []string{"half: delete | create A"}, finds: "I7: the new entry", kinds: refusals, answer: noPermission, rewrite: replace(
		"if head[1] then strip(KEYS[1], true) end", "")},
	{name: "a new entry keeps the tombstone's time to live", in: []string{"delete and create"}, finds: "I3", rewrite: replace("strip(KEYS[1], true) end\n    redis.call('PERSIST', KEYS[1])", "strip(KEYS[1], true) end")},
	{name: "permission to remove facets is not checked", in: []string{"half: delete | update"}, finds: "half deleted", kinds: forbids, answer: noPermission, rewrite: replace(
		"write('PERSIST') or write('HDEL', '~none') -- neither", "write('PERSIST') -- neither")},
	{name: "~isa is removed before the facets", in: []string{"half: delete | create A"}, finds: "corrupt", kinds: refusals, answer: noPermission, rewrite: func(source string) string {
		return strings.Replace(source, "local removed = {}\n  for _, field in ipairs(redis.call('HKEYS', entry))", "redis.call('HDEL', entry, '~isa')\n  local removed = {}\n  for _, field in ipairs(redis.call('HKEYS', entry))", 1)
	}},
}
