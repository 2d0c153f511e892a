package validate

import "slices"

// enumeration goes through the texts that the parts take, the shortest first.
type enumeration struct {
	*search
	right func(string) bool
	ends  [][]bool // by characters left and node: whether a text can end so
	text  []rune
	left  int  // tries, of one length
	all   bool // no text was left out
}

// enumerate goes on where the code of a kind refuses the first text.
func (s *search) enumerate(right func(string) bool) finding {
	shortest := s.level
	for s.advance() {
	}
	e := &enumeration{search: s, right: right, all: true}
	for size := range s.longest + 1 {
		if !e.extend() {
			break
		}
		e.left = maxTries
		if size > 0 && e.spell(0, size) {
			return e.found(size == shortest)
		}
		if s.work.left < 0 {
			return undecided
		}
	}
	if s.complete && e.all {
		return finding{verdict: Orthogonal}
	}
	return undecided
}

// found is the finding when text was right. All shorter ones are known unless
// some were left out or the limit came before their length.
func (e *enumeration) found(shortest bool) finding {
	f := finding{verdict: Overlap, witness: string(e.text)}
	if !shortest && !(e.all && (e.complete || len(e.text) < e.level)) {
		f.note = "a shorter one may exist"
	}
	return f
}

// extend finds the nodes that a text can end at one character later. It returns
// false if there is none.
func (e *enumeration) extend() bool {
	ends := make([]bool, len(e.nodes))
	for id, n := range e.nodes {
		if len(e.ends) == 0 {
			ends[id] = n.takes
			continue
		}
		ends[id] = slices.ContainsFunc(n.next, func(next int32) bool {
			return next != noNode && e.ends[len(e.ends)-1][next]
		})
	}
	e.work.spend(len(e.nodes))
	e.ends = append(e.ends, ends)
	return slices.Contains(ends, true)
}

// spell tries the texts that go on from a node with size more characters, until
// one is right or the tries are used up.
func (e *enumeration) spell(id int32, size int) bool {
	if size == 0 {
		e.left--
		e.work.spend(tryWork)
		return e.right(string(e.text))
	}
	for class, next := range e.nodes[id].next {
		if next != noNode && e.ends[size-1][next] && e.spellClass(class, next, size-1) {
			return true
		}
	}
	return false
}

func (e *enumeration) spellClass(class int, next int32, size int) bool {
	c := &e.alpha.classes[class]
	e.all = e.all && c.whole
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
