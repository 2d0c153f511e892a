package overlap

import (
	"regexp"
	"testing"

	"pgregory.net/rapid"
)

func anyRune(rune) bool { return true }

// single returns an automaton with its own alphabet.
func single(tb rapid.TB, expr string, not bool) *automaton {
	tb.Helper()
	e := MustCompile(expr)
	e.not = not
	return newSearch([]Expr{e}, 100, maxSearchWork, anyRune).automata[0]
}

// classOf returns the class that contains r.
func (a alphabet) classOf(tb rapid.TB, r rune) int {
	tb.Helper()
	for i, c := range a {
		if c.holds(r) {
			return i
		}
	}
	tb.Fatalf("%+q is in no class", r)
	return 0
}

func (c *class) holds(r rune) bool {
	for _, span := range c.ranges {
		if span.lo <= r && r <= span.hi {
			return true
		}
	}
	return false
}

// read returns the state after text.
func (a *automaton) read(tb rapid.TB, text string) int32 {
	state := a.start()
	for _, r := range text {
		state = a.after(state, a.alpha.classOf(tb, r))
	}
	return state
}

func TestAutomatonAgainstRegexp(t *testing.T) {
	letters := rapid.StringOfN(rapid.RuneFrom(exactLetters), 0, 8, -1)
	checkOften(t, 4, func(t *rapid.T) {
		expr, text, not := expressions(exactAtoms).Draw(t, "expr"), letters.Draw(t, "text"), rapid.Bool().Draw(t, "not")
		a := single(t, expr, not)
		re := regexp.MustCompile(expr)
		state := a.read(t, text)
		if got, want := a.accepts(state), re.MatchString(text) != not; got != want {
			t.Fatalf("%q accepts %q: got %v, want %v", expr, text, got, want)
		}
		longer := text + letters.Draw(t, "rest")
		if a.dead(state) && re.MatchString(longer) != not {
			t.Fatalf("%q is dead after %q, but accepts %q", expr, text, longer)
		}
	})
}

func TestDead(t *testing.T) {
	for _, c := range []struct {
		expr, text string
		not, want  bool
	}{
		{`^ab`, "", false, false},
		{`^ab`, "a", false, false},
		{`^ab`, "b", false, true},
		{`^ab`, "ab", false, false},
		{`^ab`, "ab", true, true},
		{`^ab`, "b", true, false},
		{`(?m)^ab`, "b", false, false},
		{`(?m)^ab`, "b\n", false, false},
		{`\Aab|\Acd`, "x", false, true},
		{`ab`, "x", false, false},
		{`a$`, "a", false, false},
		{`^a$`, "ab", false, true},
		{`\b`, "!", false, false},
		{`x*`, "", true, true},
		{`[^\x00-\x{10ffff}]`, "a", false, true},
	} {
		a := single(t, c.expr, c.not)
		if got := a.dead(a.read(t, c.text)); got != c.want {
			t.Errorf("%q, not %v, after %q: got %v, want %v", c.expr, c.not, c.text, got, c.want)
		}
	}
}

// TestStates checks that two texts lead to the same state if the automaton accepts the same
// continuations of both. Otherwise there would be more states.
func TestStates(t *testing.T) {
	for _, c := range []struct {
		expr string
		want int
	}{
		{`^a$`, 3},           // the empty text, a, anything else
		{`^[0-9]{7}$`, 9},    // no digit to seven digits, anything else
		{`a`, 2},             // before and after an a
		{`\Aa*\z`, 3},        // the empty text, only a, anything else
		{`[ab].{3}c`, 17},    // 16 for which of the last four letters were a or b, and the match
		{`^(?:aa|b){2}$`, 6}, // states depend on where instructions lead, not on the instructions
		{`\b`, 3},            // the empty text, no word so far, the match
	} {
		a := single(t, c.expr, false)
		for state := a.start(); int(state) < len(a.states); state++ {
			for class := range a.alpha {
				a.after(state, class)
			}
		}
		if got := len(a.states); got != c.want {
			t.Errorf("%q: %d states, want %d", c.expr, got, c.want)
		}
	}
}

// TestWorkIsSpent checks that a search ends without a result soon after it has used up its work.
func TestWorkIsSpent(t *testing.T) {
	s := newSearch([]Expr{MustCompile(`[ab].{30}c`)}, 1000, 1<<16, anyRune)
	got := s.run(func(string) bool { t.Error("a text was found, want none within the limit"); return true })
	if got != (Result{}) {
		t.Errorf("got %+v, want undecided", got)
	}
	if s.work >= 0 || s.work < -1<<12 {
		t.Errorf("the remaining work is %d, want slightly below 0", s.work)
	}
}

// TestNodesAreLimited checks that a search ends without a result once it has maxNodes nodes.
func TestNodesAreLimited(t *testing.T) {
	s := newSearch([]Expr{MustCompile(`[ab].{30}c`)}, 1000, 1<<40, anyRune)
	if got := s.run(func(string) bool { return true }); got != (Result{}) {
		t.Errorf("got %+v, want undecided", got)
	}
	if len(s.nodes) < maxNodes || len(s.nodes) > maxNodes+len(s.alpha) {
		t.Errorf("got %d nodes, want at least %d and few more", len(s.nodes), maxNodes)
	}
}

// TestLimitAfterRefusedText checks that a search that reaches its limit after the predicate refused
// a text returns no result, because others may exist.
func TestLimitAfterRefusedText(t *testing.T) {
	s := newSearch([]Expr{MustCompile(`^x$|[ab].{30}c`)}, 1000, 1<<40, anyRune)
	if got := s.run(func(text string) bool { return text != "x" }); got != (Result{}) {
		t.Errorf("got %+v, want undecided", got)
	}
}
