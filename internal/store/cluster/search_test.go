package cluster

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/coffeenode/userdb/internal/store/redisx"
)

// envInt returns the number in an environment variable, or the value of otherwise if it has none.
func envInt(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// quickStates returns the number of states at which a search stops, unless USERDB_STATES is set.
func quickStates() int {
	if testing.Short() {
		return 500
	}
	return 5000
}

// quickRefusals returns the number of states at which a search with refusals, or with callers that
// give up, stops unless USERDB_STATES is set. There are four times as many of these searches as of
// those without either.
func quickRefusals() int {
	if testing.Short() {
		return 100
	}
	return 5000
}

func unchanged(source string) string { return source }

// TestInterleavings runs the engine's own code with its commands in all orders that a few
// preemptions allow, and with one death or one lost answer.
func TestInterleavings(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				x := explorer{
					sim: newSimulation(newWorld(unchanged), nil), scenario: s,
					preemptions: envInt("USERDB_PREEMPTIONS", 1), faults: 1, maxStates: envInt("USERDB_STATES", quickStates()),
				}
				if v := x.explore(); v != "" {
					t.Fatalf("after %d states: %s", x.states, v)
				}
				how := "exhaustive"
				if x.limited() {
					how = "NOT exhaustive"
				}
				t.Logf("%s: %d states, %d ends (%d of them out of time), %d situations of an actor, %d of a command",
					how, x.states, x.ends, x.timedOut, len(x.behaviour.nodes), len(x.memo.effects))
			})
		})
	}
}

// TestGivingUp runs the engine with one caller that gives up while its change is under way. The
// engine must still finish the change: indexes, tertiary records and the feed must be complete.
func TestGivingUp(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				x := explorer{
					sim: newSimulation(newWorld(unchanged), nil), scenario: s, kinds: []fault{gaveUp},
					preemptions: 1, faults: 1, maxStates: envInt("USERDB_STATES", quickRefusals()),
				}
				if v := x.explore(); v != "" {
					t.Fatalf("after %d states: %s", x.states, v)
				}
				t.Logf("%d states, %d ends; limited: %v", x.states, x.ends, x.limited())
			})
		})
	}
}

// TestRefusals runs the engine on nodes that refuse a command, because its slot is on another node
// or is being migrated. They may also refuse one write of a script, or one command in all scripts
// from then on. As another fault, a replica that lacks a write takes over. If a verb returns an
// error that says that a change was not made, that must be true.
func TestRefusals(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer replyError
		kinds  []fault
	}{
		{"slot migration", nonLocal, append([]fault{moved, asked, tryAgain, undone}, refusals...)},
		{"refused writes", noPermission, refusals},
		{"missing permission", noPermission, forbids},
	} {
		for _, s := range scenarios() {
			t.Run(tt.name+": "+s.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(unchanged)
					w.answer = tt.answer
					x := explorer{
						sim: newSimulation(w, nil), scenario: s, kinds: tt.kinds,
						preemptions: 1, faults: 1, maxStates: envInt("USERDB_STATES", quickRefusals()),
					}
					if v := x.explore(); v != "" {
						t.Fatalf("after %d states: %s", x.states, v)
					}
					t.Logf("%d states, %d ends; limited: %v", x.states, x.ends, x.limited())
				})
			})
		}
	}
}

// A mutant is the engine without one of its safeguards. It rewrites scripts before they run, or
// changes commands on their way.
type mutant struct {
	name       string
	rewrite    func(source string) string
	tamper     tamper
	kinds      []fault
	answer     replyError // of a server that refuses; "": nonLocal
	bareClaims bool       // a claim becomes the bare PRK after its change
	careless   bool       // nothing is finished after a caller gave up
	in         []string   // prefixes of the scenarios that reveal it
	finds      string     // how the violation begins
}

func replace(old, new string) func(string) string {
	return func(source string) string { return strings.Replace(source, old, new, 1) }
}

// acceptLate makes commits ignore that their check of the schema has expired.
func acceptLate(source string) string {
	return strings.NewReplacer("return {'late', past}", "", "return {'late', ''}", "").Replace(source)
}

// isFence reports whether a command fences an entry, and returns the entry's key.
func isFence(args []string) (entry string, is bool) {
	if args[0] != "evalsha" || args[1] != fenceScript.SHA || args[7] != "fence" {
		return "", false
	}
	return args[3], true
}

// isOwn reports whether the verb that an actor is running changes entry.
func isOwn(a *actor, entry string) bool {
	words := strings.Fields(a.verb)
	return entry == "user/uid:"+words[2]
}

var newestRevOnly = replace("for i = 1, #past, 12 do", "for i = 1, math.min(#past, 1), 12 do")

// withoutElsewhere makes changes skip the check of the other fields.
func withoutElsewhere(_ *actor, args []string) ([]string, any) {
	if args[0] == "exists" && strings.Contains(args[1], ":") {
		return nil, int64(0)
	}
	return args, nil
}

// withoutFences makes actors only look at entries that they should fence.
func withoutFences(_ *actor, args []string) ([]string, any) {
	if _, is := isFence(args); is {
		args = slices.Clone(args)
		args[7] = "look"
	}
	return args, nil
}

// mutants holds the mutants of docs/design/cluster_protocol.py, under the names they have there,
// and mutants for safeguards that only the engine has.
var mutants = []mutant{
	{name: "nosibling: other fields are not checked", finds: "I2", in: []string{"create email=x | create name=x"}, tamper: withoutElsewhere},
	{name: "settle: claims lose their rev after the commit", finds: "I1", in: []string{"update a->x->a | create email=a", "update a->x | update a->x->a", "bare"}, bareClaims: true},
	{name: "bluntrelease: a release compares only the owner", finds: "I1", in: []string{"update a->x->a | create", "update a->x | update a->x->a", "update a->x | the same"}, rewrite: replace(
		"if seen == ARGV[1] then", "local function who(s) return s and string.match(s, '^([^ ]*)') end\n"+
			"if seen == ARGV[1] or (ARGV[3] and who(seen) == who(ARGV[1])) then"), tamper: func(a *actor, args []string) ([]string, any) {
		if args[1] == swapScript.SHA && args[5] == "" && a.commitOK {
			return append(slices.Clone(args), "blunt"), nil
		}
		return args, nil
	}},
	{name: "fencetoken: a fence is not a counter", finds: "I1", in: []string{"create email=x | create email=x", "3: fenced", "update a->x | create name=x", "3: create email"}, rewrite: replace(
		"redis.pcall('HINCRBY', KEYS[1], '~fence', 1)", "redis.pcall('HSET', KEYS[1], '~fence', ARGV[6] or '1')"), tamper: func(a *actor, args []string) ([]string, any) {
		if _, is := isFence(args); is {
			return append(slices.Clone(args), string(rune('A'+a.id))), nil
		}
		return args, nil
	}},
	{name: "nofence: nothing is fenced", finds: "I1", in: []string{"create email=x | create email=x"}, tamper: withoutFences},
	{name: "notomb: a delete leaves no tombstone", finds: "I", in: []string{"3: create P", "delete and create"}, rewrite: replace(
		"refused = write('PERSIST')", "if true then redis.call('UNLINK', KEYS[1]) return {'ok'} end\n    refused = write('PERSIST')")},
	{name: "nopast: only the newest rev is remembered", finds: "I7", in: []string{"update a->x | update a->y", "update a->x | the same", "update email a->x"}, rewrite: newestRevOnly},
	{name: "blindback: claims are removed without a fence", finds: "I1", in: []string{"update a->x | update a->y", "update a->x | the same", "update email a->x", "swap | update"}, rewrite: newestRevOnly, tamper: func(a *actor, args []string) ([]string, any) {
		if entry, is := isFence(args); is && isOwn(a, entry) {
			return nil, int64(0)
		}
		return args, nil
	}},
	{name: "indexes are not checked after a change", finds: "I5", in: []string{"index: cook->baker | baker->cook"}, tamper: func(a *actor, args []string) ([]string, any) {
		if args[0] == "hgetall" && a.commitOK {
			return nil, []any{"~isa", "user", "job", lastJob(a)} // as the change left it
		}
		return args, nil
	}},
	{name: "removals are not marked", finds: "I", in: []string{"tags: tag | delete", "index: delete, create", "tags: create | delete"}, rewrite: replace(
		"if ARGV[6] ~= '' then\n      for _, text", "if false then\n      for _, text"), tamper: func(_ *actor, args []string) ([]string, any) {
		if args[1] == dyingScript.SHA {
			return nil, int64(1)
		}
		return args, nil
	}},
	{name: "a create does not wait for a removal", finds: "I7: the new entry", in: []string{"tags: delete | create anew"}, rewrite: replace("redis.call('TIME')[1] - last", "1000000")},
	{name: "late commits are accepted", finds: "schema", in: []string{"schema: update | another", "schema: create", "schema: delete"}, rewrite: acceptLate},
	{name: "a create overwrites an entry", finds: "2 verbs", in: []string{"create P twice"}, rewrite: replace("redis.pcall('EXISTS', KEYS[1]) == 0", "true")},
	{name: "any stored schema is accepted", finds: "I", in: []string{"growing: update under the old"}, rewrite: replace("if stored == ARGV[1] then", "if stored then")},
	{name: "late commits are accepted while an index is built", finds: "I", in: []string{"growing: update under the old"}, rewrite: acceptLate},
	{name: "a schema change overwrites another", finds: "lost", in: []string{"growing: two programs extend"}, rewrite: replace("if stored ~= ARGV[1] then", "if false then")},
	{name: "a delete unlinks the entry first", finds: "refused, but done", in: []string{"delete | delete", "tags: delete"}, kinds: refusals, rewrite: replace(
		"refused = write('PERSIST')", "redis.call('UNLINK', KEYS[1])\n    refused = write('PERSIST')")},
	{name: "a repeated commit is not recognized", finds: "a tombstone without an end", in: []string{"schema: delete | another"}, kinds: refusals, rewrite: replace(
		"local done = string.sub(past, 1, 12) == ARGV[1]", "local done = false")},
	{name: "canonical values do not follow their facets", finds: "I1", in: []string{"A->b->a"}, kinds: refusals, rewrite: replace(
		"canonical[#canonical + 1] = ARGV[i]\n    canonical[#canonical + 1] = now\n", "")},
	{name: "an invalid token can be spent", finds: "tokens", in: []string{"tokens: spend | spend"}, rewrite: replace("if tokens.refused", "if false")},
	{name: "~tokens does not name ended tokens", finds: "tokens: spent twice", in: []string{"tokens: spend | spend"}, kinds: refusals, rewrite: replace(
		"for _, name in ipairs(tokens.ended) do words[#words + 1] = name end", "")},
	{name: "a spent token ends no others", finds: "2 verbs", in: []string{"tokens: old | new"}, rewrite: replace("e.spend ~= '' and t.purpose == e.purpose", "t.name == e.spend")},
	{name: "tokens are issued at any rev", finds: "tokens", in: []string{"tokens: issue | disable"}, rewrite: replace("return {'conflict'}", "")},
	{name: "tokens survive a change of their fields", finds: "tokens", in: []string{"tokens: issue | update email"}, rewrite: replace("goes = goes or touched[field]", "goes = goes")},
	{name: "an invalid invitation is accepted", finds: "3 verbs", in: []string{"tokens: accept, delete"}, rewrite: replace("if tokens.refused", "if false")},
	{name: "a session starts after any login", finds: "sessions: one from", in: []string{"sessions: first: log in | end all", "sessions: another: log in | set"}, rewrite: replace("if not same then return {'conflict'} end", "")},
	{name: "a session starts for any entry at the key", finds: "sessions: one from", in: []string{"sessions: first: log in | delete"}, rewrite: replace("same = at and made and at <= made", "same = made")},
	{name: "a new entry sets no epoch", finds: "sessions: one from", in: []string{"sessions: first: log in | delete"}, rewrite: replace("canonical[#canonical + 1] = '~epoch'", "canonical[#canonical + 1] = '~other'")},
	{name: "an ended session leaves no mark", finds: "sessions: one is valid after", in: []string{"sessions: another: log in, end | late"}, rewrite: replace(
		"local reply = put('- ' .. ms(now + 3600000) .. (s and ' ' .. bond or ''), now + 3600000)", "local reply = {} redis.call('HDEL', record, hash)")},
	{name: "a repeated session start is not recognized", finds: "sessions: one is valid after", in: []string{"sessions: another: log in, end | late"}, rewrite: replace("if begun then -- sent again", "if false then -- sent again")},
	{name: "ending all sessions sets no new epoch", finds: "sessions: one from", in: []string{"sessions: another: log in | end all"}, tamper: func(_ *actor, args []string) ([]string, any) {
		args = slices.Clone(args)
		for i := range args {
			if i > 0 && args[i-1] == "~epoch" && args[1] == commitScript.SHA {
				args[i] = epochNamed("E")
			}
		}
		return args, nil
	}},
	{name: "an index is not updated after the caller gave up", finds: "I", in: []string{"index: cook->baker | baker->cook"}, kinds: []fault{gaveUp}, careless: true},
	{name: "tags stay staged after the caller gave up", finds: "still staged", in: []string{"replace: tags"}, kinds: []fault{gaveUp}, careless: true},
	{name: "a delete is not finished after the caller gave up", finds: "I4: left over: user/uid:A in", in: []string{"index: cook->baker | delete"}, kinds: []fault{gaveUp}, careless: true},
	{name: "the feed lacks a change whose caller gave up", finds: "feed", in: []string{"history: update | update"}, kinds: []fault{gaveUp}, careless: true},
	{name: "members are not staged", finds: "I7: members", in: []string{"tags: create | create the same UID"}, tamper: func(_ *actor, args []string) ([]string, any) {
		if args[1] == stageScript.SHA { // into the set itself
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

// refusals are faults that refuse one write of a script. forbids are faults that forbid one
// command.
var (
	refusals = []fault{refused, refused + 1, refused + 2, refused + 3, refused + 4, refused + 5, refused + 6}
	forbids  = func() (all []fault) {
		for i := range writeCommands {
			all = append(all, forbidden+fault(i))
		}
		return all
	}()
)

// budgets lists the numbers of preemptions and faults that a search tries, one pair after the
// other, until it finds a violation.
var budgets = []struct{ preemptions, faults int }{{1, 0}, {1, 1}, {2, 0}, {2, 1}, {3, 0}, {3, 1}}

// TestMutants removes one safeguard at a time. The search must find a violation.
func TestMutants(t *testing.T) {
	for _, m := range slices.Concat(mutants, historyMutants, tokenMutants, fillMutants, refusalMutants, largeMutants, manyMutants, retiredMutants, heldMutants, preservedMutants, untypedMutants) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rewrite := m.rewrite
				if rewrite == nil {
					rewrite = unchanged
				} else if !slices.ContainsFunc(simulatedScripts, func(s redisx.Script) bool { return rewrite(s.Source) != s.Source }) {
					t.Fatal("the mutant changes no script")
				}
				tried := 0
				for _, b := range budgets {
					for _, s := range scenarios() {
						if !slices.ContainsFunc(m.in, func(name string) bool { return strings.HasPrefix(s.name, name) }) {
							continue
						}
						st := newSimulation(newWorld(rewrite), m.tamper)
						st.world.answer = cmp.Or(m.answer, nonLocal)
						st.bareClaims, st.careless = m.bareClaims, m.careless
						x := explorer{sim: st, scenario: s, preemptions: b.preemptions, faults: b.faults, kinds: m.kinds, maxStates: 200_000}
						v := x.explore()
						tried += x.states
						if strings.HasPrefix(v, m.finds) && v != "" {
							first, _, _ := strings.Cut(v, "\n")
							t.Logf("%d preemptions, %d faults, %q, %d states: %s", b.preemptions, b.faults, s.name, tried, first)
							return
						}
					}
				}
				t.Errorf("found no violation that begins with %q in %d states", m.finds, tried)
			})
		})
	}
}

// A walk is one random run. Two to four actors run one to three verbs each. They may die, their
// answers may be lost, their callers may give up, and their writes may arrive again, or for the
// first time, at any later time.
type walk struct {
	sim   *simulation
	rnd   *rand.Rand
	names []string
	holds bool // values that entries give up are held
}

// quickWalks returns the number of walks, unless USERDB_WALKS is set.
func quickWalks() int {
	if testing.Short() {
		return 1000
	}
	return 10_000
}

// TestWalks makes random runs, with more actors and faults than an exhaustive search can cover.
func TestWalks(t *testing.T) {
	const parts = 4
	count := envInt("USERDB_WALKS", quickWalks())
	for part := range parts {
		t.Run(fmt.Sprintf("part %d of %d", part+1, parts), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSimulation(newWorld(unchanged), nil)
				for seed := part; seed < count; seed += parts {
					w := walk{sim: s, rnd: rand.New(rand.NewPCG(uint64(seed), uint64(envInt("USERDB_SEED", 1))))}
					if v := w.run(); v != "" {
						t.Fatalf("walk %d: %s, in\n%s", seed, v, strings.Join(w.names, "\n"))
					}
				}
			})
		})
	}
}

func pick(r *rand.Rand, from string) string { return string(from[r.IntN(len(from))]) }

// start returns the records of none, one or both of the entries A and B. Their SRVs have the form
// that a cluster writes, or that of a single server.
func (w *walk) start() map[string]*cell {
	var each []string
	for _, uid := range "AB" {
		if w.rnd.IntN(3) > 0 {
			each = append(each, string(uid)+" email="+strings.ToLower(string(uid))+[]string{"", " job=cook"}[w.rnd.IntN(2)])
		}
	}
	return entries([]string{someRev, ""}[w.rnd.IntN(2)], each...)()
}

func (w *walk) verb() verb {
	if w.holds {
		return w.heldVerb()
	}
	uid, v, f := pick(w.rnd, "ABPQ"), pick(w.rnd, "abxAX"), []string{"email", "name"}[w.rnd.IntN(2)]
	words := f + "=" + v
	switch w.rnd.IntN(10) {
	case 0, 1:
		words = "email=" + v + " name=" + pick(w.rnd, "abx")
	case 2:
		words = f + "= job=" + []string{"cook", "baker"}[w.rnd.IntN(2)]
	}
	switch w.rnd.IntN(12) {
	case 0, 1, 2:
		return update(uid, words)
	case 3, 4:
		return remove(uid)
	case 9, 10, 11:
		return w.listVerb(uid, editValues)
	case 5:
		return tag(uid, "red")
	case 6:
		return untag(uid, "red")
	}
	return create(uid, words, []string{"red", "blue"}[:w.rnd.IntN(3)]...)
}

// listVerb returns a verb that changes the values of an entry in the field email.
func (w *walk) listVerb(uid string, edit func(name, uid, words string, edit func([]string) []string) verb) verb {
	v, other := pick(w.rnd, "abx"), pick(w.rnd, "abx")
	switch w.rnd.IntN(4) {
	case 0:
		return edit("add "+uid+" "+v, uid, "", func(values []string) []string { return append(without(values, v), v) })
	case 1:
		return edit("drop "+uid+" "+v, uid, "", func(values []string) []string { return without(values, v) })
	case 2:
		return edit("first "+uid+" "+v, uid, "", func(values []string) []string { return append([]string{v}, without(values, v)...) })
	}
	return edit("exchange "+uid+" "+other+" "+v, uid, "", func(values []string) []string { return append(without(without(values, other), v), v) })
}

// heldVerb returns a verb under a schema by which values that entries give up are held.
func (w *walk) heldVerb() verb {
	uid, v, f := pick(w.rnd, "ABPQ"), pick(w.rnd, "abx"), []string{"email", "name"}[w.rnd.IntN(2)]
	switch w.rnd.IntN(9) {
	case 0, 1:
		return rename(uid, f+"="+v)
	case 2:
		return removeHeld(uid)
	case 3, 4, 5:
		return w.listVerb(uid, editHeldValues)
	}
	return create(uid, f+"="+v)
}

// run makes one random run. It returns the first violation, or "" if there is none.
func (w *walk) run() string {
	s := w.sim
	s.reset(w.start())
	defer s.close()
	w.holds = w.rnd.IntN(3) == 0
	for range 2 + w.rnd.IntN(3) {
		var verbs []verb
		for range 1 + w.rnd.IntN(3) {
			verbs = append(verbs, w.verb())
		}
		names := make([]string, len(verbs))
		for i, v := range verbs {
			names[i] = v.name
		}
		w.names = append(w.names, strings.Join(names, ", "))
		s.addActor(verbs)
	}
	synctest.Wait()
	faults := w.rnd.IntN(4) > 0 // otherwise only the order differs
	complete := !faults
	for {
		if faults && len(s.late) > 0 && w.rnd.IntN(7) == 0 {
			i := w.rnd.IntN(len(s.late))
			s.world.do(s.late[i])
			s.late = slices.Delete(s.late, i, i+1)
		} else if !w.step(faults) {
			break
		}
		if v := cmp.Or(s.violation(), s.checkHolders()); v != "" {
			return v
		}
	}
	timedOut := slices.ContainsFunc(s.actors, func(a *actor) bool { return a.timedOut() })
	if complete && !timedOut {
		return s.garbage()
	}
	return ""
}

// step carries out one request. It reports false if no actor has one.
func (w *walk) step(faults bool) bool {
	var all []*request
	for _, a := range w.sim.actors {
		all = append(all, a.waiting()...)
	}
	if len(all) == 0 {
		return false
	}
	r, f := all[w.rnd.IntN(len(all))], none
	if faults {
		switch w.rnd.IntN(100) {
		case 0:
			f = dies
		case 1, 2, 3, 4, 5, 6:
			f = lost
		case 7, 8, 9, 10, 11, 12, 13, 14:
			if r.cmd != nil && canGiveUpOn(r.args) {
				f = []fault{gaveUp, delayed}[w.rnd.IntN(2)]
			}
		}
	}
	if r.cmd == nil && f == lost {
		f = none
	}
	w.sim.step(r, f)
	return true
}
