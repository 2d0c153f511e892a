package cluster

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"

	"github.com/coffeenode/userdb/internal/store"
)

// A memo gives a number to every key, record and reply that occurs in a search, and remembers what
// each command does to the records at its keys. So a command runs only once in each situation,
// whatever other records there are.
type memo struct {
	world       *world            // runs commands that are not known yet
	keys        map[string]int    // numbers of keys
	names       []string          // keys by number
	cells       map[string]uint32 // numbers of records, by their texts
	records     []*cell           // by number; 0 is no record
	texts       map[string]uint32 // numbers of the texts of commands
	replies     map[string]uint32 // numbers of replies, by their texts
	replyValues []any             // by number
	effects     map[situation]effect
}

// maxKeys is how many keys a command may have.
const maxKeys = 3

// A situation is a command together with the records at its keys.
type situation struct {
	text   uint32          // the number of the command's text
	now    int64           // the time
	at     [maxKeys]uint32 // the records at its keys
	refuse int             // which writes are refused, as in world.refuse
}

// An effect describes what a command does in a situation.
type effect struct {
	reply     uint32          // the number of the reply
	cells     [maxKeys]uint32 // the records at its keys afterwards
	now       int64           // the time afterwards
	committed bool            // an entry's rev changed
	ok        bool            // a commit returned ok
	refused   bool            // a write of the script was refused
}

func newMemo(w *world) *memo {
	return &memo{
		world: w, keys: map[string]int{}, cells: map[string]uint32{}, records: []*cell{nil},
		texts: map[string]uint32{}, replies: map[string]uint32{}, effects: map[situation]effect{},
	}
}

// key returns the number of a key. Like cell, text and reply, it gives out a new number for
// something that it has not seen before.
func (st *memo) key(name string) int {
	i, known := st.keys[name]
	if !known {
		i = len(st.names)
		st.keys[name], st.names = i, append(st.names, name)
	}
	return i
}

func (st *memo) cell(c *cell) uint32 {
	if c == nil {
		return 0
	}
	text := c.String()
	n, known := st.cells[text]
	if !known {
		n = uint32(len(st.records))
		st.cells[text], st.records = n, append(st.records, c.clone())
	}
	return n
}

func (st *memo) text(s string) uint32 {
	n, known := st.texts[s]
	if !known {
		n = uint32(len(st.texts))
		st.texts[s] = n
	}
	return n
}

func (st *memo) reply(v any) uint32 {
	text := replyText(v)
	n, known := st.replies[text]
	if !known {
		n = uint32(len(st.replyValues))
		st.replies[text], st.replyValues = n, append(st.replyValues, v)
	}
	return n
}

// replyText returns a text that is different for different replies.
func replyText(v any) string {
	switch v := v.(type) {
	case string:
		return strconv.Quote(v)
	case replyError:
		return "error " + string(v)
	case []any:
		parts := make([]string, len(v))
		for i, x := range v {
			parts[i] = replyText(x)
		}
		return "[" + strings.Join(parts, " ") + "]"
	}
	return fmt.Sprint(v)
}

// numbered returns a request with numbers for its text and keys.
func (st *memo) numbered(r *request) numberedRequest {
	w := numberedRequest{request: r, id: st.text(r.text)}
	if r.cmd != nil {
		w.keys = st.keysOf(r.args)
	}
	return w
}

// keysOf returns the numbers of a command's keys, at most maxKeys.
func (st *memo) keysOf(args []string) []int {
	names := args[1:2]
	if args[0] == "evalsha" {
		n, _ := strconv.Atoi(args[2])
		names = args[3 : 3+n]
	}
	keys := make([]int, len(names))
	for i, name := range names {
		keys[i] = st.key(name)
	}
	return keys
}

// run returns the effect of a command.
func (st *memo) run(w numberedRequest, now int64, cells []uint32, refuse int) effect {
	d := situation{text: w.id, now: now, refuse: refuse}
	for i, k := range w.keys {
		d.at[i] = at(cells, k)
	}
	e, known := st.effects[d]
	if !known {
		e = st.compute(w, d)
		st.effects[d] = e
	}
	return e
}

// compute runs a command in a situation and returns its effect.
func (st *memo) compute(w numberedRequest, d situation) effect {
	st.world.reset(nil)
	st.world.now = d.now
	for i, k := range w.keys {
		if n := d.at[i]; n != 0 {
			st.world.cells[st.names[k]] = st.records[n].clone()
		}
	}
	e := effect{cells: d.at}
	if w.event != nil {
		w.event(st.world)
	}
	if w.cmd != nil || w.args != nil {
		before := st.rev(w)
		st.world.refuse, st.world.refused = d.refuse, false
		var reply any
		if st.world.forbids(strings.ToLower(w.args[0])) {
			reply, st.world.refused = st.world.answer, true
		} else {
			reply = st.world.do(w.args)
		}
		st.world.refuse, e.refused = 0, d.refuse != 0 && st.world.refused
		e.reply = st.reply(reply)
		if w.args[0] == "evalsha" && w.args[1] == commitScript.SHA {
			list, _ := reply.([]any)
			e.ok, e.committed = len(list) > 0 && list[0] == "ok", st.rev(w) != before
		}
	}
	for i, k := range w.keys {
		e.cells[i] = st.cell(st.world.at(st.names[k]))
	}
	e.now = st.world.now
	return e
}

// rev returns the field ~rev of the entry under the first key of a command, or "" if there is none.
func (st *memo) rev(w numberedRequest) string {
	rev, _ := st.world.at(st.names[w.keys[0]]).field(store.FieldRev).(string)
	return rev
}

// fill replaces the records of the world with cells.
func (st *memo) fill(now int64, cells []uint32) {
	st.world.now = now
	st.world.cells = make(map[string]*cell, len(cells))
	for i, n := range cells {
		if n != 0 {
			st.world.cells[st.names[i]] = st.records[n]
		}
	}
}

func at(cells []uint32, key int) uint32 {
	if key < len(cells) {
		return cells[key]
	}
	return 0
}

// put returns cells with another record at a key. It may change cells.
func put(cells []uint32, key int, n uint32) []uint32 {
	for len(cells) <= key {
		cells = append(cells, 0)
	}
	cells[key] = n
	return cells
}

func (c *cell) clone() *cell {
	n := *c
	n.hash = maps.Clone(c.hash)
	return &n
}

// String returns a text that is different for different records.
func (c *cell) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%c %d %q", c.kind, c.ends, c.text)
	for _, f := range slices.Sorted(maps.Keys(c.hash)) {
		fmt.Fprintf(&b, " %q=%q", f, c.hash[f])
	}
	return b.String()
}

// A behaviour knows what each actor of a scenario does after any sequence of answers. It runs the
// engine's own code, but only for sequences that it does not know yet.
type behaviour struct {
	sim    *simulation
	verbs  [][]verb
	nodes  map[nodeName]*node
	parked []*node // nodes with an actor that can continue from there
}

type nodeName struct {
	actor  int
	digest uint64 // of all answers to the actor
}

// A node is an actor that waits for answers. If it sent several requests at once, the order of the
// answers does not matter.
type node struct {
	number   uint64
	digest   uint64
	actor    int
	requests []numberedRequest
	verb     string
	done     int      // number of verbs that have ended
	revs     int      // number of attempts that have begun
	errs     []error  // results of the verbs that have ended
	timedOut bool     // its time is over
	before   *node    // the node before this one
	answer   delivery // the answer that led here from the node before
	next     map[deliveryKey]*node
	live     *actor // an actor that waits here, or nil
}

// A numberedRequest is a request with numbers for its text and keys.
type numberedRequest struct {
	*request
	id   uint32 // the number of its text
	keys []int
}

func (w numberedRequest) pauses() bool { return w.text == "pause" }

// onlyPauses reports whether an actor waits only for pauses here. If so, a step of another actor
// does not interrupt it.
func (n *node) onlyPauses() bool {
	return !slices.ContainsFunc(n.requests, func(w numberedRequest) bool { return !w.pauses() })
}

// A delivery is an answer to one of the requests of an actor.
type delivery struct {
	request int
	reply   any
	fault   fault // why no answer came, or none
}

// A deliveryKey is a delivery with the number of its reply.
type deliveryKey struct {
	request int
	reply   uint32
	fault   fault
}

// maxParked limits the number of actors that are kept waiting in case the search returns to them.
const maxParked = 30_000

func newBehaviour(s *simulation, verbs [][]verb) *behaviour {
	return &behaviour{sim: s, verbs: verbs, nodes: map[nodeName]*node{}}
}

// first returns the node that actor i reaches before it has any answer.
func (t *behaviour) first(st *memo, i int) *node { return t.nodeOf(st, t.begin(i), nil, delivery{}) }

func (t *behaviour) begin(i int) *actor {
	a := t.sim.newActor(i, t.verbs[i])
	synctest.Wait()
	return a
}

// advance returns the node that an actor reaches after an answer.
func (t *behaviour) advance(st *memo, n *node, h deliveryKey, reply any) *node {
	if next := n.next[h]; next != nil {
		return next
	}
	a := n.live
	if n.live = nil; a == nil {
		a = t.repeat(n)
	}
	answer := delivery{h.request, reply, h.fault}
	a.deliver(answer)
	next := t.nodeOf(st, a, n, answer)
	n.next[h] = next
	return next
}

// repeat gives a new actor all answers that lead to a node, and returns the actor.
func (t *behaviour) repeat(n *node) *actor {
	var all []delivery
	for at := n; at.before != nil; at = at.before {
		all = append(all, at.answer)
	}
	a := t.begin(n.actor)
	for _, answer := range slices.Backward(all) {
		a.deliver(answer)
	}
	if !n.fits(a) {
		panic("an actor that got the same answers does something else")
	}
	return a
}

// fits reports whether an actor has reached a node. The order in which its goroutines ran must make
// no difference.
func (n *node) fits(a *actor) bool {
	return n.digest == a.first.digest && slices.EqualFunc(n.requests, a.waiting(), func(w numberedRequest, r *request) bool {
		return w.text == r.text && w.after == r.after
	})
}

// deliver answers one request of an actor, and returns once the actor waits for answers again.
func (a *actor) deliver(t delivery) {
	r := a.waiting()[t.request]
	a.mu.Lock()
	a.pending = slices.DeleteFunc(a.pending, func(p *request) bool { return p == r })
	a.mu.Unlock()
	answer := "lost"
	err := a.countPause(r)
	if failed := t.fault.unanswered(); failed != nil {
		answer += fmt.Sprint(t.fault)
		err = failed
	} else if r.cmd != nil {
		_ = setAnswer(r.cmd, t.reply) // the error is in the command
		answer = replyText(t.reply)
	}
	if err == errTimeUp {
		answer = "too late"
	}
	a.addDigest(r, answer)
	r.grant <- err
	synctest.Wait()
}

// addDigest adds an answer to the digest that tells an actor's states apart.
func (a *actor) addDigest(r *request, answer string) {
	sum := sha256.Sum256(fmt.Appendf(nil, "%x %s\x00%s", r.after, r.text, answer))
	digest := binary.LittleEndian.Uint64(sum[:])
	a.mu.Lock()
	defer a.mu.Unlock()
	for t := r.by; t != nil; t = t.parent {
		t.digest += digest
	}
}

// nodeOf returns the node that an actor has reached.
func (t *behaviour) nodeOf(st *memo, a *actor, before *node, answer delivery) *node {
	name := nodeName{a.id, a.first.digest}
	n := t.nodes[name]
	if n == nil {
		n = &node{number: uint64(len(t.nodes) + 1), digest: a.first.digest, actor: a.id, before: before, answer: answer, next: map[deliveryKey]*node{}}
		for _, r := range a.waiting() {
			n.requests = append(n.requests, st.numbered(r))
		}
		a.mu.Lock()
		n.verb, n.done, n.revs, n.errs = a.verb, len(a.results), a.revs, slices.Clone(a.results)
		n.timedOut = a.timedOut()
		a.mu.Unlock()
		t.nodes[name] = n
	} else if !n.fits(a) {
		panic("actors that got the same answers do different things")
	}
	if n.live != nil || len(n.requests) == 0 {
		t.sim.die(a)
		return n
	}
	n.live = a
	if t.parked = append(t.parked, n); len(t.parked) > maxParked {
		t.stop(t.parked[0])
		t.parked = t.parked[1:]
	}
	return n
}

func (t *behaviour) stop(n *node) {
	if n.live != nil {
		t.sim.die(n.live)
		n.live = nil
	}
}

// close stops all actors.
func (t *behaviour) close() {
	for _, n := range t.parked {
		t.stop(n)
	}
	t.parked = nil
}
