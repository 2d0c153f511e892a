package overlap

import (
	"encoding/binary"
	"slices"
)

// The limits of one search. They keep it below some tens of megabytes and one second.
const (
	maxNodes      = 1 << 16
	maxSearchWork = 1 << 24

	maxTries = 1 << 11 // for each length
	tryWork  = 1 << 10 // the work of a try, relative to one step of an automaton
	nodeWork = 1 << 4  // the work of one edge out of a node
)

// A search runs the automata of several expressions in parallel, one character at a time, starting
// from the empty text. A node consists of one state of each automaton.
type search struct {
	automata []*automaton
	alpha    alphabet
	work     int // remaining work
	longest  int // in characters
	nodes    []node
	ids      map[string]int32
	frontier []int32 // nodes of the last level reached
	level    int     // number of characters that lead to frontier
	complete bool    // whether all texts have been reached
}

// A node can be reached by level characters but not by fewer. from and class are the cheapest edge
// to it.
type node struct {
	at      []int32 // the state of each automaton
	level   int
	cost    int
	from    int32
	class   int32
	accepts bool    // whether a text may end here
	next    []int32 // by class: a node, or noNode; nil before the node is expanded
}

const noNode = -1

// newSearch returns a search for texts of at most longest characters that satisfy all expressions
// and consist of allowed characters.
func newSearch(exprs []Expr, longest, work int, allowed func(rune) bool) *search {
	s := &search{work: work, longest: longest, ids: make(map[string]int32)}
	sets := newRuneSets()
	for _, e := range exprs {
		s.automata = append(s.automata, newAutomaton(e, sets, &s.work))
	}
	s.alpha = newAlphabet(sets, allowed)
	start := make([]int32, len(s.automata))
	for i, a := range s.automata {
		a.alpha = s.alpha
		start[i] = a.start()
	}
	s.add(start) // not in ids, because nothing leads back to the empty text
	return s
}

// run looks for a shortest text that satisfies the expressions and for which valid returns true.
func (s *search) run(valid func(string) bool) Result {
	for s.advance() {
		if end := s.cheapestEnd(); end != noNode {
			if value := s.text(end); valid(value) {
				return Result{Witness: value, Shortest: true}
			}
			return s.enumerate(valid)
		}
	}
	return Result{Disjoint: s.complete}
}

// advance expands the nodes of the last level. It returns false if all texts have been reached or a
// limit is exceeded.
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
		if len(s.nodes) > maxNodes || s.work < 0 {
			return false
		}
	}
	return true
}

func (s *search) expand(id int32) {
	next := make([]int32, len(s.alpha))
	for class := range s.alpha {
		next[class] = noNode
		at := s.after(s.nodes[id].at, class)
		if at == nil {
			continue
		}
		next[class] = s.visit(at)
		s.recordEdge(id, next[class], class)
	}
	s.nodes[id].next = next
}

// after returns the states after one more character, or nil if one of them is dead.
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

// visit returns the node with the given states. It adds the node if necessary.
func (s *search) visit(at []int32) int32 {
	key, _ := binary.Append(nil, binary.BigEndian, at)
	id, known := s.ids[string(key)]
	if !known {
		id = s.add(at)
		s.ids[string(key)] = id
	}
	return id
}

func (s *search) add(at []int32) int32 {
	id := int32(len(s.nodes))
	n := node{at: at, level: s.level, from: noNode, accepts: true}
	for i, a := range s.automata {
		n.accepts = n.accepts && a.accepts(at[i])
	}
	s.nodes = append(s.nodes, n)
	s.frontier = append(s.frontier, id)
	s.work -= nodeWork * len(s.alpha)
	return id
}

// recordEdge records an edge from a node of the previous level to another node if it is the
// cheapest one to that node.
func (s *search) recordEdge(from, to int32, class int) {
	n := &s.nodes[to]
	cost := s.nodes[from].cost + s.alpha[class].cost
	if n.level == s.level && (n.from == noNode || cost < n.cost) {
		n.from, n.class, n.cost = from, int32(class), cost
	}
}

// cheapestEnd returns the node of the last level at which the most readable text ends, or noNode.
func (s *search) cheapestEnd() int32 {
	best := int32(noNode)
	for _, id := range s.frontier {
		if s.nodes[id].accepts && (best == noNode || s.nodes[id].cost < s.nodes[best].cost) {
			best = id
		}
	}
	return best
}

// text returns the cheapest text that leads to a node.
func (s *search) text(id int32) string {
	var reversed []rune
	for ; s.nodes[id].from != noNode; id = s.nodes[id].from {
		reversed = append(reversed, s.alpha[s.nodes[id].class].picks[0])
	}
	slices.Reverse(reversed)
	return string(reversed)
}

// An enumeration lists the texts that the automata accept, the shortest first.
type enumeration struct {
	*search
	valid func(string) bool
	ends  [][]bool // by number of remaining characters, then by node: whether a text can end then
	text  []rune
	left  int  // remaining tries for the current length
	all   bool // whether no text was skipped
}

// enumerate tries further texts after the first one was rejected.
func (s *search) enumerate(valid func(string) bool) Result {
	shortest := s.level
	for s.advance() {
	}
	e := &enumeration{search: s, valid: valid, all: true}
	for size := range s.longest + 1 {
		if !e.extend() {
			break
		}
		e.left = maxTries
		if size > 0 && e.spell(0, size) {
			// All shorter texts are known, unless some were skipped or a limit stopped the search
			// before their length.
			known := e.all && (s.complete || size < s.level)
			return Result{Witness: string(e.text), Shortest: size == shortest || known}
		}
		if s.work < 0 {
			return Result{}
		}
	}
	return Result{Disjoint: s.complete && e.all}
}

// extend finds the nodes from which a text can end one character later than before. It returns
// false if there are none.
func (e *enumeration) extend() bool {
	ends := make([]bool, len(e.nodes))
	for id, n := range e.nodes {
		if len(e.ends) == 0 {
			ends[id] = n.accepts
			continue
		}
		ends[id] = slices.ContainsFunc(n.next, func(next int32) bool {
			return next != noNode && e.ends[len(e.ends)-1][next]
		})
	}
	e.work -= len(e.nodes)
	e.ends = append(e.ends, ends)
	return slices.Contains(ends, true)
}

// spell tries the texts that continue from a node with size more characters. It stops when one
// satisfies e.valid or no tries are left.
func (e *enumeration) spell(id int32, size int) bool {
	if size == 0 {
		e.left--
		e.work -= tryWork
		return e.valid(string(e.text))
	}
	for class, next := range e.nodes[id].next {
		if next != noNode && e.ends[size-1][next] && e.spellClass(class, next, size-1) {
			return true
		}
	}
	return false
}

func (e *enumeration) spellClass(class int, next int32, size int) bool {
	c := &e.alpha[class]
	e.all = e.all && c.complete
	for _, r := range c.picks {
		if e.left <= 0 {
			e.all = false
			return false
		}
		e.text = append(e.text, r)
		if e.spell(next, size) {
			return true
		}
		e.text = e.text[:len(e.text)-1]
	}
	return false
}
