// Package overlap proves that no text belongs to all of several sets, or finds a shortest text that
// does. Regular expressions describe a set. Code may restrict the set further, but every text of
// the set must match its expressions:
//
//	[a-z]+      [0-9]+      disjoint
//	@           ^https?://. "http://@"
//
// A search runs the finite automata of all expressions in parallel, one character at a time. Its
// work is limited: it may end without a result, but its results are never wrong.
package overlap

import (
	"regexp/syntax"
	"slices"
)

// An Expr is a regular expression in the syntax of package regexp, or its negation. A text
// satisfies it by matching, or by not matching.
type Expr struct {
	prog *syntax.Prog
	not  bool
}

// Compile compiles a regular expression. The error is from regexp/syntax.
func Compile(expr string) (Expr, error) {
	tree, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return Expr{}, err
	}
	prog, err := syntax.Compile(tree.Simplify())
	return Expr{prog: prog}, err
}

// MustCompile calls Compile and panics on error. It is meant for constants.
func MustCompile(expr string) Expr {
	e, err := Compile(expr)
	if err != nil {
		panic(err)
	}
	return e
}

// Not returns an expression that texts satisfy by not matching e.
func (e Expr) Not() Expr { return Expr{e.prog, !e.not} }

// A Set is a set of texts. It does not contain the empty text.
type Set struct {
	// Exprs holds expressions that every text of the set satisfies.
	Exprs []Expr
	// Has reports whether a text that satisfies Exprs is in the set. A text becomes a witness only
	// if Has confirms it.
	Has func(text string) bool
	// Longest is the maximum length of a text in characters.
	Longest int
}

// A Result reports whether sets have a common text. The zero Result means that the limits were
// reached before that was known.
type Result struct {
	// Disjoint means that no text is in all sets.
	Disjoint bool
	// Witness is a text that is in all sets, or "".
	Witness string
	// Shortest means that no text shorter than Witness is in all sets.
	Shortest bool
}

// A Prover answers questions about sets of texts. It divides its work evenly among the remaining
// questions, so that a hard one does not use up the work for the others.
type Prover struct {
	// The prover considers only texts that satisfy all expressions in Every and consist of
	// characters for which Allowed returns true.
	Every   []Expr
	Allowed func(rune) bool
	// Work limits the work for all questions together. Set it to MaxWork or less.
	Work int
	// Questions is the number of questions to come.
	Questions int
}

// MaxWork is the maximum work for all questions. It takes one or two seconds.
const MaxWork = 1 << 26

// Common looks for a shortest text that is in all sets.
func (p *Prover) Common(sets ...Set) Result {
	exprs := slices.Clone(p.Every)
	longest := sets[0].Longest
	for _, set := range sets {
		exprs = append(exprs, set.Exprs...)
		longest = min(longest, set.Longest)
	}
	share := min(maxSearchWork, p.Work/max(p.Questions, 1))
	s := newSearch(exprs, longest, share, p.Allowed)
	r := s.run(func(text string) bool {
		return !slices.ContainsFunc(sets, func(set Set) bool { return !set.Has(text) })
	})
	p.Work -= share - s.work
	p.Questions--
	return r
}
