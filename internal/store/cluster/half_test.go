package cluster

import (
	"fmt"
	"strings"
)

// anotherA checks that an entry A that was created anew, with only an address, has nothing else.
func anotherA(s *simulation) string {
	e := s.world.at("user/uid:A")
	if e.field("email") == "x" && (e.field("name") != nil || e.field("job") != nil) {
		return fmt.Sprintf("I7: the new entry has %q", e.hash)
	}
	return ""
}

// halfScenarios returns deletes that may be refused halfway, and what others do then.
func halfScenarios() []scenario {
	job := entries(some, "A name=n job=cook")
	one := func(v ...verb) []verb { return v }
	return []scenario{
		{name: "half: delete | create A, another", start: job, actors: [][]verb{one(remove("A")), one(create("A", "email=x")), one(wait(30))}, final: anotherA, late: true, large: true},
		{name: "half: delete, create | create name=n", start: job, actors: [][]verb{then(remove("A"), create("A", "email=x")), one(create("Q", "name=n"))}, final: anotherA},
		{name: "half: delete | update", start: job, actors: [][]verb{one(remove("A")), one(update("A", "name=m job="))}},
	}
}

// refusedMutants lack what keeps an account whole if its change is refused halfway.
var refusedMutants = []mutant{
	{name: "what is half deleted is damage", in: []string{"half: delete | create A"}, finds: "corrupt", kinds: refusals, answer: noRight, rewrite: replaced(
		"if not head[1] and has_facets()", "if has_facets()")},
	{name: "what is half deleted is the next one's", in: []string{"half: delete | create A"}, finds: "I7: the new entry", kinds: refusals, answer: noRight, rewrite: replaced(
		"if head[1] then strip(KEYS[1], true) end", "")},
	{name: "a tombstone's end stays", in: []string{"delete and create"}, finds: "I3", rewrite: replaced("strip(KEYS[1], true) end\n    redis.call('PERSIST', KEYS[1])", "strip(KEYS[1], true) end")},
	{name: "the right to remove facets is not asked for", in: []string{"half: delete | update"}, finds: "half deleted", kinds: forbids, answer: noRight, rewrite: replaced(
		"write('PERSIST') or write('HDEL', '~none') -- neither", "write('PERSIST') -- neither")},
	{name: "~isa goes before the facets", in: []string{"half: delete | create A"}, finds: "corrupt", kinds: refusals, answer: noRight, rewrite: func(source string) string {
		return strings.Replace(source, "local going = {}\n  for _, field in ipairs(redis.call('HKEYS', entry))", "redis.call('HDEL', entry, '~isa')\n  local going = {}\n  for _, field in ipairs(redis.call('HKEYS', entry))", 1)
	}},
}
