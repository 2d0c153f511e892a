package validate

import "regexp/syntax"

// walk follows a program from instruction to instruction without reading, between
// two characters. Where the next one is unseen, assertions about it stay.
type walk struct {
	a          *automaton
	prev, next rune
	pcs        []uint32 // where it has to stop
	matched    bool
	todo       []uint32
}

func (a *automaton) walk(prev, next rune) *walk {
	a.walks++
	return &walk{a: a, prev: prev, next: next}
}

// from walks on from each of pcs.
func (w *walk) from(pcs ...uint32) {
	w.todo = append(w.todo, pcs...)
	for len(w.todo) > 0 {
		pc := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		if w.a.mark[pc] != w.a.walks {
			w.a.mark[pc] = w.a.walks
			w.a.work.spend(1)
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

// assert goes on behind an assertion that holds, and stops at one that cannot be
// decided yet.
func (w *walk) assert(pc uint32, inst *syntax.Inst) {
	const backward = syntax.EmptyBeginText | syntax.EmptyBeginLine
	switch {
	case w.next == unseen && syntax.EmptyOp(inst.Arg)&backward == 0:
		w.pcs = append(w.pcs, pc)
	case inst.MatchEmptyWidth(w.prev, w.next):
		w.todo = append(w.todo, inst.Out)
	}
}

// seenAs is what assertions see of r.
func seenAs(r rune) rune {
	switch {
	case r == '\n':
		return r
	case syntax.IsWordChar(r):
		return wordRune
	default:
		return otherRune
	}
}
