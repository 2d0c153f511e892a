package validate

import (
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

// part is one expression of a rule. A value satisfies it by matching, or where
// not is set by not matching. Values and the prover are held against the same
// expressions, so that no value lies outside what is proved.
type part struct {
	rule, reason string
	not          bool
	match        func(value string) bool
	prog         *syntax.Prog // what match does, for an automaton
}

func newPart(rule, expr, reason string) (part, error) {
	re, err := regexp.Compile(expr)
	if err != nil {
		return part{}, err
	}
	prog, err := program(expr)
	return part{rule: rule, reason: reason, match: re.MatchString, prog: prog}, err
}

// program compiles expr as package regexp does.
func program(expr string) (*syntax.Prog, error) {
	tree, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, err
	}
	return syntax.Compile(tree.Simplify())
}

func (p part) takes(value string) bool { return p.match(value) != p.not }

// newReserved is the part that refuses what has one of these canonical forms.
// There may be thousands: they are looked up, and an expression says the same to
// the prover, which sees canonical values only.
func newReserved(forms map[string]bool, canonical func(string) string) (part, error) {
	var quoted []string
	for _, form := range slices.Sorted(maps.Keys(forms)) {
		quoted = append(quoted, regexp.QuoteMeta(form))
	}
	prog, err := program(`\A(?:` + strings.Join(quoted, "|") + `)\z`)
	return part{
		rule: "reserved", reason: "no entry may take this value", not: true,
		match: func(value string) bool { return forms[canonical(value)] },
		prog:  prog,
	}, err
}

// phrase is a part not compiled yet.
type phrase struct {
	expr, reason string
	not          bool
}

func compileParts(rule string, phrases []phrase) ([]part, error) {
	parts := make([]part, 0, len(phrases))
	for _, ph := range phrases {
		p, err := newPart(rule, ph.expr, ph.reason)
		if err != nil {
			return nil, err
		}
		p.not = ph.not
		parts = append(parts, p)
	}
	return parts, nil
}
