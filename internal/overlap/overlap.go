// Package overlap proves that no text belongs to several sets at once, or finds a shortest one that does. A set is
// described by regular expressions; where the set is defined by code as well, the expressions contain it:
//
//	[a-z]+      [0-9]+      disjoint
//	@           ^https?://. "http://@"
//
// A search walks through the finite automata of all expressions at once, a character at a time. Its effort is limited:
// it may end undecided, and never with a wrong answer.
package overlap

import (
	"regexp/syntax"
	"slices"
)

// An Expr is a regular expression as package regexp reads it. A text satisfies it by matching.
type Expr struct {
	prog *syntax.Prog
	not  bool
}

// Compile returns the expression, and the error of regexp/syntax if it is not one.
func Compile(expr string) (Expr, error) {
	tree, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return Expr{}, err
	}
	prog, err := syntax.Compile(tree.Simplify())
	return Expr{prog: prog}, err
}

// MustCompile is Compile for constants. It panics where Compile fails.
func MustCompile(expr string) Expr {
	e, err := Compile(expr)
	if err != nil {
		panic(err)
	}
	return e
}

// Not returns the expression that texts satisfy by not matching e.
func (e Expr) Not() Expr { return Expr{e.prog, !e.not} }

// A Set is a set of texts. None of them is empty.
type Set struct {
	// Exprs are satisfied by every text of the set.
	Exprs []Expr
	// Has reports whether a text that satisfies Exprs is in the set. An answer is shown only after Has has confirmed
	// it.
	Has func(text string) bool
	// Longest is the greatest length of a text in characters.
	Longest int
}

// A Result is what is known of some sets' common texts: they are disjoint, or there is a witness, or neither was
// decided within the limits.
type Result struct {
	// Disjoint: no text is in all of the sets.
	Disjoint bool
	// Witness is a text that is in all of them, or empty.
	Witness string
	// Shortest: no shorter text than Witness is.
	Shortest bool
}

// A Prover answers questions about sets of texts. It shares its work evenly among the questions that are still to come,
// so that a hard one does not leave the others undecided.
type Prover struct {
	// Every text satisfies Every, and is made of characters that Allowed reports.
	Every   []Expr
	Allowed func(rune) bool
	// Work is what all questions together may spend: MaxWork or less.
	Work int
	// Questions is how many are still to come.
	Questions int
}

// MaxWork is the work of a second or two.
const MaxWork = 1 << 26

// Common looks for a shortest text that is in all of the sets.
func (p *Prover) Common(sets ...Set) Result {
	exprs := slices.Clone(p.Every)
	longest := sets[0].Longest
	for _, set := range sets {
		exprs = append(exprs, set.Exprs...)
		longest = min(longest, set.Longest)
	}
	share := min(maxWork, p.Work/max(p.Questions, 1))
	s := newSearch(exprs, longest, share, p.Allowed)
	r := s.run(func(text string) bool {
		return !slices.ContainsFunc(sets, func(set Set) bool { return !set.Has(text) })
	})
	p.Work -= share - s.work
	p.Questions--
	return r
}
