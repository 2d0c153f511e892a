package overlap

import (
	"encoding/binary"
	"regexp/syntax"
	"slices"
)

// An automaton runs a program over all texts at once. A state represents everything that the
// program can be doing after some text. States are built when a search first reaches them.
type automaton struct {
	prog   *syntax.Prog
	not    bool
	reads  []int // by instruction: the rune set that it reads, or -1
	alpha  alphabet
	work   *int // remaining work
	states []state
	ids    map[string]int32
	mark   []uint32 // by instruction: the last walk that visited it
	walks  uint32
	revive bool // whether a match can still begin after the first character
}

// A state is a set of instructions that read the next character and of assertions that depend on
// it.
type state struct {
	pcs     []uint32
	waiting bool // whether pcs contains assertions that depend on the next character
	prev    rune // the previous character, as far as assertions distinguish it
	matched bool // whether there is a match, whatever follows
	ends    bool // whether there is a match if the text ends here
	next    []int32
}

// Characters before and after a position, as assertions distinguish them.
const (
	unseen    rune = -2
	textEdge  rune = -1
	wordRune  rune = 'a'
	otherRune rune = '!'
)

func newAutomaton(e Expr, sets *runeSets, work *int) *automaton {
	a := &automaton{prog: e.prog, not: e.not, work: work, ids: make(map[string]int32)}
	a.mark = make([]uint32, len(e.prog.Inst))
	a.reads = make([]int, len(e.prog.Inst))
	for pc := range e.prog.Inst {
		inst := &e.prog.Inst[pc]
		a.reads[pc] = -1
		switch inst.Op {
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			a.reads[pc] = sets.id(inst)
		case syntax.InstEmptyWidth:
			sets.id(assertedRunes(inst))
		}
	}
	return a
}

// assertedRunes returns the set of runes that an assertion distinguishes from all others.
func assertedRunes(inst *syntax.Inst) *syntax.Inst {
	if syntax.EmptyOp(inst.Arg)&(syntax.EmptyWordBoundary|syntax.EmptyNoWordBoundary) != 0 {
		return wordRunes
	}
	return lineRunes
}

// start returns the state before any text. It also sets a.revive.
func (a *automaton) start() int32 {
	for _, prev := range []rune{'\n', wordRune, otherRune} {
		w := a.walk(prev, unseen)
		w.from(uint32(a.prog.Start))
		a.revive = a.revive || w.matched || len(w.pcs) > 0
	}
	w := a.walk(textEdge, unseen)
	w.from(uint32(a.prog.Start))
	return a.state(w)
}

// after returns the state that follows state id when a character of the class is read.
func (a *automaton) after(id int32, class int) int32 {
	if next := a.states[id].next[class]; next != 0 {
		return next - 1
	}
	next := a.step(&a.states[id], class)
	a.states[id].next[class] = next + 1
	return next
}

func (a *automaton) step(s *state, class int) int32 {
	r := a.alpha[class].any
	readers := s.pcs
	if s.waiting {
		w := a.walk(s.prev, r)
		w.from(s.pcs...)
		if w.matched {
			return a.state(w)
		}
		readers = w.pcs
	}
	w := a.walk(assertionClass(r), unseen)
	for _, pc := range readers {
		if set := a.reads[pc]; set >= 0 && a.alpha[class].in[set] == 1 {
			w.from(a.prog.Inst[pc].Out)
		}
	}
	w.from(uint32(a.prog.Start)) // a match may begin anywhere
	w.matched = w.matched || s.matched
	return a.state(w)
}

// state returns the number of the state in which a walk ended. It adds the state if it is new.
func (a *automaton) state(w *walk) int32 {
	s := state{matched: w.matched, ends: w.matched}
	if !w.matched {
		slices.Sort(w.pcs)
		s.pcs = w.pcs
		s.waiting = slices.ContainsFunc(w.pcs, func(pc uint32) bool { return a.reads[pc] < 0 })
	}
	if s.waiting {
		s.prev = w.prev
		end := a.walk(s.prev, textEdge)
		end.from(s.pcs...)
		s.ends = end.matched
	}
	key, _ := binary.Append(nil, binary.BigEndian, append([]uint32{uint32(s.prev)}, s.pcs...))
	if s.matched {
		key = append(key, 1)
	}
	id, known := a.ids[string(key)]
	if !known {
		id = int32(len(a.states))
		a.ids[string(key)] = id
		s.next = make([]int32, len(a.alpha))
		a.states = append(a.states, s)
		*a.work -= len(key) + len(s.next)
	}
	return id
}

// dead reports whether it is certain that the automaton accepts no text whose beginning leads to
// the state id.
func (a *automaton) dead(id int32) bool {
	s := &a.states[id]
	if a.not {
		return s.matched
	}
	return !s.matched && len(s.pcs) == 0 && !a.revive
}

// accepts reports whether the automaton accepts the texts that lead to the state id.
func (a *automaton) accepts(id int32) bool { return a.states[id].ends != a.not }

// A walk follows the instructions of a program between two characters, without reading one. If the
// next character is unseen, the walk stops at assertions that depend on it.
type walk struct {
	a          *automaton
	prev, next rune
	pcs        []uint32 // where the walk stops
	matched    bool
	todo       []uint32
}

func (a *automaton) walk(prev, next rune) *walk {
	a.walks++
	return &walk{a: a, prev: prev, next: next}
}

// from continues the walk from each of pcs.
func (w *walk) from(pcs ...uint32) {
	w.todo = append(w.todo, pcs...)
	for len(w.todo) > 0 {
		pc := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		if w.a.mark[pc] != w.a.walks {
			w.a.mark[pc] = w.a.walks
			*w.a.work--
			w.visit(pc)
		}
	}
}

func (w *walk) visit(pc uint32) {
	inst := &w.a.prog.Inst[pc]
	switch inst.Op {
	case syntax.InstAlt, syntax.InstAltMatch:
		w.todo = append(w.todo, inst.Arg, inst.Out)
	case syntax.InstCapture, syntax.InstNop:
		w.todo = append(w.todo, inst.Out)
	case syntax.InstEmptyWidth:
		w.assert(pc, inst)
	case syntax.InstMatch:
		w.matched = true
	case syntax.InstFail:
	default:
		if len(inst.Rune) > 0 {
			w.pcs = append(w.pcs, pc)
		}
	}
}

// assert continues the walk after an assertion that holds, and stops at one that depends on an
// unseen character.
func (w *walk) assert(pc uint32, inst *syntax.Inst) {
	const backward = syntax.EmptyBeginText | syntax.EmptyBeginLine
	switch {
	case w.next == unseen && syntax.EmptyOp(inst.Arg)&backward == 0:
		w.pcs = append(w.pcs, pc)
	case inst.MatchEmptyWidth(w.prev, w.next):
		w.todo = append(w.todo, inst.Out)
	}
}

// assertionClass returns the character that stands for r in assertions, which distinguish only line
// breaks, word characters and all others.
func assertionClass(r rune) rune {
	switch {
	case r == '\n':
		return r
	case syntax.IsWordChar(r):
		return wordRune
	default:
		return otherRune
	}
}
