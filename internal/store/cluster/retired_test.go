package cluster

import "fmt"

// checkRetired returns what is wrong if an entry has the UID A again after it was retired, or if
// the UID is not retired for ever. Otherwise it returns "".
func checkRetired(s *simulation) string {
	e := s.world.at("user/uid:A")
	switch {
	case e.field("email") == "x":
		return fmt.Sprintf("I3: the UID was reused: %q", e.hash)
	case e.field("~retired") != nil && e.ends != 0:
		return fmt.Sprintf("I3: the UID will be reused: %q", e.hash)
	case e.field("~isa") == nil && e.field("~retired") == nil:
		return fmt.Sprintf("I3: the UID is not retired: %q", e.hash)
	}
	return ""
}

// retiredScenarios returns scenarios in which an entry is deleted and its UID retired.
func retiredScenarios() []scenario {
	a := entries(someRev, "A name=n job=cook")
	return []scenario{
		{name: "retired: retire | create A", start: a, actors: [][]verb{sequence(retire("A")), sequence(create("A", "email=x"))}, final: checkRetired, wins: 1, late: true},
		{name: "retired: retire, create A | create name=n", start: a, actors: [][]verb{sequence(retire("A"), create("A", "email=x")), sequence(create("Q", "name=n"))}, final: checkRetired},
		{name: "retired: retire | retire", start: a, actors: [][]verb{sequence(retire("A")), sequence(retire("A"))}, final: checkRetired},
		{name: "retired: retire | update, create A", start: a, actors: [][]verb{sequence(retire("A")), sequence(update("A", "name=m"), create("A", "email=x"))}, final: checkRetired},
	}
}

// retiredMutants lack safeguards that keep a UID retired.
var retiredMutants = []mutant{
	{name: "a create does not see that the UID is retired", in: []string{"retired: retire"}, finds: "I3: the UID was reused", rewrite: func(source string) string {
		return replace("'~since', '~retired')", "'~since')")(replace("if head[8] then return {'retired', past} end", "")(source))
	}},
	{name: "a tombstone forgets ~retired", in: []string{"retired: retire"}, finds: "I3", rewrite: replace(", ['~retired'] = true", "")},
	{name: "the tombstone of a retired UID expires", in: []string{"retired: retire"}, finds: "I3", rewrite: replace("if fields[i] == '~retired' then return life ~= -1 and redis.call('PERSIST', entry) end", "")},
}
