package cluster

import (
	"hash/maphash"
	"slices"
	"testing/synctest"
)

// A troupe knows what each actor of a scenario does next, whatever it was told before: the engine's own code
// was asked once for each, and is asked again only for what it was never told.
type troupe struct {
	stage  *stage
	verbs  [][]verb
	nodes  map[nodeName]*node
	parked []*node // with an actor that can go on from there
}

type nodeName struct {
	actor int
	seen  uint64
}

// A node is an actor that waits for answers. What it was told in which order does not matter where it
// asked for several things at a time.
type node struct {
	number uint64
	seen   uint64
	actor  int
	wants  []want
	verb   string
	done   int // verbs that have ended
	tokens int
	errs   []error // results of the verbs that have ended
	weary  bool    // its time is over
	before *node   // how it came here: by this answer
	told   telling
	next   map[heard]*node
	live   *actor
}

// A want is a request as it is known before it is made.
type want struct {
	*request
	id   uint32 // of its text
	keys []int
}

func (w want) pauses() bool { return w.text == "pause" }

// resting says whether an actor may be left alone here without being stopped in the middle.
func (n *node) resting() bool {
	return !slices.ContainsFunc(n.wants, func(w want) bool { return !w.pauses() })
}

type telling struct {
	want  int
	reply any
	lost  bool
}

// heard is a telling by the number of its reply.
type heard struct {
	want  int
	reply uint32
	lost  bool
}

// mostParked bounds the goroutines that wait for a search to come back to them.
const mostParked = 30_000

func newTroupe(s *stage, verbs [][]verb) *troupe {
	return &troupe{stage: s, verbs: verbs, nodes: map[nodeName]*node{}}
}

// first is an actor that was told nothing yet.
func (t *troupe) first(st *stock, i int) *node { return t.nodeOf(st, t.begin(i), nil, telling{}) }

func (t *troupe) begin(i int) *actor {
	a := t.stage.cast(i, t.verbs[i])
	synctest.Wait()
	return a
}

// tell is what an actor does when it is answered.
func (t *troupe) tell(st *stock, n *node, h heard, reply any) *node {
	if next := n.next[h]; next != nil {
		return next
	}
	a := n.live
	if n.live = nil; a == nil {
		a = t.repeat(n)
	}
	told := telling{h.want, reply, h.lost}
	a.hear(told)
	next := t.nodeOf(st, a, n, told)
	n.next[h] = next
	return next
}

// repeat brings an actor where a node is.
func (t *troupe) repeat(n *node) *actor {
	var all []telling
	for at := n; at.before != nil; at = at.before {
		all = append(all, at.told)
	}
	a := t.begin(n.actor)
	for _, told := range slices.Backward(all) {
		a.hear(told)
	}
	if !n.fits(a) {
		panic("an actor that was told the same does something else")
	}
	return a
}

// fits says whether an actor is where a node is: orders of goroutines must make no difference.
func (n *node) fits(a *actor) bool {
	return n.seen == a.seen && slices.EqualFunc(n.wants, a.waiting(), func(w want, r *request) bool {
		return w.text == r.text && w.after == r.after
	})
}

// hear answers an actor, and waits until it waits again.
func (a *actor) hear(t telling) {
	r := a.waiting()[t.want]
	a.mu.Lock()
	a.pending = slices.DeleteFunc(a.pending, func(p *request) bool { return p == r })
	a.mu.Unlock()
	answer := "lost"
	err := a.tire(r)
	if t.lost {
		err = errLost
	} else if r.cmd != nil {
		_ = setAnswer(r.cmd, t.reply) // the error stands in the command
		answer = replyText(t.reply)
	}
	if err == errWeary {
		answer = "too late"
	}
	a.note(r, answer)
	a.grant(r.text)
	r.grant <- err
	synctest.Wait()
}

// note adds to what tells an actor's states apart.
func (a *actor) note(r *request, answer string) {
	text := r.text + "\x00" + r.after
	a.count[text]++
	a.seen += maphash.String(seed, text+string(rune('0'+a.count[text]))+answer)
}

// nodeOf is where an actor is now.
func (t *troupe) nodeOf(st *stock, a *actor, before *node, told telling) *node {
	name := nodeName{a.id, a.seen}
	n := t.nodes[name]
	if n == nil {
		n = &node{number: uint64(len(t.nodes) + 1), seen: a.seen, actor: a.id, before: before, told: told, next: map[heard]*node{}}
		for _, r := range a.waiting() {
			n.wants = append(n.wants, st.want(r))
		}
		a.mu.Lock()
		n.verb, n.done, n.tokens, n.errs = a.verb, len(a.results), a.tokens, slices.Clone(a.results)
		n.weary = a.weary()
		a.mu.Unlock()
		t.nodes[name] = n
	} else if !n.fits(a) {
		panic("actors that were told the same do different things")
	}
	if n.live != nil || len(n.wants) == 0 {
		t.stage.die(a)
		return n
	}
	n.live = a
	if t.parked = append(t.parked, n); len(t.parked) > mostParked {
		t.leave(t.parked[0])
		t.parked = t.parked[1:]
	}
	return n
}

func (t *troupe) leave(n *node) {
	if n.live != nil {
		t.stage.die(n.live)
		n.live = nil
	}
}

// close ends all actors.
func (t *troupe) close() {
	for _, n := range t.parked {
		t.leave(n)
	}
	t.parked = nil
}
