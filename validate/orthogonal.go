package validate

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/schema"
	"github.com/coffeenode/userdb/validate/internal/overlap"
)

// A Verdict is what Check concludes about two fields. The zero Verdict is not a verdict.
type Verdict string

const (
	// NotDecided means that Check reached its limit. Treat it as Overlap.
	NotDecided Verdict = "not decided"
	// Orthogonal means that no value satisfies both rules.
	Orthogonal Verdict = "orthogonal"
	// Overlap means that a value satisfies both rules.
	Overlap Verdict = "overlap"
)

// A Pair is the verdict on two typed secondary fields.
type Pair struct {
	// A and B are the fields, with A < B.
	A string `json:"a"`
	B string `json:"b"`
	// Verdict reports whether a value can belong to both.
	Verdict Verdict `json:"verdict"`
	// Witness is a value that both fields accept, in canonical form, if Verdict is Overlap. No such
	// value has fewer code points, unless Note says so.
	Witness string `json:"witness,omitempty"`
	// Note adds an explanation for people, for example that one of the fields accepts no value. It
	// may be empty.
	Note string `json:"note,omitempty"`
}

// Check returns the verdicts on all pairs of typed secondary fields of t, sorted. It returns the
// same errors as Compile. It takes about a millisecond for each pair, and up to two seconds in
// total for hard expressions.
func Check(t schema.Type) ([]Pair, error) { return check(t, overlap.MaxWork) }

// check does the work of Check within the given limit.
func check(t schema.Type, work int) ([]Pair, error) {
	r, err := Compile(t)
	if err != nil {
		return nil, err
	}
	n := len(r.typed)
	p := overlap.Prover{Allowed: r.canonical, Work: work, Questions: n + n*(n-1)/2}
	if t.Fold != schema.FoldExact {
		p.Every = []overlap.Expr{overlap.MustCompile(spaces)}
	}
	sets := make(map[string]overlap.Set, n)
	empty := make(map[string]bool, n)
	for _, field := range r.typed {
		if sets[field], err = r.set(field); err != nil {
			return nil, err
		}
		empty[field] = p.Common(sets[field]).Disjoint
	}
	var pairs []Pair
	for i, a := range r.typed {
		for _, b := range r.typed[i+1:] {
			pair := Pair{A: a, B: b}
			switch {
			case empty[a]:
				pair.Verdict, pair.Note = Orthogonal, quoteIfUnclear(a)+" accepts no value"
			case empty[b]:
				pair.Verdict, pair.Note = Orthogonal, quoteIfUnclear(b)+" accepts no value"
			default:
				pair.setVerdict(p.Common(sets[a], sets[b]))
			}
			pairs = append(pairs, pair)
		}
	}
	return pairs, nil
}

// setVerdict sets the verdict from the prover's result.
func (p *Pair) setVerdict(r overlap.Result) {
	switch {
	case r.Disjoint:
		p.Verdict = Orthogonal
	case r.Witness == "":
		p.Verdict, p.Note = NotDecided, "the limit was reached first"
	default:
		p.Verdict, p.Witness = Overlap, r.Witness
		if !r.Shortest {
			p.Note = "a shorter one may exist"
		}
	}
}

// spaces matches the texts whose spaces are where a canonical value under FoldCasefold may have
// them: single and not at the ends.
const spaces = `\A[^ ]+(?: [^ ]+)*\z`

// canonical reports whether a canonical value may contain c. If Canonical changes a text of one
// character, it changes this character in every text. The space is the exception: Canonical removes
// it from a text of one character, but not between other characters.
func (r *Rules) canonical(c rune) bool {
	s := string(c)
	return c == ' ' || r.typ.Canonical(s) == s
}

// set describes the values of a field to the prover.
func (r *Rules) set(field string) (overlap.Set, error) {
	rule := r.fields[field]
	set := overlap.Set{
		Has:     func(value string) bool { return r.Secondary(field, value) == nil },
		Longest: rule.kind.max,
	}
	var phrases []phrase
	for _, p := range rule.parts {
		phrases = append(phrases, p.phrase)
	}
	if len(rule.reserved) > 0 {
		phrases = append(phrases, phrase{expr: reservedExpr(rule.reserved), not: true})
	}
	for _, ph := range phrases {
		e, err := overlap.Compile(ph.expr)
		if err != nil {
			return set, fmt.Errorf("the rules of %s: %w", quoteIfUnclear(field), err)
		}
		if ph.not {
			e = e.Not()
		}
		set.Exprs = append(set.Exprs, e)
	}
	return set, nil
}

// reservedExpr returns an expression that matches only the given forms.
func reservedExpr(forms map[string]bool) string {
	var quoted []string
	for _, form := range slices.Sorted(maps.Keys(forms)) {
		quoted = append(quoted, regexp.QuoteMeta(form))
	}
	return `\A(?:` + strings.Join(quoted, "|") + `)\z`
}
