package validate

import (
	"slices"

	"github.com/coffeenode/userdb/recordkey"
	"github.com/coffeenode/userdb/schema"
)

// Verdict is what the prover found about two fields. The zero Verdict is
// NotDecided.
type Verdict uint8

// The verdicts.
const (
	// NotDecided: the limit was reached first. Treat it as Overlap.
	NotDecided Verdict = iota
	// Orthogonal: no value satisfies both rules.
	Orthogonal
	// Overlap: there is a value that does.
	Overlap
)

// String returns the verdict in words.
func (v Verdict) String() string {
	switch v {
	case Orthogonal:
		return "orthogonal"
	case Overlap:
		return "overlap"
	default:
		return "not decided"
	}
}

// Pair is the verdict on two secondary fields.
type Pair struct {
	// A and B are the fields, A before B.
	A, B string
	// Verdict says whether a value can belong to both.
	Verdict Verdict
	// Witness is, with Overlap, a value that both fields take, in canonical form.
	// None of fewer code points exists, unless Note says that it may.
	Witness string
	// Note is empty or tells people more, as that one of the fields takes no value
	// at all.
	Note string
}

// Check returns the verdict on every pair of secondary fields of t, sorted. It
// refuses what Compile refuses.
func Check(t schema.Type) ([]Pair, error) {
	r, err := Compile(t)
	if err != nil {
		return nil, err
	}
	return r.Pairs(), nil
}

// Pairs returns the verdict on every pair of secondary fields, sorted.
func (r *Rules) Pairs() []Pair { return append([]Pair(nil), r.pairs()...) }

// prover holds what the proofs of one type share.
type prover struct {
	*Rules
	empty map[string]bool // fields that take no value at all
	work  int             // what all searches may spend
	todo  int             // searches
}

func (r *Rules) newProver(work int) *prover {
	n := len(r.secondary)
	return &prover{Rules: r, empty: make(map[string]bool), work: work, todo: n + n*(n-1)/2}
}

func (p *prover) prove() []Pair {
	for _, field := range p.secondary {
		p.empty[field] = p.overlap(field).verdict == Orthogonal
	}
	var pairs []Pair
	for i, a := range p.secondary {
		for _, b := range p.secondary[i+1:] {
			pairs = append(pairs, p.pair(a, b))
		}
	}
	return pairs
}

func (p *prover) pair(a, b string) Pair {
	for _, field := range []string{a, b} {
		if p.empty[field] {
			return Pair{A: a, B: b, Verdict: Orthogonal, Note: shown(field) + " takes no value at all"}
		}
	}
	f := p.overlap(a, b)
	return Pair{A: a, B: b, Verdict: f.verdict, Witness: f.witness, Note: f.note}
}

// overlap looks for a shortest value that all the fields take. It may spend an
// even share of what is left for the type, so that one hard pair does not leave
// others undecided.
func (p *prover) overlap(fields ...string) finding {
	var parts []part
	longest := recordkey.MaxCrumb
	for _, field := range fields {
		parts = append(parts, p.fields[field].parts...)
		longest = min(longest, p.fields[field].kind.max)
	}
	if p.typ.Fold != schema.FoldExact {
		parts = append(parts, p.spaces)
	}
	share := min(maxWork, p.work/max(p.todo, 1))
	s := newSearch(parts, longest, share, p.stands)
	f := s.run(func(value string) bool { return p.takenByAll(fields, value) })
	p.work -= share - s.work.left
	p.todo--
	return f
}

func (r *Rules) takenByAll(fields []string, value string) bool {
	return !slices.ContainsFunc(fields, func(field string) bool { return r.Secondary(field, value) != nil })
}

// stands reports whether c can stand in a canonical value. A character that
// changes alone is changed in any text; only a space is gone when it is alone.
func (r *Rules) stands(c rune) bool {
	s := string(c)
	return c == ' ' || r.typ.Canonical(s) == s
}
