package validate

import (
	"encoding/binary"
	"slices"
)

// The limits of one search: memory of some ten megabytes, and time of less than
// a second. All of a type have maxAllWork together.
const (
	maxNodes   = 1 << 16
	maxWork    = 1 << 24
	maxAllWork = 1 << 26

	maxTries = 1 << 11 // of one length
	tryWork  = 1 << 10 // what a try costs beside a step of an automaton
	nodeWork = 1 << 4  // and one way out of a node
)

// budget is what a search may still spend on its automata.
type budget struct{ left int }

func (b *budget) spend(n int) { b.left -= n }

// search walks the automata of several expressions at once, a character at a
// time, from the empty text. A node is a state of each.
type search struct {
	automata []*automaton
	alpha    *alphabet
	work     budget
	longest  int // characters
	nodes    []node
	ids      map[string]int32
	frontier []int32 // nodes of the last level that is reached
	level    int     // characters on the way to them
	complete bool    // there is nothing behind them
}

// node is reached in level characters and no fewer, best by cost from another.
type node struct {
	at    []int32 // states
	level int
	cost  int
	from  int32
	class int32
	takes bool    // a text may end here
	next  []int32 // by class: a node, or noNode; nil before it is expanded
}

const noNode = -1

// newSearch prepares a search for texts of at most longest bytes that all parts
// take, of characters that stand in a value.
func newSearch(parts []part, longest, work int, stands func(rune) bool) *search {
	s := &search{work: budget{work}, longest: longest, ids: make(map[string]int32)}
	sets := newRuneSets()
	for _, p := range parts {
		s.automata = append(s.automata, newAutomaton(p, sets, &s.work))
	}
	s.alpha = newAlphabet(sets, stands)
	start := make([]int32, len(s.automata))
	for i, a := range s.automata {
		a.alpha = s.alpha
		start[i] = a.start()
	}
	s.add(start) // not among the ids: no way leads back to the empty text
	return s
}

// finding is what a search ends with: Overlap and a text, Orthogonal if there is
// none, NotDecided behind the limits.
type finding struct {
	verdict       Verdict
	witness, note string
}

// run looks for a shortest text that the parts and right take.
func (s *search) run(right func(string) bool) finding {
	for s.advance() {
		if end := s.cheapestEnd(); end != noNode {
			if value := s.text(end); right(value) {
				return finding{verdict: Overlap, witness: value}
			}
			return s.enumerate(right)
		}
	}
	if s.complete {
		return finding{verdict: Orthogonal}
	}
	return undecided
}

var undecided = finding{note: "the limit was reached first"}

// advance expands the nodes of the last level. It returns false at the end of all
// texts, and at the limits.
func (s *search) advance() bool {
	if len(s.frontier) == 0 || s.level == s.longest {
		s.complete = true
		return false
	}
	last := s.frontier
	s.frontier = nil
	s.level++
	for _, id := range last {
		s.expand(id)
		if len(s.nodes) > maxNodes || s.work.left < 0 {
			return false
		}
	}
	return true
}

func (s *search) expand(id int32) {
	next := make([]int32, len(s.alpha.classes))
	for class := range s.alpha.classes {
		next[class] = noNode
		at := s.after(s.nodes[id].at, class)
		if at == nil {
			continue
		}
		next[class] = s.visit(at)
		s.lead(id, next[class], class)
	}
	s.nodes[id].next = next
}

// after returns the states behind one more character, nil where one of them is
// dead.
func (s *search) after(at []int32, class int) []int32 {
	next := make([]int32, len(at))
	for i, a := range s.automata {
		next[i] = a.after(at[i], class)
		if a.dead(next[i]) {
			return nil
		}
	}
	return next
}

// visit returns the node with these states, made if it is new.
func (s *search) visit(at []int32) int32 {
	key := make([]byte, 0, 4*len(at))
	for _, state := range at {
		key = binary.BigEndian.AppendUint32(key, uint32(state))
	}
	id, known := s.ids[string(key)]
	if !known {
		id = s.add(at)
		s.ids[string(key)] = id
	}
	return id
}

func (s *search) add(at []int32) int32 {
	id := int32(len(s.nodes))
	s.nodes = append(s.nodes, node{at: at, level: s.level, from: noNode, takes: s.allTake(at)})
	s.frontier = append(s.frontier, id)
	s.work.spend(nodeWork * len(s.alpha.classes))
	return id
}

func (s *search) allTake(at []int32) bool {
	for i, a := range s.automata {
		if !a.takes(at[i]) {
			return false
		}
	}
	return true
}

// lead notes that a node of the level before leads to one, if it does so best.
func (s *search) lead(from, to int32, class int) {
	n := &s.nodes[to]
	cost := s.nodes[from].cost + s.alpha.classes[class].cost
	if n.level == s.level && (n.from == noNode || cost < n.cost) {
		n.from, n.class, n.cost = from, int32(class), cost
	}
}

// cheapestEnd returns the node of the last level where the most readable text
// ends.
func (s *search) cheapestEnd() int32 {
	best := int32(noNode)
	for _, id := range s.frontier {
		if s.nodes[id].takes && (best == noNode || s.nodes[id].cost < s.nodes[best].cost) {
			best = id
		}
	}
	return best
}

// text returns the text that leads to a node.
func (s *search) text(id int32) string {
	var reversed []rune
	for ; s.nodes[id].from != noNode; id = s.nodes[id].from {
		reversed = append(reversed, s.alpha.classes[s.nodes[id].class].picks[0])
	}
	slices.Reverse(reversed)
	return string(reversed)
}
