package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/store"
	"github.com/coffeenode/userdb/internal/store/onekey"
	"github.com/coffeenode/userdb/internal/store/redisx"
)

// A choice is one step of a run: an actor, one of its requests, and a fault.
type choice struct {
	actor, request int
	fault          fault
}

// An explorer runs a scenario in all orders of its steps that its budgets allow. It visits no state
// again with the same budgets left, or with less: if the records are the same and every actor got
// the same answers, the run continues in the same ways.
type explorer struct {
	sim         *simulation
	scenario    scenario
	preemptions int     // how often an actor may be interrupted by another
	faults      int     // how many faults may happen
	kinds       []fault // the faults that may happen
	maxStates   int     // maximum number of states to visit
	behaviour   *behaviour
	memo        *memo
	// seen holds the budgets with which a state was reached, by the state's digest. Each pair of
	// numbers of preemptions and faults has a bit; there is at most one fault.
	seen     map[uint64]uint8
	judged   map[uint64]bool // digests of records that break no invariant
	todo     [][]state       // states to continue from, by budgets used
	states   int             // number of states reached
	ends     int             // number of runs that have ended
	timedOut int             // number of runs that ended with an actor whose time was up
}

// A state holds the records, the actors and the budgets of a run after some steps.
type state struct {
	cells       []uint32
	now         int64
	commits     uint64 // four bits for each verb of each actor
	actors      []actorState
	current     int // the actor that a step of another one would interrupt; -1: none
	preemptions int
	faults      int
	deaths      int
	outdated    bool              // a commit was made under a schema that is no longer in force
	fault       fault             // the last fault
	forbidden   fault             // the missing permission
	undone      bool              // an acknowledged write was lost
	owners      [maxFinders]uint8 // for each lookup, which entries had its value since it began
	wrongAnswer string            // the wrong answer to a lookup, "" for none
	trace       *trace
}

// An actorState is an actor in one state of a run.
type actorState struct {
	at       *node
	commitOK bool // for mutants: a commit of the running attempt returned ok
	dead     bool
}

func (r actorState) requests() []numberedRequest {
	if r.dead {
		return nil
	}
	return r.at.requests
}

// A trace records how a state was reached.
type trace struct {
	before *trace
	choice choice
}

// explore searches for a violation. It returns the violation and the steps that led to it, or "" if
// it found none. It has visited all states unless limited reports true.
func (x *explorer) explore() string {
	x.seen, x.judged = map[uint64]uint8{}, map[uint64]bool{}
	if x.kinds == nil {
		x.kinds = []fault{lost, dies}
	}
	x.todo = make([][]state, (x.preemptions+1)*(x.faults+1))
	x.sim.reset(nil)
	x.sim.patience = envInt("USERDB_PAUSES", 4)
	x.sim.until, x.sim.batch = math.MaxInt64, x.scenario.batch
	if x.scenario.guarded {
		x.sim.until = startTime + staleAfter.Milliseconds()
	}
	x.behaviour, x.memo = newBehaviour(x.sim, x.scenario.actors), newMemo(x.sim.world)
	defer x.behaviour.close()
	x.push(x.initial())
	for i := range x.todo {
		for len(x.todo[i]) > 0 {
			last := len(x.todo[i]) - 1
			m := x.todo[i][last]
			x.todo[i] = x.todo[i][:last]
			if v := x.expand(m); v != "" {
				return v
			}
			if x.limited() {
				return ""
			}
		}
	}
	return ""
}

// limited reports whether the search stopped at maxStates.
func (x *explorer) limited() bool { return x.states >= x.maxStates }

func (x *explorer) initial() state {
	m := state{current: -1, now: startTime}
	for _, key := range sortedKeys(x.scenario.start()) {
		m.cells = put(m.cells, x.memo.key(key), x.memo.cell(x.scenario.start()[key]))
	}
	for i := range x.scenario.actors {
		m.actors = append(m.actors, actorState{at: x.behaviour.first(x.memo, i)})
	}
	x.noteOwners(&m)
	return m
}

// expand continues from a state in every possible way. It returns the first violation that it
// finds, or "".
func (x *explorer) expand(m state) string {
	options := x.options(m)
	if len(options) == 0 {
		x.ends++
		return x.checkEnd(m)
	}
	for _, c := range options {
		next := x.take(m, c)
		if v := x.checkInvariants(next); v != "" {
			return v + x.describe(next.trace)
		}
		x.push(next)
	}
	return ""
}

// push adds a state to continue from, unless it was reached before with the same budgets left or
// more.
func (x *explorer) push(m state) {
	sum := m.sum()
	used := x.seen[sum]
	for i := range m.preemptions + 1 {
		for j := range m.faults + 1 {
			if used&(1<<(i*2+j)) != 0 {
				return
			}
		}
	}
	if used == 0 {
		x.states++
	}
	x.seen[sum] = used | 1<<(m.preemptions*2+m.faults)
	i := m.preemptions*(x.faults+1) + m.faults
	x.todo[i] = append(x.todo[i], m)
}

// take makes a choice, and returns the state that follows.
func (x *explorer) take(m state, c choice) state {
	if x.interrupts(m, c.actor) {
		m.preemptions++
	}
	if c.request > 0 && c.fault != dies {
		m.preemptions++
	}
	if c.fault != none {
		m.fault = c.fault
		m.faults++
		if c.fault >= forbidden {
			m.forbidden = c.fault
		}
	}
	m.trace = &trace{m.trace, c}
	m.actors = slices.Clone(m.actors)
	r := &m.actors[c.actor]
	if c.fault == dies {
		m.deaths++
		m.current, r.dead = -1, true
		return m
	}
	verb, ended := r.at.verb, r.at.done
	x.step(&m, r, c)
	if r.at.done > ended {
		m.wrongAnswer = x.checkLookup(m, c.actor, verb, r.at.errs[ended])
		m.owners[c.actor] = 0
	}
	x.noteOwners(&m)
	m.current = c.actor
	if r.at.onlyPauses() {
		m.current = -1
	}
	return m
}

// step carries out a request.
func (x *explorer) step(m *state, r *actorState, c choice) {
	w := r.at.requests[c.request]
	h := deliveryKey{request: c.request}
	var reply any
	if !w.pauses() {
		h.reply, reply = x.carryOut(m, r, w, c.fault)
	}
	if c.fault.unanswered() != nil {
		h.fault, h.reply, reply = c.fault, 0, nil
	}
	next := x.behaviour.advance(x.memo, r.at, h, reply)
	if next.revs > r.at.revs { // another attempt has begun
		r.commitOK = false
	}
	r.at = next
}

// carryOut runs a command on the records. The simulation may tamper with the command first.
func (x *explorer) carryOut(m *state, r *actorState, w numberedRequest, f fault) (uint32, any) {
	if answer, is := elsewhere[f]; is {
		return x.memo.reply(answer), answer
	}
	if x.sim.tamper != nil && w.cmd != nil {
		x.memo.fill(m.now, m.cells)
		args, reply := x.sim.tamper(&actor{id: r.at.actor, sim: x.sim, verb: r.at.verb, commitOK: r.commitOK}, w.args)
		if args == nil {
			return x.memo.reply(reply), reply
		}
		w = x.memo.numbered(&request{cmd: w.cmd, args: args, text: strings.Join(args, " ")})
	}
	e := x.memo.run(w, m.now, m.cells, cmp.Or(m.forbidden, f).refuses())
	if f == undone {
		m.undone = true
		return e.reply, x.memo.replyValues[e.reply]
	}
	m.cells = slices.Clone(m.cells)
	for i, k := range w.keys {
		m.cells = put(m.cells, k, e.cells[i])
	}
	m.now = e.now
	r.commitOK = r.commitOK || e.ok
	if e.committed {
		m.outdated = m.outdated || at(m.cells, x.memo.key(reliedOn)) != 0
		m.commits += 1 << (4 * (r.at.actor*maxVerbs + r.at.done))
	}
	if w.cmd == nil {
		return 0, nil
	}
	return e.reply, x.memo.replyValues[e.reply]
}

// applies reports whether a fault can happen to a command and makes a difference.
func (x *explorer) applies(f fault, m state, w numberedRequest) bool {
	switch {
	case w.cmd == nil || f == dies:
		return false
	case f == gaveUp:
		return canGiveUpOn(w.args)
	case f == undone:
		e := x.memo.run(w, m.now, m.cells, 0)
		for i, k := range w.keys {
			if e.cells[i] != at(m.cells, k) {
				return true
			}
		}
		return false
	case f >= refused:
		return x.memo.run(w, m.now, m.cells, f.refuses()).refused
	}
	return true
}

// maxVerbs is how many verbs an actor may have.
const maxVerbs = 4

// interrupts reports whether the next step of an actor would interrupt another actor.
func (x *explorer) interrupts(m state, actor int) bool { return m.current >= 0 && m.current != actor }

// options returns all choices that the remaining budgets allow.
func (x *explorer) options(m state) []choice {
	var os []choice
	for i, r := range m.actors {
		cost := 0
		if x.interrupts(m, i) {
			cost = 1
		}
		if m.preemptions+cost > x.preemptions {
			continue
		}
		for j, w := range r.requests() {
			if w.event != nil && x.scenario.late && len(m.actors[0].requests()) > 0 {
				continue
			}
			if j > 0 && m.preemptions+cost+1 > x.preemptions {
				break // a request out of order costs as much as an interruption
			}
			os = append(os, choice{i, j, none})
			for _, f := range x.kinds {
				if m.faults < x.faults && x.applies(f, m, w) {
					os = append(os, choice{i, j, f})
				}
			}
		}
		if m.faults < x.faults && len(r.requests()) > 0 && cost == 0 && slices.Contains(x.kinds, dies) {
			os = append(os, choice{i, 0, dies})
		}
	}
	return os
}

// mix adds a number to a hash.
func mix(h, x uint64) uint64 {
	h = (h ^ x) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>29) * 0x94d049bb133111eb
	return h ^ h>>32
}

// records returns a digest of the records only.
func (m state) records() uint64 {
	h := mix(uint64(m.now), m.commits)
	for i, n := range m.cells {
		if n != 0 {
			h = mix(h, uint64(i)<<32|uint64(n))
		}
	}
	return h
}

// sum returns a digest of the state, without the budgets used to reach it.
func (m state) sum() uint64 {
	h := mix(m.records(), uint64(m.current+1)<<8|uint64(m.deaths))
	for i, bits := range m.owners {
		h = mix(h, uint64(i)<<8|uint64(bits))
	}
	h = mix(h, uint64(m.fault)<<8|uint64(m.forbidden))
	for _, r := range m.actors {
		n := r.at.number << 2
		if r.commitOK {
			n |= 1
		}
		if r.dead {
			n = 2
		}
		h = mix(h, n)
	}
	return h
}

// checkInvariants describes an invariant that the records break, or returns "".
func (x *explorer) checkInvariants(m state) string {
	if m.outdated && !m.undone {
		return "schema: a commit was made under a schema that is no longer in force"
	}
	if m.wrongAnswer != "" {
		return m.wrongAnswer
	}
	sum := m.records()
	if x.judged[sum] && !x.scenario.history || m.undone {
		return "" // if an acknowledged write was lost, only answers to lookups are checked
	}
	for i, r := range m.actors {
		for j := range maxVerbs {
			if m.commits>>(4*(i*maxVerbs+j))&15 > 1 {
				return fmt.Sprintf("I7: committed twice: actor %d: verb %d, %s", i, j, x.scenario.actors[r.at.actor][j].name)
			}
		}
	}
	x.memo.fill(m.now, m.cells)
	v := cmp.Or(x.sim.violation(), x.checkHistory(m))
	x.judged[sum] = v == ""
	return v
}

// checkEnd describes what is wrong with a run that has ended, or returns "".
func (x *explorer) checkEnd(m state) string {
	x.memo.fill(m.now, m.cells)
	if m.undone {
		return ""
	}
	if v := x.checkAnswers(m); v != "" {
		return v + x.describe(m.trace)
	}
	if x.scenario.final != nil {
		if v := x.scenario.final(x.sim); v != "" {
			return v + x.describe(m.trace)
		}
	}
	if x.scenario.answers != nil {
		if v := x.scenario.answers(m, x.sim); v != "" {
			return v + x.describe(m.trace)
		}
	}
	if m.forbidden != 0 {
		if v := x.sim.checkHalfDeleted(); v != "" {
			return v + x.describe(m.trace)
		}
		return ""
	}
	if v := x.checkFeed(m); v != "" && m.fault < moved {
		return v + x.describe(m.trace)
	}
	if m.deaths > 0 {
		return ""
	}
	won, verbs := 0, 0
	for _, r := range m.actors {
		verbs += len(r.at.errs)
		if r.at.timedOut {
			x.timedOut++
			return "" // without random waits, contenders may block each other forever
		}
		for _, err := range r.at.errs {
			if err == nil {
				won++
			}
		}
	}
	if m.fault >= moved && (m.fault < refused || x.sim.world.answer != nonLocal || won < verbs) {
		return "" // an actor that is always refused gives up, and may leave garbage
	}
	x.sim.claimsStay = m.fault == gaveUp
	if v := x.sim.garbage(); v != "" && (m.fault < refused || !strings.HasPrefix(v, "I4") && !x.isUnendingTombstone(v)) {
		return v + x.describe(m.trace)
	}
	if x.scenario.wins > 0 && m.fault != gaveUp && won != x.scenario.wins {
		return fmt.Sprintf("%d verbs succeeded, want %d", won, x.scenario.wins) + x.describe(m.trace)
	}
	return ""
}

// isUnendingTombstone reports whether garbage is a tombstone without a time to live. A server that
// forbids EXPIRE leaves one if the commit is not sent again.
func (x *explorer) isUnendingTombstone(garbage string) bool {
	return x.sim.world.answer == noPermission && strings.HasPrefix(garbage, "a tombstone without an end")
}

// checkAnswers describes a verb that failed although its change was made, or that succeeded
// although its change was not made. It returns "" if there is none.
func (x *explorer) checkAnswers(m state) string {
	for i, r := range m.actors {
		for j, err := range r.at.errs {
			v := x.scenario.actors[i][j]
			done := m.commits>>(4*(i*maxVerbs+j))&15 > 0
			var corrupt *store.CorruptError
			switch {
			case errors.As(err, &corrupt):
				return fmt.Sprintf("corrupt: actor %d: %s: %v", i, v.name, err)
			case done && err != nil && !errors.Is(err, store.ErrOutcomeUnknown) && !errors.Is(err, store.ErrUnconfirmed):
				return fmt.Sprintf("refused, but done: actor %d: %s: %v", i, v.name, err)
			case !done && (err == nil || errors.Is(err, store.ErrUnconfirmed)) && v.commits:
				return fmt.Sprintf("answered, but not done: actor %d: %s", i, v.name)
			}
		}
	}
	return ""
}

// describe returns the steps of a run as text.
func (x *explorer) describe(t *trace) string {
	var all []choice
	for ; t != nil; t = t.before {
		all = append(all, t.choice)
	}
	var out strings.Builder
	m := x.initial()
	for _, c := range slices.Backward(all) {
		r := m.actors[c.actor]
		w := r.at.requests[c.request]
		answer := ""
		if c.fault != dies && !w.pauses() {
			scratch, of := m, r
			_, reply := x.carryOut(&scratch, &of, w, c.fault)
			answer = " → " + replyText(reply)
		}
		text := w.text
		for _, s := range scriptNames {
			text = strings.Replace(text, "evalsha "+s.script.SHA, s.name, 1)
		}
		fmt.Fprintf(&out, "\n  %d %s %s%s", c.actor, c.fault, text, answer)
		m = x.take(m, c)
	}
	for i, r := range m.actors {
		fmt.Fprintf(&out, "\n  %d ended: %v", i, r.at.errs)
	}
	return out.String()
}

// nameOf returns the name of a script that actors run.
func nameOf(script redisx.Script) string {
	for _, s := range scriptNames {
		if s.script.SHA == script.SHA {
			return s.name
		}
	}
	return script.SHA
}

var scriptNames = []struct {
	name   string
	script redisx.Script
}{
	{"claim", claimScript},
	{"swap", swapScript},
	{"fence", fenceScript},
	{"prepare", prepareScript},
	{"commit", commitScript},
	{"dying", dyingScript},
	{"stage", stageScript},
	{"promote", onekey.PromoteScript},
	{"filled", onekey.FilledScript},
	{"schema", schemaScript},
	{"would_change", wouldChangeScript},
	{"act", actScript},
	{"note", onekey.NoteScript},
	{"feed", onekey.FeedScript},
	{"session", onekey.SessionScript},
	{"issue", onekey.IssueScript},
	{"preserve", onekey.PreserveScript},
	{"restoreheld", onekey.RestoreHeldScript},
	{"movehold", onekey.MoveHoldScript},
	{"remove", onekey.RemoveScript},
}
