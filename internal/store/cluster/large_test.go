package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/coffeenode/userdb/internal/store"
)

// maxTags is the maximum number of tags in scenarios. Only the scenarios about this limit reach it.
const maxTags = 3

// sscan returns the members page by page. A cursor is the first byte of the members that come next.
func sscan(_ *world, _ string, c *cell, args []string) any {
	from, _ := strconv.Atoi(args[0])
	count, _ := strconv.Atoi(args[2])
	next, page := "0", []any{}
	for _, m := range c.names() {
		if int(m[0]) < from {
			continue
		}
		if last := len(page) - 1; len(page) >= count && page[last].(string)[0] != m[0] {
			next = strconv.Itoa(int(m[0]))
			break
		}
		page = append(page, m)
	}
	return []any{next, page}
}

// withTags returns a start with an entry A that has the tags.
func withTags(tags ...string) func() map[string]*cell {
	return func() map[string]*cell {
		cells := entries(someRev, "A email=a")()
		set := &cell{kind: 'S', hash: map[string]string{}}
		for _, t := range tags {
			set.hash[t] = ""
			cells["user/tags:"+t+"/~prks"] = setOf("user/uid:A")
		}
		cells["user/uid:A/tags"] = set
		return cells
	}
}

// checkDrops names a record that was moved away to be dropped, but that no entry lists, so that
// nobody would drop it. It returns "" if there is none.
func (s *simulation) checkDrops() string {
	for _, key := range sortedKeys(s.world.cells) {
		record, rev, is := store.ParseDropKey(key)
		if !is || s.world.at(key) == nil {
			continue
		}
		fill, _ := s.world.at(record.PRK().String()).field(store.FieldFill).(string)
		if store.ParseFill(record.PRK(), fill).Rev != rev {
			return "large: nobody drops " + key
		}
	}
	return ""
}

// checkLimit describes the tags of A if there are more than maxTags, or returns "".
func checkLimit(s *simulation) string {
	if tags := s.world.at("user/uid:A/tags").names(); len(tags) > maxTags {
		return fmt.Sprintf("limit: the tags %q are more than %d", tags, maxTags)
	}
	return ""
}

// allowFull returns v, except that ErrFull counts as a success.
func allowFull(v verb) verb {
	do := v.do
	v.do = func(ctx context.Context, a *actor) error {
		if err := do(ctx, a); !errors.Is(err, store.ErrFull) {
			return err
		}
		return nil
	}
	return v
}

// largeScenarios returns scenarios in which changes replace or drop sets of more members than one
// call handles, while other actors act before all members are dropped. It also returns concurrent
// additions at the limit.
func largeScenarios() []scenario {
	large, one := withTags("m", "n"), func(v ...verb) []verb { return v }
	all := []scenario{
		{name: "large: delete | create A anew | time", start: large, actors: [][]verb{one(remove("A")), one(create("A", "email=x", "red")), one(wait(30))}, final: checkRecreated, late: true},
		{name: "large: delete, create | tag", start: large, actors: [][]verb{sequence(remove("A"), create("A", "email=x", "red")), one(tag("A", "n"))}},
		{name: "large: other tags | delete, create", start: large, actors: [][]verb{one(retag("A", "red")), sequence(remove("A"), create("A", "email=x", "n"))}},
		{name: "large: no tags | tag", start: large, actors: [][]verb{one(retag("A")), one(tag("A", "n"))}},
		{name: "large: other tags | no tags", start: large, actors: [][]verb{one(retag("A", "n", "o")), one(retag("A"))}},
	}
	for i := range all {
		all[i].batch = 1
	}
	return append(all,
		scenario{name: "limit: tag | tag", start: withTags("m", "n"), actors: [][]verb{one(allowFull(tag("A", "o"))), one(allowFull(tag("A", "p")))}, final: checkLimit},
		scenario{name: "limit: tag | tag, noted", start: withTags("m", "n"), actors: [][]verb{one(withNote(allowFull(tag("A", "o")))), one(withNote(allowFull(tag("A", "p"))))}, final: checkLimit},
	)
}

// largeMutants lack safeguards that keep a large set from being forgotten, or a limit from being
// exceeded.
var largeMutants = []mutant{
	{name: "a set that a dead process moved away is not dropped", in: []string{"large: other tags"}, finds: "large: nobody drops", tamper: func(_ *actor, args []string) ([]string, any) {
		// Nobody finds the members of a set that was moved away, or removes the set.
		if args[0] == "sscan" && strings.HasPrefix(args[1], "~/drop/") {
			return nil, []any{"0", []any{}}
		}
		if args[0] == "unlink" && strings.HasPrefix(args[1], "~/drop/") {
			return nil, int64(0)
		}
		return args, nil
	}},
	{name: "a new entry inherits a large set", in: []string{"large: delete | create A anew"}, finds: "I7: the new entry", rewrite: replace("redis.call('TIME')[1] - last", "1000000")},
	{name: "records that others moved away are not looked for", in: []string{"large: no tags | tag"}, finds: "large: nobody drops", rewrite: replace(
		"if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end", "if redis.call('EXISTS', KEYS[1]) == 0 then return 1 end")},
	{name: "the limit of members is not checked", in: []string{"limit: tag | tag"}, finds: "limit: the tags", rewrite: replace("if is_full then return {'full'} end\nlocal reply", "local reply")},
	{name: "the limit of members is not checked, with history", in: []string{"limit: tag | tag, noted"}, finds: "limit: the tags", rewrite: replace("if is_full then return {'full'} end\nlocal due", "local due")},
}
