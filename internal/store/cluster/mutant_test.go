package cluster

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/coffeenode/userdb/internal/store/redisx"
)

// A mutant is the engine without one of its safeguards. Scripts are rewritten before they run, and
// commands on their way.
type mutant struct {
	name    string
	rewrite func(source string) string
	tamper  tamper
	kinds   []fault
	settle  bool     // a claim becomes the plain PRK when the change is made
	in      []string // beginnings of the scenarios in which it is found out
	finds   string
}

func replaced(old, new string) func(string) string {
	return func(source string) string { return strings.Replace(source, old, new, 1) }
}

// isFence says whether a command is a fence, and of whom.
func isFence(args []string) (entry string, is bool) {
	if args[0] != "evalsha" || args[1] != fenceScript.SHA || args[7] != "fence" {
		return "", false
	}
	return args[3], true
}

// own says whether an actor's running verb is about an entry.
func own(a *actor, entry string) bool {
	words := strings.Fields(a.verb)
	return entry == "user/uid:"+words[2]
}

var oneToken = replaced("for i = 1, #past, 12 do", "for i = 1, math.min(#past, 1), 12 do")

// withoutAside has the engine's changes look at no other field.
func withoutAside(_ *actor, args []string) ([]string, any) {
	if args[0] == "exists" && strings.Contains(args[1], ":") {
		return nil, int64(0)
	}
	return args, nil
}

// mutants are those of the protocol's model, and the safeguards that the engine adds to it.
var mutants = []mutant{
	{name: "nosibling", finds: "I2", in: []string{"create email=x | create name=x"}, tamper: withoutAside},
	{name: "settle", finds: "I1", in: []string{"update a->x->a | create email=a", "update a->x | update a->x->a", "plain"}, settle: true},
	{name: "bluntrelease", finds: "I1", in: []string{"update a->x->a | create", "update a->x | update a->x->a", "update a->x | the same"}, rewrite: replaced(
		"if seen == ARGV[1] then", "local function who(s) return s and string.match(s, '^([^ ]*)') end\n"+
			"if seen == ARGV[1] or (ARGV[3] and who(seen) == who(ARGV[1])) then"), tamper: func(a *actor, args []string) ([]string, any) {
		if args[1] == swapScript.SHA && args[5] == "" && a.sent {
			return append(slices.Clone(args), "blunt"), nil
		}
		return args, nil
	}},
	{name: "fencetoken", finds: "I1", in: []string{"create email=x | create email=x", "3: fenced", "update a->x | create name=x", "3: create email"}, rewrite: replaced(
		"redis.pcall('HINCRBY', KEYS[1], '~fence', 1)", "redis.pcall('HSET', KEYS[1], '~fence', ARGV[6] or '1')"), tamper: func(a *actor, args []string) ([]string, any) {
		if _, is := isFence(args); is {
			return append(slices.Clone(args), string(rune('A'+a.id))), nil
		}
		return args, nil
	}},
	{name: "nofence", finds: "I1", in: []string{"create email=x | create email=x"}, tamper: func(_ *actor, args []string) ([]string, any) {
		if _, is := isFence(args); is {
			args = slices.Clone(args)
			args[7] = "look"
		}
		return args, nil
	}},
	{name: "notomb", finds: "I", in: []string{"3: create P", "delete and create"}, rewrite: replaced(
		"local refused = write('PERSIST')", "if true then redis.call('UNLINK', KEYS[1]) return {'ok'} end\n    local refused = write('PERSIST')")},
	{name: "nopast", finds: "I7", in: []string{"update a->x | update a->y", "update a->x | the same", "update email a->x"}, rewrite: oneToken},
	{name: "blindback", finds: "I1", in: []string{"update a->x | update a->y", "update a->x | the same", "update email a->x", "swap | update"}, rewrite: oneToken, tamper: func(a *actor, args []string) ([]string, any) {
		if entry, is := isFence(args); is && own(a, entry) {
			return nil, int64(0)
		}
		return args, nil
	}},
	{name: "nolook", finds: "I5", in: []string{"index: cook->baker | baker->cook"}, tamper: func(a *actor, args []string) ([]string, any) {
		if args[0] == "hgetall" && a.sent {
			return nil, []any{"~isa", "user", "job", lastJob(a)} // as the change left it
		}
		return args, nil
	}},
	{name: "nodying", finds: "I", in: []string{"tags: tag | delete", "index: delete, create", "tags: create | delete"}, rewrite: replaced(
		"if ARGV[6] ~= '' then burial", "if false then burial"), tamper: func(_ *actor, args []string) ([]string, any) {
		if args[1] == buryScript.SHA {
			return nil, int64(1)
		}
		return args, nil
	}},
	{name: "impatient", finds: "I7: the new entry", in: []string{"tags: delete | create anew"}, rewrite: replaced("redis.call('TIME')[1] - last", "1000000")},
	{name: "noguard", finds: "schema", in: []string{"schema: update | another", "schema: create", "schema: delete"}, rewrite: replaced("return {'late', past}", "")},
	{name: "unlinkfirst", finds: "refused, but done", in: []string{"delete | delete", "tags: delete"}, kinds: refusals, rewrite: replaced(
		"local refused = write('PERSIST')", "redis.call('UNLINK', KEYS[1])\n    local refused = write('PERSIST')")},
	{name: "oncemore", finds: "a tombstone for ever", in: []string{"schema: delete | another"}, kinds: refusals, rewrite: replaced(
		"local done = string.sub(past, 1, 12) == ARGV[1]", "local done = false")},
	{name: "unsetlast", finds: "I1", in: []string{"A->b->a"}, kinds: refusals, rewrite: replaced(
		"canonical[#canonical + 1] = ARGV[i]\n    canonical[#canonical + 1] = now\n", "")},
	{name: "spendblind", finds: "tokens", in: []string{"tokens: spend | spend"}, rewrite: replaced("if tokens.refused", "if false")},
	{name: "unmarked", finds: "tokens: spent twice", in: []string{"tokens: spend | spend"}, kinds: refusals, rewrite: replaced(
		"tokens.mark = '1 ' .. table.concat(tokens.ended, ' ')", "tokens.mark = '1'")},
	{name: "onlyone", finds: "2 verbs", in: []string{"tokens: old | new"}, rewrite: replaced("e.spend ~= '' and t.purpose == e.purpose", "t.name == e.spend")},
	{name: "anyrev", finds: "tokens", in: []string{"tokens: issue | disable"}, rewrite: replaced("return {'conflict'}", "")},
	{name: "unbound", finds: "tokens", in: []string{"tokens: issue | update email"}, rewrite: replaced("goes = goes or touched[field]", "goes = goes")},
	{name: "nofill", finds: "I7: members", in: []string{"tags: create | create the same UID"}, tamper: func(_ *actor, args []string) ([]string, any) {
		if args[1] == readyScript.SHA { // into the set itself
			set := args[3][strings.Index(args[3], "{")+1 : len(args[3])-1]
			return []string{"sadd", set, args[6]}, nil
		}
		return args, nil
	}},
}

func lastJob(a *actor) string {
	words := strings.Fields(a.verb)
	return pairs(words[len(words)-1])["job"]
}

// refusals are of the writes of scripts.
var refusals = []fault{refused, refused + 1, refused + 2, refused + 3, refused + 4}

// budgets are what a search begins with, and goes on with while it finds nothing.
var budgets = []struct{ preemptions, faults int }{{1, 0}, {1, 1}, {2, 0}, {2, 1}, {3, 0}, {3, 1}}

// TestMutants takes one safeguard after the other out, and wants the search to notice.
func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rewrite := m.rewrite
				if rewrite == nil {
					rewrite = unchanged
				} else if !slices.ContainsFunc(allScripts, func(s redisx.Script) bool { return rewrite(s.Source) != s.Source }) {
					t.Fatal("it changes no script")
				}
				tried := 0
				for _, b := range budgets {
					for _, s := range scenarios() {
						if !slices.ContainsFunc(m.in, func(name string) bool { return strings.HasPrefix(s.name, name) }) {
							continue
						}
						st := newStage(newWorld(rewrite), m.tamper)
						st.settle = m.settle
						x := explorer{stage: st, scenario: s, preemptions: b.preemptions, faults: b.faults, kinds: m.kinds, most: 200_000}
						v := x.explore()
						tried += x.states
						if strings.HasPrefix(v, m.finds) && v != "" {
							first, _, _ := strings.Cut(v, "\n")
							t.Logf("%d preemptions, %d faults, %q, %d states: %s", b.preemptions, b.faults, s.name, tried, first)
							return
						}
					}
				}
				t.Errorf("not found in %d states", tried)
			})
		})
	}
}
