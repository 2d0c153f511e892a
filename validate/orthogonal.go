package validate

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/coffeenode/userdb/internal/overlap"
	"github.com/coffeenode/userdb/schema"
)

// Verdict is what the prover found about two fields. The zero Verdict is none of them.
type Verdict string

// The verdicts.
const (
	// NotDecided: the limit was reached first. Treat it as Overlap.
	NotDecided Verdict = "not decided"
	// Orthogonal: no value satisfies both rules.
	Orthogonal Verdict = "orthogonal"
	// Overlap: there is a value that does.
	Overlap Verdict = "overlap"
)

// Pair is the verdict on two secondary fields.
type Pair struct {
	// A and B are the fields, A before B.
	A string `json:"a"`
	B string `json:"b"`
	// Verdict tells whether a value can belong to both.
	Verdict Verdict `json:"verdict"`
	// Witness is, with Overlap, a value that both fields take, in canonical form. None of fewer code points exists,
	// unless Note says that it may.
	Witness string `json:"witness,omitempty"`
	// Note is empty or tells people more, as that one of the fields accepts no value.
	Note string `json:"note,omitempty"`
}

// Check returns the verdict on every pair of secondary fields of t, sorted. It refuses what Compile refuses. It takes
// about a millisecond a pair, and a second or two for all of them where expressions are hard.
func Check(t schema.Type) ([]Pair, error) { return check(t, overlap.MaxWork) }

// check is Check with a limit.
func check(t schema.Type, work int) ([]Pair, error) {
	r, err := Compile(t)
	if err != nil {
		return nil, err
	}
	n := len(r.secondary)
	p := overlap.Prover{Allowed: r.canonical, Work: work, Questions: n + n*(n-1)/2}
	if t.Fold != schema.FoldExact {
		p.Every = []overlap.Expr{overlap.MustCompile(spaces)}
	}
	sets := make(map[string]overlap.Set, n)
	empty := make(map[string]bool, n)
	for _, field := range r.secondary {
		if sets[field], err = r.set(field); err != nil {
			return nil, err
		}
		empty[field] = p.Common(sets[field]).Disjoint
	}
	var pairs []Pair
	for i, a := range r.secondary {
		for _, b := range r.secondary[i+1:] {
			pair := Pair{A: a, B: b}
			switch {
			case empty[a]:
				pair.Verdict, pair.Note = Orthogonal, quoteIfUnclear(a)+" accepts no value"
			case empty[b]:
				pair.Verdict, pair.Note = Orthogonal, quoteIfUnclear(b)+" accepts no value"
			default:
				pair.judge(p.Common(sets[a], sets[b]))
			}
			pairs = append(pairs, pair)
		}
	}
	return pairs, nil
}

// judge fills in what the prover found.
func (p *Pair) judge(r overlap.Result) {
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

// spaces is where spaces stand in a canonical value that is not exact.
const spaces = `\A[^ ]+(?: [^ ]+)*\z`

// canonical reports whether c can stand in a canonical value. A character that changes alone is changed in any text;
// only a space is gone when it is alone.
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

// reservedExpr matches these forms and nothing else.
func reservedExpr(forms map[string]bool) string {
	var quoted []string
	for _, form := range slices.Sorted(maps.Keys(forms)) {
		quoted = append(quoted, regexp.QuoteMeta(form))
	}
	return `\A(?:` + strings.Join(quoted, "|") + `)\z`
}
